"""Trains the target from chance on one GPU within a given time, and the models that follow it.

    python family.py --data DATA --out RUN [--seconds 200]

Four teachers of the target's shape differ in dropout, decay and mix. Their mean distribution labels the corpora and writes
more stories; the student begins as the best teacher and learns from both. Then a draft learns the student's distribution, a
sliding-window model the teachers' labels, and Medusa heads what the student writes. Everything is chosen by the validation
stories alone. Writes RUN/{target,draft,sliding}/weights.pt as train.py does, RUN/medusa, RUN/written.npz and RUN/log.jsonl.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch

import data
import evaluate
import followers
import generate
import medusa
import stacked
import tokenizer
import train

EXIT, SOFT, DECAY = 0.3, 32, 0.45  # the exit's share of the loss; tokens of a label; of the time at a falling rate
WIDE = {"tinystories": 0.42, "modelwritten": 0.13, "african": 0.07, "fairytales": 0.16, "novels": 0.22}
NARROW = {"tinystories": 0.60, "modelwritten": 0.20, "african": 0.08, "fairytales": 0.12, "novels": 0.0}
LATE = {"tinystories": 0.86, "modelwritten": 0.05, "african": 0.05, "fairytales": 0.04, "novels": 0.0}
TEACHERS = [(0.1, 0.1, WIDE), (0.2, 0.1, WIDE), (0.2, 0.1, NARROW), (0.2, 0.4, WIDE)]  # dropout, decay, mix
STUDENT = {"tinystories": 0.34, "written": 0.50, "modelwritten": 0.06, "african": 0.05, "fairytales": 0.05}
STUDENT_LATE = {"tinystories": 0.50, "written": 0.50}
HARD, STUDENT_DROPOUT, STUDENT_DECAY = 0.1, 0.05, 0.1
SHARES = {"teachers": 0.42, "writing": 0.12}  # of the target's time; the student has the rest
FOLLOWERS = {"draft": 0.30, "sliding": 0.26}  # of the followers' time; the heads have the rest
RATES = {"draft": (0.03, 0.006, 0.02), "sliding": (0.02, 0.004, 0.05)}  # Muon, AdamW, decay


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder of data.py")
    p.add_argument("--out", required=True)
    p.add_argument("--seconds", type=float, default=200, help="for everything, the start included")
    p.add_argument("--followers", type=float, default=45, help="seconds of them for the models that follow the target")
    p.add_argument("--rows", type=int, default=16, help="rows of 512 tokens of each member in a batch")
    p.add_argument("--written", type=int, default=4096, help="stories written at a time")
    p.add_argument("--configs", default=pathlib.Path(__file__).parent / "configs", help="where the shapes of the models are")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def load(folder):
    """({source: items}, bytes of the validation stories); "valid" is cut as evaluate.py cuts it."""
    folder = pathlib.Path(folder)
    sources = {name: data.load_items(folder / f"{name}.npz") for name, *_ in data.SOURCES if (folder / f"{name}.npz").exists()}
    rows, sizes = evaluate.encode_stories(tokenizer.load(folder / "tokenizer.model"), data.load_stories(folder / "valid.txt"), stacked.T)
    return sources | {"valid": [np.array(row, np.uint16) for row in rows]}, sum(sizes)


@torch.no_grad()
def labels(teachers, cfg, corpus, items, dtype, rows_at_once=16):
    """For each place of the items, the SOFT likeliest tokens by the teachers' mean and their probabilities, which sum to 1."""
    k, n = len(teachers["norm.weight"]), len(corpus.ids)
    ids = torch.zeros(n, SOFT, dtype=torch.int16, device=corpus.device)
    p = torch.zeros(n, SOFT, dtype=torch.float16, device=corpus.device)
    for rows in torch.from_numpy(stacked.all_rows(corpus, items)).to(corpus.device).split(rows_at_once):
        x, _, position, seen = corpus.look(rows)
        flat = lambda v: v.flatten().expand(k, -1)
        final, _, emb = stacked.states(teachers, cfg, flat(x), flat(position), seen.repeat(k, 1, 1, 1), dtype=dtype)
        mean = sum(torch.mm(f, e.mT).float().softmax(-1) for f, e in zip(final, emb)) / k
        best, which = mean.topk(SOFT, -1)
        keep = rows.flatten() >= 0
        at = rows.flatten()[keep].long()
        ids[at] = which[keep].to(torch.int16)
        p[at] = (best / best.sum(-1, keepdim=True))[keep].to(torch.float16)
    return ids, p


