#!/usr/bin/env python3
"""What --experts-offload costs: tokens/s of a model of random weights in memory, mapped from a file, and mapped with less memory than
the model takes (a control group; needs root). Run: bench/experts_offload.py PENSTOCK CACHE_FOLDER -m MODEL

The folder gets the packed weights at the first start. Rounds alternate between the cases; medians are reported. Random weights
choose experts evenly, so nothing is hotter than the rest: a trained model's choices repeat more."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

MIB = 1 << 20


class Group:
    def __init__(self, limit):
        for root, name in ((pathlib.Path("/sys/fs/cgroup"), "memory.max"), (pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")):
            self.folder, why = root / f"penstock-bench-{os.getpid()}", "there are no control groups"
            if not (root / "cgroup.procs").exists():
                continue
            try:
                self.folder.mkdir()
                if not (self.folder / name).exists():
                    raise OSError(f"{self.folder} has no {name}")
                (self.folder / name).write_text(str(limit))
                return
            except OSError as error:
                why = error
                if self.folder.exists():
                    self.folder.rmdir()
        raise SystemExit(f"no memory limit can be set: {why}")

    def join(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


def bench(args, flags, limit=0, lengths=None):
    for file in pathlib.Path(args.cache).glob("*.packed"):  # what is in memory counts where it was first read
        with open(file) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    group = Group(limit) if limit else None
    try:
        prompt, tokens, repetitions = map(str, lengths or (args.prompt, args.tokens, args.repetitions))
        command = [args.penstock, "bench", *args.model, "-p", prompt, "-n", tokens, "-r", repetitions, "--no-roofline", "--json", *flags]
        done = subprocess.run(command, capture_output=True, preexec_fn=group.join if group else None)
    finally:
        if group:
            group.folder.rmdir()
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}: {done.stderr.decode()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("penstock")
    parser.add_argument("cache")
    parser.add_argument("-m", "--model")
    parser.add_argument("-p", "--prompt", type=int, default=128)
    parser.add_argument("-n", "--tokens", type=int, default=32)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shares", default="0.75,0.5")
    parser.add_argument("--skip-memory", action="store_true", help="the case without offload")
    args = parser.parse_args()
    args.model = ["-m", args.model]
    offload = ["--experts-offload", "--packed-cache", args.cache]
    bytes_of_model = bench(args, offload, lengths=(0, 1, 1))["weight_bytes"]
    cases = [] if args.skip_memory else [("in memory", [], 0)]
    cases += [("mapped", offload, 0)]
    cases += [(f"mapped, {float(share):.0%} of the weights' size", offload, int(float(share) * bytes_of_model)) for share in args.shares.split(",")]
    rows = {name: [] for name, *_ in cases}
    for _ in range(args.rounds):
        for name, flags, limit in cases:
            rows[name].append(bench(args, flags, limit))
    print(f"{bytes_of_model / MIB:.0f} MiB of weights, of which {rows['mapped'][0]['offloaded_bytes'] / MIB:.0f} are experts")
    for name, reports in rows.items():
        tests = [result["test"] for result in reports[0]["results"]]
        speeds = [statistics.median(r["results"][i]["tokens_per_second"] for r in reports) for i in range(len(tests))]
        read = statistics.median(report["expert_bytes_read"] for report in reports) / MIB
        print(f"| {name} | " + " | ".join(f"{test} {speed:.2f}" for test, speed in zip(tests, speeds)) + f" | {read:.0f} MiB read |")


if __name__ == "__main__":
    main()
