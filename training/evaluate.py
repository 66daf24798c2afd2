"""Held-out quality of a language model of the family, by the protocol that README.md states.

    python evaluate.py --checkpoint FILE --text heldout.txt --tokenizer tokenizer.model
"""

import argparse
import json
import math

import torch
import torch.nn.functional as F

import data
import tokenizer


def encode_stories(sp, stories, context):
    """[BOS] + ids of each story, cut to `context` tokens, and the bytes that the kept tokens stand for."""
    rows, sizes = [], []
    for story in stories:
        ids = sp.encode(story)
        cut = ids[:context - 1]
        rows.append([tokenizer.BOS] + cut)
        sizes.append(len((story if len(cut) == len(ids) else sp.decode(cut)).encode()))
    return rows, sizes


def padded(rows):
    """Rows of ids to (inputs, targets) of one shape; targets are -1 where padded."""
    t = max(map(len, rows)) - 1
    inputs = torch.zeros(len(rows), t, dtype=torch.long)
    targets = torch.full((len(rows), t), -1)
    for i, row in enumerate(rows):
        inputs[i, :len(row) - 1] = torch.tensor(row[:-1])
        targets[i, :len(row) - 1] = torch.tensor(row[1:])
    return inputs, targets


@torch.no_grad()
def batches(rows, size=16):
    """Indices and padded batches of rows of similar length."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for i in range(0, len(order), size):
        yield padded([rows[j] for j in order[i:i + size]])


@torch.no_grad()
def measure(model, sp, stories, autocast=False):
    """Returns nats per token, perplexity, bits per byte; also of the early exit where the model has one."""
    model.eval()
    rows, sizes = encode_stories(sp, stories, model.cfg.context)
    total, total_exit, count, accepted = 0.0, 0.0, 0, 0.0
    for inputs, targets in batches(rows):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            final, at_exit = model(inputs)
            keep = targets >= 0
            z = model.logits(final[keep]).float()
            total += F.cross_entropy(z, targets[keep], reduction="sum").item()
            if at_exit is not None:
                y = model.logits(at_exit[keep]).float()
                total_exit += F.cross_entropy(y, targets[keep], reduction="sum").item()
                accepted += torch.minimum(z.softmax(-1), y.softmax(-1)).sum().item()
            count += int(keep.sum())
    result = {"tokens": count, "bytes": sum(sizes), "nats_per_token": total / count,
              "perplexity": math.exp(total / count), "bits_per_byte": total / math.log(2) / sum(sizes)}
    if total_exit:
        result["exit_bits_per_byte"] = total_exit / math.log(2) / sum(sizes)
        result["exit_acceptance"] = accepted / count
    return result


@torch.no_grad()
def acceptance(target, draft, sp, stories):
    """Mean over held-out positions of sum(min(p, q)): the chance that a drafted token is kept."""
    rows, _ = encode_stories(sp, stories, target.cfg.context)
    total, agree, count = 0.0, 0, 0
    for inputs, targets in batches(rows):
        keep = targets >= 0
        p = target.logits(target(inputs)[0][keep]).float()
        q = draft.logits(draft(inputs)[0][keep]).float()
        total += torch.minimum(p.softmax(-1), q.softmax(-1)).sum().item()
        agree += int((p.argmax(-1) == q.argmax(-1)).sum())
        count += len(p)
    return {"acceptance": total / count, "greedy_agreement": agree / count}


@torch.no_grad()
def samples(model, sp, prompt, seeds, temperature=0.8, limit=160):
    """One continuation of `prompt` per seed, until </s> or `limit` new tokens; the text without what follows </s>."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    ids = torch.tensor([[tokenizer.BOS] + sp.encode(prompt)] * len(seeds))
    for _ in range(min(limit, model.cfg.context - ids.shape[1])):
        p = (model.logits(model(ids)[0][:, -1]).float() / temperature).softmax(-1)
        new = torch.stack([torch.multinomial(row, 1, generator=g) for row, g in zip(p, generators)])
        ids = torch.cat((ids, new), 1)
        if all(tokenizer.EOS in row for row in ids.tolist()):
            break
    return [sp.decode(row[:row.index(tokenizer.EOS)] if tokenizer.EOS in row else row) for row in ids.tolist()]


if __name__ == "__main__":
    import train

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--prompt", default="Once upon a time")
    args = parser.parse_args()
    net, sp = train.load_model(args.checkpoint), tokenizer.load(args.tokenizer)
    print(json.dumps(measure(net, sp, data.load_stories(args.text)), indent=1))
    seeds = range(1, args.samples + 1)
    for seed, text in zip(seeds, samples(net, sp, args.prompt, seeds) if args.samples else []):
        print(f"--- seed {seed}\n{text}")
