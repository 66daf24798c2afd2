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


def logits(path, rounding=None, ids=ids, **options):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).eval()
    for name, module in model.named_modules() if rounding else ():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(lambda _, inputs: (rounding(inputs[0]),))
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


def by_library(tensors, layer, config):
    """compressed-tensors' own decompression. Its loader through transformers (0.19 with 5.23) expects packed zero points
    in the shape of unpacked ones, for its own files, too."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    scheme = QuantizationConfig.model_validate(config).config_groups["group_0"]
    names = [name for name in tensors if name.startswith(layer + ".")]
    state = {name[len(layer) + 1 :]: tensors[name] for name in names}
    return BaseCompressor.get_value_from_registry("pack-quantized").decompress(state, scheme)["weight"].float()


def by_formula(path, decode=decode):
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


ROUNDING = {  # of activations, by compressed-tensors' formulas
    "w8a8": lambda x: (s := x.abs().amax(-1, keepdim=True) / 127.5, torch.clamp(torch.round(x / s), -128, 127) * s)[1],
    "fp8": lambda x: (s := x.abs().amax(-1, keepdim=True) / 448, (x / s).to(torch.float8_e4m3fn).float() * s)[1],
}


def by_bitsandbytes(path):
    """Loaded by transformers, then every layer's weight by bitsandbytes' dequantization: its own product rounds to 16 bits."""
    import bitsandbytes as bnb

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    for name, module in list(model.named_modules()):
        if not isinstance(module, bnb.nn.Linear4bit):
            continue
        module.weight.quant_state.dtype = torch.float32
        plain = torch.nn.Linear(module.in_features, module.out_features, bias=False)
        plain.weight.data = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
        model.set_submodule(name, plain)
    with torch.no_grad():
        return torch.nn.Module.float(model)(ids).logits


def ours(path, rounding):  # the same weights by our own reader, dequantized into F32
    plain = path + "-plain"
    subprocess.run([penstock, "quantize", path, plain, "--type", "f32", "--force"], check=True, stdout=subprocess.DEVNULL)
    return logits(plain, rounding)


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
    "nf4-4096": ["--type", "nf4", "-g", "4096"],  # blocks that go on from one row to the next
}
wanted = logits(source)
for name, options in cases.items():
    out = f"{work}/{name}"
    subprocess.run([penstock, "quantize", source, out, "--force", *options], check=True, stdout=subprocess.DEVNULL)
    method = json.load(open(out + "/config.json"))["quantization_config"]["quant_method"]
    reader = ours(out, ROUNDING.get(name))
    results = []
    if method in ("gptq", "awq"):
        results.append(("formula", by_formula(out)))
    if name == "w4a16-asym" and have("compressed_tensors"):
        results.append(("library", by_formula(out, by_library)))
    elif method == "compressed-tensors" and have("compressed_tensors"):
        results.append(("transformers", logits(out)))
    if method == "bitsandbytes" and have("bitsandbytes"):
        results.append(("bitsandbytes", by_bitsandbytes(out)))
    for who, other in results:
        error = float((other - reader).norm() / reader.norm())
        loss = float((reader - wanted).norm() / wanted.norm())
        print(f"{name:12} {who:12} {error:.2e} against our reader (quantization itself: {loss:.3f})", flush=True)
        assert error < 1e-3, name
for ftype in ("f16", "q8_0", "q4_0", "q4_k_m", "q6_k", "q5_1"):
    out = f"{work}/{ftype}.gguf"
    subprocess.run([penstock, "quantize", source, out, "--force", "--type", ftype], check=True, stdout=subprocess.DEVNULL)
    plain = out[:-5] + "-plain"
    subprocess.run([penstock, "quantize", out, plain, "--type", "f32", "--force"], check=True, stdout=subprocess.DEVNULL)
    other = logits(work, gguf_file=os.path.basename(out))
    reader = logits(plain)
    error = float((other - reader).norm() / reader.norm())
    print(f"{ftype:12} {'gguf reader':12} {error:.2e} against our reader", flush=True)
    assert error < 1e-3, ftype
    if have("llama_cpp"):
        import llama_cpp
        model = llama_cpp.Llama(out, n_ctx=256, logits_all=True, verbose=False)
        model.eval(ids[0].tolist())
        theirs = torch.tensor(np.array(model.scores[: ids.shape[1]]))[None]
        error = float((theirs - reader).norm() / reader.norm())
        print(f"{ftype:12} {'llama.cpp':12} {error:.2e} against our reader", flush=True)
        assert error < (0.005 if ftype == "f16" else 0.05), ftype

# Positions scaled by yarn: GGUF says them in numbers, which llama.cpp must read as transformers reads config.json.
if have("llama_cpp"):
    import llama_cpp
    import shutil

    yarn = f"{work}/yarn"
    shutil.copytree(source, yarn, dirs_exist_ok=True)
    os.chmod(yarn + "/config.json", 0o644)
    config = json.load(open(yarn + "/config.json"))
    limit = config["max_position_embeddings"]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    config["rope_parameters"] = config["rope_scaling"] = {
        "rope_type": "yarn", "rope_theta": theta, "factor": 4.0, "original_max_position_embeddings": limit // 4}
    json.dump(config, open(yarn + "/config.json", "w"))
    subprocess.run([penstock, "quantize", yarn, yarn + ".gguf", "--type", "f32", "--force"], check=True, stdout=subprocess.DEVNULL)
    model = llama_cpp.Llama(yarn + ".gguf", n_ctx=256, logits_all=True, verbose=False)
    model.eval(ids[0].tolist())
    theirs, scaled = torch.tensor(np.array(model.scores[: ids.shape[1]]))[None], logits(yarn)
    error = float((theirs - scaled).norm() / scaled.norm())
    print(f"{'yarn':12} {'llama.cpp':12} {error:.2e} against transformers", flush=True)
    assert error < 0.005 and float((scaled - wanted).norm() / wanted.norm()) > 0.05

# GPT-2 and BitNet to GGUF and back: transformers computes the same from what returns.
golden = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "models")
for name, back in (("gpt2", "f32"), ("bitnet_packed", "ternary")):
    original, there, returned = f"{golden}/{name}", f"{work}/{name}.gguf", f"{work}/{name}-back"
    for step in ([original, there, "--type", "f32"], [there, returned, "--type", back]):
        subprocess.run([penstock, "quantize", *step, "--force"], check=True, stdout=subprocess.DEVNULL)
    few = ids % 71
    first, second = logits(original, ids=few), logits(returned, ids=few)
    error = float((first - second).norm() / first.norm())
    print(f"{name:12} {'transformers':12} {error:.2e} between the original and what came back", flush=True)
    assert error < 1e-3, name
