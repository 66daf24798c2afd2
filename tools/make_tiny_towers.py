#!/usr/bin/env python3
"""Writes tests/golden/towers/<name>/: tiny random vision towers and the features that transformers computes.

  config.json, model.safetensors   the Hugging Face directory without the text model's tensors, F32
  mmproj.gguf                      the same in llama.cpp's names, of the families whose GGUF files are read
  golden.bin                       pictures, one after the other: int32 {n_frames, rows, cols, patch_dim, n_tokens, dim, n_deep},
                                   the patches [n_frames * rows * cols, patch_dim], the features [n_tokens, dim] that the text
                                   model gets in the places of soft tokens, and n_deep further ones of the same shape

Needs torch, transformers, safetensors, gguf and numpy. Usage: make_tiny_towers.py [name...]
"""
import json
import os
import pathlib
import struct
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
import gguf
import numpy
import torch
import transformers as T
from safetensors.torch import load_file, save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "towers"
TEXT = ("language_model.", "model.language_model.", "model.text_model.", "lm_head.", "model.layers.", "model.embed_tokens.",
        "model.norm.")


def sizes(**more):
    """Returns the sizes of a small text model."""
    return dict(vocab_size=64, hidden_size=20, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=1, head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2) | more


def vision(**more):
    return dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3) | more


def qwen(**more):
    """Returns sizes() with sections of rotated pairs for time, rows and columns."""
    return sizes(rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1])) | more


def eye(**more):
    """Returns the sizes of Qwen's towers."""
    return dict(hidden_size=24, intermediate_size=36, num_heads=3, spatial_merge_size=2, temporal_patch_size=2) | more


