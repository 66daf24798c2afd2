#!/usr/bin/env python3
"""Speed of greedy decoding with and without each drafter: alternating runs, medians, and whether the tokens are the same.

    bench/speculation.py [--penstock build/release/penstock] [--rounds 5] [--tokens 160] [--threads 1] [--batch-invariant]

Every run is a process of its own (`penstock generate --json`), so caches start empty and the first tokens, in which lengths are
still being learned, count. On a shared machine only the ratios mean something, and with one thread --cpu tells more than the clock.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
STORY = ("Once upon a time, there was a little girl named Lily. She had a red ball. One day, Lily went to the park with her ball. "
         "She met a boy named Tom. Tom said, \"Can I play with you?\" Lily said, \"Yes, let us play with my red ball.\" They played "
         "all day and were very happy. Then they went home.")
PROMPTS = {
    "stories": ["Once upon a time", "One day, a little boy named Tim went to the park with his mom.",
                "Tom and Sue are friends. They like to play in the garden.", "The king had a big castle and"],
    "repeating": [f"{STORY} {STORY} {STORY.split('One day')[0]}", f"{STORY} {STORY} Once upon a time, there was a",
                  f"{STORY} {STORY} {STORY.split('She met')[0]}", f"{STORY} {STORY} Once upon"],
}


def run(args, prompt, extra, tokens):
    """The program's report, and the processor seconds it took."""
    command = [args.penstock, "generate", "-p", prompt, "-t", str(args.threads), "--temperature", "0", "--max-tokens", str(tokens),
               "--ignore-eos", "--json", "--quiet", *args.engine, *extra]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(args, prompt, extra):
    """The report, with tokens per second of decoding: by the clock, or by processor time beyond that of a run of one token."""
    result, seconds = run(args, prompt, extra, args.tokens)
    result["rate"] = result["timings"]["decode_tokens_per_second"]
    if args.cpu:
        result["rate"] = (args.tokens - 1) / max(seconds - run(args, prompt, extra, 1)[1], 1e-9)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=str(ROOT / "build" / "release" / "penstock"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--drafters", default="draft,ngram")
    parser.add_argument("--cpu", action="store_true", help="by processor time: for machines that do other things too")
    parser.add_argument("engine", nargs="*", help="further engine flags, after --")
    args = parser.parse_args()
    drafters = {"plain": []}
    for name in args.drafters.split(","):
        drafters[name] = ["--spec", name]
    drafters["draft"] = ["--spec", "draft", "--draft-model", "penstock-stories-1m-q8_0.gguf"]
    if "draft" not in args.drafters:
        del drafters["draft"]
    print("| prompts | drafter | tokens/s | speed-up | low to high | guesses right | tokens per round | same tokens |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, prompts in PROMPTS.items():
        rates = {name: [] for name in drafters}
        ratios = {name: [] for name in drafters}
        counts = {name: [0, 0, 0] for name in drafters}
        same = {name: True for name in drafters}
        for round_ in range(args.rounds):
            for prompt in prompts:
                plain = None
                for name, flags in drafters.items():
                    result = measure(args, prompt, flags)
                    rate = result["rate"]
                    plain = plain or result
                    rates[name].append(rate)
                    ratios[name].append(rate / plain["rate"])
                    same[name] &= result["tokens"] == plain["tokens"]
                    for i, key in enumerate(("drafts", "draft_tokens", "accepted_tokens")):
                        counts[name][i] += result.get("speculation", {}).get(key, 0)
        for name in drafters:
            drafts, drafted, kept = counts[name]
            right = f"{kept / drafted:.2f}" if drafted else ""
            per_round = f"{1 + kept / drafts:.2f}" if drafts else ""
            low, high = statistics.quantiles(ratios[name], n=4)[::2]
            print(f"| {kind} | {name} | {statistics.median(rates[name]):.0f} | {statistics.median(ratios[name]):.2f} | "
                  f"{low:.2f} to {high:.2f} | {right} | {per_round} | {'yes' if same[name] else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
