"""An EAGLE-3 layer for a target of stacked.py: from the target's residual streams at a token and the next token's embedding it
guesses the token after that, and from its own stream the ones after.

It is trained on what the target wrote, to the target's own distribution, as it will be used: STEPS guesses in a row, each of
which reads the stream of the guess before (training-time test, arXiv 2503.01840). src/model/eagle_layer.h states the format.

Shapes: B rows of T tokens, D width. Place i reads the streams at token i and the embedding of token i + 1.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import optim
import stacked
from tokenizer import EOS

TAPS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, VOCAB = (3, 5), 4, 2, 64, 256, 1536
STEPS, DISCOUNT = 4, 0.8
EPSILON, THETA, GROUP = 1e-5, 10000.0, 64  # columns of a matrix that share a scale
AT = "midlayer."


def taps_of(cfg):
    """The layers before which the streams are read."""
    return sorted({min(tap, cfg["layers"] - 1) for tap in TAPS})


def fresh(target, cfg, kept):
    """The layer's weights by the reference's names. It begins with the last of the streams, to which it adds nothing, and with the target's
    norm and output."""
    d, taps, device = cfg["dim"], len(taps_of(cfg)), target["norm.weight"].device
    draw = lambda *shape: torch.randn(*shape, device=device) * 0.5 / shape[1] ** 0.5
    ones = lambda: torch.ones(d, device=device)
    return {
        "fc.weight": torch.cat([torch.zeros(d, (taps - 1) * d, device=device), torch.eye(d, device=device)], 1),
        AT + "input_layernorm.weight": ones(), AT + "hidden_norm.weight": ones(), AT + "post_attention_layernorm.weight": ones(),
        AT + "self_attn.q_proj.weight": draw(HEADS * HEAD_DIM, 2 * d), AT + "self_attn.k_proj.weight": draw(KV_HEADS * HEAD_DIM, 2 * d),
        AT + "self_attn.v_proj.weight": draw(KV_HEADS * HEAD_DIM, 2 * d), AT + "self_attn.o_proj.weight": torch.zeros(d, HEADS * HEAD_DIM, device=device),
        AT + "mlp.gate_proj.weight": draw(HIDDEN, d), AT + "mlp.up_proj.weight": draw(HIDDEN, d),
        AT + "mlp.down_proj.weight": torch.zeros(d, HIDDEN, device=device),
        "norm.weight": target["norm.weight"][0].clone(), "lm_head.weight": target["embedding.weight"][0][kept].clone()}


def norm(x, gain):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPSILON) * gain).to(x.dtype)


def heads_of(w, embedded, states):
    """Queries, keys and values (B, heads, T, HEAD_DIM), the former two rotated by their places."""
    both = torch.cat([norm(embedded, w[AT + "input_layernorm.weight"]), norm(states, w[AT + "hidden_norm.weight"])], -1)
    split = lambda part: F.linear(both, w[AT + f"self_attn.{part}_proj.weight"].to(both.dtype)).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
    angle = torch.arange(both.shape[1], device=both.device)[:, None] * THETA ** (-torch.arange(0, HEAD_DIM, 2, device=both.device) / HEAD_DIM)
    q, k = (stacked.rotate(split(part), angle.cos(), angle.sin()) for part in "qk")
    return q, *(x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, split("v")))


def layer(w, states, attended):
    """The stream behind the layer; attended (B, heads, T, HEAD_DIM)."""
    linear = lambda x, name: F.linear(x, w[AT + name + ".weight"].to(x.dtype))
    x = states + linear(attended.transpose(1, 2).flatten(2), "self_attn.o_proj")
    h = norm(x, w[AT + "post_attention_layernorm.weight"])
    return x + linear(F.silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj"), "mlp.down_proj")


def logits(w, x):
    return F.linear(norm(x, w["norm.weight"]), w["lm_head.weight"].to(x.dtype)).float()


def unrolled(w, streams, embedded, steps=STEPS):
    """The streams behind the layer of guess 1 to `steps` (each (B, T, D)): guess m at place i has the target's streams up to
    place i - m + 1, and from there on the layer's own, each made by the guess before.

    streams (B, T, taps * D); embedded (B, T, D) of the tokens after them.
    """
    states, result, keys, values = F.linear(streams, w["fc.weight"].to(streams.dtype)), [], [], []
    t = torch.arange(streams.shape[1], device=streams.device)
    for m in range(steps):
        q, k, v = heads_of(w, embedded, states)
        keys, values = keys + [k], values + [v]
        # What guess l made for place i - (m - l) is what guess m reads there; the target's own is read by all places that far back.
        back = lambda x, n: F.pad(x, (0, 0, n, 0))[:, :, :x.shape[2]]
        seen = t[:, None] - t >= m
        scores = [(q @ keys[0].mT).float().masked_fill(~seen, -1e30)]
        scores += [(q * back(keys[n], m - n)).float().sum(-1, keepdim=True) for n in range(1, m + 1)]
        shares = (torch.cat(scores, -1) * HEAD_DIM**-0.5).softmax(-1).to(v.dtype)
        attended = shares[..., :len(t)] @ values[0]
        for n in range(1, m + 1):
            attended = attended + shares[..., len(t) + n - 1, None] * back(values[n], m - n)
        result.append(layer(w, states, attended))
        states = F.pad(result[-1], (0, 0, 1, 0))[:, :-1]
    return result


@torch.no_grad()
def own_streams(target, cfg, ids, dtype, rows=256):
    """(streams (R, T, taps * D), final normed states (R, T, D)) of rows of ids."""
    taps, streams, finals, t = taps_of(cfg), [], [], ids.shape[1]
    causal = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril()[None, None]
    for part in ids.split(rows):
        n, read = len(part), dict.fromkeys(taps)
        final, *_ = stacked.states(target, cfg, part.reshape(1, -1), torch.arange(t, device=ids.device).repeat(n)[None],
                                   causal.expand(n, -1, -1, -1), dtype=dtype, streams=read)
        streams.append(torch.cat([read[tap].view(n, t, -1) for tap in taps], -1).to(dtype))
        finals.append(final.view(n, t, -1).to(dtype))
    return torch.cat(streams), torch.cat(finals)


class Text:
    """What the target wrote: rows of ids, its streams and states there, and the places that count (R, T - 2)."""

    def __init__(self, target, cfg, ids, starts, dtype):
        self.ids, self.emb = ids, target["embedding.weight"][0].to(dtype)
        self.kept = torch.bincount(ids.flatten(), minlength=cfg["vocab"]).topk(min(VOCAB, cfg["vocab"])).indices.sort().values
        self.streams, self.finals = own_streams(target, cfg, ids, dtype)
        place = torch.arange(ids.shape[1] - 2, device=ids.device)
        ended = (ids == EOS).cumsum(1)[:, 1:-1] > 0  # what comes after </s> is nothing
        self.counts = (place + 2 >= torch.tensor(starts, device=ids.device)[:, None]) & ~ended

    def guesses(self, w, rows):
        """For each guess its logits (n, T - 2, kept) and the places that count."""
        counts = self.counts[rows]
        for m, x in enumerate(unrolled(w, self.streams[rows, :-2], self.emb[self.ids[rows, 1:-1]])):
            counts = counts if not m else F.pad(counts[:, m:], (m, 0))
            yield logits(w, x), counts

    def loss(self, w, rows):
        """To the target's distribution over the tokens that are kept."""
        p, total = F.linear(self.finals[rows, 1:-1], self.emb[self.kept]).float().softmax(-1), 0.0
        for m, (q, counts) in enumerate(self.guesses(w, rows)):
            total = total - DISCOUNT**m * ((p * q.log_softmax(-1)).sum(-1) * counts).sum() / counts.sum().clamp(min=1)
        return total

    @torch.no_grad()
    def accuracy(self, w, rows, size):
        """How often each guess is what the target wrote, the guesses before it being so."""
        right, count = torch.zeros(2, STEPS, dtype=torch.long, device=self.ids.device)
        for part in rows.split(size):
            for m, (q, counts) in enumerate(self.guesses(w, part)):
                right[m] += ((self.kept[q.argmax(-1)] == self.ids[part, 2:]) & counts).sum()
                count[m] += counts.sum()
        return (right / count.clamp(min=1)).tolist()

    def covered(self):
        """The share of what the target wrote that is kept."""
        known = torch.zeros(len(self.emb), dtype=torch.bool, device=self.ids.device).index_fill(0, self.kept, True)
        return float(known[self.ids[:, 2:][self.counts]].float().mean())


