"""Trains the embedding model: texts from one story near each other, texts from different stories apart.

    python embed.py --data DIR --out DIR [--steps N]

A small causal Llama; a text's vector is the mean of the final normed states of <s> and its tokens, scaled to length 1. Two
spans of one story are a pair; the other stories of the batch are the negatives (InfoNCE, temperature 0.05).
Some tokens of a span are dropped, so that the vector does not hang on single words.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

import data
import optim
import tokenizer
from model import Model, ModelConfig, count_parameters

CONFIG = {"vocab": 4096, "dim": 256, "layers": 2, "heads": 4, "kv_heads": 4, "hidden": 512, "context": 512}
SEED, TEMPERATURE, SPAN, PAIRS = 6, 0.05, 64, 96


def pooled(model, rows):
    """Unit vectors (N, D) of N lists of ids."""
    t = max(map(len, rows))
    ids = torch.zeros(len(rows), t, dtype=torch.long)
    keep = torch.zeros(len(rows), t, 1)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = torch.as_tensor(row)
        keep[i, :len(row)] = 1
    states = model(ids)[0].float()
    return F.normalize((states * keep).sum(1) / keep.sum(1), dim=-1)


def two_spans(rng, item):
    """Two spans of a story, one from each half, a tenth of each one's tokens dropped."""
    body, half = item[item > tokenizer.EOS].astype(np.int64), len(item) // 2
    spans = []
    for part in (body[:half], body[half:]):
        size = min(len(part), int(rng.integers(16, SPAN)))
        begin = int(rng.integers(0, len(part) - size + 1))
        span = part[begin:begin + size]
        spans.append([tokenizer.BOS, *span[rng.random(size) > 0.1].tolist()])
    return spans


def train_step(model, optimizers, pairs, factor):
    first, second = zip(*pairs)
    with torch.autocast("cpu", torch.bfloat16):
        v = pooled(model, first + second)
    a, b = v[:len(pairs)], v[len(pairs):]
    scores, own = a @ b.T / TEMPERATURE, torch.arange(len(pairs))
    loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
    loss.backward()
    for o, rate in zip(optimizers, (0.01, 0.002)):
        o.param_groups[0]["lr"] = rate * factor
        o.step()
    model.zero_grad(set_to_none=True)
    return loss.item(), (scores.argmax(1) == own).float().mean().item()


@torch.no_grad()
def retrieval(model, sp, stories):
    """How often the first half of a story finds its own second half among those of all stories, and the reverse."""
    halves = ([], [])
    for story in stories:
        ids = sp.encode(story)[:model.cfg.context - 2]
        for side, part in zip(halves, (ids[:len(ids) // 2], ids[len(ids) // 2:])):
            side.append([tokenizer.BOS] + part)
    vectors = [torch.cat([pooled(model, side[i:i + 16]) for i in range(0, len(side), 16)]) for side in halves]
    scores, own = vectors[0] @ vectors[1].T, torch.arange(len(stories))
    hit = ((scores.argmax(1) == own).float().mean() + (scores.argmax(0) == own).float().mean()) / 2
    other = scores[~torch.eye(len(stories), dtype=torch.bool)]
    return {"retrieval_top1": hit.item(), "chance": 1 / len(stories), "similarity_same": scores.diag().mean().item(),
            "similarity_other": other.mean().item()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--seconds", type=float, default=1e9, help="shorten the schedule to end after about this long")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    model = Model(ModelConfig(**CONFIG))
    print(f"{count_parameters(model):,} parameters")
    optimizers = optim.make_optimizers(model, {"lr": 0.01, "adam_lr": 0.002, "weight_decay": 0.1})
    items = [i for n in ("tinystories", "modelwritten") for i in data.load_items(pathlib.Path(args.data) / f"{n}.npz")]
    items = [i for i in items if len(i) >= 80]
    rng, begin, step = np.random.default_rng(SEED), time.time(), 0
    while step < args.steps:
        progress = max(step / args.steps, (time.time() - begin) / args.seconds)
        if progress >= 1:
            break
        chosen = rng.choice(len(items), PAIRS, replace=False)
        loss, hit = train_step(model, optimizers, [two_spans(rng, items[i]) for i in chosen],
                               min((step + 1) / 20, 1 - progress))
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f} in-batch top-1 {hit:.3f} seconds {time.time() - begin:.0f}", flush=True)
    torch.save({"weights": model.state_dict(), "model_config": CONFIG, "step": step, "name": "penstock-embed-2m"},
               out / "weights.pt")
    sp = tokenizer.load(pathlib.Path(args.data) / "tokenizer.model")
    print(json.dumps(retrieval(model.eval(), sp, data.load_stories(pathlib.Path(args.data) / "valid.txt"))))


if __name__ == "__main__":
    main()
