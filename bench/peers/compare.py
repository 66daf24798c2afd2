#!/usr/bin/env python3
"""Penstock against llama.cpp on the same GGUF files: makes the files (random weights of a known shape), runs both
alternately, and prints and saves a table of ratios.

    python3 -m venv peer && CMAKE_ARGS="-DGGML_NATIVE=ON" CC=clang-19 CXX=clang++-19 \\
        peer/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    bench/peers/compare.py --peer-python peer/bin/python --shapes llama-3.2-1b --types q4_0,q4_k_m,q8_0,bf16

Each figure is the median over the pairs of runs. llama.cpp runs with flash attention on and off, and the better of
the two counts, test by test. Load time of Penstock is from start to exit of a run without tests; of llama.cpp only
its own load call. Peak memory is the process' largest resident size in the run of all tests.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def run(command):
    """The output of a command, its seconds and its peak resident MiB."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        text = out.read().decode()
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{err.read().decode()[-2000:]}")
    return text, time.monotonic() - start, usage.ru_maxrss / 1024


def joined(numbers):
    return ",".join(map(str, numbers))


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def run_penstock(args, path):
    base = [args.penstock, "bench", "-m", path, "--threads", args.threads, "--json", "--no-roofline", "-r", 1]
    text, _, peak = run(base + ["-p", joined(args.prefill), "-n", args.decode, "-d", joined(args.depths),
                                "--batch", joined(args.batches)])
    results = {row["test"]: row["tokens_per_second"] for row in json.loads(text)["results"]}
    _, load, _ = run(base + ["-p", 0, "-n", 0])
    return results | {"load, s": load, "peak memory, MiB": peak}


def run_peer(args, path):
    best = {}
    for flash in (1, 0):
        text, _, peak = run([args.peer_python, HERE / "llama_cpp_peer.py", path, "--threads", args.threads,
                             "--flash-attention", flash, "--prefill", joined(args.prefill), "--decode", args.decode,
                             "--depths", joined(args.depths), "--batches", joined(args.batches)])
        output = json.loads(text)
        for name, rate in output["results"].items():
            best[name] = max(best.get(name, 0), rate)
        for name, value in (("load, s", output["load_seconds"]), ("peak memory, MiB", peak)):
            best[name] = min(best.get(name, value), value)
    return best


def medians(runs):
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def compare(args, shape, kind, path):
    ours, theirs = [], []
    for pair in range(args.pairs):
        order = [(run_penstock, ours), (run_peer, theirs)]
        for measure, runs in order if pair % 2 == 0 else reversed(order):
            runs.append(measure(args, path))
        print(f"{shape} {kind}: pair {pair + 1} of {args.pairs}", file=sys.stderr, flush=True)
    mine, other = medians(ours), medians(theirs)
    rows = []
    for name in mine:
        if name not in other:
            continue
        lower_is_better = name.startswith(("load", "peak"))
        ratio = other[name] / mine[name] if lower_is_better else mine[name] / other[name]
        rows.append({"shape": shape, "type": kind, "test": name, "penstock": mine[name], "llama_cpp": other[name],
                     "ratio": ratio})
    return rows


def cpu_name():
    match = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return match.group(1) if match else platform.processor()


def table(report):
    lines = [f"{report['cpu']}, {report['threads']} threads; median of {report['pairs']} pairs; {report['date']}; "
             f"llama-cpp-python {report['llama_cpp_python']}.",
             "", "| shape | type | test | Penstock | llama.cpp | times as good |", "|---|---|---|---|---|---|"]
    for row in report["rows"]:
        lines.append(f"| {row['shape']} | {row['type']} | {row['test']} | {row['penstock']:.1f} | "
                     f"{row['llama_cpp']:.1f} | {row['ratio']:.2f} |")
    return "\n".join(lines) + "\n"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=pathlib.Path)
    parser.add_argument("--peer-python", required=True, help="an interpreter that has llama-cpp-python")
    parser.add_argument("--shapes", default="llama-3.2-1b,qwen2.5-0.5b,smollm-135m")
    parser.add_argument("--types", default="q4_0,q4_k_m,q8_0,bf16")
    parser.add_argument("--prefill", type=numbers, default=[512, 2048])
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--depths", type=numbers, default=[0, 4096])
    parser.add_argument("--batches", type=numbers, default=[1], help="sequences decoding together: 1,2,4,8,16,32")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--files", default=ROOT / "build/peers", type=pathlib.Path, help="where the GGUF files go")
    parser.add_argument("--keep", action="store_true", help="keep them")
    parser.add_argument("--out", default=ROOT / "build/peers/results.json", type=pathlib.Path,
                        help="JSON; the table goes beside it as .md")
    return parser.parse_args()


def main():
    args = parse_args()
    version = run([args.peer_python, "-c", "import llama_cpp; print(llama_cpp.__version__)"])[0].strip()
    args.files.mkdir(parents=True, exist_ok=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"cpu": cpu_name(), "threads": args.threads, "pairs": args.pairs, "llama_cpp_python": version,
              "date": datetime.date.today().isoformat(), "command": sys.argv[1:], "rows": []}
    for shape in args.shapes.split(","):
        for kind in args.types.split(","):
            path = args.files / f"{shape}-{kind}.gguf"
            if not path.exists():
                run([args.penstock, "bench", "--shape", shape, "--type", kind, "--write-gguf", path])
            report["rows"] += compare(args, shape, kind, path)
            if not args.keep:
                path.unlink()
            # After each file, so that an interrupted run leaves what it has.
            args.out.write_text(json.dumps(report, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(table(report))
    print(table(report), end="")


if __name__ == "__main__":
    main()