def train(target, cfg, ids, starts, left, dtype, log, size=64):
    """(weights, cfg, the target's tokens that the output has) after left() seconds; the last rows of an order are measured on."""
    text, held = Text(target, cfg, ids, starts, dtype), max(1, min(256, len(ids) // 10))
    w = {n: x.requires_grad_() for n, x in fresh(target, cfg, text.kept).items()}
    average = {n: x.detach().clone() for n, x in w.items()}
    matrices = [x for n, x in w.items() if x.dim() == 2 and "lm_head" not in n]
    rest = [x for n, x in w.items() if x.dim() == 1 or "lm_head" in n]
    optimizers = [optim.Muon(matrices, 0.01, weight_decay=0.02), torch.optim.AdamW(rest, 2e-3, betas=(0.9, 0.95), weight_decay=0.0)]
    rates, step, total = [o.param_groups[0]["lr"] for o in optimizers], 0, max(1.0, left())
    order = torch.randperm(len(ids), device=ids.device)
    while left() > 0 or step < 2:
        loss = text.loss(w, order[torch.randint(0, len(ids) - held, (size,), device=ids.device)])
        loss.backward()
        for o, rate in zip(optimizers, rates):
            o.param_groups[0]["lr"] = rate * min((step + 1) / 30, 1.0, max(0.01, left() / total / 0.7))
            o.step()
            o.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.values()), list(w.values()), 0.02 if step > 100 else 0.2)
        step += 1
        if step % 8 == 0 and ids.is_cuda:
            torch.cuda.synchronize()
    log({"eagle": [round(x, 4) for x in text.accuracy(average, order[-held:], size)], "rows": len(ids), "steps": step,
         "loss": round(loss.item(), 4), "vocabulary": len(text.kept), "covers": round(text.covered(), 4)})
    return average, cfg, text.kept


