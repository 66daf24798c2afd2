#!/usr/bin/env python3
"""Writes tests/golden/models/rwkv*/: tiny checkpoints of RWKV 6 and 7 and what their published formulas give, which no class of transformers computes.

  config.json, model.safetensors   a directory as published beside its own code, F32
  model.gguf                       the same by llama.cpp's names and layout
  golden.bin                       see write_golden of make_tiny_models.py

The reference is written from the papers' formulas (arXiv 2404.05892, 2503.14456), token by token in float64. Needs numpy, torch, gguf,
safetensors. Usage: make_tiny_rwkv.py [name...]; deterministic.
"""
import json
import math
import os
import shutil
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "models")
N_PROMPT, N_STEPS, VOCAB = 40, 12, 53
# name: (version, width, layers, head size, feed-forward, more of config.json)
MODELS = {
    "rwkv6": (6, 24, 3, 8, 64, dict(rescale_every=2, num_attention_heads=8)),
    "rwkv6_heads": (6, 32, 2, 16, None, dict(rescale_every=0, head_size_divisor=4)),
    "rwkv7": (7, 24, 3, 8, 64, dict(num_heads=None, norm_eps=8e-5)),
    "rwkv7_ranks": (7, 32, 2, 16, None, dict(num_heads=2, hidden_ratio=2.5, norm_eps=1e-4)),
}
RANKS = {"rwkv7": dict(w=10, a=6, v=4, g=12), "rwkv7_ranks": dict(w=4, a=8, v=12, g=6)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_norm(x, weight, bias, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


class Weights:
    """Random numbers by name, in the order in which they are asked for."""

    def __init__(self):
        self.random, self.all = np.random.default_rng(1234), {}

    def __call__(self, name, *shape, scale=None, around=0.0):
        if name not in self.all:
            scale = scale if scale is not None else 1.2 / shape[-1] ** 0.5
            self.all[name] = (around + scale * self.random.standard_normal(shape)).astype(np.float32)
        return self.all[name].astype(np.float64)

    def norm(self, name, dim):
        return self(name + ".weight", dim, scale=0.2, around=1.0), self(name + ".bias", dim, scale=0.2)


def head_norm(x, weights, name, n_heads, eps):
    weight, bias = weights.norm(name, x.size)
    by_head = x.reshape(n_heads, -1)
    return ((by_head - by_head.mean(-1, keepdims=True)) / np.sqrt(by_head.var(-1, keepdims=True) + eps)).reshape(-1) * weight + bias


class Rwkv6:
    def __init__(self, dim, n_layers, head, ffn, config):
        self.w, self.dim, self.n_layers, self.head, self.n_heads = Weights(), dim, n_layers, head, dim // head
        self.ffn = ffn or int(dim * 3.5) // 32 * 32
        self.eps = 1e-5 * config.get("head_size_divisor", 8) ** 2
        self.clear()

    def clear(self):
        zeros = np.zeros(self.dim)
        self.state = [[zeros, zeros, np.zeros((self.n_heads, self.head, self.head))] for _ in range(self.n_layers)]

    def time_mix(self, i, x, state):
        w, at, dim = self.w, f"rwkv.blocks.{i}.attention.", self.dim
        change = state[0] - x
        state[0] = x
        mean = x + change * w(at + "time_maa_x", 1, 1, dim, scale=0.3, around=0.5)[0, 0]
        low = np.tanh(mean @ w(at + "time_maa_w1", dim, 5 * 32, scale=0.3)).reshape(5, 32)
        shares = np.einsum("ir,ird->id", low, w(at + "time_maa_w2", 5, 32, dim, scale=0.1))
        xw, xk, xv, xr, xg = (x + change * (w(at + f"time_maa_{part}", 1, 1, dim, scale=0.3, around=0.5)[0, 0] + shares[j])
                              for j, part in enumerate("wkvrg"))
        r, k, v = ((w(at + name + ".weight", dim, dim) @ y).reshape(self.n_heads, self.head)
                   for name, y in (("receptance", xr), ("key", xk), ("value", xv)))
        g = w(at + "gate.weight", dim, dim) @ xg
        decay = np.tanh(xw @ w(at + "time_decay_w1", dim, 64, scale=0.3)) @ w(at + "time_decay_w2", 64, dim, scale=0.1)
        decay = np.exp(-np.exp(decay + w(at + "time_decay", 1, 1, dim, scale=1.0, around=-1.0)[0, 0])).reshape(self.n_heads, self.head)
        u = w(at + "time_faaaa", self.n_heads, self.head, scale=0.5)
        kv = k[:, :, None] * v[:, None, :]
        out = np.einsum("hi,hij->hj", r, state[2] + u[:, :, None] * kv).reshape(-1)
        state[2] = decay[:, :, None] * state[2] + kv
        out = head_norm(out, w, at + "ln_x", self.n_heads, self.eps)
        return w(at + "output.weight", dim, dim) @ (out * g * sigmoid(g))

    def channel_mix(self, i, x, state):
        w, at, dim = self.w, f"rwkv.blocks.{i}.feed_forward.", self.dim
        change = state[1] - x
        state[1] = x
        xk, xr = (x + change * w(at + f"time_maa_{part}", 1, 1, dim, scale=0.3, around=0.5)[0, 0] for part in "kr")
        k = np.maximum(w(at + "key.weight", self.ffn, dim) @ xk, 0) ** 2
        r = sigmoid(w(at + "receptance.weight", dim, dim) @ xr)
        return r * (w(at + "value.weight", dim, self.ffn) @ k)

    def logits(self, token):
        w, dim = self.w, self.dim
        x = w("rwkv.embeddings.weight", VOCAB, dim, scale=0.5)[token]
        x = layer_norm(x, *w.norm("rwkv.blocks.0.pre_ln", dim), 1e-5)
        for i, state in enumerate(self.state):
            x = x + self.time_mix(i, layer_norm(x, *w.norm(f"rwkv.blocks.{i}.ln1", dim), 1e-5), state)
            x = x + self.channel_mix(i, layer_norm(x, *w.norm(f"rwkv.blocks.{i}.ln2", dim), 1e-5), state)
        return w("head.weight", VOCAB, dim) @ layer_norm(x, *w.norm("rwkv.ln_out", dim), 1e-5)


class Rwkv7:
    def __init__(self, dim, n_layers, head, ffn, config, ranks):
        self.w, self.dim, self.n_layers, self.head, self.n_heads, self.ranks = Weights(), dim, n_layers, head, dim // head, ranks
        self.ffn = ffn or (int(dim * config["hidden_ratio"]) + 31) // 32 * 32
        self.eps = config.get("norm_eps", 1e-5)
        self.clear()

    clear = Rwkv6.clear

    def low_rank(self, at, part, x, f=lambda y: y, biased=True):
        w, dim, rank = self.w, self.dim, self.ranks[part]
        y = w(f"{at}{part}_lora.lora.2.weight", dim, rank, scale=0.5) @ f(w(f"{at}{part}_lora.lora.0.weight", rank, dim) @ x)
        return y + w(f"{at}{part}_lora.lora.2.bias", dim, scale=0.5) if biased else y

    def time_mix(self, i, x, state):
        w, at, dim, shape = self.w, f"model.layers.{i}.attn.", self.dim, (self.n_heads, self.head)
        change = state[0] - x
        state[0] = x
        xr, xw, xk, xv, xa, xg = (x + change * w(at + "x_" + part, 1, 1, dim, scale=0.3, around=0.5)[0, 0] for part in "rwkvag")
        r, k, v = (w(f"{at}{name}_proj.weight", dim, dim) @ y for name, y in (("r", xr), ("k", xk), ("v", xv)))
        decay = np.exp(-np.exp(-0.5) * sigmoid(self.low_rank(at, "w", xw, np.tanh))).reshape(shape)
        if i == 0:
            self.first = v
        else:
            v = v + (self.first - v) * sigmoid(self.low_rank(at, "v", xv))
        a = sigmoid(self.low_rank(at, "a", xa))
        g = self.low_rank(at, "g", xg, sigmoid, biased=False)
        unit = (k * w(at + "k_k", dim, scale=0.2, around=0.8)).reshape(shape)
        unit = unit / np.linalg.norm(unit, axis=-1, keepdims=True)
        k = (k * (1 + (a - 1) * w(at + "k_a", dim, scale=0.2, around=1.0))).reshape(shape)
        r, v, a = r.reshape(shape), v.reshape(shape), a.reshape(shape)
        removed = np.einsum("hij,hi->hj", state[2], -unit)
        state[2] = decay[:, :, None] * state[2] + (unit * a)[:, :, None] * removed[:, None, :] + k[:, :, None] * v[:, None, :]
        out = np.einsum("hi,hij->hj", r, state[2]).reshape(-1)
        out = head_norm(out, w, at + "g_norm", self.n_heads, self.eps * self.head)
        bonus = (r * k * w(at + "r_k", *shape, scale=0.5)).sum(-1, keepdims=True) * v
        return w(at + "o_proj.weight", dim, dim) @ ((out + bonus.reshape(-1)) * g)

    def logits(self, token):
        w, dim = self.w, self.dim
        x = w("model.embeddings.weight", VOCAB, dim, scale=0.5)[token]
        x = layer_norm(x, *w.norm("model.layers.0.pre_norm", dim), self.eps)
        for i, state in enumerate(self.state):
            at = f"model.layers.{i}."
            x = x + self.time_mix(i, layer_norm(x, *w.norm(at + "attn_norm", dim), self.eps), state)
            y = layer_norm(x, *w.norm(at + "ffn_norm", dim), self.eps)
            mixed = y + (state[1] - y) * w(at + "ffn.x_k", dim, scale=0.3, around=0.5)
            state[1] = y
            x = x + w(at + "ffn.value.weight", dim, self.ffn) @ np.maximum(w(at + "ffn.key.weight", self.ffn, dim) @ mixed, 0) ** 2
        return w("lm_head.weight", VOCAB, dim) @ layer_norm(x, *w.norm("model.norm", dim), self.eps)


def write_golden(path, model):
    prompt = np.random.default_rng(7).integers(2, VOCAB, N_PROMPT).tolist()
    model.logits(0)  # draws the weights
    model.clear()
    rows, tokens = [model.logits(token) for token in prompt], []
    for _ in range(N_STEPS):
        tokens.append(int(rows[-1].argmax()))
        rows.append(model.logits(tokens[-1]))
    with open(path, "wb") as file:
        np.array([N_PROMPT, N_STEPS, VOCAB, *prompt, *tokens], np.int32).tofile(file)
        np.stack(rows).astype(np.float32).tofile(file)
    return np.abs(np.stack(rows)).max()


# --- GGUF ------------------------------------------------------------------------------------------------------------
NAMES_6 = {
    "attention.time_maa_x": "time_mix_lerp_x", "attention.time_maa_w1": "time_mix_w1", "attention.time_maa_w2": "time_mix_w2",
    "attention.time_decay": "time_mix_decay", "attention.time_decay_w1": "time_mix_decay_w1", "attention.time_decay_w2": "time_mix_decay_w2",
    "attention.time_faaaa": "time_mix_first", "attention.receptance": "time_mix_receptance", "attention.key": "time_mix_key",
    "attention.value": "time_mix_value", "attention.gate": "time_mix_gate", "attention.output": "time_mix_output",
    "attention.ln_x": "time_mix_ln", "feed_forward.time_maa_k": "channel_mix_lerp_k", "feed_forward.time_maa_r": "channel_mix_lerp_r",
    "feed_forward.key": "channel_mix_key", "feed_forward.value": "channel_mix_value", "feed_forward.receptance": "channel_mix_receptance",
    "ln1": "attn_norm", "ln2": "attn_norm_2"}
NAMES_7 = {
    "attn.r_proj": "time_mix_receptance", "attn.k_proj": "time_mix_key", "attn.v_proj": "time_mix_value", "attn.o_proj": "time_mix_output",
    "attn.g_norm": "time_mix_ln", "attn.k_k": "time_mix_k_k", "attn.k_a": "time_mix_k_a", "attn.r_k": "time_mix_r_k",
    "ffn.x_k": "channel_mix_lerp_k", "ffn.key": "channel_mix_key", "ffn.value": "channel_mix_value", "attn_norm": "attn_norm",
    "ffn_norm": "attn_norm_2"} | {f"attn.{part}_lora.lora.{i}": f"time_mix_{part}{j}" for part in "wavg" for i, j in ((0, 1), (2, 2))}
FRAME = {"embeddings": "token_embd", "blocks.0.pre_ln": "token_embd_norm", "layers.0.pre_norm": "token_embd_norm", "ln_out": "output_norm",
         "norm": "output_norm", "head": "output", "lm_head": "output"}


def gguf_name(key, names):
    """Returns the index of the layer, or None, and the name behind it."""
    key = key.removeprefix("rwkv.").removeprefix("model.")
    stem, _, kind = key.rpartition(".") if key.endswith((".weight", ".bias")) else (key, "", "weight")
    if stem in FRAME:
        return None, f"{FRAME[stem]}.{kind}"
    layer, rest = stem.split(".", 2)[1:]
    if rest.endswith("lora.2") and kind == "bias":
        return int(layer), names[rest][:-1] + "0.weight"
    return int(layer), f"{names[rest]}.{kind}"


def gguf_tensors(weights, version, halve_every):
    shifts, dim = {}, weights["lm_head.weight" if version == 7 else "head.weight"].shape[1]
    order = "wkvrg" if version == 6 else "rwkvag"
    prefix = "attention.time_maa_" if version == 6 else "attn.x_"
    for key, value in weights.items():
        if prefix in key and key.rpartition(prefix)[2] in order:
            layer = int(key.split(".")[2])
            shifts.setdefault(layer, {})[key[-1]] = value.reshape(1, 1, dim)
            continue
        layer, name = gguf_name(key, NAMES_6 if version == 6 else NAMES_7)
        if name in ("time_mix_w1.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight") and version == 6:
            value = value.T
        if name == "time_mix_w2.weight" and version == 6:
            value = value.transpose(0, 2, 1)
        if "lerp" in name or name in ("time_mix_decay.weight", "time_mix_k_k.weight"):
            value = value.reshape(-1)
        if name == "time_mix_r_k.weight":
            value = value.reshape(-1)
        if halve_every and name in ("time_mix_output.weight", "channel_mix_value.weight"):
            value = value / 2 ** (layer // halve_every)
        if version == 7 and layer == 0 and name.startswith("time_mix_a"):  # which the converter adds
            yield "blk.0." + name.replace("time_mix_a", "time_mix_v"), value
        yield (name if layer is None else f"blk.{layer}.{name}"), value
    for layer, each in shifts.items():
        yield f"blk.{layer}.time_mix_lerp_fused.weight", np.stack([each[part] for part in order])


def write_gguf(path, model, version, config, name):
    writer = gguf.GGUFWriter(path, f"rwkv{version}")
    writer.add_name("tiny " + name)
    writer.add_context_length(1048576)
    writer.add_embedding_length(model.dim)
    writer.add_block_count(model.n_layers)
    writer.add_layer_norm_eps(config["layer_norm_epsilon"] if version == 6 else model.eps)
    writer.add_wkv_head_size(model.head)
    writer.add_feed_forward_length(model.ffn)
    writer.add_head_count(0)
    if version == 6:
        writer.add_rescale_every_n_layers(config["rescale_every"])
        writer.add_time_mix_extra_dim(32)
        writer.add_time_decay_extra_dim(64)
    else:
        writer.add_decay_lora_rank(model.ranks["w"])
        writer.add_iclr_lora_rank(model.ranks["a"])
        writer.add_value_residual_mix_lora_rank(model.ranks["v"])
        writer.add_gate_lora_rank(model.ranks["g"])
    for key, value in gguf_tensors(model.w.all, version, config.get("rescale_every", 0)):
        writer.add_tensor(key, np.ascontiguousarray(value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def config_of(name):
    version, dim, layers, head, ffn, more = MODELS[name]
    shared = dict(hidden_size=dim, num_hidden_layers=layers, vocab_size=VOCAB, intermediate_size=ffn, bos_token_id=0, eos_token_id=0,
                  tie_word_embeddings=False, use_cache=True)
    if version == 6:
        return shared | dict(
            model_type="rwkv6", architectures=["Rwkv6ForCausalLM"], attention_hidden_size=dim, head_size=head, head_size_divisor=8,
            layer_norm_epsilon=1e-5, context_length=4096, model_version="6_0") | more
    ranks = RANKS[name]
    return shared | dict(
        model_type="rwkv7", architectures=["RWKV7ForCausalLM"], attn=None, attn_mode="chunk", head_dim=head, hidden_act="sqrelu",
        hidden_ratio=4.0, max_position_embeddings=2048, norm_bias=True, norm_eps=1e-5, norm_first=True, fuse_norm=True,
        value_dim=[dim] * layers, decay_low_rank_dim=ranks["w"], a_low_rank_dim=ranks["a"], v_low_rank_dim=ranks["v"],
        gate_low_rank_dim=ranks["g"]) | more


def model_of(config):
    dim, layers, ffn = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    if config["model_type"] == "rwkv6":
        return Rwkv6(dim, layers, config["head_size"], ffn, config)
    ranks = {part: config[name + "_low_rank_dim"] for part, name in (("w", "decay"), ("a", "a"), ("v", "v"), ("g", "gate"))}
    return Rwkv7(dim, layers, config["head_dim"], ffn, config, ranks)


def shapes(config):
    """Returns {name: shape} of a checkpoint's tensors."""
    model = model_of(config)
    model.logits(0)
    return {name: list(value.shape) for name, value in model.w.all.items()}


def make(name):
    version, config = MODELS[name][0], config_of(name)
    model = model_of(config)
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    most = write_golden(path + "/golden.bin", model)
    save_file(model.w.all, path + "/model.safetensors", {"format": "pt"})
    os.chmod(path + "/model.safetensors", 0o644)
    with open(path + "/config.json", "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
    # The epsilon of heads' norms is a constant of llama.cpp.
    if (config["head_size_divisor"] == 8 if version == 6 else math.isclose(config["norm_eps"] * config["head_dim"], 64e-5)):
        write_gguf(path + "/model.gguf", model, version, config, name)
    print(f"{name}: logits up to {most:.1f}", flush=True)


if __name__ == "__main__":
    for model_name in sys.argv[1:] or MODELS:
        make(model_name)
