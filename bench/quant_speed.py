#!/usr/bin/env python3
"""Decode and prefill speed of the quantized variants of one shape (random weights) as ratios to BF16.

    bench/quant_speed.py [--shape llama-3.2-1b] [--threads N] [--rounds 5] [--docs docs/quantization.md]

Every round measures BF16 before and after each variant in a run of its own, so that a slow minute of the machine falls
on both; a ratio is the variant's speed over the mean of its two neighbours, and the table has the median over the
rounds. --docs replaces the table in that file. The aims are those of the variants' formats on a 1B shape.
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
BEGIN, END = "<!-- quant_speed begin -->", "<!-- quant_speed end -->"


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


def table(args, rounds, bytes_of, speeds, backend):
    lines = [f"`bench/quant_speed.py --shape {args.shape} --threads {args.threads} --rounds {args.rounds}` on {cpu()}"
             f" ({os.cpu_count()} processors seen, {backend}), {datetime.date.today().isoformat()}; load of the machine"
             f" {os.getloadavg()[0]:.1f}. BF16: prefill of {args.prefill} tokens"
             f" {statistics.median(speeds['prefill']):.0f} tokens/s, decode {statistics.median(speeds['decode']):.2f}."
             " Median of the rounds, in brackets the least and the largest.", "",
             "| | weights | decode, of BF16 | aim | prefill, of BF16 | aim |", "|---|---|---|---|---|---|"]
    for kind, name, decode_aim, prefill_aim in VARIANTS:
        if kind not in rounds:
            continue
        cells = []
        for test, aim in (("decode", decode_aim), ("prefill", prefill_aim)):
            ratios = rounds[kind][test]
            missed = aim is not None and statistics.median(ratios) < aim
            cells.append(f"{statistics.median(ratios):.2f}× ({min(ratios):.2f} to {max(ratios):.2f}){' missed' if missed else ''}")
            cells.append(f"{aim}×" if aim else "")
        lines.append(f"| `{kind}`: {name} | {bytes_of[kind] / 2**20:.0f} MiB | {' | '.join(cells)} |")
    return "\n".join(lines)


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
    parser.add_argument("--docs", type=pathlib.Path, help="file whose table is replaced")
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
    text = table(args, rounds, bytes_of, speeds, before["backend"])
    print(text)
    if args.docs:
        page = args.docs.read_text()
        if BEGIN not in page or END not in page:
            sys.exit(f"{args.docs}: expected the lines {BEGIN} and {END}")
        args.docs.write_text(page[: page.index(BEGIN) + len(BEGIN)] + "\n" + text + "\n" + page[page.index(END):])


if __name__ == "__main__":
    main()
