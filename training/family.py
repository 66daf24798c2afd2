"""Trains the target from chance on one GPU within a given time, and the models that follow it.

    python family.py --data DATA --out RUN [--seconds 470]

Eight teachers of the target's shape differ in dropout, hidden tokens, decay and mix. Each writes stories, and a mixture of their
distributions labels the corpora and what they wrote; the student begins as the best teacher and learns from both. Then a draft
learns the student's distribution, an EAGLE-3 layer and Medusa heads what the student writes, and a sliding-window model the
teachers' labels. Everything is chosen by the validation stories alone. Writes RUN/{target,draft,sliding}/weights.pt as train.py
does, RUN/eagle, RUN/medusa, RUN/written.npz and RUN/log.jsonl, each as soon as it is there; a stage that fails is logged.
"""

import argparse
import gc
import json
import pathlib
import time
import traceback

import numpy as np
import torch

import data
import eagle
import evaluate
import followers
import generate
import medusa
import stacked
import tokenizer
import train

EXIT, SOFT, DECAY = 0.3, 128, 0.45  # the exit's share of the loss; tokens of a label; of the time at a falling rate
WIDE = {"tinystories": 0.42, "modelwritten": 0.13, "african": 0.07, "fairytales": 0.16, "novels": 0.22}
NARROW = {"tinystories": 0.55, "modelwritten": 0.17, "african": 0.08, "fairytales": 0.10, "novels": 0.10}
LATE = {"tinystories": 0.76, "modelwritten": 0.08, "african": 0.04, "fairytales": 0.06, "novels": 0.06}
TEACHERS = [(0.15, 0.0, 0.1, WIDE), (0.1, 0.1, 0.1, WIDE), (0.2, 0.05, 0.1, NARROW), (0.15, 0.1, 0.4, WIDE),  # dropout, hidden,
            (0.2, 0.0, 0.4, WIDE), (0.2, 0.1, 0.1, WIDE), (0.1, 0.2, 0.2, NARROW), (0.3, 0.0, 0.1, WIDE)]  # decay, mix
STUDENT = {"tinystories": 0.07, "written": 0.87, "modelwritten": 0.04, "african": 0.02}
STUDENT_LATE = {"tinystories": 0.08, "written": 0.90, "modelwritten": 0.02}
HARD, STUDENT_DECAY = 0.05, 0.1
SHARES = {"teachers": 0.46, "writing": 0.035}  # of the target's time; labels take what they take, the student has the rest
FOLLOWERS = {"draft": 0.20, "eagle": 0.38, "medusa": 0.22}  # of the followers' time; the sliding window has the rest
RATES = {"draft": (0.03, 0.006, 0.02), "sliding": (0.02, 0.004, 0.05)}  # Muon, AdamW, decay


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder of data.py")
    p.add_argument("--out", required=True)
    p.add_argument("--seconds", type=float, default=470, help="for everything, the start included")
    p.add_argument("--followers", type=float, default=70, help="seconds of them for the models that follow the target")
    p.add_argument("--rows", type=int, default=8, help="rows of 512 tokens of each member in a batch")
    p.add_argument("--written", type=int, default=12288, help="stories written at a time, as many by each teacher")
    p.add_argument("--rounds", type=int, default=3, help="of writing at most")
    p.add_argument("--own", type=int, default=8192, help="beginnings of each of two sources that the target continues")
    p.add_argument("--items", type=int, help="of each source, for a trial")
    p.add_argument("--configs", default=pathlib.Path(__file__).parent / "configs", help="where the shapes of the models are")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def load(folder, limit=None):
    """({source: its first `limit` items}, bytes of the validation stories); "valid" is cut as evaluate.py cuts it."""
    folder = pathlib.Path(folder)
    sources = {name: data.load_items(folder / f"{name}.npz")[:limit] for name, *_ in data.SOURCES if (folder / f"{name}.npz").exists()}
    rows, sizes = evaluate.encode_stories(tokenizer.load(folder / "tokenizer.model"), data.load_stories(folder / "valid.txt"), stacked.T)
    return sources | {"valid": [np.array(row, np.uint16) for row in rows]}, sum(sizes)