def cut(planes, side):
    """Returns patches [n_tiles * rows * cols, 3 * side * side] of planes [n_tiles, 3, height, width]."""
    n, colours, height, width = planes.shape
    blocks = planes.reshape(n, colours, height // side, side, width // side, side)
    return blocks.permute(0, 2, 4, 1, 3, 5).reshape(-1, colours * side * side)


class Tiles:
    """Pictures that a model reads as planes of equal size. sizes: (tiles, height, width) of each; sized: the model is told;
    batch: planes have another axis before the tiles."""

    def __init__(self, side, sizes, sized=False, batch=False):
        self.side, self.sizes, self.sized, self.batch = side, sizes, sized, batch

    def pictures(self, model):
        for n, height, width in self.sizes:
            planes = torch.randn(n, 3, height, width)
            more = {"image_sizes": torch.tensor([[height, width]] * n)} if self.sized else {}
            found = model.get_image_features(planes[None] if self.batch else planes, **more)
            yield (n, height // self.side, width // self.side), cut(planes, self.side), features_of(found), []


class Grids:
    """Pictures of Qwen's and GLM's kind: patches in units, with their grid. grids: (frames, rows, cols) of each."""

    def __init__(self, patch_dim, grids):
        self.patch_dim, self.grids = patch_dim, grids

    def pictures(self, model):
        for grid in self.grids:
            patches = torch.randn(grid[0] * grid[1] * grid[2], self.patch_dim)
            found = model.get_image_features(patches, image_grid_thw=torch.tensor([grid]))
            deep = getattr(found, "deepstack_features", None) or []
            yield grid, patches, features_of(found), [torch.cat(one) if isinstance(one, (list, tuple)) else one for one in deep]


class Unpacked(Tiles):
    """Features of tiles before they are laid side by side, which get_image_features does too."""

    def pictures(self, model):
        config = model.config
        for n, height, width in self.sizes:
            planes = torch.randn(n, 3, height, width)
            states = model.model.vision_tower(planes, output_hidden_states=True).hidden_states[config.vision_feature_layer]
            states = states[:, 1:] if config.vision_feature_select_strategy == "default" else states
            features = features_of(model.model.multi_modal_projector(states))
            yield (n, height // self.side, width // self.side), cut(planes, self.side), features, []


class Flexible:
    """Pictures of SigLIP 2's kind: patches row by row, with the number of rows and columns. grids: (rows, cols) of each."""

    def __init__(self, patch_dim, grids):
        self.patch_dim, self.grids = patch_dim, grids

    def pictures(self, model):
        for rows, cols in self.grids:
            patches = torch.randn(1, rows * cols, self.patch_dim)
            found = model.get_image_features(
                patches, spatial_shapes=torch.tensor([[rows, cols]]), pixel_attention_mask=torch.ones(1, rows * cols))
            yield (1, rows, cols), patches[0], features_of(found), []


class Placed:
    """Pictures of Gemma 4's kind: patches in [0, 1] row by row, with column and row of each. grids: (rows, cols) of each."""

    def __init__(self, patch_dim, unit, grids):
        self.patch_dim, self.unit, self.grids = patch_dim, unit, grids

    def pictures(self, model):
        for rows, cols in self.grids:
            patches = torch.rand(1, rows * cols, self.patch_dim)
            places = torch.stack([torch.arange(rows * cols) % cols, torch.arange(rows * cols) // cols], dim=-1)[None]
            found = model.get_image_features(patches, image_position_ids=places)
            yield (1, rows, cols), patches[0], features_of(found), []


class Llama4(Tiles):
    """The tower and the projector apart, since get_image_features of 5.24 fails."""

    def pictures(self, model):
        for n, height, width in self.sizes:
            planes = torch.randn(n, 3, height, width)
            states = model.vision_model(planes).last_hidden_state
            features = model.multi_modal_projector(states.reshape(-1, states.shape[-1]))
            yield (n, height // self.side, width // self.side), cut(planes, self.side), features, []


def features_of(found):
    found = getattr(found, "pooler_output", found)
    if isinstance(found, (list, tuple)):
        found = torch.cat([one.reshape(-1, one.shape[-1]) for one in found])
    return found.reshape(-1, found.shape[-1])


# name: (class, configuration, pictures)
TOWERS = {
    "gemma3": lambda: (T.Gemma3ForConditionalGeneration, T.Gemma3Config(
        text_config=sizes(), vision_config=vision(image_size=24, patch_size=4, layer_norm_eps=1e-5), mm_tokens_per_image=9),
        Tiles(4, [(1, 24, 24), (2, 24, 24)])),
    "gemma4": lambda: (T.Gemma4ForConditionalGeneration, T.Gemma4Config(
        text_config=T.Gemma4TextConfig(**sizes(num_hidden_layers=2, hidden_size_per_layer_input=0, vocab_size_per_layer_input=64)),
        audio_config=None, vision_config=vision(
            num_key_value_heads=3, head_dim=8, patch_size=2, pooling_kernel_size=3, position_embedding_size=20)),
        Placed(12, 3, [(3, 6), (9, 3)])),
    "gemma4_standardized": lambda: (T.Gemma4ForConditionalGeneration, T.Gemma4Config(
        text_config=T.Gemma4TextConfig(**sizes(num_hidden_layers=2, hidden_size_per_layer_input=0, vocab_size_per_layer_input=64)),
        audio_config=None, vision_config=vision(
            num_key_value_heads=1, head_dim=12, patch_size=2, pooling_kernel_size=2, position_embedding_size=8,
            standardize=True)), Placed(12, 2, [(4, 6)])),
    "idefics3": lambda: (T.Idefics3ForConditionalGeneration, T.Idefics3Config(
        text_config=T.LlamaConfig(**sizes()), vision_config=vision(image_size=20, patch_size=4), scale_factor=2),
        Tiles(4, [(1, 24, 24), (2, 16, 16)], batch=True)),
    "smolvlm": lambda: (T.SmolVLMForConditionalGeneration, T.SmolVLMConfig(
        text_config=T.LlamaConfig(**sizes()), vision_config=vision(image_size=24, patch_size=4), scale_factor=3),
        Tiles(4, [(3, 24, 24)], batch=True)),
    "llava_clip": lambda: (T.LlavaForConditionalGeneration, T.LlavaConfig(
        text_config=T.LlamaConfig(**sizes()), vision_config=T.CLIPVisionConfig(**vision(image_size=20, patch_size=4)),
        vision_feature_layer=-2), Tiles(4, [(1, 20, 20), (2, 20, 20)])),
    "llava_siglip": lambda: (T.LlavaForConditionalGeneration, T.LlavaConfig(
        text_config=T.LlamaConfig(**sizes()), vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4)),
        vision_feature_layer=-1, vision_feature_select_strategy="full", multimodal_projector_bias=False),
        Tiles(4, [(1, 16, 16)])),
    "llava_pixtral": lambda: (T.LlavaForConditionalGeneration, T.LlavaConfig(
        text_config=T.LlamaConfig(**sizes()), vision_config=T.PixtralVisionConfig(**vision(image_size=40, patch_size=4)),
        vision_feature_layer=-1, vision_feature_select_strategy="full"),
        Tiles(4, [(1, 20, 12), (1, 8, 32)], sized=True)),
    "mistral3": lambda: (T.Mistral3ForConditionalGeneration, T.Mistral3Config(
        text_config=T.MistralConfig(**sizes()), spatial_merge_size=2, vision_feature_layer=-1,
        vision_config=T.PixtralVisionConfig(**vision(image_size=40, patch_size=4, hidden_act="silu"))),
        Tiles(4, [(1, 24, 16), (1, 8, 32)], sized=True)),
    "internvl": lambda: (T.InternVLForConditionalGeneration, T.InternVLConfig(
        text_config=T.Qwen2Config(**qwen()), vision_config=vision(image_size=[24, 24], patch_size=[4, 4]), downsample_ratio=0.5),
        Tiles(4, [(1, 24, 24), (2, 24, 24)])),
    "internvl_norms": lambda: (T.InternVLForConditionalGeneration, T.InternVLConfig(
        text_config=T.Qwen2Config(**qwen()), downsample_ratio=0.5, vision_config=vision(
            image_size=[16, 16], patch_size=[4, 4], use_qk_norm=True, norm_type="rms_norm", attention_bias=True,
            use_mean_pooling=False)), Tiles(4, [(1, 16, 16)])),
    "lfm2_vl": lambda: (T.Lfm2VlForConditionalGeneration, T.Lfm2VlConfig(
        text_config=T.Lfm2Config(**sizes(num_hidden_layers=2, layer_types=["conv", "full_attention"])),
        vision_config=T.Siglip2VisionConfig(**vision(num_patches=16, patch_size=2, vision_use_head=False)),
        projector_hidden_size=28), Flexible(12, [(4, 6), (2, 2), (6, 2)])),
    "aya": lambda: (T.AyaVisionForConditionalGeneration, T.AyaVisionConfig(
        text_config=T.Cohere2Config(**sizes()), vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4)),
        vision_feature_layer=-1, adapter_layer_norm_eps=1e-3, alignment_intermediate_size=24), Tiles(4, [(2, 16, 16)])),
    "cohere2_vision": lambda: (T.Cohere2VisionForConditionalGeneration, T.Cohere2VisionConfig(
        text_config=T.Cohere2Config(**sizes()), vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4)),
        alignment_intermediate_size=24), Tiles(4, [(2, 16, 16)])),
    "llama4": lambda: (T.Llama4ForConditionalGeneration, T.Llama4Config(
        text_config=T.Llama4TextConfig(**sizes(num_local_experts=2, intermediate_size_mlp=16)),
        vision_config=T.Llama4VisionConfig(**vision(
            image_size=16, patch_size=4, num_attention_heads=2, pixel_shuffle_ratio=0.5, projector_input_dim=28,
            projector_output_dim=28, vision_output_dim=28, intermediate_size=96))), Llama4(4, [(1, 16, 16), (2, 16, 16)])),
    "glm4v": lambda: (T.Glm4vForConditionalGeneration, T.Glm4vConfig(
        text_config=qwen(), vision_config=dict(
            depth=2, hidden_size=24, num_heads=3, image_size=10, patch_size=2, out_hidden_size=20, intermediate_size=28)),
        Grids(24, [(1, 4, 6), (1, 2, 2), (1, 2, 12)])),
    "llava_next": lambda: (T.LlavaNextForConditionalGeneration, T.LlavaNextConfig(
        text_config=T.LlamaConfig(**sizes()), vision_config=T.CLIPVisionConfig(**vision(image_size=16, patch_size=4)),
        vision_feature_layer=-2), Unpacked(4, [(3, 16, 16)])),
    "llava_onevision": lambda: (T.LlavaOnevisionForConditionalGeneration, T.LlavaOnevisionConfig(
        text_config=T.Qwen2Config(**qwen()), vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4))),
        Unpacked(4, [(2, 16, 16)])),
    "qwen2_vl": lambda: (T.Qwen2VLForConditionalGeneration, T.Qwen2VLConfig(
        text_config=qwen(), vision_config=dict(depth=2, embed_dim=24, num_heads=3, mlp_ratio=2, patch_size=2, hidden_size=20)),
        Grids(24, [(1, 4, 6), (2, 2, 4)])),
    "qwen2_5_vl": lambda: (T.Qwen2_5_VLForConditionalGeneration, T.Qwen2_5_VLConfig(
        text_config=qwen(), vision_config=eye(depth=3, patch_size=2, window_size=8, fullatt_block_indexes=[1], out_hidden_size=20)),
        Grids(24, [(1, 6, 10), (2, 8, 4), (1, 2, 2)])),
    "qwen3_vl": lambda: (T.Qwen3VLForConditionalGeneration, T.Qwen3VLConfig(
        text_config=qwen(), vision_config=eye(
            depth=3, patch_size=2, num_position_embeddings=25, deepstack_visual_indexes=[0, 2], out_hidden_size=20)),
        Grids(24, [(1, 4, 6), (2, 2, 8), (1, 2, 2)])),
    "qwen3_5": lambda: (T.Qwen3_5ForConditionalGeneration, T.Qwen3_5Config(
        text_config=qwen(), vision_config=eye(depth=2, patch_size=2, num_position_embeddings=16, out_hidden_size=20)),
        Grids(24, [(1, 4, 6)])),
}


