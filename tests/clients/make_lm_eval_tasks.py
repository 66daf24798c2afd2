#!/usr/bin/env python3
"""Writes the tasks in tests/clients/tasks and the scores that transformers gives them (golden.json).

usage: make_lm_eval_tasks.py [score]        (needs torch, transformers, accelerate and lm-eval)
  score: keep the documents, renew golden.json

The weights are models/penstock-stories-1m-bf16, in float32. Documents whose answer hangs by a hair are left out: a
score is then the same under any rounding.
"""
import json
import os
import pathlib
import random
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODEL = ROOT / "models" / "penstock-stories-1m-bf16"
TASKS = HERE / "tasks"
MARGIN = 0.5  # nats between the best answer and the second

model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)


def stories():
    text = (ROOT / "tests/golden/heldout_tinystories.txt").read_text()
    parts = [" ".join(part.split()) for part in text.split("<|endoftext|>" if "<|endoftext|>" in text else "\n\n")]
    return [part for part in parts if len(part.split()) > 60]


@torch.no_grad()
def logprob(context, continuation):
    start = tokenizer(context, add_special_tokens=False).input_ids
    ids = tokenizer(context + continuation, add_special_tokens=False).input_ids
    rows = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(rows[i - 1, ids[i]].item() for i in range(len(start), len(ids)))


def cloze(texts, n):
    pick, docs = random.Random(3), []
    while len(docs) < n:
        text, *others = pick.sample(texts, 4)
        words = text.split()
        choices = [" " + " ".join(one.split()[30:36]) for one in (text, *others)]
        context = " ".join(words[:30])
        scores = sorted((logprob(context, choice) for choice in choices), reverse=True)
        by_length = sorted((logprob(context, choice) / len(choice) for choice in choices), reverse=True)
        if scores[0] - scores[1] < MARGIN or by_length[0] - by_length[1] < MARGIN / 20:
            continue
        answer = pick.randrange(4)
        choices[0], choices[answer] = choices[answer], choices[0]
        docs.append({"context": context, "choices": choices, "answer": answer})
    return docs


@torch.no_grad()
def greedy(context, n):
    """(text, smallest lead of a chosen token)"""
    ids = tokenizer(context, add_special_tokens=False).input_ids
    start, lead = len(ids), 1e9
    for _ in range(n):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    return tokenizer.decode(ids[start:]), lead


def continuations(texts, n):
    docs = []
    for text in texts:
        context = " ".join(text.split()[:20])
        answer, lead = greedy(context, 6)
        answer = answer.split("\n")[0].strip()
        if lead > 0.15 and answer and len(docs) < n:
            docs.append({"context": context, "answer": answer})
    return docs


def write():
    TASKS.mkdir(exist_ok=True)
    texts = stories()
    for name, docs in (("choice", cloze(texts, 16)), ("next", continuations(texts, 8)),
                       ("text", [{"text": " ".join(text.split()[:120])} for text in texts[:6]])):
        (TASKS / f"{name}.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))


def score():
    import lm_eval  # here, because writing the documents does not need it
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, add_bos_token=False, batch_size=1)
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    os.chdir(TASKS)  # the tasks name their files from here
    names = ["penstock_choice", "penstock_next", "penstock_text"]
    results = lm_eval.simple_evaluate(model=wrapped, tasks=names, task_manager=manager, bootstrap_iters=0)["results"]
    keep = {name: {key: value for key, value in results[name].items() if isinstance(value, float) and "stderr" not in key}
            for name in names}
    (HERE / "golden.json").write_text(json.dumps(keep, indent=1, sort_keys=True) + "\n")
    print(json.dumps(keep, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] != ["score"]:
        write()
    score()
