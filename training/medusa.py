"""Trains Medusa heads on a frozen target: head k predicts the token k places after the next one.

    python medusa.py --target weights.pt --data DIR --out DIR          # a model of the family (train.py, data.py)
    python medusa.py --target HF_DIR --text FILE... --out DIR          # any Llama-style Hugging Face checkpoint
    python medusa.py --target HF_DIR or FILE.gguf --own FILE --out DIR # on the target's own continuations (distill.py)

A text FILE is plain text, documents separated by lines of <|endoftext|>. Best is what the target itself wrote, greedily
above all: that is what the heads will have to guess. With --own the target's states are computed once and kept.

Each head is the paper's residual block, h = x + silu(W x + b), once or more (--layers), on the target's final normed state x,
followed by the target's own output matrix, which is not stored again. medusa_lm_head.safetensors names the tensors as the
reference implementation does: "{k-1}.{i}.linear.weight" (D, D) and "{k-1}.{i}.linear.bias" (D). config.json gets
medusa_accuracy: how often each head's most likely tokens were right, from which the engine makes its draft tree.
"""

import argparse
import copy
import json
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import data
import evaluate
import tokenizer
import train

HEADS, RANKS, SEED, DISCOUNT, AVERAGED = 4, 10, 5, 0.8, 0.03


class Family:
    """A model of ours. `model`: model.Model in eval mode."""

    def __init__(self, model, name="penstock-stories-15m"):
        self.model, self.name, self.dim, self.context = model, name, model.cfg.dim, model.cfg.context

    def states(self, ids):
        return self.model(ids)[0]

    def logits(self, states):
        return self.model.logits(states)


class HuggingFace:
    """A causal language model of transformers; the states are those that its output matrix reads."""

    def __init__(self, folder, device):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16).to(device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        config = self.model.config
        self.name, self.dim = pathlib.Path(folder).name, config.hidden_size
        self.context = min(2048, getattr(config, "max_position_embeddings", 2048))

    def states(self, ids):
        return self.model.base_model(ids).last_hidden_state

    def logits(self, states):
        return self.model.get_output_embeddings()(states.to(self.model.dtype))

    def encode(self, text):
        return self.tokenizer(text)["input_ids"]


class Heads(nn.Module):
    """Layers that are new do nothing: silu(0) = 0."""

    def __init__(self, dim, count=HEADS, layers=1):
        super().__init__()
        self.linear = nn.ModuleList(nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers)) for _ in range(count))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x, k):
        for layer in self.linear[k]:
            x = x + F.silu(layer(x))
        return x


class TextBatches:
    """An endless, seeded stream of (inputs, targets) of `tokens` positions from rows of ids cut to the context."""

    def __init__(self, rows, tokens, context):
        self.rows = [row[i:i + context + 1] for row in rows for i in range(0, len(row), context)]
        self.rows = [row for row in self.rows if len(row) > 8]
        if not self.rows:
            raise SystemExit("the text is too short: no document of more than 8 tokens")
        self.tokens, self.random, self.order = tokens, np.random.default_rng(SEED), []

    def next(self):
        batch, size = [], 0
        while size < self.tokens:
            if not self.order:
                self.order = list(self.random.permutation(len(self.rows)))
            batch.append(self.rows[self.order.pop()])
            size += len(batch[-1]) - 1
        inputs, targets = evaluate.padded(batch)
        return inputs.numpy(), targets.numpy()


class OwnText:
    """The target's states at the places from which it wrote rows of ids, in bfloat16, and the tokens to guess from them."""

    def __init__(self, target, rows, count, device):
        states, wanted = [], []
        for i in range(0, len(rows), 16):
            part = [row["ids"][:target.context] for row in rows[i:i + 16]]
            inputs, _ = evaluate.padded(part)
            with torch.no_grad(), torch.autocast(device, torch.bfloat16):
                x = target.states(inputs.to(device)).bfloat16().cpu()
            for row, ids, of_row in zip(rows[i:], part, x):
                # Place t predicts t + 1; head k guesses t + 1 + k.
                first, last, ids = max(0, row["prompt"] - 2), len(ids) - 1 - count, torch.tensor(ids)
                if last > first:
                    states.append(of_row[first:last].clone())
                    wanted.append(torch.stack([ids[first + 1 + k:last + 1 + k] for k in range(1, count + 1)], 1))
        self.states, self.wanted = torch.cat(states), torch.cat(wanted)
        self.random = torch.Generator().manual_seed(SEED)

    def draw(self, n):
        places = torch.randint(len(self.states), (n,), generator=self.random)
        return self.states[places], self.wanted[places]


def shifted(targets, k):
    """targets (B, T) moved k places to the left; -1 where the text has ended."""
    return F.pad(targets[:, k:], (0, k), value=-1)


