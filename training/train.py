"""Trains one language model of the family (target, draft, ternary, sliding window) from a config file.

    python train.py configs/target.json --data DIR --out DIR [--resume] [--steps N --decay N] [--seconds S]

Warm-up, constant rate, then a linear decay over the last `decay` steps: stop anywhere by resuming a constant-rate
checkpoint with a smaller --steps. The same config, seed and step numbers give the same run, resumed or not. Writes
last.pt (everything needed to resume), weights.pt (the averaged weights) and log.jsonl.
"""

import argparse
import copy
import json
import os
import pathlib
import time

import torch
import torch.nn.functional as F

import data
import evaluate
import optim
import tokenizer
from model import Model, ModelConfig, count_parameters


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config")
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--steps", type=int, help="instead of the config's")
    p.add_argument("--decay", type=int, help="instead of the config's")
    p.add_argument("--teacher", help="weights.pt of the model to distill from")
    p.add_argument("--seconds", type=float, default=1e9, help="stop (resumable) after this long")
    p.add_argument("--finish", type=float, help="choose --steps and --decay so that the run ends in about this many seconds")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def load_config(path):
    config = json.loads(pathlib.Path(path).read_text())
    return config, ModelConfig(**config["model"])


def load_model(path, dropout=0.0):
    """A model in eval mode from weights.pt (the averaged weights and their config)."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model = Model(ModelConfig(**saved["model_config"]), dropout)
    model.load_state_dict(saved["weights"])
    return model.eval()


def rate(step, steps, warmup, decay):
    """The learning rate's factor at a step: up to 1 over `warmup`, constant, linearly to 0 over `decay`."""
    return min(1.0, (step + 1) / warmup, max(0.0, (steps - step) / max(1, decay)))


def head_loss(states, weight, targets):
    """Mean cross entropy of states (N, D) under the tied embedding (V, D); targets of -1 do not count."""
    return F.cross_entropy(F.linear(states, weight.to(states.dtype)).float(), targets, ignore_index=-1)


