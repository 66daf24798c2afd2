"""Trains penstock-scenes: the tower from chance, the text model from the stories' draft, on drawn scenes (scenes.py).

    python train_seeing.py --text ../models/penstock-stories-1m-bf16 --out DIR [--resume] [--seconds S] [--steps N --decay N]

The first `--hints` steps train the tower alone, to tell shapes, colours, places and words at the patch in the middle of each; then all learn from
answers, and the tower from its hints beside. Warm-up, constant rate, linear decay; the same seed and step numbers give the same
batches, resumed or not. Writes last.pt (everything needed to resume), weights.pt (averaged weights), log.jsonl.
"""

import argparse
import copy
import json
import os
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

import optim
import scenes
import seeing
import tokenizer
from model import ModelConfig

ROOM = 126  # tokens of questions and answers behind a picture
IMAGE = 4096  # the placeholder's id
HARD = ("where", "count", "where")  # kinds that are learned last are asked more often
TEXT = dict(vocab=4097, dim=128, layers=3, heads=4, kv_heads=2, hidden=384)


class Batches(torch.utils.data.Dataset):
    """Batch `step` of the seed: pixels, ids, targets (-1: does not count), turns, chained, and the hints' classes."""

    def __init__(self, model_path, seed, size, row):
        self.path, self.seed, self.size, self.row, self.sp = str(model_path), seed, size, row, None

    def __len__(self):
        return 1 << 30

    def __getitem__(self, step):
        self.sp = self.sp or tokenizer.load(self.path)
        rng = np.random.default_rng((self.seed, step, 0))
        drawn = [scenes.make_scene(rng, held=False) for _ in range(self.size)]
        asked = [scenes.questions(rng, s) + scenes.questions(rng, s, scenes.KINDS[:-1] + HARD) for s in drawn]
        asked = [[pairs[i] for i in rng.permutation(len(pairs))] for pairs in asked]
        return collate(self.sp, drawn, asked, self.row) | {"chained": torch.from_numpy(rng.random(self.size) < 0.25)}