def save(heads, folder, name="penstock-stories-15m", accuracy=None):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for k, head in enumerate(heads.linear):
        for i, layer in enumerate(head):
            tensors[f"{k}.{i}.linear.weight"] = layer.weight.detach().cpu().bfloat16().contiguous()
            tensors[f"{k}.{i}.linear.bias"] = layer.bias.detach().cpu().bfloat16().contiguous()
    save_file(tensors, str(folder / "medusa_lm_head.safetensors"), {"format": "pt"})
    config = {"model_type": "medusa", "medusa_num_heads": len(heads.linear), "medusa_num_layers": len(heads.linear[0]),
              "shared_lm_head": True, "base_model_name_or_path": name}
    if accuracy:
        config["medusa_accuracy"] = [[round(x, 4) for x in row] for row in accuracy]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(folder, dim, layers=1):
    """The heads of a folder, with layers that do nothing yet up to `layers`."""
    tensors = load_file(str(pathlib.Path(folder) / "medusa_lm_head.safetensors"))
    places = [[int(part) for part in name.split(".")[:2]] for name in tensors]
    heads = Heads(dim, 1 + max(k for k, _ in places), max(layers, 1 + max(i for _, i in places)))
    for (k, i), (name, tensor) in zip(places, tensors.items()):
        getattr(heads.linear[k][i], name.split(".")[3]).data.copy_(tensor.float())
    return heads.eval()


@torch.no_grad()
def accuracy(target, heads, sp, stories):
    """Top-1 accuracy of the target itself (next+0) and of each head (next+1..next+4) on the stories' own tokens."""
    rows, _ = evaluate.encode_stories(sp, stories, target.cfg.context)
    right, count = [0] * (len(heads.linear) + 1), [0] * (len(heads.linear) + 1)
    for inputs, targets in evaluate.batches(rows):
        final, _ = target(inputs)
        for k in range(len(heads.linear) + 1):
            wanted = shifted(targets, k)
            keep = wanted >= 0
            state = final[keep] if k == 0 else heads(final[keep], k - 1)
            right[k] += int((target.logits(state).argmax(-1) == wanted[keep]).sum())
            count[k] += int(keep.sum())
    return {f"next+{k}": right[k] / count[k] for k in range(len(heads.linear) + 1)}


@torch.no_grad()
def accuracy_by_rank(target, heads, rows):
    """[k][r]: how often head k + 1's token of rank r was the text's, where the heads before had theirs among RANKS.

    Only where the target itself would have written the text's next token: elsewhere no draft would be looked at.
    """
    counts = torch.zeros(len(heads.linear), RANKS + 1)
    device = next(heads.parameters()).device
    for inputs, targets in evaluate.batches(rows, 4):
        inputs, targets = inputs.to(device), targets.to(device)
        states = target.states(inputs).float()
        reached = (target.logits(states).argmax(-1) == targets) & (targets >= 0)
        for k in range(len(heads.linear)):
            wanted = shifted(targets, k + 1)
            reached = reached & (wanted >= 0)
            scores = target.logits(heads(states[reached], k)).float()
            own = scores.gather(-1, wanted[reached][:, None])
            rank = (scores > own).sum(-1).clamp(max=RANKS)
            counts[k] += torch.bincount(rank.cpu(), minlength=RANKS + 1)
            known = reached.clone()
            known[reached] = rank < RANKS
            reached = known
    shares = counts[:, :RANKS] / counts.sum(-1, keepdim=True).clamp(min=1)
    return [sorted(row, reverse=True) for row in shares.tolist()]


def train_step(target, heads, optimizer, batch, step):
    """One batch, a quarter of its positions (another quarter at each step); returns the discounted mean loss."""
    device = next(heads.parameters()).device
    inputs, targets = (torch.from_numpy(x).to(device) for x in batch)
    with torch.autocast(device.type, torch.bfloat16):
        with torch.no_grad():
            states = target.states(inputs).flatten(0, 1)[step % 4::4].float()
        loss = 0.0
        for k in range(len(heads.linear)):
            wanted = shifted(targets, k + 1).flatten()[step % 4::4]
            keep = wanted >= 0
            loss = loss + DISCOUNT**k * F.cross_entropy(target.logits(heads(states[keep], k)).float(), wanted[keep])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item() / sum(DISCOUNT**k for k in range(len(heads.linear)))