def some_positions(targets, count):
    """`count` random positions (repeated where there are fewer) whose target counts; one shape for any batch."""
    valid = (targets >= 0).nonzero()[:, 0]
    return valid[torch.randperm(len(valid)).repeat(1 + count // len(valid))[:count]]


def distill_loss(states, weight, teacher_states, teacher_weight):
    """Mean over rows of KL(teacher || student) + total variation: 1 - total variation is the draft's acceptance."""
    q = F.linear(states, weight.to(states.dtype)).float().log_softmax(-1)
    p = F.linear(teacher_states, teacher_weight.to(teacher_states.dtype)).float().log_softmax(-1)
    kl = (p.exp() * (p - q)).sum(-1)
    return (kl + 0.5 * (p.exp() - q.exp()).abs().sum(-1)).mean()


class Trainer:
    def __init__(self, args):
        self.args = args
        self.config, self.cfg = load_config(args.config)
        self.steps = args.steps or self.config["steps"]
        self.decay = args.decay or self.config["decay"]
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(self.config["seed"])
        self.model = Model(self.cfg, self.config["dropout"]).to(args.device)
        self.teacher = load_model(args.teacher).to(args.device) if args.teacher else None
        self.batches = data.Batches(args.data, self.config["mix"], self.config["batch_tokens"], self.config["seed"])
        self.optimizers = optim.make_optimizers(self.model, self.config)
        self.average = copy.deepcopy(self.model)
        self.sp = tokenizer.load(pathlib.Path(args.data) / "tokenizer.model")
        self.valid = data.load_stories(pathlib.Path(args.data) / "valid.txt")
        self.step, self.spent, self.end_chosen = 0, 0.0, False
        if args.resume and (self.out / "last.pt").exists():
            self.load()
        self.compile()

    def compile(self):
        """Fuses each block and the losses; a few shapes only, see data.LENGTHS."""
        self.head_loss, self.distill_loss = head_loss, distill_loss
        if self.config.get("compile", True):
            torch._dynamo.config.recompile_limit = 128
            for block in self.model.blocks:
                block.compile(dynamic=False)
            self.head_loss = torch.compile(head_loss, dynamic=False)
        if self.teacher:
            self.distill_loss = torch.compile(distill_loss, dynamic=False)

    def save(self, name="last.pt"):
        state = {"model": self.model.state_dict(), "average": self.average.state_dict(), "step": self.step,
                 "optimizers": [o.state_dict() for o in self.optimizers], "spent": self.spent}
        torch.save(state, self.out / "partial.pt")
        os.replace(self.out / "partial.pt", self.out / name)
        torch.save({"weights": self.average.state_dict(), "model_config": self.config["model"], "step": self.step,
                    "name": self.config["name"]}, self.out / "partial.pt")
        os.replace(self.out / "partial.pt", self.out / "weights.pt")

    def load(self):
        state = torch.load(self.out / "last.pt", map_location=self.args.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for o, s in zip(self.optimizers, state["optimizers"]):
            o.load_state_dict(s)
        self.step, self.spent = state["step"], state["spent"]
        for i in range(self.step):
            self.choose_mix(i)
            self.batches.next_rows()

    def choose_mix(self, step):
        """The decay phase may have its own mix (the stories that the model is for) and its own dropout."""
        prefix = "decay_" if step >= self.steps - self.decay else ""
        self.batches.set_mix(self.config.get(prefix + "mix", self.config["mix"]))
        self.model.dropout = self.config.get(prefix + "dropout", self.config["dropout"])

    def losses(self, inputs, targets):
        """Returns (the loss to minimise, the plain loss of the final layer)."""
        final, at_exit = self.model(inputs)
        weight, flat = self.model.embedding.weight, targets.flatten()
        final = final.flatten(0, 1)
        if self.teacher:
            with torch.no_grad():
                wanted = self.teacher(inputs)[0].flatten(0, 1)
            at = some_positions(flat, self.config["distill_positions"])
            plain = self.distill_loss(final[at], weight, wanted[at], self.teacher.embedding.weight)
        else:
            plain = self.head_loss(final, weight, flat)
        loss = plain
        if at_exit is not None:
            # A quarter of the positions is enough for the exit, and a different quarter at each step.
            part = slice(self.step % 4, None, 4)
            loss = loss + self.config["exit_weight"] * self.head_loss(at_exit.flatten(0, 1)[part], weight, flat[part])
        return loss, plain

    def train_step(self):
        self.choose_mix(self.step)
        inputs, targets = (torch.from_numpy(x).to(self.args.device) for x in self.batches.next())
        torch.manual_seed(self.config["seed"] * 1_000_003 + self.step)
        self.model.train()
        with torch.autocast(self.args.device, torch.bfloat16):
            loss, plain = self.losses(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.optimizers[1].param_groups[0]["params"], 1.0)
        factor = rate(self.step, self.steps, self.config["warmup"], self.decay)
        for o, key in zip(self.optimizers, ("lr", "adam_lr")):
            o.param_groups[0]["lr"] = self.config[key] * factor
            o.step()
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        self.update_average()
        return plain.item(), inputs.numel()

    @torch.no_grad()
    def update_average(self):
        """An exponential average over about average_steps; shorter at the start and near the end of the decay."""
        span = min(self.config.get("average_steps", 100), self.step / 4 + 1, (self.steps - self.step) / 4 + 4)
        mine, theirs = list(self.average.parameters()), list(self.model.parameters())
        torch._foreach_lerp_(mine, theirs, 1 / span)

    def evaluate(self):
        with torch.compiler.set_stance("force_eager"):
            result = evaluate.measure(self.average, self.sp, self.valid, autocast=True)
        return {k: round(result[k], 4) for k in ("bits_per_byte", "exit_bits_per_byte", "exit_acceptance") if k in result}

    def log(self, record):
        with open(self.out / "log.jsonl", "a") as f:
            f.write(json.dumps(record) + "\n")
        print(" ".join(f"{k} {v}" for k, v in record.items()), flush=True)

    def choose_end(self, elapsed, steps_done):
        """With --finish: once 60 % of the time is spent, lets the decay take the rest at the speed seen so far."""
        if self.args.finish and not self.end_chosen and elapsed > 0.6 * self.args.finish:
            self.end_chosen = True
            self.decay = max(1, int(steps_done * (self.args.finish - elapsed) / elapsed))
            self.steps = self.step + self.decay
            self.log({"step": self.step, "steps": self.steps, "decay": self.decay})

    def run(self):
        print(f"{self.config['name']}: {count_parameters(self.model):,} parameters, steps {self.step}..{self.steps}", flush=True)
        begin, window, loss_sum, tokens = time.time(), time.time(), 0.0, 0
        every, at_start, first = self.config.get("log_every", 10), self.spent, self.step
        while self.step < self.steps:
            loss, n = self.train_step()
            loss_sum, tokens = loss_sum + loss, tokens + n
            self.spent = at_start + time.time() - begin
            self.choose_end(time.time() - begin, self.step - first)
            out_of_time = time.time() - begin > self.args.seconds
            if self.step % every == 0 or self.step == self.steps:
                now = time.time()
                done = self.step % every or every
                self.log({"step": self.step, "loss": round(loss_sum / done, 4), "tokens/s": round(tokens / (now - window)),
                          "seconds": round(self.spent)})
                window, loss_sum, tokens = now, 0.0, 0
            if self.step % self.config["evaluate_every"] == 0 or self.step == self.steps or out_of_time:
                self.save()
                self.log({"step": self.step, "valid": self.evaluate(), "epochs": self.batches.epoch})
            if self.step == self.steps - self.decay:
                self.save("before_decay.pt")
            if out_of_time:
                break


if __name__ == "__main__":
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    Trainer(arguments).run()
