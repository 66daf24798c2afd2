#!/usr/bin/env python3
"""Writes the logits that transformers computes for a real checkpoint, as golden values for tests.

dump_reference.py MODEL OUT.bin [--ids "3 4 5"] [--rows N]
  MODEL  a Hugging Face directory, or a GGUF file of architecture llama (decoded by the gguf package)
  OUT    int32: n_ids, n_rows, vocab; the ids; F32 logits of the last n_rows positions

The values in tests/golden/quant/ are those of the test data's quant/gguf/*.gguf and quant/tiny-hf with the default ids.
Needs torch, transformers, gguf, numpy.
"""
import argparse
import os

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
import gguf
import numpy as np
import torch
import transformers as T

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def load_gguf(path):
    reader = gguf.GGUFReader(path)
    field = lambda key, default=None: reader.fields[key].contents() if key in reader.fields else default
    assert field("general.architecture") == "llama"
    heads, kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
    state = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        stem, kind = tensor.name.rsplit(".", 1)
        if stem in TOP:
            state[f"{TOP[stem]}.{kind}"] = value
            continue
        _, layer, part = stem.split(".")
        if part in ("attn_q", "attn_k"):  # adjacent pairs back to halves
            n = heads if part == "attn_q" else kv_heads
            value = value.reshape(n, value.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(value.shape)
        state[f"model.layers.{layer}.{LAYER[part]}.{kind}"] = value
    tied = "lm_head.weight" not in state
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    vocab, dim = state["model.embed_tokens.weight"].shape
    config = T.LlamaConfig(
        vocab_size=vocab, hidden_size=dim, intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"), tie_word_embeddings=tied,
        max_position_embeddings=field("llama.context_length"),
        rope_parameters=dict(rope_type="default", rope_theta=field("llama.rope.freq_base", 10000.0)))
    config._attn_implementation = "eager"
    model = T.AutoModelForCausalLM.from_config(config)
    model.load_state_dict({k: torch.tensor(v) for k, v in state.items()}, strict=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--ids", default=" ".join(map(str, range(3, 99))))
    parser.add_argument("--rows", type=int, default=2)
    args = parser.parse_args()
    if os.path.isdir(args.model):
        model = T.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager")
    else:
        model = load_gguf(args.model)
    ids = [int(token) for token in args.ids.split()]
    with torch.no_grad():
        logits = model.float().eval()(torch.tensor([ids])).logits[0, -args.rows:].numpy()
    with open(args.out, "wb") as f:
        np.array([len(ids), args.rows, logits.shape[1], *ids], np.int32).tofile(f)
        logits.astype(np.float32).tofile(f)


if __name__ == "__main__":
    main()
