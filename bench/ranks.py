#!/usr/bin/env python3
"""Two ranks beside two threads on the same two CPUs: the tables of bench/notes/2026-11-parallel.md ("What it gives").

    bench/ranks.py build/release                     # Q4_K_M and BF16, three rounds: an hour
    bench/ranks.py build/release --types bf16 --rounds 1 --keep rounds.json      # one more round of those in the file

In each round one run follows another: a rank with a thread, with two, two ranks with a thread each, two processes that know nothing of each
other (the limit of what two CPUs with one memory give), and a pipeline of two. The table has medians over the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ONE, TWO, RANKS, APART, STAGES = "1 rank x 1 thread", "1 rank x 2 threads", "2 ranks x 1 thread", "2 processes", "pipeline of 2"
FLAGS = {ONE: ("-t", 1), TWO: ("-t", 2), RANKS: ("-t", 1, "--tensor-parallel-size", 2), APART: ("-t", 1), STAGES: ("-t", 1, "--pipeline-parallel-size", 2)}


def speeds(text):
    """{test: tokens per second} of what `penstock bench --json` prints."""
    return {row["test"]: row["tokens_per_second"] for row in json.loads(text[text.index("{"):])["results"]}


def measure(program, model, way, args):
    command = [program, "bench", "-m", model, *FLAGS[way], "-p", args.prompt, "-n", args.tokens, "--batch", ",".join(map(str, args.batch)), "-r", 1,
               "--max-model-len", args.prompt + args.tokens + 2, "--no-roofline", "--json"]
    cpus = sorted(os.sched_getaffinity(0))[:2]
    places = [[cpu] for cpu in cpus] if way == APART else [cpus[:1] if way == ONE else cpus]
    running = [subprocess.Popen(["taskset", "-c", ",".join(map(str, place)), *map(str, command)], stdout=subprocess.PIPE, text=True) for place in places]
    found = [speeds(process.communicate()[0]) for process in running]
    return {test: sum(one[test] for one in found) for test in found[0]}


def table(rounds):
    """Rows of tests: medians, and the ratios that count."""
    ways = list(FLAGS)
    print("| | " + " | ".join(ways) + f" | {RANKS}: of two threads | of one | 2 processes: of one | pipeline: of one |")
    print("|---" * (len(ways) + 5) + "|")
    for test in rounds[0][ONE]:
        of = {way: statistics.median(one[way][test] for one in rounds) for way in ways}
        cells = [f"{of[way]:.4g}" for way in ways]
        cells += [f"{of[a] / of[b]:.2f}" for a, b in ((RANKS, TWO), (RANKS, ONE), (APART, ONE), (STAGES, ONE))]
        print(f"| {test} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--types", nargs="+", default=["q4_k_m", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--models", type=pathlib.Path, help="a folder that keeps the models")
    parser.add_argument("--keep", type=pathlib.Path, help="a file of earlier rounds, to which these are added")
    args = parser.parse_args()
    program = args.build.resolve() / "penstock"
    known = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.types:
            model = (args.models or pathlib.Path(folder)) / f"{args.shape}-{kind}.gguf"
            if not model.exists():
                subprocess.run([program, "bench", "--shape", args.shape, "--type", kind, "--write-gguf", model], check=True, stdout=subprocess.DEVNULL)
            rounds = known.setdefault(f"{args.shape} {kind}", [])
            for _ in range(args.rounds):
                rounds.append({way: measure(program, model, way, args) for way in FLAGS})
                if args.keep:
                    args.keep.write_text(json.dumps(known, indent=1) + "\n")
            print(f"\n{args.shape} {kind}, {len(rounds)} rounds, tokens per second\n")
            table(rounds)


if __name__ == "__main__":
    main()
