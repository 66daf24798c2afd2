#!/usr/bin/env python3
"""Decode and prefill speed of the quantized variants of one shape (random weights) as ratios to BF16.

    bench/quant_speed.py [--shape llama-3.2-1b] [--threads N] [--rounds 5] [--out bench/results/table-MACHINE-quant-speed-DATE.json]

Every round measures BF16 before and after each variant in a run of its own, so that a slow minute of the machine falls
on both; a ratio is the variant's speed over the mean of its two neighbours, and the table has the median over the
rounds. --out writes it for tools/make_performance.py. The aims are those of the variants' formats on a 1B shape.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# type of `penstock bench`, what it is, least decode and prefill ratios
VARIANTS = [
    ("q8_0", "INT8, groups of 32 (and `int8` in groups, GGUF Q8_0)", 1.8, None),
    ("int8", "INT8 per output", 1.8, None),
    ("w8a8", "W8A8, SmoothQuant", 1.8, 1.5),
    ("q4_k_m", "Q4_K_M", 3.0, None),
    ("int4-zeros", "AWQ-4, asymmetric, groups of 128", 3.0, None),
    ("int4", "GPTQ-4, symmetric, groups of 128", 3.0, None),
    ("int3", "GPTQ-3, asymmetric, groups of 128", 3.5, None),
    ("nf4", "NF4, groups of 64", 2.8, None),
    ("ternary", "BitNet b1.58", 5.0, None),
]


def measure(args, kind):
    command = [args.penstock, "bench", "--shape", args.shape, "--type", kind, "--threads", str(args.threads), "--json",
               "--no-roofline", "-r", str(args.repetitions), "-p", str(args.prefill), "-n", str(args.decode)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-1000:]}")
    report = json.loads(done.stdout)
    speeds = {row["test"].split()[0]: row["tokens_per_second"] for row in report["results"]}
    print(f"  {kind:12} prefill {speeds['prefill']:9.1f}  decode {speeds['decode']:7.2f} tokens/s", flush=True)
    return {**speeds, "bytes": report["weight_bytes"], "backend": report["backend"]}


def cpu():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def report(args, rounds, bytes_of, speeds, backend):
    """What bench/results has of it, from which tools/make_performance.py makes a table."""
    rows = []
    for kind, name, _, _ in VARIANTS:
        if kind in rounds:
            rows.append([f"{kind}: {name}", f"{bytes_of[kind] / 2**20:.0f} MiB",
                         *(f"{statistics.median(rounds[kind][test]):.2f}" for test in ("decode", "prefill"))])
    of_bf16 = f"prefill of {args.prefill} tokens {statistics.median(speeds['prefill']):.0f} tokens/s, decode {statistics.median(speeds['decode']):.2f}"
    return {"cpu": f"{cpu()}, {os.cpu_count()} processors, {backend}", "threads": args.threads, "date": datetime.date.today().isoformat(),
            "build": None, "peers": {}, "command": [f"bench/quant_speed.py --shape {args.shape} --threads {args.threads} --rounds {args.rounds}"],
            "title": f"Encodings beside BF16, {args.shape} (BF16: {of_bf16})",
            "columns": ["encoding", "weights", "decode, times BF16's", "prefill, times BF16's"], "rows": rows}


def show(rounds):
    """Medians, and in brackets the least and the largest, beside what was aimed at."""
    for kind, name, *aims in VARIANTS:
        if kind in rounds:
            cells = [f"{test} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}{f', aim {aim}' if aim else ''})"
                     for test, aim in zip(("decode", "prefill"), aims) for ratios in [rounds[kind][test]]]
            print(f"{kind:12} {name}: {'; '.join(cells)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=ROOT / "build" / "release" / "penstock")
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=1, help="measurements within a run")
    parser.add_argument("--prefill", type=int, default=256)
    parser.add_argument("--decode", type=int, default=24)
    parser.add_argument("--types", help="only these, by comma")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file of the table")
    args = parser.parse_args()
    kinds = [v[0] for v in VARIANTS if not args.types or v[0] in args.types.split(",")]
    rounds, bytes_of = {kind: {"decode": [], "prefill": []} for kind in kinds}, {}
    speeds = {"decode": [], "prefill": []}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", flush=True)
        before = measure(args, "bf16")
        for kind in kinds:
            variant, after = measure(args, kind), measure(args, "bf16")
            bytes_of[kind] = variant["bytes"]
            for test in ("decode", "prefill"):
                rounds[kind][test].append(variant[test] / ((before[test] + after[test]) / 2))
                speeds[test].append(after[test])
            before = after
    show(rounds)
    if args.out:
        made = report(args, rounds, bytes_of, speeds, before["backend"])
        args.out.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
