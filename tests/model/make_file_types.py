#!/usr/bin/env python3
"""Writes golden_file_types.txt: the encoding that llama.cpp gives each matrix of a model under the names of its mixtures.

A line has the name, how many query heads share keys, the tensor, and its encoding, or those of all LAYERS layers where they
are not the same. No importance matrix is given. Needs gguf, numpy and llama-cpp-python; the output is committed.
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
LAYERS, WIDTH, HEADS, VOCABULARY = 16, 256, 8, 64
MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def write_model(path, shared):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // shared)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("no_vocab")
    weights = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    writer.add_tensor("token_embd.weight", weights[:VOCABULARY])
    writer.add_tensor("output.weight", weights[:VOCABULARY])
    writer.add_tensor("output_norm.weight", weights[0])
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", weights[0])
        for name in MATRICES:
            rows = WIDTH // shared if name in ("attn_k", "attn_v") else WIDTH
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights[:rows])
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
        for shared in (2, 4):
            write_model(path, shared)
            for name in FILE_TYPES:
                types = types_of(log_of_dry_run(path, name))
                assert set(types) == {"token_embd", "output", *MATRICES}, types
                for tensor, layers in types.items():
                    lines.append(" ".join([name.lower(), str(shared), tensor, *(layers if len(set(layers)) > 1 else layers[:1])]))
    (pathlib.Path(__file__).parent / "golden_file_types.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
