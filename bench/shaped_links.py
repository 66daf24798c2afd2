#!/usr/bin/env python3
"""What `penstock plan` says of two ranks with a slow link between them, beside what they take: the table of bench/notes/2026-11-parallel.md.

    bench/shaped_links.py build/release [--delay-us 50 500] [--gbps 1 10]        # as root; -DPENSTOCK_BENCH=ON; half a minute for each delay

Two network namespaces with a cable of bench/cable.cc between them, on which mpirun starts a rank each by TCP. A small model, so that the
link is what counts, with a thread each. What the plan is told was measured apart: the link as communicator_bench sees it (latency: a sum of
one float; rate: one of 1 MiB), and what steps take of so many rows while the other CPU computes as well, for both have one memory here: for
tensor parallelism by two ranks of one host, without a link, for a pipeline by two processes that do the same (of one sequence: by one alone).
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from two_hosts import NETWORK, TwoHosts, available, live_apart, run  # noqa: E402

ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
PROMPT, PARTS = 512, (64, 128)  # parts are those of a prompt in a pipeline, about (StepLoop::share_of_stage)
BATCHES = (1, 8)
LONG_SUM = 1 << 18  # floats; each rank sums a half and gives it to the other
MTU = 9000


class Cabled(TwoHosts):
    """Two hosts whose link takes its time."""

    def __init__(self, cable, delay_us, gbps):
        super().__init__()
        self.command = [cable, self.names[0], self.cables[0], self.names[1], self.cables[1], delay_us, gbps]

    def connect(self):
        self.cable = subprocess.Popen(list(map(str, self.command)), stdout=subprocess.PIPE, text=True)
        if self.cable.stdout.readline() != "ready\n":
            sys.exit("the cable is not there")
        for i, name in enumerate(self.names):
            run("ip", "-n", name, "addr", "add", f"{NETWORK}.{i + 1}", "peer", f"{NETWORK}.{2 - i}", "dev", self.cables[i])
            run("ip", "-n", name, "link", "set", self.cables[i], "up", "mtu", MTU)

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.cable.kill()
        self.cable.wait()

    def output(self, *command):
        # Each host has a CPU of its own.
        done = subprocess.run(self.mpirun("sh", "-c", 'exec taskset -c $OMPI_COMM_WORLD_RANK "$@"', "sh", *command), capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT}, timeout=300)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return done.stdout


def times_of(text):
    """{("decode", sequences) or ("prompt", tokens): milliseconds of a step or of the prompt} of what `penstock bench --json` prints."""
    found = {}
    for row in json.loads(text[text.index("{"):])["results"]:
        test = row["test"].split()
        if test[0] == "prefill":
            found["prompt", int(test[1])] = 1e3 * int(test[1]) / row["tokens_per_second"]
        else:
            sequences = int(test[-1]) if "x" in test else 1
            found["decode", sequences] = 1e3 * sequences / row["tokens_per_second"]
    return found


def both_at_once(command):
    """The slower of two processes, each on a CPU of its own."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    running = [subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], stdout=subprocess.PIPE, text=True) for cpu in cpus]
    one, two = (times_of(process.communicate()[0]) for process in running)
    return {key: max(one[key], two[key]) for key in one}


def link_of(hosts, build):
    """(latency in microseconds, Gb/s) between programs on the two hosts."""
    rows = dict(re.findall(r"(\d+) floats, 2 ranks: row mpi ([\d.]+) us", hosts.output(build / "bench" / "communicator_bench")))
    latency, long = float(rows["1"]), float(rows[str(LONG_SUM)])
    return latency, 2 * (LONG_SUM / 2 * 32) / (long - 2 * latency) / 1e3


def planned(program, model, kind, link, steps):
    known = {rows: ms for (_, rows), ms in steps.items()}
    words = [program, "plan", "-m", model, f"--{kind}-parallel-size", 2, "--hosts", 2, "--link-us", link[0], "--link-gbps", link[1], "--json", "--tokens", 32,
             "--candidates", 1, "--prompt-tokens", PROMPT, "--step-ms", ",".join(f"{rows}={known[rows]:.4f}" for rows in sorted(known))]
    found = {}
    for n in BATCHES:
        row = json.loads(run(*words, "--batch", n))["ranks"][0]
        found["decode", n] = row["step_ms"]
        found["prompt", PROMPT] = row["prompt_ms"]
    return found


def steps_here(bench):
    """What the plan is told of steps, by kind: milliseconds of one rank with the whole model."""
    tensor = times_of(run(*bench, "-p", PROMPT, "--batch", *BATCHES, "--tensor-parallel-size", 2))
    pipeline = times_of(run(*bench, "-p", PROMPT, "--batch", 1))
    pipeline.update(both_at_once([*bench, "-p", ",".join(map(str, PARTS)), "--batch", BATCHES[1] // 2]))
    return {"tensor": {key: 2 * ms for key, ms in tensor.items()}, "pipeline": pipeline}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--delay-us", type=float, nargs="+", default=[50, 200, 500, 2000])
    parser.add_argument("--gbps", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--shape", default="smollm-135m")
    parser.add_argument("--type", default="q8_0")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    if not available():
        sys.exit("needs network namespaces (root, iproute2)")
    build = args.build.resolve()
    live_apart()
    program, cable = build / "penstock", build / "bench" / "bench_cable"
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.gguf"
        run(program, "bench", "--shape", args.shape, "--type", args.type, "--write-gguf", model)
        bench = [program, "bench", "-m", model, "-t", 1, "-n", args.tokens, "-r", args.repetitions, "--max-model-len", PROMPT + 2, "--no-roofline", "--json"]
        steps = steps_here(bench)
        for kind, known in steps.items():
            print(f"{args.shape} {args.type}, {kind}: " + ", ".join(f"{name} {n}: {ms:.1f} ms" for (name, n), ms in sorted(known.items())))
        keys = [("prompt", PROMPT), *(("decode", n) for n in BATCHES)]
        print("\n| cable | as ranks see it | ranks | " + " | ".join(f"{name} {n}, ms: plan, measured, error" for name, n in keys) + " |")
        print("|---|---|---|" + "---|" * len(keys), flush=True)
        for delay_us in args.delay_us:
            for gbps in args.gbps:
                with Cabled(cable, delay_us, gbps) as hosts:
                    link = link_of(hosts, build)
                    for kind in steps:
                        took = times_of(hosts.output(*bench, "-p", PROMPT, "--batch", *BATCHES, f"--{kind}-parallel-size", 2))
                        plan = planned(program, model, kind, link, steps[kind])
                        cells = [f"{plan[key]:.1f}, {took[key]:.1f}, {100 * (plan[key] / took[key] - 1):+.0f} %" for key in keys]
                        print(f"| {delay_us:g} us, {gbps:g} Gb/s | {link[0]:.0f} us, {link[1]:.1f} Gb/s | {kind} 2 | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
