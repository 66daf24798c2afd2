#!/usr/bin/env python3
"""Writes tests/golden/models/<name>/: tiny random checkpoints of every architecture and what transformers computes.

  config.json, model.safetensors   the Hugging Face directory, F32
  model.gguf                       the same weights in the names and layout that llama.cpp expects, F32
  golden.bin                       see write_golden: a prompt, the tokens decoded greedily step by step, logits after each

Needs torch, transformers, safetensors, gguf, numpy, and for the GGUF files of tiny_newer_models.py LLAMA_CPP, a checkout of
llama.cpp. Usage: make_tiny_models.py [name...]; deterministic.
"""
import json
import math
import os
import shutil
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
if os.environ.get("LLAMA_CPP"):
    sys.path.insert(0, os.path.join(os.environ["LLAMA_CPP"], "gguf-py"))  # the version that its converter needs
import gguf
import numpy as np
import tiny_newer_models
import tiny_own_models
import torch
import transformers as T
from safetensors.torch import load_file, save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "models")
N_PROMPT, N_STEPS = 40, 12


def rope(theta=10000.0, **more):
    return dict(rope_type="default", rope_theta=theta) | more


def base(**more):
    return dict(vocab_size=71, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False,
                bos_token_id=0, eos_token_id=1, pad_token_id=1, initializer_range=0.02) | more


def longrope(n):
    return rope(rope_type="longrope", short_factor=[1.0 + 0.1 * i for i in range(n)],
                long_factor=[1.0 + 1.7 * i for i in range(n)], original_max_position_embeddings=16)


LLAMA3_ROPE = rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)
# name: (config, GGUF architecture)
MODELS = {
    "llama2": lambda: (T.LlamaConfig(**base(num_key_value_heads=4)), "llama"),
    "llama3": lambda: (T.LlamaConfig(**base(head_dim=16, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE)), "llama"),
    "llama_linear": lambda: (T.LlamaConfig(**base(rope_parameters=rope(rope_type="linear", factor=4.0))), "llama"),
    "llama_yarn": lambda: (T.LlamaConfig(**base(head_dim=16, rope_parameters=rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0))), "llama"),
    "llama_mqa": lambda: (T.LlamaConfig(**base(num_key_value_heads=1, attention_bias=True, mlp_bias=True)), "llama"),
    "mistral": lambda: (T.MistralConfig(**base(sliding_window=9)), "llama"),
    "mixtral": lambda: (T.MixtralConfig(**base(num_local_experts=4, num_experts_per_tok=2)), "llama"),
    "qwen2": lambda: (T.Qwen2Config(**base(tie_word_embeddings=True, rope_parameters=rope(1e6))), "qwen2"),
    "qwen3": lambda: (T.Qwen3Config(**base(head_dim=12, rope_parameters=rope(1e6))), "qwen3"),
    "qwen3_moe": lambda: (T.Qwen3MoeConfig(**base(head_dim=12, num_experts=6, num_experts_per_tok=3,
                                                  moe_intermediate_size=16, norm_topk_prob=True)), "qwen3moe"),
    "gemma2": lambda: (T.Gemma2Config(**base(head_dim=12, sliding_window=9, tie_word_embeddings=True, query_pre_attn_scalar=12,
                                             attn_logit_softcapping=2.0, final_logit_softcapping=3.0)), "gemma2"),
    "gemma3": lambda: (T.Gemma3TextConfig(**base(
        head_dim=12, num_hidden_layers=4, sliding_window=9, tie_word_embeddings=True, query_pre_attn_scalar=12,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={"sliding_attention": rope(10000.0), "full_attention": rope(1e6, rope_type="linear", factor=8.0)})),
        "gemma3"),
    "phi3": lambda: (T.Phi3Config(**base(sliding_window=17)), "phi3"),
    "phi3_longrope": lambda: (T.Phi3Config(**base(original_max_position_embeddings=16, rope_parameters=longrope(4))), "phi3"),
    "phi4_partial_rotary": lambda: (T.Phi3Config(**base(rope_parameters=rope(partial_rotary_factor=0.75))), "phi3"),
    "olmo2": lambda: (T.Olmo2Config(**base()), "olmo2"),
    "granite": lambda: (T.GraniteConfig(**base(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3,
                                               logits_scaling=2.0)), "granite"),
    "gpt2": lambda: (T.GPT2Config(vocab_size=71, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0,
                                  eos_token_id=1), "gpt2"),
    "bitnet": lambda: (bitnet_config("online"), "bitnet-b1.58"),
    "bitnet_packed": lambda: (bitnet_config("offline"), None),
}