def collate(sp, drawn, asked, row, room=ROOM):
    """Batches as of training; of the questions of each scene those that there is room for, whose kinds are `kinds`. row: patches in a row.

    The hint of what is in a place is given at one patch of it, in the middle if there is one.
    """
    n, cell = len(drawn), row // 3
    ids, targets, turns = (np.full((n, room), fill, np.int64) for fill in (0, -1, -1))
    classes = {name: np.zeros((n, row, row), np.int64) for name in ("shape", "color", "place", "word")}
    kinds = []
    for i, (scene, pairs) in enumerate(zip(drawn, asked)):
        at = 0
        kinds.append([])
        for kind, question, answer in pairs:
            q, a = sp.encode(question + "\n"), sp.encode(question + "\n" + answer) + [tokenizer.EOS]
            if at + len(a) > room:
                continue
            ids[i, at:at + len(a)] = a
            targets[i, at + len(q) - 1:at + len(a) - 1] = a[len(q):]
            turns[i, at:at + len(a)] = len(kinds[-1])
            kinds[-1].append(kind)
            at += len(a)
        for thing in scene.things:
            y, x = (cell * p + (cell - 1) // 2 for p in divmod(thing.place, 3))
            classes["shape"][i, y, x] = 1 + thing.shape
            classes["color"][i, y, x] = 1 + thing.color
            classes["place"][i, y, x] = 1 + thing.place
        if scene.sign:
            classes["word"][i, cell * scene.sign.row + (cell - 1) // 2, (row - 1) // 2] = 1 + scene.sign.word
    made = {"pixels": np.stack([scenes.draw(s) for s in drawn]), "ids": ids, "targets": targets, "turns": turns}
    made |= {name: c.reshape(n, -1) for name, c in classes.items()}
    return {name: torch.from_numpy(a) for name, a in made.items()} | {"kinds": kinds}


def load_text(model, folder):
    """The stories' weights; the placeholder's row is zero."""
    from safetensors.torch import load_file
    import export
    given = load_file(pathlib.Path(folder) / "model.safetensors")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not name.startswith(("embedding", "blocks", "norm")):
                continue
            p.zero_()
            value = given[export.names(name)[1]].float()
            p[:value.shape[0]].copy_(value)


def tokens_of_answers(sp):
    """Ids of all tokens that answers have, and each id's place among them (-100: none)."""
    rng, found = np.random.default_rng(0), {tokenizer.EOS}
    for held in [False, True] * 1000:
        for _, question, answer in scenes.questions(rng, scenes.make_scene(rng, held)):
            found.update(sp.encode(question + "\n" + answer)[len(sp.encode(question + "\n")):])
    ids = torch.tensor(sorted(found))
    place_of = torch.full((IMAGE + 1,), -100)
    place_of[ids] = torch.arange(len(ids))
    return ids, place_of


def hint_loss(model, states, rows, batch):
    total = 0
    for name, head in model.hints.items():
        weight = torch.ones(head.out_features)
        weight[0] = 0.1  # most patches are the middle of nothing
        total = total + F.cross_entropy(head(rows if name == "place" else states).float().flatten(0, 1), batch[name].flatten(), weight)
    return total


@torch.no_grad()
def measure(model, sp, seed, count):
    """Share of right greedy answers to held-out scenes, by kind. An answer is right if each of its tokens is the likeliest behind those before."""
    right = {}
    held = list(scenes.held_out_set(seed, count))
    for i in range(0, count, 50):
        drawn, asked = zip(*held[i:i + 50])
        batch = collate(sp, drawn, asked, model.tower_cfg.row, 256)
        where = seeing.positions_and_mask(batch["turns"], model.tower_cfg.patches, torch.zeros(len(drawn), dtype=torch.bool))
        with torch.autocast("cpu", torch.bfloat16):
            guessed = model.logits(model.read(model.project(model.tower(batch["pixels"])), batch["ids"], *where)).argmax(-1)
        wrong = (guessed != batch["targets"]) & (batch["targets"] >= 0)
        for row, kinds in enumerate(batch["kinds"]):
            for turn, kind in enumerate(kinds):
                right.setdefault(kind, []).append(not wrong[row][batch["turns"][row] == turn].any().item())
    return {kind: round(float(np.mean(right[kind])), 4) for kind in scenes.KINDS if kind in right}


def rate(step, steps, warmup, decay):
    return min(1.0, (step + 1) / warmup, max(0.0, (steps - step) / max(1, decay)))


class Trainer:
    def __init__(self, args):
        self.args, self.out = args, pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(args.seed)
        self.model = seeing.Seeing(seeing.TowerConfig(patch=args.patch), ModelConfig(**TEXT))
        load_text(self.model, args.text)
        self.average = copy.deepcopy(self.model)
        self.optimizers = optim.make_optimizers(self.model, {"lr": args.lr, "adam_lr": args.adam_lr, "weight_decay": 0.05})
        self.vocabulary = pathlib.Path(args.text) / "tokenizer.model"
        self.sp = tokenizer.load(self.vocabulary)
        self.answers, self.place_of = tokens_of_answers(self.sp)
        self.step, self.spent = 0, 0.0
        if args.resume and (self.out / "last.pt").exists():
            self.load()
        if args.compile:
            for block in [*self.model.tower.layers, *self.model.blocks]:
                block.compile(dynamic=False)

    def load(self):
        state = torch.load(self.out / "last.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for o, s in zip(self.optimizers, state["optimizers"]):
            o.load_state_dict(s)
        self.step, self.spent = state["step"], state["spent"]

    def save(self):
        state = {"model": self.model.state_dict(), "average": self.average.state_dict(), "step": self.step, "spent": self.spent,
                 "optimizers": [o.state_dict() for o in self.optimizers]}
        shown = {"weights": self.average.state_dict(), "step": self.step, "tower": vars(self.model.tower_cfg)}
        for name, what in (("last.pt", state), ("weights.pt", shown)):
            torch.save(what, self.out / "partial.pt")
            os.replace(self.out / "partial.pt", self.out / name)

    def losses(self, batch):
        """(the loss to minimise, that of the hints, that of the answers or 0)."""
        states = self.model.tower(batch["pixels"])
        rows = self.model.project(states)
        hint = hint_loss(self.model, states, rows, batch)
        if self.step < self.args.hints:
            return hint, hint, torch.zeros(())
        where = seeing.positions_and_mask(batch["turns"], self.model.tower_cfg.patches, batch["chained"])
        read = self.model.read(rows, batch["ids"], *where)
        counts = batch["targets"] >= 0
        answer = self.answer_loss(read[counts], batch["targets"][counts])
        return answer + self.args.hint_weight * hint, hint, answer

    def answer_loss(self, read, targets):
        """Cross entropy among the tokens of answers; every eighth token's among all tokens, so that the others stay unlikely."""
        few = F.linear(read, self.model.embedding.weight[self.answers].to(read.dtype)).float()
        whole = self.model.logits(read[::8]).float()
        return F.cross_entropy(few, self.place_of[targets]) + 0.5 * F.cross_entropy(whole, targets[::8])

    def train_step(self, batch):
        with torch.autocast("cpu", torch.bfloat16):
            loss, hint, answer = self.losses(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.optimizers[1].param_groups[0]["params"], 1.0)
        factor = rate(self.step, self.args.steps, self.args.warmup, self.args.decay)
        for o, lr in zip(self.optimizers, (self.args.lr, self.args.adam_lr)):
            o.param_groups[0]["lr"] = lr * factor
            o.step()
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        span = min(200, self.step / 4 + 1, (self.args.steps - self.step) / 4 + 4)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 / span)
        return hint.item(), answer.item()

    def log(self, record):
        with open(self.out / "log.jsonl", "a") as f:
            f.write(json.dumps(record) + "\n")
        print(" ".join(f"{k} {v}" for k, v in record.items()), flush=True)

    def run(self):
        batches = Batches(self.vocabulary, self.args.seed, self.args.batch, self.model.tower_cfg.row)
        made = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=1, prefetch_factor=4, sampler=range(self.step, self.args.steps))
        begin, at_start, sums, seen = time.time(), self.spent, np.zeros(2), 0
        saved = begin
        print(f"{sum(p.numel() for p in self.model.parameters()):,} parameters, steps {self.step}..{self.args.steps}", flush=True)
        for batch in made:
            sums += self.train_step(batch)
            seen += 1
            self.spent = at_start + time.time() - begin
            late = time.time() - begin > self.args.seconds
            if time.time() - saved > self.args.save_seconds:
                self.save()
                saved = time.time()
            if self.step % self.args.log_every == 0:
                self.log({"step": self.step, "hints": round(sums[0] / seen, 4), "answers": round(sums[1] / seen, 4), "seconds": round(self.spent)})
                sums, seen = np.zeros(2), 0
            if self.step % self.args.evaluate_every == 0 or self.step == self.args.steps or late:
                self.save()
                if self.step > self.args.hints:
                    with torch.compiler.set_stance("force_eager"):
                        self.log({"step": self.step, "right": measure(self.average, self.sp, 1, self.args.scenes)})
            if late:
                break


def parse_arguments(given=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", required=True, help="the stories' draft, a Hugging Face directory")
    p.add_argument("--out", required=True)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--seconds", type=float, default=1e9, help="stop (resumable) after this long")
    p.add_argument("--seed", type=int, default=0)
    for name, usual in dict(steps=12000, decay=4000, warmup=100, hints=1500, batch=32, log_every=50, evaluate_every=500, scenes=200,
                            threads=1, patch=12, save_seconds=120).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=usual)
    for name, usual in dict(lr=0.02, adam_lr=0.002, hint_weight=0.3).items():
        p.add_argument("--" + name.replace("_", "-"), type=float, default=usual)
    p.add_argument("--compile", action="store_true", help="fuse the blocks' operations")
    return p.parse_args(given)


if __name__ == "__main__":
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    Trainer(arguments).run()
