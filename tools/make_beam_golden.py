#!/usr/bin/env python3
"""Writes tests/golden/beams.json: beam search of transformers on the tiny checkpoints of tests/golden/models.

Usage: make_beam_golden.py [MODELS_DIR] [OUTPUT]   (needs torch and transformers)
Cases whose neighbouring candidates are closer than a rounding error are left out: they have no single answer.
"""
import json
import pathlib
import random
import sys

import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = [  # num_beams, returned, length_penalty, early_stopping, max_new_tokens, end tokens
    (1, 1, 1.0, False, 10, 1), (2, 2, 1.0, False, 12, 1), (4, 4, 1.0, False, 16, 2), (4, 2, 0.0, True, 16, 40),
    (8, 8, 2.0, False, 12, 25), (5, 3, -1.0, False, 14, 30), (3, 3, 1.0, True, 20, 60), (6, 6, 0.5, False, 8, 1),
]


def closest(logprobs_close, scores):
    """Returns whether two of the returned scores are nearly equal."""
    return any(abs(a - b) < logprobs_close for a, b in zip(scores, scores[1:]))


def run_case(model, name, rng, case):
    num_beams, returned, length_penalty, early_stopping, max_new, n_ends = case
    vocab = model.config.vocab_size
    prompt = [rng.randrange(vocab) for _ in range(rng.randrange(4, 20))]
    ends = sorted(rng.sample(range(vocab), n_ends))
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=num_beams, do_sample=False,
                         num_return_sequences=returned, length_penalty=length_penalty, early_stopping=early_stopping,
                         max_new_tokens=max_new, eos_token_id=ends, pad_token_id=ends[0],
                         return_dict_in_generate=True, output_scores=num_beams > 1, temperature=None, top_p=None,
                         top_k=None)
    beams = []
    for row in out.sequences.tolist():
        tokens = row[len(prompt):]
        first_end = next((i for i, token in enumerate(tokens) if token in ends), len(tokens) - 1)
        beams.append(tokens[:first_end + 1])
    if num_beams == 1:
        logits = model(out.sequences[:, :len(prompt) + len(beams[0]) - 1]).logits[0, len(prompt) - 1:]
        picked = torch.log_softmax(logits, -1)[range(len(beams[0])), beams[0]]
        scores = [picked.sum().item() / len(beams[0]) ** length_penalty]
    else:
        scores = out.sequences_scores.tolist()
    if closest(1e-4, scores):
        return None
    return {"model": name, "prompt": prompt, "num_beams": num_beams, "length_penalty": length_penalty,
            "early_stopping": early_stopping, "max_new_tokens": max_new, "eos": ends, "beams": beams,
            "scores": [round(score, 6) for score in scores]}


def main():
    models = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/golden/models"
    output = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "tests/golden/beams.json"
    rng = random.Random(7)
    entries = []
    for name in ("llama3", "qwen3_moe", "gpt2"):
        model = AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32).eval()
        model.generation_config.eos_token_id = None
        with torch.no_grad():
            made = [run_case(model, name, rng, case) for case in CASES]
        entries += [entry for entry in made if entry is not None]
    output.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
    print(f"{output}: {len(entries)} cases")


if __name__ == "__main__":
    main()