def bitnet_config(mode):
    config = T.BitNetConfig(**base(hidden_act="relu2", tie_word_embeddings=True, rope_parameters=rope(500000.0)))
    config.quantization_config = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode=mode)
    return config


# --- Reference -------------------------------------------------------------------------------------------------------
def randomize(model, name):
    """Weights that keep every layer's effect visible: unit-gain matrices, norms away from one, biases away from zero."""
    generator = torch.Generator().manual_seed(1234)
    biases = [(k, b) for k, b in model.named_buffers() if k.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar", "balancing_biases"))]
    with torch.no_grad():
        for key, table in model.named_buffers():
            if key.endswith("tid2eid"):
                table.copy_(torch.rand(table.shape[0], model.config.n_routed_experts, generator=generator).argsort(-1)[:, :table.shape[1]])
        for key, p in [*model.named_parameters(), *biases]:
            key = key.replace("norm_attn_norm.", "")  # DBRX's block, of which only some are norms
            if key.endswith(("_scale", ".scale", "layer_scalar")):
                p.uniform_(0.6, 1.4, generator=generator)
            elif "norm" in key or ".ln_" in key:
                if key.endswith("bias"):
                    p.normal_(0, 0.2, generator=generator)
                elif name in ("gemma2", "gemma3") or name.startswith("recurrent_gemma") or name.startswith(("qwen3_next", "qwen3_5", "qwen4", "minimax_m3")) and "linear_attn" not in key:
                    p.uniform_(-0.4, 0.4, generator=generator)
                else:
                    p.uniform_(0.6, 1.4, generator=generator)
            elif name.startswith("zamba2") and p.dim() == 2 and any(part in key for part in ("q_", "k_", "in_proj", "gate_up")):  # less magnifies less rounding
                p.normal_(0, (0.6 if "self_attn." in key else 0.36) / p.shape[-1] ** 0.5, generator=generator)
            elif "modality_router" in key:  # of a norm divided by the width
                p.normal_(0, 4, generator=generator)
            elif key.endswith("recurrent_param"):  # long memories and short ones
                p.uniform_(-6, -1, generator=generator)
            elif "lambda_" in key:
                p.normal_(0, 0.5, generator=generator)
            elif p.dim() == 1 or key.endswith("_bias"):
                p.normal_(0, 0.2, generator=generator)
            elif "embed" in key or "wte" in key or "wpe" in key:
                p.normal_(0, 0.5, generator=generator)
            else:
                p.normal_(0, 1.2 / p.shape[-1] ** 0.5, generator=generator)


def with_bit_linears(model, mode):
    """Replaces every projection by transformers' AutoBitLinear; offline weights become {-1, 0, 1} with a scale."""
    from transformers.integrations.bitnet import AutoBitLinear
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        new = AutoBitLinear(module.in_features, module.out_features, bias=False, dtype=torch.float32,
                            online_quant=mode == "online")
        new.weight = module.weight
        if mode == "offline":
            scale = module.weight.detach().abs().mean()
            new.weight = torch.nn.Parameter((module.weight.detach() / scale).round().clamp(-1, 1))
            new.weight_scale = scale.reshape(1)
        model.set_submodule(name, new)
    return model


def stepwise(model, ids, n_steps):
    """Decodes with the model's cache; returns the tokens and all logits, or None if the model's cache argument has another name."""
    out = model(ids, use_cache=True)
    argument = "cache" if hasattr(out, "cache") else "past_key_values"
    cache, rows, tokens = getattr(out, argument, None), [out.logits[0]], []
    if cache is None:
        return None, None
    for _ in range(n_steps):
        tokens.append(int(rows[-1][-1].argmax()))
        rows.append(model(torch.tensor([[tokens[-1]]]), use_cache=True, **{argument: cache}).logits[0])
    return tokens, torch.cat(rows)


def reference(model, n_prompt, n_steps, vocab):
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(2, vocab, (1, n_prompt), generator=generator)
    with torch.no_grad():
        tokens, steps = stepwise(model, ids, n_steps)
        whole = None if tokens is None else model(torch.cat([ids, torch.tensor([tokens])], 1)).logits[0]
        difference = math.inf if tokens is None else float((whole - steps).abs().max())
        if difference > 0.01:  # no cache or a wrong one: recompute without it
            tokens = []
            for _ in range(n_steps + 1):
                all_ids = torch.cat([ids, torch.tensor([tokens], dtype=ids.dtype)], 1)
                whole = model(all_ids, use_cache=False).logits[0]
                tokens.append(int(whole[-1].argmax()))
            tokens.pop()
    return ids[0].tolist(), tokens, whole.float().numpy(), difference


def write_golden(path, prompt, tokens, logits):
    """int32: n_prompt, n_steps, vocab; the n_prompt + n_steps token ids; F32 logits after each of them, row by row."""
    with open(path, "wb") as f:
        np.array([len(prompt), len(tokens), logits.shape[1], *prompt, *tokens], np.int32).tofile(f)
        logits.astype(np.float32).tofile(f)


def pack_bitnet(state):
    """The 2-bit layout of published BitNet checkpoints: byte r holds rows r, r + R, r + 2R, r + 3R of 4R rows."""
    packed = {}
    for key, value in state.items():
        if key.endswith("_proj.weight"):
            codes = (value + 1).to(torch.uint8)
            rows = codes.shape[0] // 4
            packed[key] = sum(codes[i * rows:(i + 1) * rows] << (2 * i) for i in range(4)).to(torch.uint8)
        else:
            packed[key] = value
    return packed


# --- GGUF ------------------------------------------------------------------------------------------------------------
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
    "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}
EXPERTS = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps", "gate_proj": "ffn_gate_exps",
           "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


def interleave(weight, n_heads):
    """Reorders rotated rows as llama.cpp does for `llama`: pairs (2i, 2i + 1) instead of (i, i + head_dim / 2)."""
    shape = weight.shape
    return weight.reshape(n_heads, 2, shape[0] // n_heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def gguf_tensors(state, config, arch):
    experts = {}
    for key, value in state.items():
        stem, kind = key.rsplit(".", 1)
        value = value.float().numpy()
        if stem in TOP_NAMES:
            name = TOP_NAMES[stem]
            if name == "output" and config.tie_word_embeddings:
                continue
        else:
            _, _, layer, rest = stem.split(".", 3)
            if ".experts." in rest:
                _, expert, part = rest.rsplit(".", 2)
                experts.setdefault((int(layer), EXPERTS[part]), {})[int(expert)] = value
                continue
            if rest == "post_attention_layernorm":
                rest_name = "post_attention_norm" if arch in ("gemma2", "gemma3", "olmo2") else "ffn_norm"
            else:
                rest_name = LAYER_NAMES[rest]
            name = f"blk.{layer}.{rest_name}"
            if ".c_" in rest and kind == "weight":
                value = value.T  # Conv1D
            if arch in ("llama", "granite") and rest_name in ("attn_q", "attn_k"):
                value = interleave(value, config.num_attention_heads if rest_name == "attn_q" else config.num_key_value_heads)
            if arch == "bitnet-b1.58" and rest.endswith("_proj"):
                scale = max(float(np.abs(value).mean()), 1e-5)
                value = np.clip(np.round(value / scale), -1, 1) * scale
        if arch.startswith("gemma") and name.endswith("norm") and kind == "weight":
            value = value + 1
        yield f"{name}.{kind}", value
    for (layer, part), by_expert in experts.items():
        yield f"blk.{layer}.{part}.weight", np.stack([by_expert[i] for i in range(len(by_expert))])


def rope_parameters(config):
    p = getattr(config, "rope_parameters", None) or {}
    return p.get("full_attention", p)


def llama3_factors(p, head_dim):
    """Returns the values of rope_freqs.weight: the divisor of each frequency."""
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * np.pi * p["rope_theta"] ** (i / head_dim)
        low = p["original_max_position_embeddings"] / p["low_freq_factor"]
        high = p["original_max_position_embeddings"] / p["high_freq_factor"]
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(p["factor"])
        else:
            smooth = (p["original_max_position_embeddings"] / wavelength - p["low_freq_factor"]) / (
                p["high_freq_factor"] - p["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / p["factor"] + smooth))
    return np.array(factors, np.float32)


def write_gguf_rope(w, config, head_dim):
    p = rope_parameters(config)
    rotary = int(head_dim * p.get("partial_rotary_factor", 1.0))
    w.add_rope_dimension_count(rotary)
    w.add_rope_freq_base(p["rope_theta"])
    kind = p["rope_type"]
    if kind in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(kind))
        w.add_rope_scaling_factor(p["factor"])
    if kind == "yarn":
        w.add_rope_scaling_orig_ctx_len(p["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_beta_fast(p["beta_fast"])
    if kind == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_factors(p, head_dim))
    if kind == "longrope":
        original = p["original_max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(original)
        scale = config.max_position_embeddings / original
        w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(scale) / np.log(original))))
        w.add_tensor("rope_factors_short.weight", np.array(p["short_factor"], np.float32))
        w.add_tensor("rope_factors_long.weight", np.array(p["long_factor"], np.float32))


def write_gguf(path, state, config, arch):
    w = gguf.GGUFWriter(path, arch)
    w.add_name("tiny " + arch)
    n_heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // n_heads
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_block_count(config.num_hidden_layers)
    w.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    w.add_head_count(n_heads)
    if arch == "gpt2":
        w.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        w.add_head_count_kv(config.num_key_value_heads)
        w.add_layer_norm_rms_eps(config.rms_norm_eps)
        w.add_vocab_size(config.vocab_size)
        if head_dim * n_heads != config.hidden_size:
            w.add_key_length(head_dim)
            w.add_value_length(head_dim)
        write_gguf_rope(w, config, head_dim)
    if getattr(config, "sliding_window", None):
        w.add_sliding_window(config.sliding_window)
    if arch == "gemma3":
        w.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
        w.add_float32("gemma3.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
    if arch == "gemma2":
        w.add_attn_logit_softcapping(config.attn_logit_softcapping)
        w.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "granite":
        w.add_embedding_scale(config.embedding_multiplier)
        w.add_residual_scale(config.residual_multiplier)
        w.add_attention_scale(config.attention_multiplier)
        w.add_logit_scale(config.logits_scaling)
    n_experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if n_experts:
        w.add_expert_count(n_experts)
        w.add_expert_used_count(config.num_experts_per_tok)
        if getattr(config, "moe_intermediate_size", None):
            w.add_expert_feed_forward_length(config.moe_intermediate_size)
    for name, value in gguf_tensors(state, config, arch):
        w.add_tensor(name, np.ascontiguousarray(value, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make(name):
    if name in tiny_own_models.MODELS:
        return tiny_own_models.make(name, OUT, N_PROMPT, N_STEPS, write_golden)
    torch.manual_seed(1)
    newer = name in tiny_newer_models.MODELS
    config, arch = (tiny_newer_models.MODELS if newer else MODELS)[name]()
    mode = getattr(config, "quantization_config", {}).get("quantization_mode")
    plain = type(config).from_dict({k: v for k, v in config.to_dict().items() if k != "quantization_config"})
    plain._attn_implementation = "sdpa" if getattr(config, "alibi", False) else "eager"  # which adds Falcon's biases twice
    kind = getattr(T, type(config).__name__.replace("Config", "ForCausalLM"), None) if name.startswith("mistral4") else None
    auto = T.AutoModelForImageTextToText if hasattr(config, "vision_config") else T.AutoModelForCausalLM
    model = (kind(plain) if kind else auto.from_config(plain)).float().eval()  # which lists it not
    tiny_newer_models.tiny_remote_models.prepare(model, name)
    randomize(model, name)
    if name in tiny_newer_models.WHOLE and "qwen2_moe" in config.model_type:
        tiny_newer_models.tiny_remote_models.without_gate(model)
    path = os.path.join(OUT, name) if not name.endswith("_mxfp4") else os.path.join(OUT, "..", "mxfp4", name.removesuffix("_mxfp4"))
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    state = load_file(path + "/model.safetensors")
    if mode:
        with_bit_linears(model, mode)
        if mode == "offline":
            state = pack_bitnet({k: v for k, v in model.state_dict().items() if k != "lm_head.weight"})
            save_file({k: v.contiguous() for k, v in state.items()}, path + "/model.safetensors", {"format": "pt"})
        saved = json.load(open(path + "/config.json"))
        saved["quantization_config"] = config.quantization_config
        json.dump(saved, open(path + "/config.json", "w"), indent=2)
    if os.path.exists(path + "/generation_config.json"):
        os.remove(path + "/generation_config.json")
    if name == "gpt_oss_mxfp4":
        state = tiny_newer_models.quantize_experts(model, state)
        save_file(state, path + "/model.safetensors", {"format": "pt"})
        saved = json.load(open(path + "/config.json"))
        saved["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])
        json.dump(saved, open(path + "/config.json", "w"), indent=2)
    if name == "deepseek_v4_mxfp4":
        state = tiny_newer_models.quantized_v4(model, tiny_newer_models.published_deepseek_v4(state, path), path)
        save_file(state, path + "/model.safetensors", {"format": "pt"})
    if name in tiny_newer_models.WHOLE:
        state = tiny_newer_models.WHOLE[name](state, path)
        save_file(state, path + "/model.safetensors", {"format": "pt"})
    if getattr(config, "num_nextn_predict_layers", 0) and name.startswith("nemotron_h"):
        state = tiny_newer_models.with_next_token_layers(state)
        save_file(state, path + "/model.safetensors", {"format": "pt"})
    if "_mtp" in name:
        state = tiny_newer_models.with_mtp(model, state, path, int(name.split("_mtp")[1] or 1))
        save_file(state, path + "/model.safetensors", {"format": "pt"})
    if newer and arch:
        tiny_newer_models.convert(path, path + "/model.gguf")
    elif arch:
        write_gguf(path + "/model.gguf", state, config, arch)
    os.chmod(path + "/model.safetensors", 0o644)
    n_prompt = 258 if name == "deepseek_v4_long" else N_PROMPT
    text = config.get_text_config()
    prompt, tokens, logits, difference = reference(tiny_newer_models.tiny_remote_models.computed(model, name), n_prompt, N_STEPS,
                                                   getattr(text, "unpadded_vocab_size", None) or text.vocab_size)
    n_missing = text.vocab_size - logits.shape[1]  # of an output matrix of fewer rows
    if n_missing > 0 and not getattr(text, "unpadded_vocab_size", None):
        logits = np.pad(logits, ((0, 0), (0, n_missing)), constant_values=-1e30)
    write_golden(path + "/golden.bin", prompt, tokens, logits)
    if name == "phi3_longrope":  # within the original context the short factors hold
        write_golden(path + "/golden_short.bin", *reference(model, 6, 8, config.vocab_size)[:3])
    print(f"{name:20s} whole against stepwise {difference:.1e}, logits up to {logits.max():.1f}", flush=True)


if __name__ == "__main__":
    for model_name in sys.argv[1:] or [*MODELS, *tiny_newer_models.MODELS, *tiny_own_models.MODELS]:
        make(model_name)
