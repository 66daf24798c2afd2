"""Writes a trained model as a GGUF file and as a Hugging Face directory.

    python export.py --checkpoint weights.pt --tokenizer tokenizer.model --gguf FILE [--type q8_0] [--hf DIR]

GGUF `llama` models rotate adjacent pairs, Hugging Face ones the pairs (i, i + head_dim / 2): rows of the query and key
matrices are permuted for the former. Ternary models are `bitnet`, with TQ2_0 or TQ1_0 matrices.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch

import tokenizer
import train

BLOCK_NAMES = {  # ours: (GGUF, Hugging Face)
    "input_norm": ("attn_norm", "input_layernorm"),
    "attention.q_proj": ("attn_q", "self_attn.q_proj"),
    "attention.k_proj": ("attn_k", "self_attn.k_proj"),
    "attention.v_proj": ("attn_v", "self_attn.v_proj"),
    "attention.o_proj": ("attn_output", "self_attn.o_proj"),
    "attention.sub_norm": ("attn_sub_norm", "self_attn.attn_sub_norm"),
    "post_norm": ("ffn_norm", "post_attention_layernorm"),
    "mlp.gate_proj": ("ffn_gate", "mlp.gate_proj"),
    "mlp.up_proj": ("ffn_up", "mlp.up_proj"),
    "mlp.down_proj": ("ffn_down", "mlp.down_proj"),
    "mlp.sub_norm": ("ffn_sub_norm", "mlp.ffn_sub_norm"),
}
TOP_NAMES = {"embedding": ("token_embd", "model.embed_tokens"), "norm": ("output_norm", "model.norm")}


def names(ours):
    """(GGUF name, Hugging Face name) of one of our tensors."""
    stem = ours.removesuffix(".weight")
    if stem in TOP_NAMES:
        g, h = TOP_NAMES[stem]
        return f"{g}.weight", f"{h}.weight"
    _, layer, part = stem.split(".", 2)
    g, h = BLOCK_NAMES[part]
    return f"blk.{layer}.{g}.weight", f"model.layers.{layer}.{h}.weight"


def interleave_rows(w, heads):
    """Row order of GGUF `llama`: within each head, row i and row i + half become neighbours."""
    rows, columns = w.shape
    return w.reshape(heads, 2, rows // heads // 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


def add_tokenizer(writer, sp, more=()):
    """more: special tokens behind the pieces."""
    kinds = gguf.TokenType
    n = sp.get_piece_size()
    kind = [kinds.UNKNOWN if sp.is_unknown(i) else kinds.CONTROL if sp.is_control(i) else
            kinds.BYTE if sp.is_byte(i) else kinds.NORMAL for i in range(n)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([sp.id_to_piece(i).encode() for i in range(n)] + [token.encode() for token in more])
    writer.add_token_scores([sp.get_score(i) for i in range(n)] + [0.0] * len(more))
    writer.add_token_types([int(k) for k in kind] + [int(kinds.CONTROL)] * len(more))
    writer.add_bos_token_id(tokenizer.BOS)
    writer.add_eos_token_id(tokenizer.EOS)
    writer.add_unk_token_id(tokenizer.UNK)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)


def add_config(writer, cfg, name, kind, embedding):
    writer.add_name(name)
    writer.add_license("apache-2.0")
    writer.add_context_length(cfg.context)
    writer.add_embedding_length(cfg.dim)
    writer.add_block_count(cfg.layers)
    writer.add_feed_forward_length(cfg.hidden)
    writer.add_head_count(cfg.heads)
    writer.add_head_count_kv(cfg.kv_heads)
    writer.add_layer_norm_rms_eps(cfg.norm_eps)
    writer.add_rope_dimension_count(cfg.head_dim)
    writer.add_rope_freq_base(cfg.rope_theta)
    writer.add_vocab_size(cfg.vocab)
    writer.add_file_type(kind)
    if cfg.window:
        writer.add_sliding_window(cfg.window)
    if cfg.exit_layer:
        writer.add_uint32("penstock.exit_layer", cfg.exit_layer)
    if embedding:
        writer.add_pooling_type(gguf.PoolingType.MEAN)


def stored_type(cfg, ours, w, wanted):
    """Gains stay in F32; a ternary model's embedding in Q8_0; everything else as wanted."""
    if w.ndim == 1:
        return gguf.GGMLQuantizationType.F32
    if cfg.ternary and "embedding" in ours:
        return gguf.GGMLQuantizationType.Q8_0
    return gguf.GGMLQuantizationType[wanted.upper()]