def save(weights, cfg, kept, folder):
    """A directory as the reference implementation writes it, matrices in 8 bits (compressed-tensors, int-quantized)."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kept, tensors = kept.cpu(), {}
    for name, x in weights.items():
        x = x.detach().cpu().float()
        if x.dim() == 1:
            tensors[name] = x.bfloat16()
            continue
        groups = x.unflatten(1, (-1, GROUP))
        scales = (groups.abs().amax(-1) / 127).clamp(min=1e-8).bfloat16()
        tensors[name] = (groups / scales.float()[..., None]).round().clamp(-127, 127).to(torch.int8).flatten(1).contiguous()
        tensors[name + "_scale"] = scales
    tensors["d2t"] = kept - torch.arange(len(kept))
    tensors["t2d"] = torch.zeros(cfg["vocab"], dtype=torch.bool).index_fill(0, kept, True)
    save_file(tensors, str(folder / "model.safetensors"), {"format": "pt"})
    eight = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": cfg["dim"],
        "intermediate_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "hidden_act": "silu", "rms_norm_eps": EPSILON, "rope_theta": THETA, "max_position_embeddings": cfg.get("context", 512),
        "vocab_size": cfg["vocab"], "draft_vocab_size": len(kept), "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": taps_of(cfg)},
        "quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized",
                                "config_groups": {"group_0": {"targets": ["Linear"], "weights": eight}}}}, indent=2) + "\n")


def load(folder):
    """(weights in F32, the target's tokens that the output has) of a directory."""
    tensors = load_file(str(pathlib.Path(folder) / "model.safetensors"))
    weights = {n: x.float() for n, x in tensors.items() if n not in ("d2t", "t2d") and not n.endswith("_scale")}
    for name, scales in tensors.items():
        if name.endswith("_scale"):
            x = weights[name.removesuffix("_scale")]
            x.copy_((x.unflatten(1, (scales.shape[1], -1)) * scales.float()[..., None]).flatten(1))
    return weights, tensors["d2t"] + torch.arange(len(tensors["d2t"]))


def measure(target, cfg, folder, rows, starts=None):
    """How often each guess is the row's token, the guesses before it being so; target: state of model.Model, rows of ids without </s>."""
    ids = torch.full((len(rows), max(map(len, rows))), EOS)
    for row, x in zip(ids, rows):
        row[:len(x)] = torch.tensor(x)
    text = Text({n: x[None] for n, x in target.items()}, cfg, ids, starts or [0] * len(rows), torch.float32)
    text.counts &= ids[:, 2:] != EOS
    weights, text.kept = load(folder)
    return text.accuracy(weights, torch.arange(len(rows)), 16)
