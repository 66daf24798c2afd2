#!/usr/bin/env python3
"""What `penstock plan` says of large models on many hosts, as the table in docs/parallel.md: the fastest way to use all ranks.

    bench/parallel_plan.py build/release/penstock > table.md

A host is two sockets, a rank each: 300 GB/s and 4 TFLOP/s of a rank, 1.5 TiB of a host. Weights in Q4_K, 2,048 tokens of a sequence.
"""
import json
import subprocess
import sys

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "deepseek-v3")
HOSTS = (1, 2, 4, 8, 16, 32, 64)
LINKS = ((10, 20), (100, 5), (400, 3))  # Gb/s, microseconds
BATCHES = (1, 64)


def best(program, model, hosts, link, batch):
    gbps, us = link
    words = [program, "plan", "--shape", model, "--type", "q4_k", "--ranks", 2 * hosts, "--hosts", hosts, "--link-gbps", gbps, "--link-us", us, "--batch", batch,
             "--memory-gbps", 300, "--rank-tflops", 4, "--memory", "1536GiB", "--tokens", 2048, "--json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["ranks"][0]


def cell(row):
    ways = "x".join(str(row[f"{kind}_parallel_size"]) for kind in ("tensor", "pipeline", "data"))
    return f"{row['tokens_per_second']:,.0f} ({ways})"


def main(program):
    print("| model | sequences | link |" + "".join(f" {n} host{'s' if n > 1 else ''} |" for n in HOSTS))
    print("|---|---|---|" + "---|" * len(HOSTS))
    for model in MODELS:
        for batch in BATCHES:
            for link in LINKS:
                cells = [cell(best(program, model, hosts, link, batch)) for hosts in HOSTS]
                print(f"| {model} | {batch} | {link[0]} Gb/s, {link[1]} us | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
