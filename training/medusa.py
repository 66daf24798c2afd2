"""Trains Medusa heads on a frozen target: head k (1..4) predicts the token k places after the next one.

    python medusa.py --target weights.pt --data DIR --out DIR [--steps N]

Each head is the paper's residual block, h = x + silu(W x + b) on the target's final normed state x, followed by the
target's own (tied) output matrix, which is not stored again. medusa_lm_head.safetensors names the tensors as
the reference implementation does: "{k-1}.0.linear.weight" (D, D) and "{k-1}.0.linear.bias" (D).
"""

import argparse
import json
import pathlib
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import data
import evaluate
import tokenizer
import train

HEADS, SEED, DISCOUNT = 4, 5, 0.8


class Heads(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(dim, dim) for _ in range(HEADS))
        for layer in self.linear:
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, k):
        return x + F.silu(self.linear[k](x))


def shifted(targets, k):
    """targets (B, T) moved k places to the left; -1 where the text has ended."""
    return F.pad(targets[:, k:], (0, k), value=-1)


def save(heads, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for k, layer in enumerate(heads.linear):
        tensors[f"{k}.0.linear.weight"] = layer.weight.detach().bfloat16().contiguous()
        tensors[f"{k}.0.linear.bias"] = layer.bias.detach().bfloat16().contiguous()
    save_file(tensors, str(folder / "medusa_lm_head.safetensors"), {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "model_type": "medusa", "medusa_num_heads": HEADS, "medusa_num_layers": 1, "shared_lm_head": True,
        "base_model_name_or_path": "penstock-stories-15m"}, indent=2) + "\n")


def load(folder, dim):
    heads = Heads(dim)
    for name, tensor in load_file(str(pathlib.Path(folder) / "medusa_lm_head.safetensors")).items():
        k, _, _, part = name.split(".")
        getattr(heads.linear[int(k)], part).data.copy_(tensor.float())
    return heads.eval()


@torch.no_grad()
def accuracy(target, heads, sp, stories):
    """Top-1 accuracy of the target itself (next+0) and of each head (next+1..next+4) on the stories' own tokens."""
    rows, _ = evaluate.encode_stories(sp, stories, target.cfg.context)
    right, count = [0] * (HEADS + 1), [0] * (HEADS + 1)
    for inputs, targets in evaluate.batches(rows):
        final, _ = target(inputs)
        for k in range(HEADS + 1):
            wanted = shifted(targets, k)
            keep = wanted >= 0
            state = final[keep] if k == 0 else heads(final[keep], k - 1)
            right[k] += int((target.logits(state).argmax(-1) == wanted[keep]).sum())
            count[k] += int(keep.sum())
    return {f"next+{k}": right[k] / count[k] for k in range(HEADS + 1)}


def train_step(target, heads, optimizer, batch, step):
    """One batch, a quarter of its positions (another quarter at each step); returns the discounted mean loss."""
    inputs, targets = (torch.from_numpy(x) for x in batch)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            states = target(inputs)[0].flatten(0, 1)[step % 4::4]
        loss = 0.0
        for k in range(HEADS):
            wanted = shifted(targets, k + 1).flatten()[step % 4::4]
            keep = wanted >= 0
            loss = loss + DISCOUNT**k * F.cross_entropy(target.logits(heads(states[keep], k)).float(), wanted[keep])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item() / sum(DISCOUNT**k for k in range(HEADS))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seconds", type=float, default=1e9, help="shorten the schedule to end after about this long")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    target = train.load_model(args.target).requires_grad_(False)
    heads = Heads(target.cfg.dim)
    optimizer = torch.optim.AdamW(heads.parameters(), 2e-3, betas=(0.9, 0.95), weight_decay=0.0)
    batches = data.Batches(args.data, {"tinystories": 0.8, "modelwritten": 0.2}, 4096, SEED)
    begin, step = time.time(), 0
    while step < args.steps:
        # Progress by steps or by time, whichever is further: the rate falls linearly to 0.
        progress = max(step / args.steps, (time.time() - begin) / args.seconds)
        if progress >= 1:
            break
        optimizer.param_groups[0]["lr"] = 2e-3 * min((step + 1) / 10, 1 - progress)
        loss = train_step(target, heads, optimizer, batches.next(), step)
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f} tokens/s {step * 4096 / (time.time() - begin):.0f}", flush=True)
        if step % 50 == 0:
            save(heads, args.out)
    save(heads, args.out)
    sp = tokenizer.load(pathlib.Path(args.data) / "tokenizer.model")
    print(step, json.dumps(accuracy(train.load_model(args.target), heads, sp,
                                    data.load_stories(pathlib.Path(args.data) / "valid.txt"))))


if __name__ == "__main__":
    main()
