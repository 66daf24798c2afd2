"""Encoders whose code lies beside their checkpoints, for make_tiny_encoders.py: tiny configurations, shapes of their tensors, and the
states of one text by the published formulas."""
import torch
from torch.nn import functional as F

JINA_V2 = dict(
    model_type="bert", architectures=["JinaBertForMaskedLM"], attention_probs_dropout_prob=0.0, emb_pooler="mean", feed_forward_type="geglu",
    hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=24, intermediate_size=40, layer_norm_eps=1e-12, max_position_embeddings=8192,
    num_attention_heads=3, num_hidden_layers=2, pad_token_id=0, position_embedding_type="alibi", type_vocab_size=2, vocab_size=53)
JINA_V2_CODE = JINA_V2 | dict(
    auto_map={"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}, architectures=["JinaBertModel"])
NEO_BERT = dict(
    model_type="neobert", architectures=["NeoBERTLMHead"], classifier_init_range=0.02, decoder_init_range=0.02, dim_head=8,
    embedding_init_range=0.02, hidden_size=24, intermediate_size=56, max_length=64, norm_eps=1e-5, num_attention_heads=3,
    num_hidden_layers=2, pad_token_id=0, vocab_size=53)


def both(name, *shape):
    return {name + ".weight": list(shape), name + ".bias": [shape[0]]}


def jina_shapes(c):
    dim, inner, again = c["hidden_size"], c["intermediate_size"], "auto_map" in c
    shapes = {"embeddings.word_embeddings.weight": [c["vocab_size"], dim], "embeddings.token_type_embeddings.weight": [c["type_vocab_size"], dim]}
    shapes |= both("embeddings.LayerNorm", dim)
    for i in range(c["num_hidden_layers"]):
        own = {}
        for name in ("query", "key", "value"):
            own |= both("attention.self." + name, dim, dim)
        own |= both("attention.output.dense", dim, dim) | both("attention.output.LayerNorm", dim)
        own["mlp.up_gated_layer.weight" if again else "mlp.gated_layers.weight"] = [2 * inner, dim]
        own |= both("mlp.down_layer" if again else "mlp.wo", dim, inner)
        norms = ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2") if again else ("mlp.layernorm",)
        for name in norms:
            own |= both(name, dim)
        shapes |= {f"encoder.layer.{i}.{name}": shape for name, shape in own.items()}
    return shapes


def jina(state, c, ids):
    """Post-norms, a bias of each head by the distance of two tokens, gates (GeGLU). Models of code norm queries and keys over all heads,
    add the input of a layer twice, and have the gates' rows behind the others."""
    n, heads, dim, inner, again = len(ids), c["num_attention_heads"], c["hidden_size"], c["intermediate_size"], "auto_map" in c
    norm = lambda x, name: F.layer_norm(x, (dim,), state[name + ".weight"], state[name + ".bias"], c["layer_norm_eps"])
    linear = lambda x, name: F.linear(x, state[name + ".weight"], state.get(name + ".bias"))
    power = 1 << (heads.bit_length() - 1)
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1 if h < power else h - power + 0.5) / power) for h in range(heads)])
    bias = -slopes[:, None, None] * (torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs()
    x = norm(state["embeddings.word_embeddings.weight"][ids] + state["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(c["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        q, k, v = (linear(x, at + "attention.self." + name) for name in ("query", "key", "value"))
        if again:
            q, k = norm(q, at + "attention.self.layer_norm_q"), norm(k, at + "attention.self.layer_norm_k")
        q, k, v = (one.view(n, heads, -1) for one in (q, k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (dim // heads) ** -0.5 + bias
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, dim)
        y = norm(x + linear(attended, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        if again:
            y = norm(x + y, at + "layer_norm_1")
        first, second = linear(y, at + ("mlp.up_gated_layer" if again else "mlp.gated_layers")).split(inner, -1)
        fed = first * F.gelu(second) if again else F.gelu(first) * second
        x = norm(y + linear(fed, at + ("mlp.down_layer" if again else "mlp.wo")), at + ("layer_norm_2" if again else "mlp.layernorm"))
    return x


def neo_width(c):
    return (int(2 * c["intermediate_size"] / 3) + 7) // 8 * 8


def neo_shapes(c):
    dim, width = c["hidden_size"], neo_width(c)
    shapes = {"model.encoder.weight": [c["vocab_size"], dim], "model.layer_norm.weight": [dim]} | both("decoder", c["vocab_size"], dim)
    for i in range(c["num_hidden_layers"]):
        own = {"qkv": [3 * dim, dim], "wo": [dim, dim], "ffn.w12": [2 * width, dim], "ffn.w3": [dim, width], "attention_norm": [dim], "ffn_norm": [dim]}
        shapes |= {f"model.transformer_encoder.{i}.{name}.weight": shape for name, shape in own.items()}
    return shapes


def neo(state, c, ids):
    """Llama seen from both sides: the rows of the fused projection are query, key and value of each head, neighbours are rotated."""
    n, heads, dim = len(ids), c["num_attention_heads"], c["hidden_size"]
    half = dim // heads // 2
    norm = lambda x, name: F.rms_norm(x, (dim,), state[f"model.{name}.weight"], c["norm_eps"])
    linear = lambda x, name: F.linear(x, state[f"model.{name}.weight"])
    turn = torch.polar(torch.ones(n, half), torch.arange(n)[:, None] * 10000.0 ** -(torch.arange(half) / half))[:, None]
    turned = lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(n, heads, half, 2).contiguous()) * turn).flatten(-2)
    x = state["model.encoder.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        at = f"transformer_encoder.{i}."
        q, k, v = linear(norm(x, at + "attention_norm"), at + "qkv").view(n, heads, 3, -1).unbind(2)
        scores = torch.einsum("qhd,khd->hqk", turned(q), turned(k)) * (2 * half) ** -0.5
        x = x + linear(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, dim), at + "wo")
        gate, up = linear(norm(x, at + "ffn_norm"), at + "ffn.w12").chunk(2, -1)
        x = x + linear(F.silu(gate) * up, at + "ffn.w3")
    return norm(x, "layer_norm")


# name: (configuration, shapes of tensors, states of ids)
DESCRIBED = {"jina_v2": (JINA_V2, jina_shapes, jina), "jina_v2_code": (JINA_V2_CODE, jina_shapes, jina), "neo_bert": (NEO_BERT, neo_shapes, neo)}
