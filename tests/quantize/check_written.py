"""Loads checkpoints that `penstock quantize` wrote in the tools of others and compares the logits.

python check_written.py PENSTOCK SOURCE_DIR WORK_DIR   (SOURCE_DIR: a Hugging Face checkpoint, all sizes multiples of 32)

Needs torch and transformers; with compressed-tensors, bitsandbytes or llama-cpp-python installed their own loaders are
used too. Every layout is also decoded here by its published formula, so that no check depends on our reader.
"""
import importlib.util
import json
import os
import subprocess
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

penstock, source, work = sys.argv[1:4]
ids = torch.tensor([[(i * 7 + 3) % 500 for i in range(48)]])


def have(module):
    return importlib.util.find_spec(module) is not None


def logits(path, **options):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).eval()
    with torch.no_grad():
        return model(ids).logits.float()


def unpack(words, bits, axis):  # codes in 32-bit words, lowest bits first, along an axis
    words = words.to(torch.int64) & 0xFFFFFFFF
    parts = torch.stack([(words >> (bits * i)) & ((1 << bits) - 1) for i in range(32 // bits)], axis + 1)
    shape = list(words.shape)
    shape[axis] *= 32 // bits
    return parts.reshape(shape)


def decode(tensors, layer, config):
    method = config["quant_method"]
    if method == "gptq":
        bits = config["bits"]
        codes = unpack(tensors[layer + ".qweight"], bits, 0)
        zeros = unpack(tensors[layer + ".qzeros"], bits, 1) + 1
        group = tensors[layer + ".g_idx"].long()
        return ((codes - zeros[group]).float() * tensors[layer + ".scales"].float()[group]).T
    if method == "awq":
        order = [0, 4, 1, 5, 2, 6, 3, 7]
        fix = lambda x: unpack(x, 4, 1).reshape(x.shape[0], -1, 8)[:, :, order].reshape(x.shape[0], -1)
        codes, zeros = fix(tensors[layer + ".qweight"]), fix(tensors[layer + ".qzeros"])
        group = torch.arange(codes.shape[0]) // (codes.shape[0] // zeros.shape[0])
        return ((codes - zeros[group]).float() * tensors[layer + ".scales"].float()[group]).T
    raise ValueError(method)


def by_formula(path):
    config = json.load(open(path + "/config.json"))
    tensors = load_file(path + "/model.safetensors")
    model = LlamaForCausalLM(LlamaConfig.from_dict({k: v for k, v in config.items() if k != "quantization_config"})).float().eval()
    state = model.state_dict()
    for name in state:
        if name in tensors:
            state[name] = tensors[name].float()
        elif name == "lm_head.weight":
            state[name] = tensors["model.embed_tokens.weight"].float()
        else:
            state[name] = decode(tensors, name[:-7], config["quantization_config"])
    model.load_state_dict(state)
    with torch.no_grad():
        return model(ids).logits


def ours(path):  # the same weights by our own reader, dequantized into F32
    plain = path + "-plain"
    subprocess.run([penstock, "quantize", path, plain, "--type", "f32", "--force"], check=True, stdout=subprocess.DEVNULL)
    return logits(plain)


cases = {
    "gptq4": ["--type", "int4", "-g", "32", "--layout", "gptq"],
    "gptq4-asym": ["--type", "int4", "-g", "32", "--layout", "gptq", "--asymmetric"],
    "gptq8": ["--type", "int8", "-g", "64", "--layout", "gptq"],
    "gptq2": ["--type", "int2", "-g", "32"],
    "awq4": ["--type", "int4", "-g", "32", "--layout", "awq"],
    "w4a16": ["--type", "int4", "-g", "32"],
    "w4a16-asym": ["--type", "int4", "-g", "32", "--asymmetric"],
    "w8a16": ["--type", "int8", "-g", "32"],
    "w8a8": ["--type", "w8a8"],
    "fp8": ["--type", "fp8"],
    "nf4": ["--type", "nf4"],
    "fp4": ["--type", "fp4"],
}
wanted = logits(source)
for name, options in cases.items():
    out = f"{work}/{name}"
    subprocess.run([penstock, "quantize", source, out, "--force", *options], check=True, stdout=subprocess.DEVNULL)
    method = json.load(open(out + "/config.json"))["quantization_config"]["quant_method"]
    reader = ours(out)
    results = []
    if method in ("gptq", "awq"):
        results.append(("formula", by_formula(out)))
    if method == "compressed-tensors" and have("compressed_tensors"):
        results.append(("transformers", logits(out)))
    if method == "bitsandbytes" and have("bitsandbytes"):
        results.append(("transformers", logits(out)))
    for who, other in results:
        error = float((other - reader).norm() / reader.norm())
        loss = float((reader - wanted).norm() / wanted.norm())
        bound = 0.03 if name in ("w8a8", "fp8") else 1e-3  # those round activations, too
        print(f"{name:12} {who:12} {error:.2e} against our reader (quantization itself: {loss:.3f})", flush=True)
        assert error < bound, name
for mixture in ("q8_0", "q4_0", "q4_k_m", "q6_k", "q5_1"):
    out = f"{work}/{mixture}.gguf"
    subprocess.run([penstock, "quantize", source, out, "--force", "--type", mixture], check=True, stdout=subprocess.DEVNULL)
    plain = out[:-5] + "-plain"
    subprocess.run([penstock, "quantize", out, plain, "--type", "f32", "--force"], check=True, stdout=subprocess.DEVNULL)
    other = logits(work, gguf_file=os.path.basename(out))
    reader = logits(plain)
    error = float((other - reader).norm() / reader.norm())
    print(f"{mixture:12} {'gguf reader':12} {error:.2e} against our reader", flush=True)
    assert error < 1e-3, mixture
    if have("llama_cpp"):
        import llama_cpp
        model = llama_cpp.Llama(out, n_ctx=256, logits_all=True, verbose=False)
        model.eval(ids[0].tolist())
        theirs = torch.tensor(np.array(model.scores[: ids.shape[1]]))[None]
        error = float((theirs - reader).norm() / reader.norm())
        print(f"{mixture:12} {'llama.cpp':12} {error:.2e} against our reader (it rounds activations)", flush=True)
        assert error < 0.05, mixture
