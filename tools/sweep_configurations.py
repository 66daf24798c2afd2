#!/usr/bin/env python3
"""Writes random configurations of every architecture as tiny checkpoints, with what transformers computes, to OUT/<name>.<n>/.

Each starts from a row of make_tiny_models.py and tiny_newer_models.py and has other heads, layers, windows, ropes, experts, activations
and switches; its config.json is as transformers writes it, or with the older keys of ropes, or without what is a default. Then

    PENSTOCK_GOLDEN_MODELS=OUT tests_model --gtest_filter='*GoldenModels.PromptThenStepByStep*'

compares them all. What transformers itself refuses is counted and left out. A refusal by Penstock is a finding only where real checkpoints
may say such a thing. Run by hand when transformers changes.

With --bf16 PENSTOCK weights are stored in BF16, of which transformers computes in F32 as without it, and the program PENSTOCK makes
model.gguf of each in F16, which holds the same numbers (but those next to 0); what it refuses is printed. Products with AVX-512 BF16 round
activations too, so compare with PENSTOCK_ISA=avx2, where they stay F32 and the tolerance is that of weights in F32.

Usage: sweep_configurations.py [--bf16 PENSTOCK] OUT SEED COUNT [part of a class name...]: so many of each class. Needs what
make_tiny_models.py needs.
"""
import argparse
import copy
import json
import os
import random
import shutil
import subprocess
import sys

import make_tiny_models as tiny
import numpy as np
import tiny_newer_models as newer
import torch
import transformers as T

# Of no effect on logits, sizes that others follow from, what makes an encoder, and what makes transformers scale weights that it loads.
LEFT_ALONE = {"use_bidirectional_attention", "use_cache", "return_dict", "chunk_size_feed_forward", "is_encoder_decoder", "initializer_range", "pretraining_tp", "dtype",
              "max_position_embeddings", "mamba_chunk_size", "chunk_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
              "num_key_value_heads", "hidden_size", "head_dim", "tie_encoder_decoder", "add_cross_attention", "rescale_prenorm_residual"}
# By layer: they go where the number of layers changes.
BY_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers", "moe_layers", "mlp_only_layers", "full_attn_idxs", "attn_layer_indices",
            "layer_rope_theta", "activation_sparsity_pattern", "moe_layer_end_index")
CHOICES = {"num_experts": (4, 6, 8), "num_local_experts": (4, 6, 8), "n_routed_experts": (4, 6, 8), "moe_num_experts": (4, 6, 8),
           "num_experts_per_tok": (1, 2, 3), "moe_topk": (1, 2, 3), "moe_k": (1, 2, 3), "top_k_experts": (1, 2, 3),
           "n_shared_experts": (0, 1, 2), "num_shared_experts": (1, 2), "moe_num_shared_experts": (0, 1, 2),
           "n_groups": (1, 2, 4), "mamba_n_groups": (1, 2, 4), "q_lora_rank": (None, 12, 16), "sliding_window": (3, 9, 17, 33)}
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "gelu_new")
ROPES = [newer.rope(), newer.rope(1e6), newer.rope(rope_type="linear", factor=8.0), newer.rope(rope_type="dynamic", factor=2.0), newer.LLAMA3,
         newer.YARN, newer.YARN | dict(attention_factor=1.3), newer.YARN | dict(mscale=0.7, mscale_all_dim=1.2),
         newer.YARN | dict(truncate=False), newer.YARN | dict(mscale=0.8)]


def rows():
    """Returns {class name: [(name of the row, arguments)]}."""
    real, tiny.T, newer.T = T, Recorder(), Recorder()
    found = {}
    for name, row in [*tiny.MODELS.items(), *newer.MODELS.items()]:
        if "bitnet" not in name and not name.endswith("_mxfp4") and "_vl" not in name:
            recorded = row()[0]
            if not isinstance(recorded, tuple):  # of tiny_remote_models.py, whose tensors have another layout
                continue
            cls, arguments = recorded
            found.setdefault(cls, []).append((name, arguments))
    tiny.T = newer.T = real
    return found


class Recorder:
    def __getattr__(self, name):
        return lambda **arguments: (name, arguments)


def other_rope(old, rng):
    return rng.choice(ROPES) | {key: old[key] for key in ("partial_rotary_factor", "mrope_section", "llama_4_scaling_beta") if key in old}