def own_step(target, heads, average, optimizer, own, n):
    """n places of the target's own text; returns the discounted mean loss. The average follows the heads."""
    device = next(heads.parameters()).device
    states, wanted = (x.to(device) for x in own.draw(n))
    weights = [DISCOUNT**k for k in range(len(heads.linear))]
    with torch.autocast(device.type, torch.bfloat16):
        loss = sum(weight * F.cross_entropy(target.logits(heads(states.float(), k)).float(), wanted[:, k])
                   for k, weight in enumerate(weights))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        torch._foreach_lerp_(list(average.parameters()), list(heads.parameters()), AVERAGED)
    return loss.item() / sum(weights)


def run(target, heads, batches, args):
    """Progress by steps or by processor time, whichever is further: the rate falls linearly to 0. Returns (steps, heads)."""
    optimizer = torch.optim.AdamW(heads.parameters(), args.rate, betas=(0.9, 0.95), weight_decay=args.weight_decay)
    average = copy.deepcopy(heads)
    begin, step = time.process_time(), 0
    while step < args.steps:
        progress = max(step / args.steps, (time.process_time() - begin) / args.seconds)
        if progress >= 1:
            break
        optimizer.param_groups[0]["lr"] = args.rate * min((step + 1) / 10, 1 - progress)
        if isinstance(batches, OwnText):
            loss = own_step(target, heads, average, optimizer, batches, args.batch_tokens)
        else:
            loss = train_step(target, heads, optimizer, batches.next(), step)
        step += 1
        if step % 10 == 0:
            rate = step * args.batch_tokens / (time.process_time() - begin)
            print(f"step {step} loss {loss:.4f} tokens/s {rate:.0f}", flush=True)
        if step % 50 == 0:
            save(heads, args.out, target.name)
    return step, average if isinstance(batches, OwnText) else heads


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", required=True, help="weights.pt of train.py, a GGUF file of ours, or a Hugging Face directory")
    p.add_argument("--data", help="folder of data.py (with weights.pt)")
    p.add_argument("--text", nargs="+", default=[], help="text files (with a Hugging Face directory)")
    p.add_argument("--own", help="what the target wrote, by distill.py")
    p.add_argument("--out", required=True)
    p.add_argument("--held", help="measure medusa_accuracy on these continuations (distill.py --held) instead of a part of --own")
    p.add_argument("--heads", type=int, default=HEADS)
    p.add_argument("--layers", type=int, default=1, help="residual blocks of a head")
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--init", help="begin with the heads of this folder")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--rate", type=float, default=2e-3, help="learning rate")
    p.add_argument("--batch-tokens", type=int, default=4096)
    p.add_argument("--seconds", type=float, default=1e9, help="shorten the schedule to end after so much processor time")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def own_rows(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def load_target(args):
    """(target, batches, rows to measure accuracy on: not trained on)"""
    if args.own:
        if args.target.endswith(".gguf"):
            import check_export  # needs the gguf package

            target = Family(check_export.load_gguf(args.target).requires_grad_(False).to(args.device))
        else:
            target = HuggingFace(args.target, args.device)
            target.model.requires_grad_(False)
        rows = own_rows(args.own)
        apart = 0 if args.held else max(1, min(100, len(rows) // 20))
        held, own = own_rows(args.held) if args.held else rows[:apart], OwnText(target, rows[apart:], args.heads, args.device)
        print(f"{len(own.states)} places", flush=True)
        return target, own, [row["ids"][:target.context] for row in held]
    if not pathlib.Path(args.target).is_dir():
        target = Family(train.load_model(args.target).requires_grad_(False).to(args.device))
        sp = tokenizer.load(pathlib.Path(args.data) / "tokenizer.model")
        valid = data.load_stories(pathlib.Path(args.data) / "valid.txt")
        batches = data.Batches(args.data, {"tinystories": 0.8, "modelwritten": 0.2}, args.batch_tokens, SEED)
        return target, batches, evaluate.encode_stories(sp, valid, target.context)[0]
    if not args.text:
        raise SystemExit("--text: expected text files to train on, got none")
    target = HuggingFace(args.target, args.device)
    target.model.requires_grad_(False)
    rows = [target.encode(story) for path in args.text for story in data.load_stories(path)]
    apart = max(1, min(100, len(rows) // 20))
    if len(rows) <= apart:
        raise SystemExit(f"--text: expected several documents separated by {data.SEPARATOR}, got {len(rows)}")
    held = [row[:target.context] for row in rows[:apart] if len(row) > 8]
    return target, TextBatches(rows[apart:], args.batch_tokens, target.context), held


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    target, batches, held = load_target(args)
    heads = load(args.init, target.dim, args.layers) if args.init else Heads(target.dim, args.heads, args.layers)
    step, heads = run(target, heads.train().to(args.device), batches, args)
    measured = accuracy_by_rank(target, heads, held)
    save(heads, args.out, target.name, measured)
    print(step, json.dumps([[round(x, 3) for x in row[:3]] for row in measured]))


if __name__ == "__main__":
    main()