def write_mmproj(where, config, tensors):
    """Writes a SigLIP tower in llama.cpp's names, as its converter does: the norm before Gemma 3's projection as applied."""
    eye, family = config["vision_config"], config["model_type"]
    out = gguf.GGUFWriter(where / "mmproj.gguf", "clip")
    out.add_type("mmproj")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.projector_type", family)
    out.add_bool("clip.use_gelu", True)
    for key, value in dict(image_size=eye["image_size"], patch_size=eye["patch_size"], embedding_length=eye["hidden_size"],
                           feed_forward_length=eye["intermediate_size"], block_count=eye["num_hidden_layers"],
                           projection_dim=20).items():
        out.add_uint32(f"clip.vision.{key}", value)
    out.add_uint32("clip.vision.attention.head_count", eye["num_attention_heads"])
    out.add_float32("clip.vision.attention.layer_norm_epsilon", eye["layer_norm_eps"])
    patches = eye["image_size"] // eye["patch_size"]
    out.add_uint32("clip.vision.projector.scale_factor",
                   patches // int(config["mm_tokens_per_image"] ** 0.5) if family == "gemma3" else config["scale_factor"])
    names = {"embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd",
             "post_layernorm": "v.post_ln", "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
             "multi_modal_projector.mm_input_projection_weight": "mm.input_projection.weight",
             "model.connector.modality_projection.proj": "mm.model.fc", "layer_norm1": "ln1", "layer_norm2": "ln2",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "encoder.layers.": "v.blk."}
    for name, value in sorted(tensors.items()):
        for prefix in ("vision_tower.vision_model.", "vision_tower.", "model.vision_model."):
            name = name.removeprefix(prefix)
        if name.startswith("head."):  # which the converter leaves out
            continue
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        out.add_tensor(name, (value + 1 if "soft_emb_norm" in name else value).numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def shake(model):
    """Draws every parameter; norms and biases are not left at their initial values."""
    drawn = [*model.named_parameters(), *((name, buffer) for name, buffer in model.named_buffers() if ".std_" in name)]
    for name, parameter in drawn:
        data = parameter.data
        if "norm" in name.lower() and data.ndim == 1 or data.ndim == 1 and name.endswith("weight"):
            data.copy_(1 + 0.3 * torch.randn_like(data) if not name.endswith("bias") else 0.3 * torch.randn_like(data))
        elif data.ndim <= 1:
            data.copy_(0.3 * torch.randn_like(data))
        else:
            data.copy_(torch.randn_like(data) * (1.2 / numpy.sqrt(data[0].numel())))


def write(name):
    torch.manual_seed(sum(name.encode()))
    kind, config, pictures = TOWERS[name]()
    model = kind(config).float().eval()
    shake(model)
    where = OUT / name
    where.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(where)
    tensors = load_file(where / "model.safetensors")
    kept = {key: value.contiguous() for key, value in tensors.items() if not key.startswith(TEXT)}
    save_file(kept, where / "model.safetensors", metadata={"format": "pt"})
    (where / "generation_config.json").unlink(missing_ok=True)
    text = json.loads((where / "config.json").read_text())
    text.pop("transformers_version", None)
    (where / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    if text["model_type"] in ("gemma3", "idefics3"):
        write_mmproj(where, text, kept)
    with open(where / "golden.bin", "wb") as out, torch.no_grad():
        for grid, patches, features, deep in pictures.pictures(model):
            out.write(struct.pack("<7i", *grid, patches.shape[1], *features.shape, len(deep)))
            for one in (patches, features, *deep):
                out.write(one.float().contiguous().numpy().tobytes())
            print(name, grid, tuple(features.shape), f"scale {features.abs().mean():.3f}", len(deep))
    print(name, sum(path.stat().st_size for path in where.iterdir()) // 1024, "KiB:", *sorted(kept)[:3], "...")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or TOWERS:
        write(wanted)
