"""Trains the embedding model: texts from one story near each other, texts from different stories apart.

    python embed.py --data DIR --out DIR [--steps N]

A small causal Llama; a text's vector is the mean of the final normed states of <s> and its tokens, scaled to length 1. It starts
as a latent semantic analysis of the stories (initial_embedding); the blocks write nothing yet. Then spans of one story's two halves, or two
versions of one span, are a pair, and the other stories of the batch are the negatives (InfoNCE, temperature 0.05).
The average of the weights over the last steps is kept.
"""

import argparse
import copy
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
SOURCES = ("tinystories", "modelwritten", "african", "fairytales", "novels")
SEED, TEMPERATURE, PAIRS, GROUP, WARMUP = 6, 0.05, 64, 16, 10
MUON_RATE, ADAM_RATE, AVERAGE = 0.001, 0.004, 0.95


def initial_embedding(items, vocab, dim):
    """Token vectors (vocab, dim) that tell stories apart untrained: the main directions of tokens by stories, tf-idf.

    The final norm gives all states one length, so that a mean would mostly be of the frequent tokens. Number 0 of a vector takes
    up what the token's idf leaves of that length, and the norm's gain of number 0 is 0: the mean is weighted by idf.
    """
    counts = torch.stack([torch.bincount(torch.as_tensor(i.astype(np.int64)), minlength=vocab) for i in items]).float()
    idf = torch.log((len(items) + 1) / ((counts > 0).sum(0) + 1))
    idf[[tokenizer.BOS, tokenizer.EOS]] = 0  # they say nothing of a text
    tf_idf = F.normalize(counts.log1p() * idf)
    directions = F.normalize(torch.linalg.eigh(tf_idf.T @ tf_idf).eigenvectors[:, 1 - dim:])
    weight = (idf / idf.max())[:, None]
    return dim ** 0.5 * torch.cat(((1 - weight ** 2).sqrt(), weight * directions), 1)


def initial_model(config, items):
    model = Model(ModelConfig(**config))
    with torch.no_grad():
        model.embedding.weight.copy_(initial_embedding(items, config["vocab"], config["dim"]))
        model.norm.weight[0] = 0
    return model


def pooled(model, rows):
    """Unit vectors (N, D) of N lists of ids, computed in groups of similar length: rows are padded to their group's longest."""
    order = np.argsort([len(row) for row in rows], kind="stable")
    vectors = []
    for group in np.split(order, range(GROUP, len(rows), GROUP)):
        ids = torch.zeros(len(group), len(rows[group[-1]]), dtype=torch.long)
        keep = torch.zeros(*ids.shape, 1)
        for i, row in enumerate(group):
            ids[i, :len(rows[row])] = torch.as_tensor(rows[row])
            keep[i, :len(rows[row])] = 1
        vectors.append((model(ids)[0].float() * keep).sum(1))
    return F.normalize(torch.cat(vectors)[np.argsort(order)], dim=-1)


def span_of(rng, body, least, most):
    """A random part of a story; short ones are as frequent as long ones on a logarithmic scale."""
    size = min(len(body), int(np.exp(rng.uniform(np.log(least), np.log(most)))))
    begin = int(rng.integers(0, len(body) - size + 1))
    return body[begin:begin + size]


def dropped(rng, span, share=0.15):
    """Without some of its tokens, so that the vector does not hang on single words."""
    return span[rng.random(len(span)) > share]


def said_again(rng, span, words):
    """As somebody else might put it: tokens dropped, others added, and in half of the cases its end said first."""
    span = dropped(rng, span)
    added = rng.binomial(len(span), 0.1)
    span = np.insert(span, rng.integers(0, len(span) + 1, added), rng.choice(words, added))
    return np.roll(span, int(rng.integers(0, len(span) + 1))) if rng.random() < 0.5 else span


