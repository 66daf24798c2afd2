#!/usr/bin/env python3
"""Writes tests/golden/sampling/transformers.json: what transformers' logits processors make of random logits.

Usage: make_goldens.py OUTPUT. Needs torch and transformers. Each case holds the parameters under the names of
SamplingParams, the logits, the tokens so far, and the resulting probabilities of the tokens that are left."""
import json
import sys

import torch
from transformers.generation import logits_process as lp

VOCAB = 48


def processors(p, n_prompt):
    result = lp.LogitsProcessorList()
    if p.get("min_tokens"):
        result.append(lp.MinNewTokensLengthLogitsProcessor(n_prompt, p["min_tokens"], [2, 5], device="cpu"))
    if "repetition_penalty" in p:
        result.append(lp.RepetitionPenaltyLogitsProcessor(p["repetition_penalty"]))
    if "temperature" in p:
        result.append(lp.TemperatureLogitsWarper(p["temperature"]))
    if "min_p" in p:
        result.append(lp.MinPLogitsWarper(p["min_p"]))
    if "top_k" in p:
        result.append(lp.TopKLogitsWarper(p["top_k"]))
    if "top_p" in p:
        result.append(lp.TopPLogitsWarper(p["top_p"]))
    if "typical_p" in p:
        result.append(lp.TypicalLogitsWarper(p["typical_p"]))
    return result


def main():
    params = [{}]
    params += [{"repetition_penalty": x} for x in (0.7, 1.3, 2.0)]
    params += [{"temperature": x} for x in (0.3, 1.9)]
    params += [{"top_k": x} for x in (1, 5, 30, 100)]
    params += [{"top_p": x} for x in (0.05, 0.5, 0.9, 0.99)]
    params += [{"min_p": x} for x in (0.01, 0.1, 0.5)]
    params += [{"typical_p": x} for x in (0.2, 0.6, 0.95)]
    params += [{"min_tokens": 4}, {"min_tokens": 8}]
    params += [
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
        {"temperature": 1.5, "min_p": 0.05, "top_k": 12},
        {"repetition_penalty": 1.2, "temperature": 0.7, "top_p": 0.8},
        {"repetition_penalty": 1.1, "temperature": 1.2, "min_p": 0.02, "top_k": 25, "top_p": 0.95, "typical_p": 0.9},
    ]
    torch.manual_seed(7)
    cases = []
    for p in params:
        for spread in (1.0, 3.0):
            logits = (torch.randn(VOCAB) * spread).float()
            tokens = torch.randint(0, VOCAB, (10,)).tolist()
            n_prompt = 4
            scores = processors(p, n_prompt)(torch.tensor([tokens]), logits[None].clone())[0]
            probs = torch.softmax(scores.double(), -1)
            left = [[i, float(f"{probs[i]:.8g}")] for i in range(VOCAB) if scores[i] > -float("inf")]
            cases.append({"params": p, "logits": [float(f"{x:.9g}") for x in logits.tolist()], "tokens": tokens,
                          "n_prompt": n_prompt, "end_ids": [2, 5], "left": left})
    with open(sys.argv[1], "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
