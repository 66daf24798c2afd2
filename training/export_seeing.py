"""Writes a trained penstock-scenes as a GGUF file with its mmproj file and as a Hugging Face directory (LLaVA with a SigLIP tower).

    python export_seeing.py --checkpoint weights.pt --text ../models/penstock-stories-1m-bf16 [--gguf DIR] [--hf DIR]

The GGUF of the text is q8_0, as the stories', with the placeholder <image> behind the pieces and a chat template; matrices of the mmproj
file are F16. The directory is BF16.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch

import export
import seeing
import tokenizer
import train_seeing

NAME = "penstock-scenes-3m"
PLACEHOLDER = "<image>"
# A picture stands at the beginning of its message; a line of the user's is answered by a text that </s> ends.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m.content is string %}{% set text = m.content %}{% else %}"
            "{% for part in m.content if part.type == 'image' %}<image>{% endfor %}"
            "{% set text = m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join(' ') %}{% endif %}"
            "{% if m.role == 'assistant' %}{{ text + eos_token }}{% else %}{{ text + '\\n' }}{% endif %}{% endfor %}")
LAYER = {"layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def load(path):
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model = seeing.Seeing(seeing.TowerConfig(**saved["tower"]), train_seeing.ModelConfig(**train_seeing.TEXT))
    model.load_state_dict(saved["weights"])
    return model.eval(), saved["step"]


def tower_tensors(model):
    """(transformers' name without a root, mmproj name, array) of the tower and the projector."""
    cfg = model.tower_cfg
    for ours, p in model.state_dict().items():
        w = p.float().numpy()
        stem, _, end = ours.rpartition(".")
        if ours.startswith("tower.layers."):
            _, _, number, part = stem.split(".", 3)
            yield f"vision_tower.vision_model.encoder.layers.{number}.{part}.{end}", f"v.blk.{number}.{LAYER[part]}.{end}", w
        elif ours.startswith("tower.patch_embedding."):
            w = w.reshape(cfg.dim, 3, cfg.patch, cfg.patch) if w.ndim == 2 else w
            yield f"vision_tower.vision_model.embeddings.patch_embedding.{end}", f"v.patch_embd.{end}", w
        elif ours == "tower.position_embedding":
            yield "vision_tower.vision_model.embeddings.position_embedding.weight", "v.position_embd.weight", w
        elif stem in ("linear_1", "linear_2"):
            yield f"multi_modal_projector.{ours}", f"mm.{'0' if stem == 'linear_1' else '2'}.{end}", w


class TextPart:
    """What export.py reads: the text model alone."""

    def __init__(self, model):
        self.cfg = model.cfg
        self.weights = {n: p for n, p in model.state_dict().items() if n.startswith(("embedding", "blocks", "norm"))}

    def state_dict(self):
        return self.weights


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_text(model, sp, path, steps):
    writer = gguf.GGUFWriter(str(path), "llama")
    export.add_config(writer, model.cfg, NAME, gguf.LlamaFileType.MOSTLY_Q8_0, False)
    writer.add_uint32("penstock.training_steps", steps)
    export.add_tokenizer(writer, sp, [PLACEHOLDER])
    writer.add_chat_template(TEMPLATE)
    for ours, w in export.prepared(TextPart(model), for_gguf=True):
        kind = export.stored_type(model.cfg, ours, w, "q8_0")
        writer.add_tensor(export.names(ours)[0], gguf.quants.quantize(w, kind), raw_dtype=kind)
    finish(writer)


def write_mmproj(model, path):
    cfg = model.tower_cfg
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_name(NAME)
    writer.add_license("apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for key, value in dict(image_size=cfg.side, patch_size=cfg.patch, embedding_length=cfg.dim, feed_forward_length=cfg.hidden,
                           block_count=cfg.layers, projection_dim=model.cfg.dim).items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_uint32("clip.vision.attention.head_count", cfg.heads)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", cfg.norm_eps)
    for key in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])
    for _, name, w in tower_tensors(model):
        writer.add_tensor(name, w.astype(np.float16 if w.ndim > 1 and "position" not in name else np.float32))
    finish(writer)


def hf_config(model):
    cfg = model.tower_cfg
    text = export.hf_config(model.cfg)
    return {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": model.cfg.vocab - 1,
        "image_seq_length": cfg.patches, "projector_hidden_act": "gelu", "vision_feature_layer": -1, "torch_dtype": "bfloat16",
        "vision_feature_select_strategy": "full", "tie_word_embeddings": True, "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": cfg.dim, "intermediate_size": cfg.hidden,
                          "num_hidden_layers": cfg.layers, "num_attention_heads": cfg.heads, "image_size": cfg.side,
                          "patch_size": cfg.patch, "layer_norm_eps": cfg.norm_eps, "hidden_act": "gelu_pytorch_tanh",
                          "vision_use_head": False}}


def write_tokenizer(model_path, folder):
    from tokenizers import AddedToken, Tokenizer

    tokenizer.write_hugging_face(model_path, folder)
    (folder / "tokenizer.model").unlink()  # which lacks the placeholder
    t = Tokenizer.from_file(str(folder / "tokenizer.json"))
    t.add_special_tokens([AddedToken(PLACEHOLDER, normalized=False, special=True)])
    t.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["image_token"] = PLACEHOLDER
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_hugging_face(model, model_path, folder):
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(w.copy()) for name, _, w in tower_tensors(model)}
    tensors |= {"language_model." + export.names(ours)[1]: torch.from_numpy(w) for ours, w in export.prepared(TextPart(model), for_gguf=False)}
    for end, value in (("weight", 1.0), ("bias", 0.0)):  # the norm that LLaVA passes over
        tensors[f"vision_tower.vision_model.post_layernorm.{end}"] = torch.full((model.tower_cfg.dim,), value)
    save_file({n: t.to(torch.bfloat16) for n, t in tensors.items()}, str(folder / "model.safetensors"), {"format": "pt"})
    images = {"image_processor_type": "SiglipImageProcessor", "size": {"height": model.tower_cfg.side, "width": model.tower_cfg.side},
              "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3, "do_resize": True, "do_rescale": True, "do_normalize": True,
              "rescale_factor": 1 / 255}
    processor = {"processor_class": "LlavaProcessor", "image_token": PLACEHOLDER, "num_additional_image_tokens": 0,
                 "patch_size": model.tower_cfg.patch, "vision_feature_select_strategy": "full"}
    generation = {"bos_token_id": tokenizer.BOS, "eos_token_id": tokenizer.EOS, "do_sample": False}
    for name, content in (("config", hf_config(model)), ("preprocessor_config", images), ("processor_config", processor),
                          ("generation_config", generation)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    write_tokenizer(model_path, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--gguf")
    parser.add_argument("--hf")
    args = parser.parse_args()
    net, trained = load(args.checkpoint)
    pieces = pathlib.Path(args.text) / "tokenizer.model"
    if args.gguf:
        pathlib.Path(args.gguf).mkdir(parents=True, exist_ok=True)
        write_text(net, tokenizer.load(pieces), pathlib.Path(args.gguf) / f"{NAME}-q8_0.gguf", trained)
        write_mmproj(net, pathlib.Path(args.gguf) / f"mmproj-{NAME}-f16.gguf")
    if args.hf:
        write_hugging_face(net, pieces, args.hf)