def two_texts(rng, item, words):
    """Spans of both halves of a story, or in a quarter of the cases one of the length of a question, said twice."""
    body = item[item > tokenizer.EOS].astype(np.int64)
    if rng.random() < 0.25:
        span = span_of(rng, body, 8, 40)
        texts = [said_again(rng, span, words) for _ in range(2)]
    else:
        halves = body[:len(body) // 2], body[len(body) // 2:]
        texts = [dropped(rng, span_of(rng, half, 16, len(half))) for half in halves]
    return [[tokenizer.BOS, *text.tolist()] for text in texts]


def train_step(model, optimizers, pairs, factor):
    first, second = zip(*pairs)
    v = pooled(model, first + second)
    a, b = v[:len(pairs)], v[len(pairs):]
    scores, own = a @ b.T / TEMPERATURE, torch.arange(len(pairs))
    loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
    loss.backward()
    for o, rate in zip(optimizers, (MUON_RATE, ADAM_RATE)):
        o.param_groups[0]["lr"] = rate * factor
        o.step()
    model.zero_grad(set_to_none=True)
    return loss.item(), (scores.argmax(1) == own).float().mean().item()


@torch.no_grad()
def move_average(average, model, weight):
    for kept, current in zip(average.parameters(), model.parameters()):
        kept.lerp_(current, weight)


@torch.no_grad()
def retrieval(model, sp, stories):
    """How often the first half of a story finds its own second half among those of all stories, and the reverse."""
    halves = ([], [])
    for story in stories:
        ids = sp.encode(story)[:model.cfg.context - 2]
        for side, part in zip(halves, (ids[:len(ids) // 2], ids[len(ids) // 2:])):
            side.append([tokenizer.BOS] + part)
    first, second = (pooled(model, side) for side in halves)
    scores, own = first @ second.T, torch.arange(len(stories))
    hit = ((scores.argmax(1) == own).float().mean() + (scores.argmax(0) == own).float().mean()) / 2
    other = scores[~torch.eye(len(stories), dtype=torch.bool)]
    return {"retrieval_top1": hit.item(), "chance": 1 / len(stories), "similarity_same": scores.diag().mean().item(),
            "similarity_other": other.mean().item()}


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--seconds", type=float, default=1e9, help="shorten the schedule to end after about this long")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    folder, out = pathlib.Path(args.data), pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    sp, valid = tokenizer.load(folder / "tokenizer.model"), data.load_stories(folder / "valid.txt")
    items = [i for n in SOURCES if (folder / f"{n}.npz").exists() for i in data.load_items(folder / f"{n}.npz") if len(i) >= 80]
    config = {**CONFIG, "vocab": sp.get_piece_size()}
    model = initial_model(config, items)
    average = copy.deepcopy(model)
    print(f"{count_parameters(model):,} parameters, {len(items)} stories; untrained", json.dumps(retrieval(average, sp, valid)), flush=True)
    optimizers = optim.make_optimizers(model, {"lr": MUON_RATE, "adam_lr": ADAM_RATE, "weight_decay": 0.1})
    words = np.concatenate(items)
    words = words[words > tokenizer.EOS]
    rng, begin, step = np.random.default_rng(SEED), time.time(), 0
    while step < args.steps:
        progress = max(step / args.steps, (time.time() - begin) / args.seconds)
        if progress >= 1:
            break
        chosen = rng.choice(len(items), min(PAIRS, len(items)), replace=False)
        loss, hit = train_step(model, optimizers, [two_texts(rng, items[i], words) for i in chosen],
                               min((step + 1) / WARMUP, 1 - progress))
        step += 1
        move_average(average, model, max(1 - AVERAGE, 10 / (step + 9)))
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f} in-batch top-1 {hit:.3f} seconds {time.time() - begin:.0f}", flush=True)
        if step % 20 == 0:
            print(json.dumps(retrieval(average, sp, valid)), flush=True)
    torch.save({"weights": average.state_dict(), "model_config": config, "step": step, "name": "penstock-embed-2m"},
               out / "weights.pt")
    print(json.dumps(retrieval(average.eval(), sp, valid)))


if __name__ == "__main__":
    main()
