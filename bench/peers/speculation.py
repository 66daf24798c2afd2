#!/usr/bin/env python3
"""Speculative decoding of Penstock against llama.cpp on the same pair of GGUF files: alternating runs, medians, one table.

    bench/peers/speculation.py --peer-python peer/bin/python [--rounds 5] [--tokens 200]

Greedy, one sequence, one thread, processor time per token after the prompt. Penstock: its --spec-length auto, whole processes, less
what a run of 8 tokens takes. llama.cpp: see llama_cpp_speculation.py; of all draft lengths, thresholds and attention kinds tried
there, those that are fastest in the median count, for every kind of prompt by itself.
"""
import argparse
import importlib.util
import json
import pathlib
import resource
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SPECULATION = importlib.util.spec_from_file_location("speculation_bench", ROOT / "bench" / "speculation.py")
OWN = importlib.util.module_from_spec(SPECULATION)
SPECULATION.loader.exec_module(OWN)
FLAGS = {"plain": [], "draft": ["--spec", "draft"], "n-gram": ["--spec", "ngram"]}
KINDS = {"plain": "plain", "draft": "draft", "n-gram": "lookup"}


def run(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def penstock(args, mode, prompt):
    flags = FLAGS[mode] + (["--draft-model", args.draft] if mode == "draft" else [])
    base = [args.penstock, "generate", "-m", args.model, "-p", prompt, "-t", 1, "--temperature", 0, "--ignore-eos", "--json", "--quiet",
            *flags, "--max-tokens"]
    result, seconds = run([*base, args.tokens + 8])
    _, start = run([*base, 8])
    return (seconds - start) / args.tokens * 1e3, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--penstock", default=ROOT / "build" / "release" / "penstock")
    parser.add_argument("--model", default=ROOT / "models" / "penstock-stories-15m-q8_0.gguf")
    parser.add_argument("--draft", default=ROOT / "models" / "penstock-stories-1m-q8_0.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=3, help="of each kind")
    args = parser.parse_args()
    print("| prompts | drafter | Penstock: ms per token | speed-up | llama.cpp: ms per token | speed-up | its fastest setting | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, prompts in OWN.PROMPTS.items():
        prompts = prompts[:args.prompts]
        own = {mode: [] for mode in FLAGS}
        peer = {}
        for _ in range(args.rounds):
            for mode in FLAGS:
                own[mode] += [penstock(args, mode, prompt)[0] for prompt in prompts]
            for flash in (0, 1):
                results, _ = run([args.peer_python, HERE / "llama_cpp_speculation.py", args.model, args.draft, "--tokens", args.tokens,
                                  "--prompts", json.dumps(prompts), "--flash-attention", flash])
                for name, result in results.items():
                    peer.setdefault((name, flash), []).extend(result["ms"])
        plain = statistics.median(own["plain"])
        peer_plain = min(statistics.median(peer["plain", flash]) for flash in (0, 1))
        for mode, theirs in KINDS.items():
            mine = statistics.median(own[mode])
            best = min((key for key in peer if key[0].startswith(theirs)), key=lambda key: statistics.median(peer[key]))
            other = statistics.median(peer[best])
            setting = best[0] + (", flash attention" if best[1] else "")
            print(f"| {kind} | {mode} | {mine:.3f} | {plain / mine:.2f} | {other:.3f} | {peer_plain / other:.2f} | {setting} | "
                  f"{other / mine:.2f} |", flush=True)


if __name__ == "__main__":
    main()
