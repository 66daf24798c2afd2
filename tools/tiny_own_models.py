"""Tiny checkpoints of architectures that no class of transformers computes and whose code is no remote one, for make_tiny_models.py: the
reference is written here from the published code of the weights' owner, the GGUF file in llama.cpp's names."""
import json
import os
import shutil

import gguf
import numpy as np
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
        if "norm" in name:
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


def make(name, folder, n_prompt, n_steps, write_golden):
    c = grok_config(name)
    path = os.path.join(folder, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    state = drawn(grok_shapes(c))
    json.dump(c, open(path + "/config.json", "w"), indent=2)
    save_file(state, path + "/model.safetensors", {"format": "pt"})
    os.chmod(path + "/model.safetensors", 0o644)
    grok_gguf(path + "/model.gguf", state, c)
    ids = torch.randint(2, VOCAB, (n_prompt,), generator=torch.Generator().manual_seed(7)).tolist()
    tokens = []
    for _ in range(n_steps):
        tokens.append(int(grok_logits(state, c, ids + tokens)[-1].argmax()))
    logits = grok_logits(state, c, ids + tokens).numpy()
    write_golden(path + "/golden.bin", ids, tokens, logits)
    print(f"{name:20s} logits up to {np.abs(logits).max():.1f}", flush=True)
