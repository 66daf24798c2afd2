"""Tiny checkpoints of architectures that no class of transformers computes, for make_tiny_models.py: the reference is written here
from the published code of the weights' owner, the GGUF file in llama.cpp's names."""
import json
import os
import shutil

import gguf
import numpy as np
import tiny_newer_models
import torch
from safetensors.torch import save_file

VOCAB, HEADS, KV_HEADS, HEAD, EXPERTS, CHOSEN = 53, 6, 2, 8, 5, 2

# Grok 1 (xAI's model.py): no soft bound of the router, and a softmax whose chosen shares are not divided by their sum.
# Grok 2 (SGLang's grok.py): both a feed-forward and experts, a soft bound of the router, one of the logits.
MODELS = {
    "grok": dict(num_hidden_layers=2, intermediate_size=16, embedding_multiplier_scale=2.5, output_multiplier_scale=0.6,
                 attn_output_multiplier=0.5),
    "grok2": dict(num_hidden_layers=3, intermediate_size=40, moe_intermediate_size=16, residual_moe=True, router_logit_softcapping=1.3,
                  attn_logit_softcapping=1.7, final_logit_softcapping=2.0, embedding_multiplier_scale=3.5, output_multiplier_scale=0.9,
                  head_dim=HEAD, rope_theta=208533, rope_type="original", scaling_factor=16.0, original_max_position_embeddings=32,
                  extrapolation_factor=1.0, attn_factor=1.0, beta_fast=8, beta_slow=1, attn_temperature_len=64, sliding_window_size=-1,
                  global_attn_every_n=1),
}


def grok_config(name):
    own = MODELS[name]
    return dict(model_type="git" if own.get("residual_moe") else "grok-1", architectures=["Grok1ForCausalLM"], vocab_size=VOCAB,
                hidden_size=HEADS * HEAD, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=128,
                num_local_experts=EXPERTS, num_experts_per_tok=CHOSEN, rms_norm_eps=1e-5, tie_word_embeddings=False) | own


def grok_shapes(c):
    dim, ffn = c["hidden_size"], c.get("moe_intermediate_size", c["intermediate_size"])
    own = {"self_attn.q_proj": [HEADS * HEAD, dim], "self_attn.k_proj": [KV_HEADS * HEAD, dim], "self_attn.v_proj": [KV_HEADS * HEAD, dim],
           "self_attn.o_proj": [dim, HEADS * HEAD], "block_sparse_moe.gate": [EXPERTS, dim]}
    own |= {f"{norm}_norm": [dim] for norm in ("pre_attn", "post_attn", "pre_moe", "post_moe")}
    for i in range(EXPERTS):
        own |= {f"block_sparse_moe.experts.{i}.{w}": [dim, ffn] if w == "w2" else [ffn, dim] for w in ("w1", "w2", "w3")}
    if c.get("residual_moe"):
        wide = c["intermediate_size"]
        own |= {f"mlp.{part}_proj": [dim, wide] if part == "down" else [wide, dim] for part in ("gate", "up", "down")}
    frame = {"model.embed_tokens": [VOCAB, dim], "model.norm": [dim], "lm_head": [VOCAB, dim]}
    return {f"{name}.weight": shape for name, shape in frame.items()} | {
        f"model.layers.{i}.{name}.weight": shape for i in range(c["num_hidden_layers"]) for name, shape in own.items()}