def changed(cls, kw, rng):
    usual = getattr(T, cls)(**copy.deepcopy(kw)).to_dict()
    chance = lambda share: rng.random() < share  # noqa: E731
    scans = any("mamba" in key or "linear_" in key for key in usual)
    if "num_key_value_heads" in usual and chance(0.6):
        heads, kv = rng.choice([(4, 2), (4, 1), (6, 2), (5, 1), (6, 3), (4, 4), (8, 2)] if not scans else [(4, 2), (6, 2), (3, 3), (6, 1)])
        kw |= dict(num_attention_heads=heads, num_key_value_heads=heads if "kv_lora_rank" in usual else kv)
        if not scans and "kv_lora_rank" not in usual:
            kw["hidden_size"] = heads * rng.choice([4, 6, 8])
        if "head_dim" in kw:
            kw["head_dim"] = rng.choice([6, 8, 12, 16])
    for key, value in usual.items():
        if key in LEFT_ALONE or key in BY_LAYER or key.endswith(("dropout", "token_id")) or key.startswith(("is_", "output_", "_")):
            continue
        if isinstance(value, bool):
            kw |= {key: not value} if chance(0.25) else {}
        elif "eps" in key and isinstance(value, float):
            kw |= {key: rng.choice([1e-6, 1e-3, 0.03])} if chance(0.3) else {}
        elif key in ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"):
            kw |= {key: rng.choice(ACTIVATIONS)} if chance(0.2) else {}
        elif isinstance(value, float):
            kw |= {key: value * rng.choice([0.7, 1.3])} if chance(0.25) else {}
        elif key in CHOICES:
            kw |= {key: rng.choice(CHOICES[key])} if (value or key == "q_lora_rank") and chance(0.5) else {}
    if chance(0.3) and "layers_block_type" not in usual:
        kw = {key: value for key, value in kw.items() if key not in BY_LAYER} | dict(num_hidden_layers=rng.choice([1, 5]))
    elif isinstance(usual.get("layer_types"), list) and chance(0.4):
        kw["layer_types"] = [rng.choice(sorted(set(usual["layer_types"]))) for _ in usual["layer_types"]]
    ropes = usual.get("rope_parameters")
    if isinstance(ropes, dict) and chance(0.6):
        single = "rope_type" in ropes
        kw["rope_parameters"] = other_rope(ropes, rng) if single else {kind: other_rope(one, rng) for kind, one in ropes.items()}
    return kw


def restyled(path, cls, style):
    """Returns an equivalent config.json with alternative keys that transformers accepts."""
    file = path + "/config.json"
    written = json.load(open(file))
    before, other = T.AutoConfig.from_pretrained(path).to_dict(), dict(written)
    ropes = other.get("rope_parameters")
    if style != "as written" and isinstance(ropes, dict) and "rope_type" in ropes:
        ropes = dict(other.pop("rope_parameters"))
        other |= {key: ropes.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in ropes}
        other["rope_scaling"] = ropes if ropes["rope_type"] != "default" else None
    if style == "without defaults":
        usual = getattr(T, cls)().to_dict()
        other = {key: value for key, value in other.items()
                 if key in ("model_type", "architectures", "vocab_size") or key not in usual or usual[key] != value}
    json.dump(other, open(file, "w"), indent=1)
    after = T.AutoConfig.from_pretrained(path).to_dict()
    if any(before[key] != after.get(key) for key in before):
        json.dump(written, open(file, "w"), indent=1)


def make(path, cls, kw, rng, dtype):
    torch.manual_seed(1)
    kind = next(k for k in (getattr(T, cls.replace(old, new), None) for old in ("TextConfig", "Config") for new in ("ForCausalLM", "LMHeadModel"))
                if k is not None and not k.__name__.endswith("Config"))
    model = kind(getattr(T, cls)(**copy.deepcopy(kw))).float().eval()
    tiny.randomize(model, "")
    model.to(dtype).save_pretrained(path, **(dict(max_shard_size="20KB") if rng.random() < 0.15 else {}))
    restyled(path, cls, rng.choice(["as written", "older ropes", "without defaults"]))
    attention = "sdpa" if kw.get("alibi") else "eager"  # which adds Falcon's biases twice
    model = kind.from_pretrained(path, dtype=torch.float32, attn_implementation=attention, experts_implementation="eager").eval()
    prompt, tokens, logits, _ = tiny.reference(model, tiny.N_PROMPT, 8, model.config.vocab_size)
    if not np.isfinite(logits).all():
        raise ValueError("logits that are not finite")
    tiny.write_golden(path + "/golden.bin", prompt, tokens, logits)


def write_gguf(program, path):
    run = subprocess.run([program, "quantize", path, path + "/model.gguf", "--type", "f16"], capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{os.path.basename(path)}: {run.stderr.strip()[-300:]}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bf16")
    parser.add_argument("words", nargs="+")
    arguments = parser.parse_args()
    out, seed, count, *parts = arguments.words
    dtype = torch.bfloat16 if arguments.bf16 else torch.float32
    T.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for cls, known in rows().items():
        if parts and not any(part.lower() in cls.lower() for part in parts):
            continue
        rng, made = random.Random(seed + cls), 0
        for i in range(int(count)):
            name, kw = rng.choice(known)
            path = os.path.join(out, f"{name}.{i}")
            shutil.rmtree(path, ignore_errors=True)
            try:
                make(path, cls, changed(cls, copy.deepcopy(kw), rng), rng, dtype)
                made += 1
                if arguments.bf16:
                    write_gguf(arguments.bf16, path)
            except Exception as error:  # of any kind: sizes that do not fit each other
                shutil.rmtree(path, ignore_errors=True)
                print(f"{name}.{i}: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}", file=sys.stderr)
        print(f"{cls}: {made} of {count}", flush=True)


if __name__ == "__main__":
    main()