@torch.no_grad()
def labels(teachers, shares, cfg, corpus, items, dtype, block, rows_at_once):
    """For each place of the items, the SOFT likeliest tokens by the mixture of the teachers and their probabilities."""
    n = len(corpus.ids)
    ids = torch.zeros(n, SOFT, dtype=torch.int16, device=corpus.device)
    p = torch.zeros(n, SOFT, dtype=torch.float16, device=corpus.device)
    used = [i for i, share in enumerate(shares) if share]
    teachers = {name: w[used] for name, w in teachers.items()}
    every = stacked.all_rows(corpus, items)
    every = np.concatenate([every, np.full((-len(every) % rows_at_once, stacked.T), -1, np.int32)])  # one shape for all
    for rows in torch.from_numpy(every).to(corpus.device).split(rows_at_once):
        x, _, position, seen = corpus.look(rows)
        flat = lambda v: v.flatten().expand(len(used), -1)
        final, _, emb = stacked.states(teachers, cfg, flat(x), flat(position), seen.repeat(len(used), 1, 1, 1), dtype=dtype, block=block)
        mixed = sum(shares[i] * torch.mm(f, e.mT).float().softmax(-1) for i, f, e in zip(used, final, emb))
        best, which = mixed.topk(SOFT, -1)
        keep = rows.flatten() >= 0
        at = rows.flatten()[keep].long()
        ids[at] = which[keep].to(torch.int16)
        p[at] = best[keep].to(torch.float16)
    return ids, p


