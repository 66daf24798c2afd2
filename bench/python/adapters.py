#!/usr/bin/env python3
"""What LoRA adapters cost: 16 sequences, each with one of 8 adapters of all linear layers, beside the same without, in tokens/s.

Usage: adapters.py MODEL [--rank 16] [--adapters 8] [--sequences 16] [--rounds 7]    (in an environment with the wheel; nothing else
running). MODEL is a GGUF file of the Llama or Qwen family. Alternating rounds, medians.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import sys
import tempfile
import time

import numpy as np

from penstock import LLM, LoRARequest, SamplingParams

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from lora_model import MODULES, shapes_of  # noqa: E402


def write_adapter(folder, shapes, rank, seed):
    draw = np.random.default_rng(seed)
    header, parts, size = {}, [], 0
    for name, (rows, cols) in shapes.items():
        _, layer, module, _ = name.split(".")
        if module not in MODULES:
            continue
        stem = f"base_model.model.model.layers.{layer}.{MODULES[module]}"
        for part, shape in (("A", (rank, cols)), ("B", (rows, rank))):
            values = (draw.standard_normal(shape) * 0.02).astype(np.float32).tobytes()
            header[f"{stem}.lora_{part}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [size, size + len(values)]}
            parts.append(values)
            size += len(values)
    folder.mkdir()
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))
    return str(folder)


def seconds(llm, n_sequences, n_prompt, n_tokens, adapters):
    params = SamplingParams(max_tokens=n_tokens, temperature=0, ignore_eos=True)
    prompts = [{"prompt_token_ids": [(7 * i + 13 * t) % 3000 + 10 for t in range(n_prompt)]} for i in range(n_sequences)]
    llm.reset_prefix_cache()
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False, lora_request=adapters)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    os.environ.setdefault("PENSTOCK", str(pathlib.Path(sys.executable).parent / "penstock"))
    with tempfile.TemporaryDirectory() as folder, LLM(args.model, enable_lora=True, max_loras=args.adapters,
                                                     max_model_len=1024, max_num_seqs=args.sequences) as llm:
        shapes = shapes_of(args.model)
        adapters = [LoRARequest(str(i), i, write_adapter(pathlib.Path(folder) / str(i), shapes, args.rank, i))
                    for i in range(1, args.adapters + 1)]
        each = [adapters[i % len(adapters)] for i in range(args.sequences)]
        plain = [None] * args.sequences
        for n_prompt, n_tokens, name in ((512, 1, "prefill"), (8, 64, "decode")):
            seconds(llm, args.sequences, n_prompt, n_tokens, each)
            rounds = [(seconds(llm, args.sequences, n_prompt, n_tokens, plain), seconds(llm, args.sequences, n_prompt, n_tokens, each))
                      for _ in range(args.rounds)]
            without, with_them = (statistics.median(column) for column in zip(*rounds))
            n = args.sequences * (n_prompt if n_tokens == 1 else n_tokens)
            print(f"{name}: {n / without:,.0f} tokens/s without, {n / with_them:,.0f} with {args.adapters} adapters of rank {args.rank}: "
                  f"{statistics.median([a / b for a, b in rounds]):.3f}", flush=True)


if __name__ == "__main__":
    main()