class Family:
    """One run: `teachers`, `write`, `student`, `follow`, each within its share of the time."""

    def __init__(self, args):
        self.begin, self.args, self.out = time.time(), args, pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.out / "log.jsonl", "w")
        self.configs = {name: train.load_config(pathlib.Path(args.configs) / f"{name}.json")[0] for name in ("target", *FOLLOWERS)}
        self.cfg = self.configs["target"]["model"]
        self.device, self.cuda = torch.device(args.device), torch.device(args.device).type == "cuda"
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.sources, self.valid_bytes = load(args.data)
        self.block, self.head = stacked.block, stacked.head_loss
        torch.manual_seed(1)
        if self.cuda:
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cuda.enable_cudnn_sdp(False)
            self.block, self.head = (torch.compile(f, dynamic=False) for f in (stacked.block, stacked.head_loss))

    def run(self):
        teachers, bits = self.teachers()
        soft = self.write(teachers)
        best = int(np.argmin(bits))
        target, steps = self.student({n: w[best:best + 1].clone() for n, w in teachers.items()}, bits[best], soft)
        self.save("target", target, steps)
        self.follow(target, soft)

    def spent(self):
        return time.time() - self.begin

    def log(self, record):
        line = json.dumps({**record, "at": round(self.spent(), 1)})
        print(line, flush=True)
        print(line, file=self.log_file, flush=True)

    def save(self, name, weights, steps):
        """One member as train.Trainer.save leaves it."""
        (self.out / name).mkdir(exist_ok=True)
        torch.save({"weights": {n: w[0].float().cpu() for n, w in weights.items()}, "model_config": self.configs[name]["model"],
                    "step": steps, "name": self.configs[name]["name"]}, self.out / name / "weights.pt")

    def tensor(self, x):
        return torch.tensor(x, dtype=torch.float32, device=self.device)

    def validation(self, corpus):
        return stacked.Validation(corpus, corpus.members("valid"), self.valid_bytes, self.cfg, self.dtype)

    def losses(self, weights, index, corpus, drop, soft, hard, copies=1):
        """Sums of the plain, the mixed and the exit's loss of each (copy of a) member, and how many places they are of."""
        x, targets, position, seen = corpus.look(index)
        flat = lambda v: v.view(len(TEACHERS), -1)
        final, at_exit, emb = stacked.states(weights, self.cfg, flat(x), flat(position), seen, drop, self.dtype, self.block, copies)
        i, targets = flat(index.clamp(min=0)), flat(targets)
        ids, share = soft[0][i], soft[1][i]
        plain, mixed = self.head(final, emb, targets, ids, share, hard)
        q = slice(0, None, 4)  # a quarter of the places is enough for the exit
        _, early = stacked.head_loss(at_exit[:, q], emb, targets[:, q], ids[:, q], share[:, q], hard)
        return plain, mixed, early, (targets >= 0).sum(1).clamp(min=1), (targets[:, q] >= 0).sum(1).clamp(min=1)

    def stage(self, name, corpus, first, rates, loss, rows, seconds):
        stage = stacked.Stage(name, stacked.Optimizer(first, *rates, self.device), loss, rows, max(1, seconds), self.log,
                              self.validation(corpus), DECAY)
        return *stage.run(), stage.steps

    def rows(self, streams, late, count):
        """A Stage's rows: `count` of each stream, of the mix `late` while the rate falls."""

        def rows(done):
            if done > 1 - DECAY:
                for s in streams:
                    s.set_mix(late)
            return np.concatenate([s.rows(count) for s in streams])

        return rows

    def teachers(self):
        """(weights of all, bits per byte of each)."""
        corpus, k = stacked.Corpus(self.sources, self.device), len(TEACHERS)
        drop, hard = self.tensor([t[0] for t in TEACHERS]).view(-1, 1, 1), self.tensor(1.0)
        # The labels count for nothing yet; they keep the compiled loss the same.
        none = [torch.zeros(1, 1, dtype=t, device=self.device).expand(len(corpus.ids), SOFT) for t in (torch.int16, torch.float16)]

        def loss(weights, index):
            plain, mixed, early, n, m = self.losses(weights, index, corpus, drop, none, hard)
            return (mixed / n).sum() + EXIT * (early / m).sum(), (plain / n).detach()

        streams = [stacked.Rows(corpus, t[2], i) for i, t in enumerate(TEACHERS)]
        rows, first = self.rows(streams, LATE, self.args.rows), stacked.fresh(self.cfg, k, 1, self.device)
        leaves = {n: w.clone().requires_grad_() for n, w in first.items()}
        loss(leaves, torch.from_numpy(rows(0.0)).to(self.device))[0].backward()  # compiles, before the time is shared out
        self.target_seconds = self.args.seconds - self.args.followers - self.spent()
        teachers, bits, _ = self.stage("teachers", corpus, first, ([0.02] * k, [0.003] * k, [t[1] for t in TEACHERS]), loss, rows,
                                       SHARES["teachers"] * self.target_seconds)
        self.log({"teachers": [round(b, 4) for b in bits], "mean": round(self.validation(corpus).of_mean(teachers), 4),
                  "passes": [s.passes for s in streams]})
        return teachers, bits

    def write(self, teachers):
        """Adds what the teachers write to the sources, makes `self.corpus` of them and returns its labels."""
        begin, written, rounds, random = time.time(), [], 0, torch.Generator(self.device).manual_seed(7)
        while not rounds or (time.time() - begin) * (rounds + 1) / rounds < SHARES["writing"] * self.target_seconds:
            ids = generate.generate(teachers, self.cfg, [[tokenizer.BOS]] * self.args.written, 320, 1.0, 0.02, random, self.dtype)
            written += generate.stories(ids)
            rounds += 1
        self.sources["written"] = written
        data.save_items(self.out / "written.npz", written)
        names = [n for n in (*STUDENT, "valid") if n in self.sources]
        self.corpus = stacked.Corpus({n: self.sources[n] for n in names}, self.device)
        soft = labels(teachers, self.cfg, self.corpus, np.concatenate([self.corpus.members(n) for n in names[:-1]]), self.dtype)
        self.log({"written": len(written), "tokens": sum(map(len, written)), "seconds": round(time.time() - begin, 1)})
        return soft

    def student(self, first, bits, soft):
        """(the target's weights, steps): the student, or the teacher it began as if it is no better."""
        k = len(TEACHERS)
        hard, drop = self.tensor(HARD), self.tensor([STUDENT_DROPOUT] * k).view(-1, 1, 1)

        def loss(weights, index):
            plain, mixed, early, n, m = self.losses(weights, index, self.corpus, drop, soft, hard, copies=k)
            return mixed.sum() / n.sum() + EXIT * early.sum() / m.sum(), (plain.sum() / n.sum()).detach().view(1)

        stream = stacked.Rows(self.corpus, STUDENT, 100)
        begin = {n: w.clone() for n, w in first.items()}
        student, (reached,), steps = self.stage("student", self.corpus, begin, ([0.02], [0.003], [STUDENT_DECAY]), loss,
                                                self.rows([stream], STUDENT_LATE, self.args.rows * k),
                                                self.args.seconds - self.args.followers - self.spent())
        target = student if reached <= bits else first
        (exit_bits,), (acceptance,) = self.validation(self.corpus).of_exit(target)
        self.log({"target": round(min(reached, bits), 4), "exit": round(exit_bits, 4), "exit acceptance": round(acceptance, 4),
                  "passes": stream.passes})
        return target, steps

    def follow(self, target, soft):
        seconds = self.args.seconds - self.spent()
        for name, share in FOLLOWERS.items():
            cfg = self.configs[name]["model"]
            loss = (followers.distill_loss(cfg, target, self.cfg, self.corpus, self.dtype) if name == "draft" else
                    followers.label_loss(cfg, self.corpus, soft, self.dtype))
            weights, steps = followers.train(name, cfg, RATES[name], loss, self.corpus, 2 * self.args.rows, self.valid_bytes,
                                             share * seconds, self.log, self.dtype)
            self.save(name, weights, steps)
        heads = followers.medusa_heads(target, self.cfg, self.corpus, self.args.seconds - self.spent(), self.log, self.dtype,
                                       2 * self.args.written, 112, self.args.written)
        medusa.save(heads, self.out / "medusa")


if __name__ == "__main__":
    Family(arguments()).run()
