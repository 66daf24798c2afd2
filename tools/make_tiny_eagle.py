#!/usr/bin/env python3
"""Tiny targets and layers of EAGLE-3 beside them, and what these propose: tests/golden/eagle3/NAME with target/, head/ and golden.txt, a line
for each prompt, behind a bar the chain of the likeliest tokens.

The layer is computed here from its definition (src/model/eagle_layer.h), the target by transformers.
Usage: make_tiny_eagle.py [NAME ...]   (torch, transformers)
"""
import json
import os
import shutil
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
import torch
import transformers as T
from safetensors.torch import save_file

import make_tiny_models

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "eagle3")
DRAFT, DIM, VOCAB = 6, 24, 53
BASE = dict(vocab_size=VOCAB, hidden_size=DIM, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1, tie_word_embeddings=False)
# Of the target, of the layer, of its config.json; whether it has its own embeddings and the whole vocabulary.
TINY = {
    "llama": (lambda: T.LlamaConfig(**BASE, num_hidden_layers=7), dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8), {}, False),
    "qwen3": (lambda: T.Qwen3Config(**BASE | dict(num_key_value_heads=4, tie_word_embeddings=True), num_hidden_layers=3),
              dict(num_attention_heads=3, num_key_value_heads=1, head_dim=12, attention_bias=False, rope_theta=5e4),
              dict(norm_before_residual=True, eagle_config=dict(eagle_aux_hidden_state_layer_ids=[0, 2])), True),
}


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Head:
    def __init__(self, config, n_taps, whole):
        dim, width, rows = DIM, config["head_dim"], VOCAB if whole else 31
        q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
        draw = lambda *shape: torch.randn(*shape) * 0.3
        norm = lambda: 1 + torch.randn(dim) * 0.2
        at = "layers.0." if whole else "midlayer."
        self.config, self.at, self.whole = config, at, whole
        self.state = {
            "fc.weight": draw(dim, n_taps * dim), at + "input_layernorm.weight": norm(), at + "hidden_norm.weight": norm(),
            at + "self_attn.q_proj.weight": draw(q, 2 * dim), at + "self_attn.k_proj.weight": draw(kv, 2 * dim),
            at + "self_attn.v_proj.weight": draw(kv, 2 * dim), at + "self_attn.o_proj.weight": draw(dim, q),
            at + "post_attention_layernorm.weight": norm(), at + "mlp.gate_proj.weight": draw(40, dim),
            at + "mlp.up_proj.weight": draw(40, dim), at + "mlp.down_proj.weight": draw(dim, 40), "norm.weight": norm(),
            "lm_head.weight": draw(rows, dim)}
        if whole:
            self.state["embed_tokens.weight"] = torch.randn(VOCAB, dim)
        else:
            kept = torch.randperm(VOCAB)[:rows].sort().values
            self.state["d2t"] = kept - torch.arange(rows)
            self.state["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, kept, True)

    def rotate(self, x):
        half = self.config["head_dim"] // 2
        angles = torch.arange(x.shape[1])[:, None] / self.config["rope_theta"] ** (torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def layer(self, embedded, states):
        """Computes the layer. Inputs: [n, dim] each. Returns the residual stream after the layer."""
        w, c = lambda name: self.state[self.at + name + ".weight"], self.config
        eps, width = c["rms_norm_eps"], c["head_dim"]
        normed = rms(states, w("hidden_norm"), eps)
        both = torch.cat([rms(embedded, w("input_layernorm"), eps), normed], -1)
        heads = lambda part: (both @ w(f"self_attn.{part}_proj").T).view(len(both), -1, width).transpose(0, 1)
        q, k, v = self.rotate(heads("q")), self.rotate(heads("k")), heads("v")
        k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        scores = (q @ k.transpose(1, 2) / width ** 0.5 + torch.full((len(both),) * 2, -1e30).triu(1)).softmax(-1)
        attended = (scores @ v).transpose(0, 1).reshape(len(both), -1) @ w("self_attn.o_proj").T
        x = (normed if c.get("norm_before_residual") else states) + attended
        h = rms(x, w("post_attention_layernorm"), eps)
        return x + (torch.nn.functional.silu(h @ w("mlp.gate_proj").T) * (h @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T

    def logits(self, x):
        own = rms(x, self.state["norm.weight"], self.config["rms_norm_eps"]) @ self.state["lm_head.weight"].T
        if self.whole:
            return own
        rows = torch.arange(len(own)) + self.state["d2t"]
        return torch.full((VOCAB,), -torch.inf).index_put((rows,), own)


def make(name):
    torch.manual_seed(3)
    config, heads, more, whole = TINY[name]
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    target = T.AutoModelForCausalLM.from_config(config()).float().eval()
    make_tiny_models.randomize(target, name)
    target.save_pretrained(path + "/target")
    for extra in ("generation_config.json",):
        if os.path.exists(f"{path}/target/{extra}"):
            os.remove(f"{path}/target/{extra}")
    n = target.config.num_hidden_layers
    taps = more.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids", [2, n // 2, n - 3])
    saved = dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", num_hidden_layers=1, hidden_size=DIM,
                 intermediate_size=40, hidden_act="silu", rms_norm_eps=1e-5, vocab_size=VOCAB, draft_vocab_size=VOCAB if whole else 31,
                 max_position_embeddings=128, rope_theta=1e4, tie_word_embeddings=False) | heads | more
    head = Head(saved, len(taps), whole)
    os.makedirs(path + "/head")
    save_file({k: v.contiguous() for k, v in head.state.items()}, path + "/head/model.safetensors", {"format": "pt"})
    json.dump(saved, open(path + "/head/config.json", "w"), indent=2)
    for part in ("target", "head"):
        os.chmod(f"{path}/{part}/model.safetensors", 0o644)
    table = head.state["embed_tokens.weight"] if whole else target.model.embed_tokens.weight.detach()

    def propose(prompt):
        streams = target.model(torch.tensor([prompt]), output_hidden_states=True).hidden_states  # before layer i: the i-th
        states = torch.cat([streams[tap][0, :-1] for tap in taps], -1) @ head.state["fc.weight"].T
        tokens = list(prompt[1:])
        for _ in range(DRAFT):
            x = head.layer(table[torch.tensor(tokens)], states)
            best = head.logits(x[-1]).topk(2)
            assert best.values[0] - best.values[1] > 1e-3, "too near to tell"
            states = torch.cat([states, x[-1:]])
            tokens.append(int(best.indices[0]))
        return tokens[len(prompt) - 1:]

    with torch.no_grad(), open(path + "/golden.txt", "w") as out:
        for length in (2, 7, 23, 40):
            prompt = torch.randint(0, VOCAB, (length,)).tolist()
            print(*prompt, "|", *propose(prompt), file=out)
    print(f"{name}: streams before layers {taps} of {n}")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or TINY:
        make(wanted)