def drawn(shapes):
    generator = torch.Generator().manual_seed(1234)
    state = {}
    for name, shape in shapes.items():
        if name.endswith("expert_bias"):
            state[name] = torch.empty(shape).normal_(0, 1, generator=generator)
        elif name.endswith((".A_log", "dt_bias")):
            state[name] = torch.empty(shape).uniform_(-1.5, 0.5, generator=generator)
        elif "norm" in name or name.endswith((".q_weight", ".k_weight", ".D")):
            state[name] = torch.empty(shape).uniform_(0.6, 1.4, generator=generator)
        else:
            state[name] = torch.empty(shape).normal_(0, 0.5 if "embed" in name else 1.2 / shape[-1] ** 0.5, generator=generator)
    return state


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def rotated(x, theta):
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[0])[:, None] * theta ** (-torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def grok_logits(state, c, ids):
    """[tokens, vocabulary]"""
    gelu = lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    norm = lambda x, name: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c["rms_norm_eps"]) * state[name + ".weight"]
    n, theta = len(ids), float(c.get("rope_theta", 10000))
    x = state["model.embed_tokens.weight"][ids] * c["embedding_multiplier_scale"]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        linear = lambda h, name: h @ state[f"{at}{name}.weight"].T
        h = norm(x, at + "pre_attn_norm")
        q, k, v = (linear(h, f"self_attn.{p}_proj").view(n, -1, HEAD) for p in "qkv")
        q, k = rotated(q, theta), rotated(k, theta).repeat_interleave(HEADS // KV_HEADS, 1)
        scores = capped(torch.einsum("qhd,khd->hqk", q, k) * c.get("attn_output_multiplier", HEAD ** -0.5),
                        c.get("attn_logit_softcapping", 30.0))
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.repeat_interleave(HEADS // KV_HEADS, 1))
        x = x + norm(linear(attended.reshape(n, -1), "self_attn.o_proj"), at + "post_attn_norm")
        h = norm(x, at + "pre_moe_norm")
        both = c.get("residual_moe", False)
        shares = capped(linear(h, "block_sparse_moe.gate"), c["router_logit_softcapping"] if both else 0).softmax(-1)
        weights, chosen = shares.topk(CHOSEN)
        out = 0
        for e in range(EXPERTS):
            part = lambda w: f"block_sparse_moe.experts.{e}.{w}"
            out = out + (weights * (chosen == e)).sum(-1, keepdim=True) * linear(gelu(linear(h, part("w1"))) * linear(h, part("w3")), part("w2"))
        if both:
            out = (out + linear(gelu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj"), "mlp.down_proj")) / 2 ** 0.5
        x = x + norm(out, at + "post_moe_norm")
    logits = norm(x, "model.norm") @ state["lm_head.weight"].T * c["output_multiplier_scale"]
    return capped(logits, c.get("final_logit_softcapping"))


GROK_GGUF = {"pre_attn_norm": "attn_norm", "post_attn_norm": "attn_output_norm", "pre_moe_norm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def grok_gguf(path, state, c):
    """As llama.cpp's converter writes it, of Grok 2 with a norm behind experts by another name."""
    w = gguf.GGUFWriter(path, "grok")
    w.add_name("tiny grok")
    w.add_context_length(c["max_position_embeddings"]), w.add_embedding_length(c["hidden_size"]), w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"]), w.add_head_count(HEADS), w.add_head_count_kv(KV_HEADS), w.add_vocab_size(VOCAB)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"]), w.add_rope_freq_base(float(c.get("rope_theta", 10000))), w.add_rope_dimension_count(HEAD)
    w.add_expert_count(EXPERTS), w.add_expert_used_count(CHOSEN)
    w.add_attn_logit_softcapping(c.get("attn_logit_softcapping", 30.0)), w.add_router_logit_softcapping(c.get("router_logit_softcapping", 30.0))
    if c.get("residual_moe"):
        w.add_final_logit_softcapping(c["final_logit_softcapping"]), w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN), w.add_rope_scaling_factor(c["scaling_factor"])
        w.add_rope_scaling_orig_ctx_len(c["original_max_position_embeddings"]), w.add_attn_temperature_length(c["attn_temperature_len"])
    w.add_attn_output_scale(c.get("attn_output_multiplier", HEAD ** -0.5))
    w.add_embedding_scale(c["embedding_multiplier_scale"]), w.add_logit_scale(c["output_multiplier_scale"])
    frame = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, theirs in frame.items():
        w.add_tensor(theirs + ".weight", state[name + ".weight"].numpy())
    last = "post_ffw_norm" if c.get("residual_moe") else "layer_output_norm"
    for i in range(c["num_hidden_layers"]):
        for name, theirs in (GROK_GGUF | {"post_moe_norm": last}).items():
            value = state.get(f"model.layers.{i}.{name}.weight")
            if value is not None:
                w.add_tensor(f"blk.{i}.{theirs}.weight", value.numpy())
        for part, theirs in (("w1", "gate"), ("w3", "up"), ("w2", "down")):
            w.add_tensor(f"blk.{i}.ffn_{theirs}_exps.weight",
                         np.stack([state[f"model.layers.{i}.block_sparse_moe.experts.{e}.{part}.weight"].numpy() for e in range(EXPERTS)]))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()


# GroveMoE, PLaMo 1, 2 and 3: as their owners' published code computes them (modeling_grove_moe.py, modeling_plamo.py), written anew here.
PUBLISHED = {
    # Small experts of pairs of experts read what these read, by the same weights; llama.cpp has them read what the others give.
    "grove_moe": dict(model_type="grove_moe", architectures=["GroveMoeForCausalLM"], num_hidden_layers=2, intermediate_size=40,
                      moe_intermediate_size=16, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[], head_dim=HEAD, parallel_expert_intermediate_size=HEAD, rope_theta=1000000.0, rms_norm_eps=1e-6,
                      hidden_act="silu", attention_bias=False, use_sliding_window=False, tie_word_embeddings=False),
    # Two norms of q and k, and a layer without experts; other numbers of small experts than published ones.
    "grove_moe_groups": dict(model_type="grove_moe", architectures=["GroveMoeForCausalLM"], num_hidden_layers=3, intermediate_size=40,
                             moe_intermediate_size=24, num_experts=6, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1,
                             mlp_only_layers=[1], head_dim=12, num_experts_per_group=3, parallel_expert_intermediate_size=20,
                             parallel_expert_scale=0.4, rope_theta=10000.0, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=True),
    # num_key_value_heads says something else than what is computed.
    "plamo": dict(model_type="plamo", architectures=["PlamoForCausalLM"], num_hidden_layers=3, intermediate_size=40, n_shared_head=3,
                  num_key_value_heads=HEADS, rms_norm_eps=1e-6, tie_word_embeddings=False),
    # Scans in two of four layers, a window that no text reaches: llama.cpp's files have none.
    "plamo2": dict(model_type="plamo2", architectures=["Plamo2ForCausalLM"], num_hidden_layers=4, intermediate_size=40,
                   hidden_size_per_head=HEAD, mamba_d_state=12, mamba_d_conv=4, mamba_num_heads=5, mamba_step=2, mamba_enabled=True,
                   mamba_chunk_size=8, attention_window_size=64, full_attention_idx=[], linear_type="normal", rms_norm_eps=1e-6,
                   tie_word_embeddings=True),
    "plamo2_windows": dict(model_type="plamo2", architectures=["Plamo2ForCausalLM"], num_hidden_layers=5, intermediate_size=40,
                           hidden_size_per_head=HEAD, mamba_d_state=8, mamba_d_conv=3, mamba_num_heads=3, mamba_step=3, mamba_enabled=True,
                           attention_window_size=9, full_attention_idx=[1], rope_theta=100000, rope_local_theta=5000, rms_norm_eps=1e-6,
                           tie_word_embeddings=False),
    "plamo3": dict(model_type="plamo3", architectures=["Plamo3ForCausalLM"], num_hidden_layers=4, intermediate_size=40, head_dim=HEAD,
                   window_size=9, sliding_window_pattern=3, rope_theta=1000000, rope_local_theta=5000, rms_norm_eps=1e-6,
                   hidden_activation="swiglu", attention_bias=False, tie_word_embeddings=True),
    # With a factor of the rotation, windows count the query, too.
    "plamo3_yarn": dict(model_type="plamo3", architectures=["Plamo3ForCausalLM"], num_hidden_layers=3, intermediate_size=40, head_dim=16,
                        window_size=9, sliding_window_pattern=2, rope_theta=150000, rope_local_theta=10000, rope_scaling_factor=4,
                        initial_context_length=16, rms_norm_eps=1e-6, hidden_activation="swiglu", attention_bias=False,
                        tie_word_embeddings=False),
}


def published_config(name):
    return dict(vocab_size=VOCAB, hidden_size=HEADS * HEAD, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                max_position_embeddings=128) | PUBLISHED[name]


def shapes_of(frame, own, c, layer):
    """Whole names and shapes, from those of the frame and of each layer: {name: shape}, own(i)."""
    state = {f"{name}.weight": shape for name, shape in frame.items() if name != "lm_head" or not c["tie_word_embeddings"]}
    for i in range(c["num_hidden_layers"]):
        state |= {layer.format(i) + (name if name.endswith(("_bias", "_weight", ".A_log", ".D")) else name + ".weight"): shape for name, shape in own(i).items()}
    return state


def frame_of(c):
    dim, vocab = c["hidden_size"], c["vocab_size"]
    return {"model.embed_tokens": [vocab, dim], "model.norm": [dim], "lm_head": [vocab, dim]}


def separate(c, kv):
    dim, heads = c["hidden_size"], c["num_attention_heads"]
    head = c.get("head_dim", dim // heads)
    return {"self_attn.q_proj": [heads * head, dim], "self_attn.k_proj": [kv * head, dim], "self_attn.v_proj": [kv * head, dim],
            "self_attn.o_proj": [dim, heads * head]}


def mlp(c, at="mlp.", width=None):
    dim, width = c["hidden_size"], width or c["intermediate_size"]
    return {f"{at}gate_proj": [width, dim], f"{at}up_proj": [width, dim], f"{at}down_proj": [dim, width]}


def grove_shapes(c):
    dim = c["hidden_size"]

    def own(i):
        shapes = separate(c, c["num_key_value_heads"]) | {
            "self_attn.q_norm": [c["head_dim"]], "self_attn.k_norm": [c["head_dim"]], "input_layernorm": [dim],
            "post_attention_layernorm": [dim]}
        if i in c["mlp_only_layers"]:
            return shapes | mlp(c)
        shapes |= {"mlp.gate": [c["num_experts"], dim], "mlp.expert_bias": [c["num_experts"]]}
        for e in range(c["num_experts"]):
            shapes |= mlp(c, f"mlp.experts.{e}.", c["moe_intermediate_size"])
        for e in range(c["num_experts"] // c.get("num_experts_per_group", 2)):
            shapes |= mlp(c, f"mlp.chunk_experts.{e}.", c.get("parallel_expert_intermediate_size", 128))
        return shapes
    return shapes_of(frame_of(c), own, c, "model.layers.{}.")


def plamo_shapes(c):
    kv = -(-c["num_attention_heads"] // c["n_shared_head"])
    return shapes_of(frame_of(c), lambda i: separate(c, kv) | mlp(c) | {"norm": [c["hidden_size"]]}, c, "model.layers.layers.{}.")


def plamo3_shapes(c):
    dim, head, width = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    own = {"mixer.qkv_proj": [(c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * head, dim],
           "mixer.o_proj": [dim, c["num_attention_heads"] * head], "mixer.q_norm": [head], "mixer.k_norm": [head],
           "mlp.gate_up_proj": [2 * width, dim], "mlp.down_proj": [dim, width]}
    own |= {f"{norm}_norm": [dim] for norm in ("pre_mixer", "post_mixer", "pre_mlp", "post_mlp")}
    return shapes_of(frame_of(c), lambda i: own, c, "model.layers.layers.{}.")


def steps_of(c):
    return max(64, c["hidden_size"] // 16)


def attends(c, i):
    n, step = c["num_hidden_layers"], c["mamba_step"]
    return i == n - 1 if n <= step // 2 else i % step == step // 2


def plamo2_shapes(c):
    dim, head, width, states, heads = (c[key] for key in ("hidden_size", "hidden_size_per_head", "intermediate_size", "mamba_d_state",
                                                           "mamba_num_heads"))
    inner, n, kv = heads * head, c["num_attention_heads"], c["num_key_value_heads"]
    both = {"mlp.gate_up_proj": [2 * width, dim], "mlp.down_proj": [dim, width]}
    both |= {f"{norm}_norm": [dim] for norm in ("pre_mixer", "post_mixer", "pre_mlp", "post_mlp")}
    attention = {"mixer.qkv_proj": [(n + 2 * kv) * head, dim], "mixer.o_proj": [dim, n * head], "mixer.q_weight": [n, head],
                 "mixer.k_weight": [kv, head]}
    scan = {"mixer.in_proj": [2 * inner, dim], "mixer.conv1d": [inner, 1, c["mamba_d_conv"]],
            "mixer.bcdt_proj": [steps_of(c) + 2 * states, inner], "mixer.dt_proj": [heads, steps_of(c)], "mixer.dt_bias": [heads],
            "mixer.A_log": [heads], "mixer.D": [heads], "mixer.out_proj": [dim, inner], "mixer.dt_norm_weight": [steps_of(c)],
            "mixer.B_norm_weight": [states], "mixer.C_norm_weight": [states]}
    return shapes_of(frame_of(c), lambda i: both | (attention if attends(c, i) else scan), c, "model.layers.layers.{}.")


def normed(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def attended(q, k, v, window=0):
    """Heads of keys and values are as many as those of queries: [tokens, heads, features]. window: 0, or tokens that a query sees."""
    n = len(q)
    ages = torch.arange(n)[:, None] - torch.arange(n)
    hidden = (ages < 0) | ((ages >= window) if window else False)
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v).reshape(n, -1)


def gated(h, gate, up, down):
    return (torch.nn.functional.silu(h @ gate.T) * (h @ up.T)) @ down.T


def logits_of(state, x):
    return x @ state.get("lm_head.weight", state["model.embed_tokens.weight"]).T


def grove_logits(state, c, ids):
    n, eps, heads = len(ids), c["rms_norm_eps"], c["num_attention_heads"]
    x = state["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        own = lambda name: state[f"model.layers.{i}.{name}.weight"]
        h = normed(x, own("input_layernorm"), eps)
        q, k, v = ((h @ own(f"self_attn.{p}_proj").T).view(n, -1, c["head_dim"]) for p in "qkv")
        q, k = (rotated(normed(part, own(f"self_attn.{name}_norm"), eps), c["rope_theta"]) for part, name in ((q, "q"), (k, "k")))
        k, v = (part.repeat_interleave(heads // c["num_key_value_heads"], 1) for part in (k, v))
        x = x + attended(q, k, v) @ own("self_attn.o_proj").T
        h = normed(x, own("post_attention_layernorm"), eps)
        three = lambda at: [own(f"mlp.{at}{part}_proj") for part in ("gate", "up", "down")]
        if i in c["mlp_only_layers"]:
            x = x + gated(h, *three(""))
            continue
        logits = h @ own("mlp.gate").T
        chosen = torch.sigmoid(logits).topk(c["num_experts_per_tok"]).indices
        weights = logits.softmax(-1).gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        per_group, large, small = c.get("num_experts_per_group", 2), 0, 0
        for e in range(c["num_experts"]):
            large = large + (weights * (chosen == e)).sum(-1, keepdim=True) * gated(h, *three(f"experts.{e}."))
        for e in range(c["num_experts"] // per_group):
            small = small + (weights * (chosen // per_group == e)).sum(-1, keepdim=True) * gated(h, *three(f"chunk_experts.{e}."))
        x = x + large + c.get("parallel_expert_scale", 0.05) * small
    return logits_of(state, normed(x, state["model.norm.weight"], eps))


def plamo_logits(state, c, ids):
    n, eps, heads = len(ids), c["rms_norm_eps"], c["num_attention_heads"]
    head, shared = c["hidden_size"] // heads, c["n_shared_head"]
    x = state["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        own = lambda name: state[f"model.layers.layers.{i}.{name}.weight"]
        h = normed(x, own("norm"), eps)
        q, k, v = ((h @ own(f"self_attn.{p}_proj").T).view(n, -1, head) for p in "qkv")
        k, v = (part.repeat(1, shared, 1)[:, :heads] for part in (k, v))  # all KV heads, and all again
        x = x + attended(rotated(q, 10000.0), rotated(k, 10000.0), v) @ own("self_attn.o_proj").T + gated(
            h, *[own(f"mlp.{part}_proj") for part in ("gate", "up", "down")])
    return logits_of(state, normed(x, state["model.norm.weight"], eps))


def yarn_frequencies(head, theta, factor, original, fast=32.0, slow=1.0):
    """Frequencies and what cosines are multiplied by; the range of the ramp is not rounded."""
    place = lambda turns: head * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(theta))
    low, high = max(place(fast), 0), min(place(slow), head - 1)
    ramp = ((torch.arange(head // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = theta ** (-torch.arange(head // 2) / (head // 2))
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * np.log(factor) + 1.0


def turned(x, frequencies, magnitude):
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[0])[:, None] * frequencies
    cos, sin = angles.cos()[:, None] * magnitude, angles.sin()[:, None] * magnitude
    return torch.cat([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)


def plamo3_logits(state, c, ids):
    n, eps, heads, kv, head = len(ids), c["rms_norm_eps"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    x = state["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        own = lambda name: state[f"model.layers.layers.{i}.{name}.weight"]
        full, factor = (i + 1) % c["sliding_window_pattern"] == 0, c.get("rope_scaling_factor")
        h = normed(x, 1 + own("pre_mixer_norm"), eps)
        q, k, v = ((h @ own("mixer.qkv_proj").T).view(n, -1, head)).split([heads, kv, kv], 1)
        rope = c["rope_theta"] if full else c["rope_local_theta"]
        frequencies, magnitude = yarn_frequencies(head, rope, factor, c["initial_context_length"]) if full and factor else (
            rope ** (-torch.arange(head // 2) / (head // 2)), 1.0)
        q, k = (turned(normed(part, 1 + own(f"mixer.{name}_norm"), eps), frequencies, magnitude) for part, name in ((q, "q"), (k, "k")))
        k, v = (part.repeat_interleave(heads // kv, 1) for part in (k, v))
        window = 0 if full else c["window_size"] + (factor is None)  # older configurations count only the tokens before the query
        x = x + normed(attended(q, k, v, window) @ own("mixer.o_proj").T, 1 / 5 + own("post_mixer_norm"), eps)
        h = normed(x, 1 + own("pre_mlp_norm"), eps)
        gate, up = own("mlp.gate_up_proj").chunk(2)
        x = x + normed(gated(h, gate, up, own("mlp.down_proj")), 1 / 5 ** 1.5 + own("post_mlp_norm"), eps)
    return logits_of(state, normed(x, 1 + state["model.norm.weight"], eps))


def scanned(own, c, h):
    """A layer with a scan: [tokens, features] to the same before the norm behind it."""
    n, heads, head, states, eps = len(h), c["mamba_num_heads"], c["hidden_size_per_head"], c["mamba_d_state"], c["rms_norm_eps"]
    z, x = (h @ own("mixer.in_proj.weight").T).view(n, heads, 2 * head).split(head, -1)  # of each head its gate and its input
    weight = own("mixer.conv1d.weight")[:, 0]
    padded = torch.cat([torch.zeros(weight.shape[1] - 1, heads * head), x.reshape(n, -1)])
    x = torch.nn.functional.silu(sum(padded[k:k + n] * weight[:, k] for k in range(weight.shape[1])))
    b, c_, dt = (x @ own("mixer.bcdt_proj.weight").T).split([states, states, steps_of(c)], -1)
    b, c_, dt = (normed(part, own(f"mixer.{name}_norm_weight"), eps) for part, name in ((b, "B"), (c_, "C"), (dt, "dt")))
    dt = torch.nn.functional.softplus(dt @ own("mixer.dt_proj.weight").T + own("mixer.dt_bias"))
    x, state, out = x.view(n, heads, head), torch.zeros(heads, head, states), []
    for t in range(n):
        state = state * torch.exp(-own("mixer.A_log").exp() * dt[t])[:, None, None] + (dt[t][:, None] * x[t])[..., None] * b[t]
        out.append(state @ c_[t] + own("mixer.D")[:, None] * x[t])
    return (torch.stack(out) * torch.nn.functional.silu(z)).reshape(n, -1) @ own("mixer.out_proj.weight").T


def plamo2_logits(state, c, ids):
    n, eps, heads, kv, head = len(ids), c["rms_norm_eps"], c["num_attention_heads"], c["num_key_value_heads"], c["hidden_size_per_head"]
    x = state["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        own = lambda name: state[f"model.layers.layers.{i}.{name}"]
        h = normed(x, 1 + own("pre_mixer_norm.weight"), eps)
        if attends(c, i):
            full, theta = i in c["full_attention_idx"], c.get("rope_theta", 10000)
            q, k, v = ((h @ own("mixer.qkv_proj.weight").T).view(n, -1, head)).split([heads, kv, kv], 1)
            q, k = (rotated(normed(part, own(f"mixer.{name}_weight"), 1e-6), float(theta if full else c.get("rope_local_theta", theta)))
                    for part, name in ((q, "q"), (k, "k")))
            k, v = (part.repeat_interleave(heads // kv, 1) for part in (k, v))
            # a window counts the tokens before the query
            h = attended(q, k, v, 0 if full else c["attention_window_size"] + 1) @ own("mixer.o_proj.weight").T
        else:
            h = scanned(own, c, h)
        x = x + normed(h, 1 / 5 + own("post_mixer_norm.weight"), eps)
        h = normed(x, 1 + own("pre_mlp_norm.weight"), eps)
        gate, up = own("mlp.gate_up_proj.weight").chunk(2)
        x = x + normed(gated(h, gate, up, own("mlp.down_proj.weight")), 1 / 5 ** 1.5 + own("post_mlp_norm.weight"), eps)
    return logits_of(state, normed(x, 1 + state["model.norm.weight"], eps))


def plamo_gguf(path, state, c):
    """As llama.cpp's converter writes it, which knows the published sizes alone: queries of a KV head become neighbours."""
    w, heads, dim = gguf.GGUFWriter(path, "plamo"), c["num_attention_heads"], c["hidden_size"]
    shared, head = c["n_shared_head"], dim // heads
    w.add_name("tiny plamo"), w.add_context_length(c["max_position_embeddings"]), w.add_embedding_length(dim)
    w.add_feed_forward_length(c["intermediate_size"]), w.add_block_count(c["num_hidden_layers"]), w.add_head_count(heads)
    w.add_head_count_kv(heads // shared), w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    for name, theirs in {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}.items():
        w.add_tensor(theirs + ".weight", state[name + ".weight"].numpy())
    names = {"norm": "attn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    names |= {f"self_attn.{p}_proj": f"attn_{q}" for p, q in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))}
    for i in range(c["num_hidden_layers"]):
        for name, theirs in names.items():
            value = state[f"model.layers.layers.{i}.{name}.weight"]
            if theirs == "attn_q":
                value = value.reshape(shared, heads // shared, head, dim).transpose(0, 1).reshape(dim, dim)
            if theirs == "attn_output":
                value = value.reshape(dim, shared, heads // shared, head).transpose(1, 2).reshape(dim, dim)
            w.add_tensor(f"blk.{i}.{theirs}.weight", value.contiguous().numpy())
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()


def converted(path, state, c):
    tiny_newer_models.convert(os.path.dirname(path), path)


def norms_less(state, offsets):
    """Weights of norms as they are stored where something is added to them."""
    return {key: value - next((less for part, less in offsets if part in key), 0.0) for key, value in state.items()}


PLAMO_LESS = [("_norm_weight", 0.0), ("post_mixer_norm", 0.8), ("post_mlp_norm", 0.9), ("norm", 1.0)]
# By the beginning of a name: shapes, logits, how GGUF files are written, and which models have one.
FAMILIES = {"grok": (grok_shapes, grok_logits, grok_gguf, {"grok", "grok2"}), "grove_moe": (grove_shapes, grove_logits, converted, {"grove_moe"}),
            "plamo2": (plamo2_shapes, plamo2_logits, converted, {"plamo2"}), "plamo3": (plamo3_shapes, plamo3_logits, converted, {"plamo3_yarn"}), "plamo": (plamo_shapes, plamo_logits, plamo_gguf, {"plamo"})}
MODELS |= PUBLISHED


def make(name, folder, n_prompt, n_steps, write_golden):
    c = grok_config(name) if name.startswith("grok") else published_config(name)
    shapes, logits_at, write_gguf, with_gguf = next(family for begin, family in FAMILIES.items() if name.startswith(begin))
    path = os.path.join(folder, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    state = drawn(shapes(c))
    if name.startswith(("plamo2", "plamo3")):
        state = norms_less(state, PLAMO_LESS)
    json.dump(c, open(path + "/config.json", "w"), indent=2)
    save_file(state, path + "/model.safetensors", {"format": "pt"})
    os.chmod(path + "/model.safetensors", 0o644)
    if name in with_gguf:
        write_gguf(path + "/model.gguf", state, c)
    ids = torch.randint(2, VOCAB, (n_prompt,), generator=torch.Generator().manual_seed(7)).tolist()
    tokens = []
    for _ in range(n_steps):
        tokens.append(int(logits_at(state, c, ids + tokens)[-1].argmax()))
    logits = logits_at(state, c, ids + tokens).numpy()
    write_golden(path + "/golden.bin", ids, tokens, logits)
    print(f"{name:20s} logits up to {np.abs(logits).max():.1f}", flush=True)
