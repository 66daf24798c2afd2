#!/usr/bin/env python3
"""Perplexities of models with each type of KV cache, as a table of docs/numerics.md.

    bench/cache_quality.py build/release/penstock MODEL... [--text FILE] [--types f32,int8,int4]

The text is scored document by document, parted by <|endoftext|>. Percentages are relative to the first type.
"""
import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def perplexity(arguments, model, dtype):
    command = [arguments.penstock, "perplexity", "-m", model, "-f", arguments.text, "--json", "--kv-cache-dtype", dtype, "-t",
               str(arguments.threads), "--batch-invariant", "--separator", "<|endoftext|>"]
    if arguments.max_windows:
        command += ["--max-windows", str(arguments.max_windows)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", default=str(ROOT / "tests/golden/heldout_tinystories.txt"))
    parser.add_argument("--types", default="f32,int8,int4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-windows", type=int, default=0)
    arguments = parser.parse_args()
    types = arguments.types.split(",")
    print("| model | " + " | ".join(types) + " |")
    print("|---" * (len(types) + 1) + "|", flush=True)
    for model in arguments.models:
        cells = []
        for dtype in types:
            value = perplexity(arguments, model, dtype)["perplexity"]
            first = value if not cells else first
            change = f" ({100 * (value / first - 1):+.2f} %)" if cells else ""
            cells.append(f"{value:.4f}{change}")
        print(f"| {pathlib.Path(model).stem} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
