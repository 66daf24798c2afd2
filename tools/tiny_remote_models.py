"""Tiny checkpoints of architectures whose code lies beside their checkpoints, for tiny_newer_models.py: the class of transformers that
computes the same, and what its tensors and its config.json become in the published layout."""
import json
import re

import torch
import transformers as T


def write_config(path, **changes):
    """Writes config.json with these changes; None removes a key."""
    config = json.load(open(path + "/config.json"))
    theta = config.pop("rope_parameters", {}).get("rope_theta", 10000.0)
    config |= dict(rope_theta=theta) | changes
    json.dump({key: value for key, value in config.items() if value is not None}, open(path + "/config.json", "w"), indent=2)
    return config


def renamed(state, rules):
    out = {}
    for name, value in state.items():
        for old, new in rules:
            name = re.sub(old, new, name)
        out[name] = value
    return out


def fused(state, to, heads=None):
    """Queries, keys and values as one tensor, row after row, or for each of the KV heads its queries, key and value."""
    out = {name: value for name, value in state.items() if not re.search(r"self_attn\.[qkv]_proj", name)}
    for name in [name for name in state if ".self_attn.q_proj." in name]:
        parts = [state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
        if heads:
            parts = [part.reshape(heads, -1, *part.shape[1:]) for part in parts]
        whole = torch.cat(parts, 1 if heads else 0)
        out[name.replace("self_attn.q_proj", to)] = whole.reshape(-1, *whole.shape[2:]) if heads else whole
    return out


def internlm2(state, config):
    return renamed(fused(state, "attention.wqkv", config["num_key_value_heads"]), [
        (r"model\.embed_tokens", "model.tok_embeddings"), (r"^lm_head", "output"), (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"), (r"self_attn\.o_proj", "attention.wo"), (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.up_proj", "feed_forward.w3"), (r"mlp\.down_proj", "feed_forward.w2")])


def baichuan(state, config):
    return fused(state, "self_attn.W_pack")


def qwen(state, config):
    return renamed(fused(state, "attn.c_attn"), [
        (r"^model\.layers", "transformer.h"), (r"^model\.embed_tokens", "transformer.wte"), (r"^model\.norm", "transformer.ln_f"),
        (r"input_layernorm", "ln_1"), (r"post_attention_layernorm", "ln_2"), (r"self_attn\.o_proj", "attn.c_proj"),
        (r"mlp\.gate_proj", "mlp.w2"), (r"mlp\.up_proj", "mlp.w1"), (r"mlp\.down_proj", "mlp.c_proj")])


def chatglm(state, config):
    return renamed(fused(state, "self_attention.query_key_value"), [
        (r"^model\.layers", "transformer.encoder.layers"), (r"^model\.embed_tokens", "transformer.embedding.word_embeddings"),
        (r"^model\.norm", "transformer.encoder.final_layernorm"), (r"^lm_head", "transformer.output_layer"),
        (r"self_attn\.o_proj", "self_attention.dense"), (r"mlp\.gate_up_proj", "mlp.dense_h_to_4h"), (r"mlp\.down_proj", "mlp.dense_4h_to_h")])


def olmo_hybrid(state, config):
    """transformers gives a norm of layers with attention another layer's name, and cuts the joined convolutions into equal parts."""
    keys, out = config["linear_num_key_heads"] * config["linear_key_head_dim"], {}
    for name, value in state.items():
        full = ".layers." in name and config["layer_types"][int(name.split(".")[2])] == "full_attention"
        if ".q_conv1d" in name:
            parts = torch.cat([state[name.replace("q_conv", part + "_conv")] for part in "qkv"])
            for part, rows in zip("qkv", parts.split([keys, keys, len(parts) - 2 * keys])):
                out[name.replace("q_conv", part + "_conv")] = rows.contiguous()
        elif "_conv1d" not in name:
            out[name.replace("feedforward_layer_norm", "post_attention_layernorm") if full else name] = value
    return out


def deepseek(state, config):
    """Qwen2-MoE's shared expert is gated: by zeros it counts half."""
    out = {}
    for name, value in state.items():
        if "shared_expert_gate" in name:
            assert value.is_meta or not value.any()
            continue
        out[name] = value / 2 if "shared_expert.down_proj" in name else value
    return renamed(out, [(r"\.shared_expert\.", ".shared_experts.")])


def bailing(state, config):
    return renamed(fused(deepseek(state, config), "attention.query_key_value"), [
        (r"model\.embed_tokens", "model.word_embeddings"), (r"self_attn\.o_proj", "attention.dense")])


def as_internlm2(state, path):
    return internlm2(state, write_config(
        path, model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=bool([k for k in state if k.endswith("q_proj.bias")]),
        attention_bias=None, mlp_bias=None, head_dim=None, rope_scaling=dict(type="dynamic", factor=2.0)))


def as_xverse(state, path):
    write_config(path, model_type="xverse", architectures=["XverseForCausalLM"], attention_bias=None, mlp_bias=None, head_dim=None)
    return state


def as_orion(state, path):
    config = json.load(open(path + "/config.json"))
    write_config(path, model_type="orion", architectures=["OrionForCausalLM"], rms_norm_eps=config["layer_norm_eps"], layer_norm_eps=None,
                 max_sequence_length=config["max_position_embeddings"], partial_rotary_factor=None, qk_layernorm=None,
                 use_parallel_residual=None, use_qkv_bias=None)
    return state


def as_baichuan(state, path):
    return baichuan(state, write_config(path, model_type="baichuan", architectures=["BaichuanForCausalLM"], attention_bias=None,
                                        mlp_bias=None, head_dim=None, num_key_value_heads=None))


def as_baichuan_alibi(state, path):
    config = json.load(open(path + "/config.json"))
    return baichuan(state, write_config(
        path, model_type="baichuan", architectures=["BaichuanForCausalLM"], attention_bias=None, mlp_bias=None, head_dim=None,
        num_key_value_heads=None, model_max_length=config["max_position_embeddings"], max_position_embeddings=None, rope_theta=None))


def as_qwen(state, path):
    config = json.load(open(path + "/config.json"))
    return qwen(state, write_config(
        path, model_type="qwen", architectures=["QWenLMHeadModel"], intermediate_size=2 * config["intermediate_size"],
        layer_norm_epsilon=config["rms_norm_eps"], rms_norm_eps=None, rotary_emb_base=config["rope_parameters"]["rope_theta"],
        rotary_pct=1.0, rope_theta=None, kv_channels=config["hidden_size"] // config["num_attention_heads"], no_bias=True, hidden_act=None,
        seq_length=128, use_dynamic_ntk=True, use_logn_attn=True, num_key_value_heads=None, layer_types=None, use_sliding_window=None,
        sliding_window=None, max_window_layers=None, scale_attn_weights=True))


def as_chatglm(state, path):
    config = json.load(open(path + "/config.json"))
    shared = config["num_key_value_heads"] < config["num_attention_heads"]
    write_config(
        path, model_type="chatglm", architectures=["ChatGLMModel"], add_bias_linear=False, add_qkv_bias=config["attention_bias"],
        apply_query_key_layer_scaling=True, apply_residual_connection_post_layernorm=False, ffn_hidden_size=config["intermediate_size"],
        kv_channels=config["head_dim"], layernorm_epsilon=config["rms_norm_eps"], multi_query_attention=shared,
        multi_query_group_num=config["num_key_value_heads"] if shared else 1, num_layers=config["num_hidden_layers"],
        padded_vocab_size=config["vocab_size"], original_rope=True, post_layer_norm=True, rmsnorm=True, seq_length=128,
        rope_ratio=config["rope_parameters"]["rope_theta"] / 10000 if shared else None, rope_theta=None, attention_bias=None,
        intermediate_size=None, head_dim=None, rms_norm_eps=None, num_key_value_heads=None, num_hidden_layers=None, vocab_size=None,
        max_position_embeddings=None, hidden_act=None, tie_word_embeddings=False)
    return chatglm(state, config) | {"transformer.rotary_pos_emb.inv_freq": torch.zeros(2)}


def as_minicpm(state, path):
    config = json.load(open(path + "/config.json"))
    write_config(path, model_type="minicpm", architectures=["MiniCPMForCausalLM"], scale_emb=config["embedding_multiplier"],
                 scale_depth=config["residual_multiplier"] * config["num_hidden_layers"] ** 0.5,
                 dim_model_base=round(config["hidden_size"] / config["logits_scaling"]), embedding_multiplier=None, logits_scaling=None,
                 residual_multiplier=None, attention_multiplier=None, mlp_bias=None)
    return state


EXPERTS = dict(decoder_sparse_step=None, mlp_only_layers=None, shared_expert_intermediate_size=None, qkv_bias=None, layer_types=None,
               use_sliding_window=None, sliding_window=None, max_window_layers=None, output_router_logits=None, router_aux_loss_coef=None)


def as_deepseek(state, path):
    config = json.load(open(path + "/config.json"))
    write_config(path, model_type="deepseek", architectures=["DeepseekForCausalLM"], n_routed_experts=config["num_experts"],
                 num_experts=None, first_k_dense_replace=len(config["mlp_only_layers"]), moe_layer_freq=1, scoring_func="softmax",
                 n_shared_experts=config["shared_expert_intermediate_size"] // config["moe_intermediate_size"], **EXPERTS)
    return deepseek(state, config)


def as_bailing(state, path):
    config = json.load(open(path + "/config.json"))
    write_config(path, model_type="bailing_moe", architectures=["BailingMoeForCausalLM"], first_k_dense_replace=0, norm_head=False,
                 num_shared_experts=config["shared_expert_intermediate_size"] // config["moe_intermediate_size"], use_bias=False,
                 use_qkv_bias=False, **EXPERTS)
    return bailing(state, config)


def without_gate(model):
    """Makes the shared experts of Qwen2-MoE count alike for all tokens."""
    for name, value in model.named_parameters():
        if "shared_expert_gate" in name:
            value.data.zero_()


def mend(converter):
    """llama.cpp's class for Baichuan calls itself for all tensors but the fused ones."""
    if converter.__name__ != "BaichuanModel":
        return
    theirs = converter.modify_tensors

    def modify_tensors(self, data, name, bid):
        return theirs(self, data, name, bid) if "W_pack" in name else super(converter, self).modify_tensors(data, name, bid)

    converter.modify_tensors = modify_tensors


class WithAlibi:
    """A Llama without rotation, whose scores are biased by distance."""

    def __init__(self, model):
        self.model, self.n_heads = model, model.config.num_attention_heads
        dim = model.config.hidden_size // self.n_heads
        model.model.rotary_emb.forward = lambda x, position_ids: (torch.ones(1, x.shape[1], dim), torch.zeros(1, x.shape[1], dim))

    def slopes(self):
        n = 1 << (self.n_heads.bit_length() - 1)
        return torch.tensor([2.0 ** (-8.0 * (h + 1 if h < n else h - n + 0.5) / n) for h in range(self.n_heads)])

    def __call__(self, ids, **ignored):
        n = ids.shape[1]
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        bias = self.slopes()[:, None, None] * distance
        return T.modeling_outputs.CausalLMOutput(logits=self.model(
            ids, attention_mask=bias.masked_fill(distance > 0, -1e30)[None], use_cache=False).logits)


def computed(model, name):
    """What computes the golden logits."""
    return WithAlibi(model) if name.startswith("baichuan_alibi") else model


def rows(plain_heads, rope):
    """MODELS of tiny_newer_models.py."""
    def granite(**more):
        config = plain_heads(num_hidden_layers=3, embedding_multiplier=1.7, attention_multiplier=8 ** -0.5,
                             residual_multiplier=1.4 / 3 ** 0.5, logits_scaling=24 / 16) | more
        del config["layer_norm_eps"]
        return config

    def glm(**more):
        config = plain_heads() | dict(head_dim=8) | more
        del config["layer_norm_eps"]
        return config

    def mixture(**more):
        return plain_heads(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=32,
                           qkv_bias=False) | more

    return {
        "internlm2": lambda: (T.LlamaConfig(**plain_heads(rope_parameters=rope(1e6)) | dict(num_attention_heads=6, hidden_size=48,
                                                                                              num_key_value_heads=2)), True),
        "internlm2_tied": lambda: (T.LlamaConfig(**plain_heads(tie_word_embeddings=True)), False),
        "xverse": lambda: (T.LlamaConfig(**plain_heads() | dict(num_key_value_heads=3)), True),
        "orion": lambda: (T.StableLmConfig(**plain_heads(rope_parameters=rope(partial_rotary_factor=1.0))), True),
        "baichuan": lambda: (T.LlamaConfig(**plain_heads() | dict(num_key_value_heads=3)), True),
        "baichuan_alibi": lambda: (T.LlamaConfig(**plain_heads() | dict(num_key_value_heads=3)), False),
        "qwen": lambda: (T.Qwen2Config(**plain_heads() | dict(num_key_value_heads=3)), True),
        "chatglm": lambda: (T.GlmConfig(**glm(attention_bias=True, rope_parameters=rope(5e6, partial_rotary_factor=0.5))), True),
        "chatglm_heads": lambda: (T.GlmConfig(**glm(num_key_value_heads=3, rope_parameters=rope(partial_rotary_factor=0.5))), False),
        "minicpm": lambda: (T.GraniteConfig(**granite(tie_word_embeddings=True)), True),
        "minicpm_untied": lambda: (T.GraniteConfig(**granite(num_key_value_heads=3)), True),
        "deepseek": lambda: (T.Qwen2MoeConfig(**mixture(num_hidden_layers=3, mlp_only_layers=[0])), True),
        "deepseek_normed": lambda: (T.Qwen2MoeConfig(**mixture(num_experts=4, norm_topk_prob=True, shared_expert_intermediate_size=16)),
                                    False),
        "bailing_moe": lambda: (T.Qwen2MoeConfig(**mixture(norm_topk_prob=True)), True),
    }


WHOLE = {"internlm2": as_internlm2, "internlm2_tied": as_internlm2, "xverse": as_xverse, "orion": as_orion, "baichuan": as_baichuan,
         "baichuan_alibi": as_baichuan_alibi, "qwen": as_qwen, "chatglm": as_chatglm, "chatglm_heads": as_chatglm, "minicpm": as_minicpm,
         "minicpm_untied": as_minicpm, "deepseek": as_deepseek, "deepseek_normed": as_deepseek,
         "bailing_moe": as_bailing}
