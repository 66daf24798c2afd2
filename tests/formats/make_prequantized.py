#!/usr/bin/env python3
"""Writes golden/prequantized.json: checksums of the weights in checkpoints that other tools quantized.

Usage: make_prequantized.py DATA/quant. Decodes every linear layer with torch, checks that transformers with these
weights gives the logits that the tool gave (oracle.safetensors), and notes per layer: shape, CRC-32 of the float32
values (with +0 for -0), their sum of magnitudes and the first four values. The output is committed.
"""
import json
import os
import pathlib
import sys
import zlib

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6])


def codes(words, bits, dim):
    """Unpacks 32-bit words into codes, lowest first, along dim."""
    parts = torch.stack([(words >> (bits * i)) & ((1 << bits) - 1) for i in range(32 // bits)], dim + 1)
    return parts.flatten(dim, dim + 1)


def gptq(t, p, config):
    bits = config["bits"]
    q, z = codes(t[p + ".qweight"], bits, 0), codes(t[p + ".qzeros"], bits, 1)
    z = z + (0 if config.get("checkpoint_format") == "gptq_v2" else 1)
    g = t[p + ".g_idx"].long()
    return ((q - z[g]).float() * t[p + ".scales"].float()[g]).T


def awq(t, p, config):
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    q = codes(t[p + ".qweight"], 4, 1).unflatten(1, (-1, 8))[:, :, order].flatten(1)
    z = codes(t[p + ".qzeros"], 4, 1).unflatten(1, (-1, 8))[:, :, order].flatten(1)
    g = torch.arange(q.shape[0]) // config["group_size"]
    return ((q - z[g]).float() * t[p + ".scales"].float()[g]).T


def bitsandbytes(t, p, config):
    if p + ".SCB" in t:
        return t[p + ".weight"].float() * (t[p + ".SCB"] / 127)[:, None]
    w = t[p + ".weight"].flatten()
    name = next(k for k in t if k.startswith(p + ".weight.quant_state."))
    state = json.loads(bytes(t[name].tolist()).decode())
    absmax = t[p + ".weight.absmax"]
    if absmax.dtype == torch.uint8:
        outer = t[p + ".weight.nested_absmax"].repeat_interleave(state["nested_blocksize"])[:absmax.numel()]
        absmax = t[p + ".weight.nested_quant_map"][absmax.long()] * outer + state["nested_offset"]
    levels = t[p + ".weight.quant_map"][torch.stack([w >> 4, w & 15], -1).flatten().long()]
    return (levels.view(-1, state["blocksize"]) * absmax[:, None]).view(state["shape"])


def compressed(t, p, config):
    group = next(iter(config["config_groups"].values()))
    scale = t[p + ".weight_scale"]
    if p + ".weight_packed" not in t:
        q, scale = t[p + ".weight"].float(), scale.float()
    elif t[p + ".weight_packed"].dtype == torch.uint8:
        w = t[p + ".weight_packed"]
        q = E2M1[torch.stack([w & 15, w >> 4], -1).flatten(1).long()]
        if scale.dtype == torch.uint8:
            scale = torch.exp2(scale.float() - 127)
        else:
            scale = scale.float() / t[p + ".weight_global_scale"].float()
    else:
        bits = group["weights"]["num_bits"]
        cols = int(t[p + ".weight_shape"][1])
        q = codes(t[p + ".weight_packed"], bits, 1)[:, :cols] - (1 << (bits - 1))
        if p + ".weight_zero_point" in t:
            z = codes(t[p + ".weight_zero_point"], bits, 0)[:q.shape[0]] - (1 << (bits - 1))
            q = q - z.repeat_interleave(cols // z.shape[1], 1)
        q, scale = q.float(), scale.float()
    return q * scale.repeat_interleave(q.shape[1] // scale.shape[1], 1)


METHODS = {"gptq": gptq, "awq": awq, "bitsandbytes": bitsandbytes, "compressed-tensors": compressed}


def activation_hook(config):
    """What the tool does to the inputs of its linear layers, or None."""
    if config.get("load_in_8bit"):
        return lambda x: (x * 127 / x.abs().amax(-1, True)).round() * x.abs().amax(-1, True) / 127
    groups = config.get("config_groups")
    act = next(iter(groups.values())).get("input_activations") if groups else None
    if not act:
        return None
    if act["type"] == "int":
        def to_int8(x):
            s = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) * 2 / 255
            return (x / s).round().clamp(-128, 127) * s
        return to_int8

    def to_f8(x):
        s = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 448
        return (x / s).clamp(-448, 448).to(torch.float8_e4m3fn).float() * s
    return to_f8


def check_logits(folder, config, tensors, decoded):
    root = json.loads((folder / "config.json").read_text())
    root.pop("quantization_config")
    model = LlamaForCausalLM(LlamaConfig.from_dict(root)).float().eval()
    state = model.state_dict()
    for name in state:
        layer = name.removesuffix(".weight")
        state[name] = decoded[layer] if layer in decoded else tensors[name].float()
    model.load_state_dict(state)
    hook = activation_hook(config)
    if hook:
        for name, module in model.named_modules():
            if name in decoded:
                module.register_forward_pre_hook(lambda _, args: (hook(args[0]),))
    oracle = load_file(folder / "oracle.safetensors")
    with torch.no_grad():
        logits = model(oracle["input_ids"]).logits
    return float((logits - oracle["logits"]).norm() / oracle["logits"].norm())


def main():
    out = {}
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if not (folder / "config.json").exists():
            continue
        config = json.loads((folder / "config.json").read_text()).get("quantization_config")
        if config is None:
            continue
        tensors = load_file(folder / "model.safetensors")
        layers = sorted({k.rsplit(".", 1)[0] for k in tensors if k.endswith((".qweight", ".SCB", ".weight_scale"))}
                        | {k.split(".weight.")[0] for k in tensors if k.endswith(".weight.absmax")})
        decoded = {p: METHODS[config["quant_method"]](tensors, p, config).contiguous() + 0.0 for p in layers}
        error = check_logits(folder, config, tensors, decoded)
        print(f"{folder.name:24} {len(layers)} layers, logits off by {error:.1e}")
        # The tools multiply 4-bit floats in BF16, and LLM.int8 keeps outliers apart.
        low = config["quant_method"] == "bitsandbytes" or folder.name.endswith("fp4")
        assert error < (5e-2 if config.get("load_in_8bit") else 1.5e-2 if low else 1e-3), folder
        out[folder.name] = {p: {"shape": list(w.shape), "crc32": zlib.crc32(w.numpy().tobytes()),
                                "magnitude": float(w.double().abs().sum()), "first": w[0, :4].tolist()}
                            for p, w in decoded.items()}
    path = pathlib.Path(__file__).parent / "golden" / "prequantized.json"
    path.write_text(json.dumps(out, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)
    main()