class Family:
    """One run: `teachers`, `write`, `student`, `follow`, each within its share of the time."""

    def __init__(self, args):
        self.begin, self.args, self.out = time.time(), args, pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.out / "log.jsonl", "w")
        self.configs = {name: train.load_config(pathlib.Path(args.configs) / f"{name}.json")[0] for name in ("target", *RATES)}
        self.cfg = self.configs["target"]["model"]
        self.device, self.cuda = torch.device(args.device), torch.device(args.device).type == "cuda"
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.sources, self.valid_bytes = load(args.data, args.items)
        self.block, self.head = stacked.block, stacked.head_loss
        torch.manual_seed(1)
        if self.cuda:
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cuda.enable_cudnn_sdp(False)
            self.block, self.head = (torch.compile(f, dynamic=False) for f in (stacked.block, stacked.head_loss))

    def run(self):
        teachers, shares, bits, steps = self.teachers()
        best = int(np.argmin(bits))
        first = {n: w[best:best + 1].clone() for n, w in teachers.items()}
        self.save("target", first, steps)
        soft = self.write(teachers, shares)
        del teachers
        target, steps = self.attempt("student", lambda: self.student(first, bits[best], soft)) or (first, steps)
        self.save("target", target, steps)
        self.follow(target, soft)

    def attempt(self, name, stage):
        """What stage() returns; None, and a line of the log, where it fails: what comes after it is worth having."""
        try:
            return stage()
        except Exception as error:
            traceback.print_exc()
            self.log({"failed": name, "error": str(error)[:300]})
        finally:
            gc.collect()
            if self.cuda:
                torch.cuda.empty_cache()

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

    def losses(self, weights, index, corpus, drop, soft, hard, copies=1, hidden=None):
        """Sums of the plain, the mixed and the exit's loss of each (copy of a) member, and how many places they are of."""
        x, targets, position, seen = corpus.look(index)
        flat = lambda v: v.view(len(TEACHERS), -1)
        final, at_exit, emb = stacked.states(weights, self.cfg, flat(x), flat(position), seen, drop, self.dtype, self.block, copies, hidden)
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
        """(weights of all, their shares of the mixture, bits per byte of each, steps)."""
        corpus, k = stacked.Corpus(self.sources, self.device), len(TEACHERS)
        drop, hidden = (self.tensor([t[i] for t in TEACHERS]).view(-1, 1, 1) for i in range(2))
        hard = self.tensor(1.0)
        # The labels count for nothing yet; they keep the compiled loss the same.
        none = [torch.zeros(1, 1, dtype=t, device=self.device).expand(len(corpus.ids), SOFT) for t in (torch.int16, torch.float16)]

        def loss(weights, index):
            plain, mixed, early, n, m = self.losses(weights, index, corpus, drop, none, hard, hidden=hidden)
            return (mixed / n).sum() + EXIT * (early / m).sum(), (plain / n).detach()

        streams = [stacked.Rows(corpus, t[3], i) for i, t in enumerate(TEACHERS)]
        rows, first = self.rows(streams, LATE, self.args.rows), stacked.fresh(self.cfg, k, 1, self.device)
        leaves = {n: w.clone().requires_grad_() for n, w in first.items()}
        loss(leaves, torch.from_numpy(rows(0.0)).to(self.device))[0].backward()  # compiles, before the time is shared out
        self.target_seconds = self.args.seconds - self.args.followers - self.spent()
        teachers, bits, steps = self.stage("teachers", corpus, first, ([0.02] * k, [0.003] * k, [t[2] for t in TEACHERS]), loss, rows,
                                           SHARES["teachers"] * self.target_seconds)
        shares, mixture, mean = self.validation(corpus).of_mixture(teachers)
        self.log({"teachers": [round(b, 4) for b in bits], "mean": round(mean, 4), "mixture": round(mixture, 4),
                  "shares": [round(s, 3) for s in shares], "passes": [s.passes for s in streams]})
        return teachers, shares, bits, steps

    def write(self, teachers, shares):
        """Adds what the teachers write to the sources, makes `self.corpus` of them and returns its labels. Half of the stories are
        theirs from the first token, the others begin as one of TinyStories does."""
        begin, written, rounds, random = time.time(), [], 0, torch.Generator(self.device).manual_seed(7)
        choose, given = np.random.default_rng(7), self.sources["tinystories"]
        prompt = lambda i: given[choose.integers(len(given))][:choose.integers(2, 64)].tolist() if i % 2 else [tokenizer.BOS]
        limit = SHARES["writing"] * self.target_seconds
        while not rounds or rounds < self.args.rounds and (time.time() - begin) * (rounds + 1) / rounds < limit:
            prompts = [prompt(i) for i in range(self.args.written)]
            ids = generate.generate(teachers, self.cfg, prompts, 320, 1.0, 0.02, random, self.dtype, apart=True)
            written += generate.stories(ids)
            rounds += 1
        self.sources["written"] = written
        data.save_items(self.out / "written.npz", written)
        seconds = time.time() - begin
        names = [n for n in (*STUDENT, "valid") if n in self.sources]
        self.corpus = stacked.Corpus({n: self.sources[n] for n in names}, self.device)
        items = np.concatenate([self.corpus.members(n) for n in names[:-1]])
        soft = labels(teachers, shares, self.cfg, self.corpus, items, self.dtype, self.block, self.args.rows)
        covered = soft[1].sum(-1, dtype=torch.float32)
        self.log({"written": len(written), "tokens": sum(map(len, written)), "writing": round(seconds, 1),
                  "labels": round(time.time() - begin - seconds, 1), "likeliest": round(float(covered[covered > 0].mean()), 4)})
        return soft

    def student(self, first, bits, soft):
        """(the target's weights, steps): the student, or the teacher it began as if it is no better."""
        k = len(TEACHERS)
        hard, drop = self.tensor(HARD), self.tensor([0.0] * k).view(-1, 1, 1)

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
        seconds, own = self.args.seconds - self.spent(), []

        def model(name, share):
            cfg = self.configs[name]["model"]
            loss = (followers.distill_loss(cfg, target, self.cfg, self.corpus, self.dtype) if name == "draft" else
                    followers.label_loss(cfg, self.corpus, soft, self.dtype))
            weights, steps = followers.train(name, cfg, RATES[name], loss, self.corpus, 4 * self.args.rows, self.valid_bytes,
                                             share, self.log, self.dtype)
            self.save(name, weights, steps)

        def layer(share):
            end = self.spent() + share
            own.append(followers.own_texts(target, self.cfg, self.corpus, self.args.own, self.dtype))
            eagle.save(*eagle.train(target, self.cfg, *own[0], lambda: end - self.spent(), self.dtype, self.log), self.out / "eagle")

        def heads(share):
            medusa.save(followers.medusa_heads(target, self.cfg, *own[0], share, self.log, self.dtype, self.args.own // 2), self.out / "medusa")

        self.attempt("draft", lambda: model("draft", FOLLOWERS["draft"] * seconds))
        self.attempt("eagle", lambda: layer(FOLLOWERS["eagle"] * seconds))
        self.attempt("medusa", lambda: heads(FOLLOWERS["medusa"] * seconds))
        self.attempt("sliding", lambda: model("sliding", self.args.seconds - self.spent()))


if __name__ == "__main__":
    Family(arguments()).run()
