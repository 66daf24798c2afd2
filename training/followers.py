"""The models that follow a target of stacked.py: a draft, a model with a sliding window, Medusa heads (eagle.py has the EAGLE-3 layer)."""

import time

import numpy as np
import torch
import torch.nn.functional as F

import generate
import medusa
import stacked

CUTS = (4, 8, 12, 16, 20, 24, 28, 32, 38, 45, 60)
MIX = {"tinystories": 0.20, "written": 0.72, "modelwritten": 0.05, "african": 0.03}
HARD, DECAY = 0.15, 0.4  # the share of the plain loss; of the time at a falling rate


def distill_loss(cfg, target, target_cfg, corpus, dtype):
    """A Stage's loss: train.distill_loss to the target's own distribution, at every second place."""

    def loss(weights, index):
        x, targets, position, seen = corpus.look(index)
        ids, at = x.view(1, -1), position.view(1, -1)
        final, _, emb = stacked.states(weights, cfg, ids, at, seen, dtype=dtype)
        with torch.no_grad():
            wanted, _, target_emb = stacked.states(target, target_cfg, ids, at, seen, dtype=dtype)
            p = F.linear(wanted[0, ::2], target_emb[0]).float().log_softmax(-1)
        q = F.linear(final[0, ::2], emb[0]).float().log_softmax(-1)
        keep = (targets.flatten()[::2] >= 0).float()
        kl, apart = (p.exp() * (p - q)).sum(-1), 0.5 * (p.exp() - q.exp()).abs().sum(-1)
        return ((kl + apart) * keep).sum() / keep.sum(), ((apart * keep).sum() / keep.sum()).detach().view(1)

    return loss


def label_loss(cfg, corpus, soft, dtype):
    """A Stage's loss: the teachers' labels, mixed with the text's own tokens."""

    def loss(weights, index):
        x, targets, position, seen = corpus.look(index, cfg.get("window", 0))
        flat = lambda v: v.view(1, -1)
        final, _, emb = stacked.states(weights, cfg, flat(x), flat(position), seen, dtype=dtype)
        i, n = flat(index.clamp(min=0)), (targets >= 0).sum()
        plain, mixed = stacked.head_loss(final, emb, flat(targets), soft[0][i], soft[1][i], HARD)
        return mixed.sum() / n, (plain / n).detach()

    return loss


def train(name, cfg, rates, loss, corpus, rows, valid_bytes, seconds, log, dtype):
    """Trains one model for `seconds`. Returns (weights with a leading dimension of 1, steps)."""
    device, stream = corpus.device, stacked.Rows(corpus, MIX, 200 + len(name))
    optimizer = stacked.Optimizer(stacked.fresh(cfg, 1, 11, device), *([r] for r in rates), device)
    validate = stacked.Validation(corpus, corpus.members("valid"), valid_bytes, cfg, dtype)
    stage = stacked.Stage(name, optimizer, loss, lambda done: stream.rows(rows), seconds, log, validate, DECAY, span=60, every=3)
    weights, _ = stage.run()
    return weights, stage.steps


def own_text(target, cfg, corpus, names, count, length, dtype):
    """(ids (count, length), where the target's own text begins): beginnings of the items of the corpus, continued greedily."""
    random = np.random.default_rng(7)
    items = np.concatenate([corpus.members(n) for n in names])
    prompts = []
    for item in random.choice(items, count):
        ids = [t for t in corpus.items[item].tolist() if t != generate.EOS]
        prompts.append(ids[:min(int(random.choice(CUTS)), length - 1 - medusa.HEADS - 4)])
    return generate.generate(target, cfg, prompts, length, 0.0, dtype=dtype), [len(p) for p in prompts]


def own_texts(target, cfg, corpus, count, dtype, length=160):
    """(ids (2 count, length), their begins) after `count` beginnings of TinyStories and as many of the written ones."""
    parts = [own_text(target, cfg, corpus, [name], count, length, dtype) for name in ("tinystories", "written")]
    return torch.cat([p[0] for p in parts]), parts[0][1] + parts[1][1]


@torch.no_grad()
def places(target, cfg, ids, starts, dtype):
    """medusa.OwnText's states (n, D) and the HEADS tokens after the next one (n, HEADS), on the device."""
    states, wanted, heads = [], [], medusa.HEADS
    rows, t = ids.shape
    causal = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril()[None, None]
    position = torch.arange(t, device=ids.device)
    begins = torch.tensor(starts, device=ids.device)
    for at in range(0, rows, 256):
        part, begin = ids[at:at + 256], begins[at:at + 256]
        n, last = len(part), t - 1 - heads
        final, _, _ = stacked.states(target, cfg, part.reshape(1, -1), position.repeat(n)[None], causal.expand(n, -1, -1, -1), dtype=dtype)
        keep = position[:last] >= (begin[:, None] - 2).clamp(min=0)
        states.append(final.view(n, t, -1)[:, :last][keep].to(dtype))
        wanted.append(torch.stack([part[:, 1 + k:1 + k + last] for k in range(1, heads + 1)], -1)[keep])
    return torch.cat(states), torch.cat(wanted)


def train_heads(target, states, wanted, seconds, dtype, batch, log):
    """medusa.Heads with the average of the last steps; the last of the places are measured on instead of trained on."""
    device, d, count = states.device, states.shape[1], medusa.HEADS
    emb = target["embedding.weight"][0].to(dtype)
    held = min(20000, len(states) // 10)
    w = torch.zeros(count, d, d, device=device, requires_grad=True)
    b = torch.zeros(count, 1, d, device=device, requires_grad=True)
    average = [w.detach().clone(), b.detach().clone()]
    optimizer = torch.optim.AdamW([w, b], 2e-3, betas=(0.9, 0.95), weight_decay=0.0)
    discount = torch.tensor([medusa.DISCOUNT**k for k in range(count)], device=device)

    def logits(x, w, b):
        x = x.expand(count, -1, -1)
        return F.linear(x + F.silu(torch.baddbmm(b.to(dtype), x, w.to(dtype).mT)), emb).float()

    begin, step = time.time(), 0
    while (left := 1 - (time.time() - begin) / seconds) > 0:
        optimizer.param_groups[0]["lr"] = 2e-3 * min((step + 1) / 10, left)
        at = torch.randint(0, len(states) - held, (batch,), device=device)
        each = F.cross_entropy(logits(states[at], w, b).flatten(0, 1), wanted[at].T.flatten(), reduction="none")
        (each.view(count, -1).mean(1) * discount).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(average, [w, b], 0.01 if step > 200 else 0.1)
        step += 1
        if step % 8 == 0 and device.type == "cuda":
            torch.cuda.synchronize()
    with torch.no_grad():
        right = torch.zeros(count, device=device)
        for x, y in zip(states[-held:].split(batch), wanted[-held:].split(batch)):
            right += (logits(x, *average).argmax(-1) == y.T).sum(1)
    log({"medusa": [round(x, 4) for x in (right / held).tolist()], "places": len(states), "steps": step})
    heads = medusa.Heads(d)
    for k, (layer,) in enumerate(heads.linear):
        layer.weight.data.copy_(average[0][k])
        layer.bias.data.copy_(average[1][k, 0])
    return heads


def medusa_heads(target, cfg, ids, starts, seconds, log, dtype, batch):
    """Heads trained on what the target wrote."""
    begin = time.time()
    states, wanted = places(target, cfg, ids, starts, dtype)
    order = torch.randperm(len(states), device=states.device)
    return train_heads(target, states[order], wanted[order], max(1, seconds - (time.time() - begin)), dtype, batch, log)
