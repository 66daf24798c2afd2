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


# Sizes of OpenELM's layers: heads, KV heads, multipliers of the width of feed-forwards.
ELM = dict(num_query_heads=[2, 2, 4], num_kv_heads=[1, 1, 2], ffn_multipliers=[0.5, 1.2, 1.67], ffn_dim_divisor=8)
# What each of DeciLM's layers has: heads for each KV head, or none; the multiplier of the width, or none.
DECI = [(2, 12.0), (None, 8.0), (4, None), (None, None), (1, 8.0)]


def elm_sizes(i):
    width = max(8, int(ELM["ffn_multipliers"][i] * 24 + 4) // 8 * 8)
    return ELM["num_query_heads"][i], ELM["num_kv_heads"][i], width + 8 * (width < 0.9 * ELM["ffn_multipliers"][i] * 24)


def deci_sizes(i):
    group, multiplier = DECI[i]
    return 4 if group else 0, 4 // group if group else 0, -(-int(2 * multiplier * 32 / 3) // 256) * 256 if multiplier else 0


def cut(layer, n_heads, kv_heads, width, head_dim=8):
    """Makes a layer of Llama or Qwen3 compute what one with fewer heads (each KV head for as many), or without a part, computes."""
    attention, mlp = layer.self_attn, layer.mlp
    attention.o_proj.weight.data[:, n_heads * head_dim:] = 0
    mlp.down_proj.weight.data[:, width:] = 0
    all_kv = attention.k_proj.weight.shape[0] // head_dim
    per = n_heads // kv_heads if kv_heads else 1
    all_per = attention.q_proj.weight.shape[0] // head_dim // all_kv
    if kv_heads and per != all_per:
        for projection in (attention.k_proj, attention.v_proj):
            heads = projection.weight.data.reshape(all_kv, head_dim, -1)
            heads.copy_(heads[[min(h * all_per // per, kv_heads - 1) for h in range(all_kv)]].clone())


def less(state, sizes, n_layers, head_dim=8):
    """Tensors without what cut() makes zero or repeats."""
    out = {}
    for name, value in state.items():
        if ".layers." not in name:
            out[name] = value
            continue
        n_heads, kv_heads, width = sizes(int(name.split(".")[2]))
        part = name.rsplit(".", 2)[1]
        absent = (not n_heads and (".self_attn." in name or part == "input_layernorm")) or (
            not width and (".mlp." in name or part == "post_attention_layernorm"))
        rows = dict(q_proj=n_heads * head_dim, k_proj=kv_heads * head_dim, v_proj=kv_heads * head_dim, gate_proj=width, up_proj=width).get(part)
        columns = dict(o_proj=n_heads * head_dim, down_proj=width).get(part)
        if not absent:
            out[name] = (value[:rows] if rows else value[:, :columns] if columns else value).contiguous()
    return out


def openelm(state, config=None):
    both = fused(less(state, elm_sizes, 3), "attn.qkv_proj")
    for name in [name for name in both if ".gate_proj." in name]:
        both[name.replace("mlp.gate_proj", "ffn.proj_1")] = torch.cat([both.pop(name), both.pop(name.replace("gate_proj", "up_proj"))])
    return renamed(both, [
        (r"^model\.embed_tokens", "transformer.token_embeddings"), (r"^model\.", "transformer."), (r"self_attn\.([qk])_norm", r"attn.\1_norm"),
        (r"self_attn\.o_proj", "attn.out_proj"), (r"mlp\.down_proj", "ffn.proj_2"), (r"input_layernorm", "attn_norm"),
        (r"post_attention_layernorm", "ffn_norm")])


def as_openelm(state, path):
    config = json.load(open(path + "/config.json"))
    theta = config["rope_parameters"]["rope_theta"]
    published = dict(
        model_type="openelm", architectures=["OpenELMForCausalLM"], activation_fn_name="swish", ffn_with_glu=True, head_dim=8,
        max_context_length=128, model_dim=24, normalization_layer_name="rms_norm", normalize_qk_projections=True, num_gqa_groups=2,
        num_transformer_layers=3, qkv_multipliers=[0.5, 1.0], rope_freq_constant=int(theta), rope_max_length=256,
        share_input_output_layers=True, vocab_size=53, **ELM)
    json.dump(published, open(path + "/config.json", "w"), indent=2)
    return {k: v for k, v in openelm(state).items() if not k.startswith("lm_head")}


def as_deci(state, path):
    blocks = [dict(attention=dict(n_heads_in_group=group, no_op=not group, num_sink_tokens=None, replace_with_linear=False, sparsify=None,
                                  unshifted_sink=False, use_prefill_window_in_sink_attention=False, window_length=None),
                   ffn=dict(ffn_mult=multiplier, no_op=not multiplier, replace_with_linear=False, sparsify=None)) for group, multiplier in DECI]
    config = write_config(path, model_type="nemotron-nas", architectures=["DeciLMForCausalLM"], block_configs=blocks, head_dim=None)
    config |= dict(num_key_value_heads=None, intermediate_size=None)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return less(state, deci_sizes, len(DECI))


def as_baichuan2(state, path):
    """The rows of the output matrix have lengths of their own, which do not count."""
    state["lm_head.weight"] = state["lm_head.weight"] * torch.rand(53, 1, generator=torch.Generator().manual_seed(3)).add(0.5)
    return baichuan(state, write_config(path, model_type="baichuan", architectures=["BaichuanForCausalLM"], attention_bias=None, z_loss_weight=0,
                                        mlp_bias=None, head_dim=None, num_key_value_heads=None, model_max_length=128))


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


def plain_experts(self, bid, proj, key):
    names = [f"layers.{bid}.ffn.experts.{e}.{proj}.weight" for e in range(self.hparams["n_routed_experts"])]
    self.gguf_writer.add_tensor(self.format_tensor_name(key, bid), torch.stack([self.model_tensors[name]() for name in names]).numpy())
    return names


def mend(converter):
    """llama.cpp's class for Baichuan calls itself for all tensors but the fused ones, that for MiniMax-01 asks for a tokenizer; that for
    DeepSeek V4 knows experts in FP4 only."""
    if converter.__name__ == "MiniMaxText01Model":
        converter._get_suppress_tokens = lambda self: None
    if converter.__name__ == "DeepseekV4Model":
        converter._write_mxfp4_expert_tensor = plain_experts
    if converter.__name__ != "BaichuanModel":
        return
    theirs = converter.modify_tensors

    def modify_tensors(self, data, name, bid):
        return theirs(self, data, name, bid) if "W_pack" in name else super(converter, self).modify_tensors(data, name, bid)

    converter.modify_tensors = modify_tensors


# Nomic-BERT with experts, whose code lies beside its checkpoint (nomic-embed-text-v2-moe).
NOMIC_MOE = dict(
    model_type="nomic_bert", architectures=["NomicBertModel"], activation_function="gelu", add_pooling_layer=False, attn_pdrop=0.0, causal=False,
    expert_choice_router=False, ffn_div=1, layer_norm_epsilon=1e-5, max_trained_positions=2048, mlp_fc1_bias=True, mlp_fc2_bias=True,
    moe_every_n_layers=2, moe_impl="megablocks", moe_normalize_expert_weights=False, moe_top_k=2, n_embd=24, n_head=3, n_inner=40, n_layer=4,
    n_positions=2048, num_experts=5, num_shared_experts=0, prenorm=False, qkv_proj_bias=True, rotary_emb_base=10000, rotary_emb_fraction=1.0,
    rotary_emb_interleaved=False, rotary_emb_scale=1.0, rotary_emb_scale_base=None, type_vocab_size=1, use_rms_norm=False, vocab_size=53)


def nomic_moe_shapes(c):
    dim, inner, experts = c["n_embd"], c["n_inner"], c["num_experts"]
    shapes = {"embeddings.word_embeddings.weight": [c["vocab_size"], dim], "embeddings.token_type_embeddings.weight": [1, dim]}
    shapes |= {f"emb_ln.{kind}": [dim] for kind in ("weight", "bias")}
    for i in range(c["n_layer"]):
        own = {"attn.Wqkv.weight": [3 * dim, dim], "attn.Wqkv.bias": [3 * dim], "attn.out_proj.weight": [dim, dim], "attn.out_proj.bias": [dim],
               "norm1.weight": [dim], "norm1.bias": [dim], "norm2.weight": [dim], "norm2.bias": [dim]}
        own |= {"mlp.router.layer.weight": [experts, dim], "mlp.experts.mlp.w1": [experts * inner, dim], "mlp.experts.mlp.w2": [experts * inner, dim],
                "mlp.experts.bias": [dim]} if i % c["moe_every_n_layers"] == 1 else {
            "mlp.fc1.weight": [inner, dim], "mlp.fc1.bias": [inner], "mlp.fc2.weight": [dim, inner], "mlp.fc2.bias": [dim]}
        shapes |= {f"encoder.layers.{i}.{name}": shape for name, shape in own.items()}
    return shapes


def nomic_moe(state, c, ids):
    """States of one text, from the published description: post-norms, rotated halves, every second feed-forward the sum of the two likeliest
    experts without gates, weighted by their probabilities among all."""
    n, heads, dim = len(ids), c["n_head"], c["n_embd"]

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (dim,), state[name + ".weight"], state[name + ".bias"], c["layer_norm_epsilon"])

    def linear(x, name):
        return torch.nn.functional.linear(x, state[name + ".weight"], state.get(name + ".bias"))

    half = dim // heads // 2
    angles = torch.arange(n)[:, None] * c["rotary_emb_base"] ** -(torch.arange(half) / half)
    cos, sin = (torch.cat([f(angles)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
    turned = lambda x: x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
    x = norm(state["embeddings.word_embeddings.weight"][ids] + state["embeddings.token_type_embeddings.weight"][0], "emb_ln")
    for i in range(c["n_layer"]):
        at = f"encoder.layers.{i}."
        q, k, v = linear(x, at + "attn.Wqkv").view(n, 3, heads, -1).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", turned(q), turned(k)) * (2 * half) ** -0.5
        x = norm(x + linear(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, dim), at + "attn.out_proj"), at + "norm1")
        if i % c["moe_every_n_layers"] == 1:
            w1, w2 = (state[at + "mlp.experts.mlp." + w].view(c["num_experts"], -1, dim) for w in ("w1", "w2"))
            weights, chosen = linear(x, at + "mlp.router.layer").softmax(-1).topk(c["moe_top_k"])
            fed = torch.stack([sum(w * (torch.nn.functional.gelu(w1[e] @ row) @ w2[e]) for w, e in zip(*one)) for row, one in zip(x, zip(weights, chosen))])
        else:
            fed = linear(torch.nn.functional.gelu(linear(x, at + "mlp.fc1")), at + "mlp.fc2")
        x = norm(x + fed, at + "norm2")
    return x


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


class EarlyExperts(torch.nn.Module):
    """SmallThinker's experts, from the published description: gates by ReLU, chosen by what the layer reads before its norm."""

    def __init__(self, layer, dim, width, n, top_k, softmax):
        super().__init__()
        self.primary_router = torch.nn.Linear(dim, n, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.ModuleDict(dict(
            up=torch.nn.Linear(dim, width, bias=False), gate=torch.nn.Linear(dim, width, bias=False),
            down=torch.nn.Linear(width, dim, bias=False))) for _ in range(n))
        self.top_k, self.softmax = top_k, softmax
        layer.register_forward_pre_hook(lambda _, args: setattr(self, "read", args[0]))

    def forward(self, x):
        logits, chosen = self.primary_router(self.read).topk(self.top_k)
        weights = logits.softmax(-1) if self.softmax else logits.sigmoid() / logits.sigmoid().sum(-1, keepdim=True)
        return sum((weights * (chosen == i)).sum(-1, keepdim=True) * expert["down"](torch.relu(expert["gate"](x)) * expert["up"](x))
                   for i, expert in enumerate(self.experts))


def smallthinker_shapes(c):
    dim, head, ffn = c["hidden_size"], c["head_dim"], c["moe_ffn_hidden_size"]
    queries, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    own = {"input_layernorm": [dim], "post_attention_layernorm": [dim], "self_attn.q_proj": [queries, dim], "self_attn.k_proj": [kv, dim],
           "self_attn.v_proj": [kv, dim], "self_attn.o_proj": [dim, queries],
           "block_sparse_moe.primary_router": [c["moe_num_primary_experts"], dim]}
    for i in range(c["moe_num_primary_experts"]):
        own |= {f"block_sparse_moe.experts.{i}.{part}": [dim, ffn] if part == "down" else [ffn, dim] for part in ("up", "gate", "down")}
    return {"model.embed_tokens.weight": [c["vocab_size"], dim], "model.norm.weight": [dim]} | {
        f"model.layers.{i}.{name}.weight": shape for i in range(c["num_hidden_layers"]) for name, shape in own.items()}


THINKER = dict(moe_num_primary_experts=6, moe_num_active_primary_experts=2, moe_ffn_hidden_size=16)


class Arctic(torch.nn.Module):
    """A layer of Mixtral whose experts read what attention's norm reads, beside a dense feed-forward (published description)."""

    def __init__(self, layer, dim, eps):
        super().__init__()
        for name, part in layer.named_children():
            setattr(self, name, part)
        self.residual_layernorm = type(layer.input_layernorm)(dim, eps)
        self.residual_mlp = torch.nn.ModuleDict({name: torch.nn.Linear(dim, dim, bias=False) for name in ("w1", "w2", "w3")})

    def forward(self, x, **more):
        experts = self.mlp(self.post_attention_layernorm(x))
        x = x + self.self_attn(hidden_states=self.input_layernorm(x), **more)[0]
        h = self.residual_layernorm(x)
        return x + self.residual_mlp["w2"](torch.nn.functional.silu(self.residual_mlp["w1"](h)) * self.residual_mlp["w3"](h)) + experts


def arctic_shapes(c):
    dim, ffn, kv = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["num_attention_heads"] * c["num_key_value_heads"]
    own = {"self_attn.q_proj": [dim, dim], "self_attn.k_proj": [kv, dim], "self_attn.v_proj": [kv, dim], "self_attn.o_proj": [dim, dim],
           "block_sparse_moe.gate": [c["num_local_experts"], dim]} | {f"residual_mlp.{w}": [dim, dim] for w in ("w1", "w2", "w3")}
    own |= {name: [dim] for name in ("input_layernorm", "post_attention_layernorm", "residual_layernorm")}
    for i in range(c["num_local_experts"]):
        own |= {f"block_sparse_moe.experts.{i}.{w}": [dim, ffn] if w == "w2" else [ffn, dim] for w in ("w1", "w2", "w3")}
    frame = {"model.embed_tokens": [c["vocab_size"], dim], "lm_head": [c["vocab_size"], dim], "model.norm": [dim]}
    return {name + ".weight": shape for name, shape in frame.items()} | {
        f"model.layers.{i}.{name}.weight": shape for i in range(c["num_hidden_layers"]) for name, shape in own.items()}


def as_arctic(state, path):
    write_config(path, model_type="arctic", architectures=["ArcticForCausalLM"], enable_expert_tensor_parallelism=False, moe_eval_capacity_factor=1,
                 moe_layer_frequency=1, moe_min_capacity=0, moe_token_dropping=True, moe_train_capacity_factor=1, parallel_attn_mlp_res=True,
                 use_residual=True, output_router_logits=None, router_jitter_noise=None)
    return renamed(state, [(r"residual\.block_sparse_moe", "residual_mlp")])


def prepare(model, name):
    """Replaces parts of a class of transformers before its weights are drawn."""
    if name.startswith("arctic"):
        for i, layer in enumerate(model.model.layers):
            model.model.layers[i] = Arctic(layer, model.config.hidden_size, model.config.rms_norm_eps)
    for layer in model.model.layers if name.startswith("smallthinker") else ():
        layer.mlp = EarlyExperts(layer, model.config.hidden_size, 16, 6, 2, name != "smallthinker")


def as_smallthinker(state, path, softmax=False):
    config = json.load(open(path + "/config.json"))
    slides = [int(kind == "sliding_attention") for kind in config["layer_types"]]
    write_config(
        path, model_type="smallthinker", architectures=["SmallThinkerForCausalLM"], **THINKER, norm_topk_prob=True, rope_scaling=None,
        moe_primary_router_apply_softmax=softmax or None, rope_layout=config["no_rope_layers"], sliding_window_layout=slides,
        sliding_window_size=config["sliding_window"] or 4096, **dict.fromkeys((
            "attention_bias", "hidden_act", "intermediate_size", "layer_types", "mlp_bias", "no_rope_layer_interval", "no_rope_layers",
            "pretraining_tp", "sliding_window", "use_sliding_window")))
    return renamed(state, [(r"\.mlp\.", ".block_sparse_moe.")])


def computed(model, name):
    """What computes the golden logits."""
    sizes = dict(openelm=elm_sizes, deci=deci_sizes).get(name)
    for i, layer in enumerate(model.model.layers if sizes else ()):
        cut(layer, *sizes(i))
    for key, bias in model.named_buffers() if name == "axk1_released" else ():
        if key.endswith("e_score_correction_bias"):
            bias.zero_()
    if name.startswith("baichuan2"):
        model.lm_head.weight.data = torch.nn.functional.normalize(model.lm_head.weight.data)
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

    thinker = dict(num_hidden_layers=4, head_dim=8, num_attention_heads=6, num_key_value_heads=2, hidden_size=24, attention_bias=False)
    return {
        "arctic": lambda: (T.MixtralConfig(**glm(intermediate_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=None,
                                                 hidden_size=32, num_local_experts=5, num_experts_per_tok=2)), True),
        # Three of four layers have a window, and these alone are rotated.
        "smallthinker": lambda: (T.SmolLM3Config(**glm(**thinker, sliding_window=9, use_sliding_window=True, no_rope_layers=[0, 1, 1, 1],
                                                       layer_types=["full_attention"] + ["sliding_attention"] * 3, tie_word_embeddings=True)), True),
        "smallthinker_softmax": lambda: (T.SmolLM3Config(**glm(**thinker, no_rope_layers=[1, 0, 1, 1])), False),
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
        "baichuan2": lambda: (T.LlamaConfig(**plain_heads() | dict(num_key_value_heads=3)), False),
        "openelm": lambda: (T.Qwen3Config(**glm(num_hidden_layers=3, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
                                                rms_norm_eps=1e-6, tie_word_embeddings=True)), True),
        "deci": lambda: (T.LlamaConfig(**glm(
            num_hidden_layers=5, intermediate_size=256, hidden_size=32, num_attention_heads=4, num_key_value_heads=4, head_dim=8,
            rope_parameters=rope(5e5))), True),
        "minicpm": lambda: (T.GraniteConfig(**granite(tie_word_embeddings=True)), True),
        "minicpm_untied": lambda: (T.GraniteConfig(**granite(num_key_value_heads=3)), True),
        "deepseek": lambda: (T.Qwen2MoeConfig(**mixture(num_hidden_layers=3, mlp_only_layers=[0])), True),
        "deepseek_normed": lambda: (T.Qwen2MoeConfig(**mixture(num_experts=4, norm_topk_prob=True, shared_expert_intermediate_size=16)),
                                    False),
        "bailing_moe": lambda: (T.Qwen2MoeConfig(**mixture(norm_topk_prob=True)), True),
    }


WHOLE = {"arctic": as_arctic, "smallthinker": as_smallthinker, "smallthinker_softmax": lambda state, path: as_smallthinker(state, path, True),
         "internlm2": as_internlm2, "internlm2_tied": as_internlm2, "xverse": as_xverse, "orion": as_orion, "baichuan": as_baichuan,
         "baichuan_alibi": as_baichuan_alibi, "qwen": as_qwen, "chatglm": as_chatglm, "chatglm_heads": as_chatglm, "minicpm": as_minicpm,
         "minicpm_untied": as_minicpm, "deepseek": as_deepseek, "deepseek_normed": as_deepseek,
         "bailing_moe": as_bailing, "baichuan2": as_baichuan2, "openelm": as_openelm, "deci": as_deci}