def as_ternary(w):
    """The values the training's forward pass saw: {-1, 0, 1} * mean|w|, the scale rounded to 16 bits."""
    scale = max(float(np.abs(w).mean()), 1e-5)
    return np.clip(np.rint(w / scale), -1, 1).astype(np.float32) * np.float32(np.float16(scale))


def prepared(model, for_gguf):
    """Yields (our name, float32 array) with the changes that the format asks for."""
    cfg = model.cfg
    for ours, p in model.state_dict().items():
        w = p.float().numpy()
        if for_gguf and cfg.ternary and w.ndim == 2 and "embedding" not in ours:
            w = as_ternary(w)
        if for_gguf and not cfg.ternary and ("q_proj" in ours or "k_proj" in ours):
            w = interleave_rows(w, cfg.heads if "q_proj" in ours else cfg.kv_heads)
        yield ours, np.ascontiguousarray(w)


def write_gguf(model, sp, path, kind, name, embedding=False, steps=0):
    cfg = model.cfg
    writer = gguf.GGUFWriter(str(path), "bitnet" if cfg.ternary else "llama")
    file_type = {"q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
                 "f32": gguf.LlamaFileType.ALL_F32, "tq2_0": gguf.LlamaFileType.MOSTLY_TQ2_0,
                 "tq1_0": gguf.LlamaFileType.MOSTLY_TQ1_0}[kind]
    add_config(writer, cfg, name, file_type, embedding)
    if steps:
        writer.add_uint32("penstock.training_steps", steps)
    add_tokenizer(writer, sp)
    for ours, w in prepared(model, for_gguf=True):
        t = stored_type(cfg, ours, w, kind)
        writer.add_tensor(names(ours)[0], gguf.quants.quantize(w, t), raw_dtype=t)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hf_config(cfg):
    """config.json of transformers' Llama, Mistral (sliding window) or BitNet."""
    kind, arch = ("llama", "LlamaForCausalLM")
    if cfg.window:
        kind, arch = ("mistral", "MistralForCausalLM")
    if cfg.ternary:
        kind, arch = ("bitnet", "BitNetForCausalLM")
    config = {
        "architectures": [arch], "model_type": kind, "vocab_size": cfg.vocab, "hidden_size": cfg.dim,
        "intermediate_size": cfg.hidden, "num_hidden_layers": cfg.layers, "num_attention_heads": cfg.heads,
        "num_key_value_heads": cfg.kv_heads, "head_dim": cfg.head_dim, "hidden_act": "silu",
        "max_position_embeddings": cfg.context, "rms_norm_eps": cfg.norm_eps, "rope_theta": cfg.rope_theta,
        "tie_word_embeddings": True, "attention_bias": False, "bos_token_id": tokenizer.BOS,
        "eos_token_id": tokenizer.EOS, "torch_dtype": "bfloat16"}
    if cfg.window:
        config["sliding_window"] = cfg.window
    if cfg.exit_layer:
        config["penstock_exit_layer"] = cfg.exit_layer
    if cfg.ternary:
        config["quantization_config"] = {"quant_method": "bitnet", "linear_class": "autobitlinear",
                                         "quantization_mode": "online"}
    return config


def write_hugging_face(model, model_path, folder):
    """BF16 safetensors (a ternary model's master weights), configuration and tokenizer."""
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {names(ours)[1]: torch.from_numpy(w).to(torch.bfloat16) for ours, w in prepared(model, for_gguf=False)}
    save_file(tensors, str(folder / "model.safetensors"), {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(hf_config(model.cfg), indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(
        {"bos_token_id": tokenizer.BOS, "eos_token_id": tokenizer.EOS, "do_sample": True, "temperature": 0.8},
        indent=2) + "\n")
    tokenizer.write_hugging_face(model_path, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--gguf")
    parser.add_argument("--type", default="q8_0", choices=["q8_0", "bf16", "f32", "tq2_0", "tq1_0"])
    parser.add_argument("--hf")
    parser.add_argument("--embedding", action="store_true", help="an embedding model: pooled by the mean")
    args = parser.parse_args()
    net = train.load_model(args.checkpoint)
    saved = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    if args.gguf:
        write_gguf(net, tokenizer.load(args.tokenizer), args.gguf, args.type, saved["name"], args.embedding, saved["step"])
    if args.hf:
        write_hugging_face(net, args.tokenizer, args.hf)
