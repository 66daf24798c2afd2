#!/usr/bin/env python3
"""Writes golden_file_types.txt: the encoding that llama.cpp gives each matrix of a model under the names of its mixtures.

A line has the name, the model (MODELS), the tensor, and its encoding, or those of all its layers where they are not the
same. No importance matrix is given. Needs gguf, numpy and llama-cpp-python; the output is committed.
"""
import ctypes
import pathlib
import re
import tempfile

import gguf
import llama_cpp.llama_cpp as ll
import numpy as np

FILE_TYPES = ("Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ3_XXS "
              "IQ3_XS IQ3_S IQ3_M IQ4_NL IQ4_XS").split()
WIDTH, HEADS, VOCABULARY, ROTATED = 256, 8, 64, 32
# How many query heads share keys, layers, experts.
MODELS = {"shared2": ("llama", 2, 16, 0), "shared4": ("llama", 4, 16, 0), "layers80": ("llama", 4, 80, 0),
          "experts8": ("llama", 2, 16, 8), "fused": ("phi2", 1, 16, 0), "latents": ("deepseek2", 8, 16, 4)}


def write_sizes(writer, arch, shared, layers, experts):
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // shared)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("no_vocab")
    if arch != "llama":
        writer.add_rope_dimension_count(ROTATED)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    if arch == "deepseek2":
        writer.add_expert_feed_forward_length(WIDTH)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
        writer.add_expert_shared_count(0)
        writer.add_expert_weights_scale(1.0)
        writer.add_leading_dense_block_count(0)
        writer.add_q_lora_rank(WIDTH)
        writer.add_kv_lora_rank(WIDTH)
        writer.add_key_length(WIDTH + ROTATED)
        writer.add_value_length(WIDTH)
        writer.add_key_length_mla(WIDTH + ROTATED)
        writer.add_value_length_mla(WIDTH)


def layer_shapes(arch, shared, experts):
    """{tensor of a layer: its shape}"""
    shapes = {"attn_norm": [WIDTH], "attn_output": [WIDTH, WIDTH]}
    if arch == "phi2":
        shapes |= {"attn_norm.bias": [WIDTH], "attn_output.bias": [WIDTH], "attn_qkv": [3 * WIDTH, WIDTH],
                   "attn_qkv.bias": [3 * WIDTH], "ffn_up": [WIDTH, WIDTH], "ffn_up.bias": [WIDTH],
                   "ffn_down": [WIDTH, WIDTH], "ffn_down.bias": [WIDTH]}
        return shapes
    shapes["ffn_norm"] = [WIDTH]
    if arch == "deepseek2":
        head = WIDTH + ROTATED
        shapes |= {"attn_q_a": [WIDTH, WIDTH], "attn_q_a_norm": [WIDTH], "attn_q_b": [HEADS * head, WIDTH],
                   "attn_kv_a_mqa": [head, WIDTH], "attn_kv_a_norm": [WIDTH], "attn_k_b": [HEADS, WIDTH, WIDTH],
                   "attn_v_b": [HEADS, WIDTH, WIDTH], "attn_output": [WIDTH, HEADS * WIDTH]}
    else:
        shapes |= {"attn_q": [WIDTH, WIDTH], "attn_k": [WIDTH // shared, WIDTH], "attn_v": [WIDTH // shared, WIDTH]}
    if experts:
        shapes["ffn_gate_inp"] = [experts, WIDTH]
    suffix, more = ("_exps", [experts]) if experts else ("", [])
    return shapes | {f"ffn_{part}{suffix}": [*more, WIDTH, WIDTH] for part in ("gate", "up", "down")}


def write_model(path, arch, shared, layers, experts):
    writer = gguf.GGUFWriter(path, arch)
    write_sizes(writer, arch, shared, layers, experts)
    outside = {"token_embd": [VOCABULARY, WIDTH], "output": [VOCABULARY, WIDTH], "output_norm": [WIDTH]}
    if arch == "phi2":
        outside |= {"output.bias": [VOCABULARY], "output_norm.bias": [WIDTH]}
    inside = layer_shapes(arch, shared, experts)
    shapes = outside | {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in inside.items()}
    for name, shape in shapes.items():
        writer.add_tensor(name if name.endswith(".bias") else name + ".weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def log_of_dry_run(path, name):
    """What quantizing says it would do; it does nothing, so it wants no importance."""
    lines = []
    callback = ll.llama_log_callback(lambda level, text, data: lines.append(text.decode()))
    ll.llama_log_set(callback, None)
    params = ll.llama_model_quantize_default_params()
    params.ftype = gguf.LlamaFileType[f"MOSTLY_{name}"]
    params.nthread, params.dry_run = 1, True
    result = ll.llama_model_quantize(str(path).encode(), b"/dev/null", ctypes.byref(params))
    assert result == 0, (name, "".join(lines)[-2000:])
    return "".join(lines)


def types_of(log):
    """{tensor: encodings by layer}; tensors outside of layers have one."""
    types = {}
    for layer, name, encoding in re.findall(r"\] (?:blk\.(\d+)\.)?(\w+)\.weight .*\((\w+)\)$", log, re.MULTILINE):
        types.setdefault(name, {})[int(layer or 0)] = encoding
    return {name: [layers[i] for i in sorted(layers)] for name, layers in types.items()}


def main():
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.gguf"
        for model, sizes in MODELS.items():
            write_model(path, *sizes)
            for name in FILE_TYPES:
                for tensor, layers in types_of(log_of_dry_run(path, name)).items():
                    if tensor == "ffn_gate_inp":
                        continue
                    lines.append(" ".join([name.lower(), model, tensor, *(layers if len(set(layers)) > 1 else layers[:1])]))
    (pathlib.Path(__file__).parent / "golden_file_types.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
