#!/usr/bin/env python3
"""How soon a model is ready: penstock with and without packed weights on disk, and llama.cpp, run in turn.

    bench/peers/ready.py --peer-python peer/bin/python --rounds 5 model.gguf ...

Penstock's time is that of a whole process that loads the model and ends; llama.cpp's that of the load call alone
("load") and of a whole process that loads and ends ("process"). Files are read once before, so that all of them are in
memory; the packed file is made by a start that is not counted. Prints medians: seconds by the clock, seconds of
processor time, peak resident MiB, and how many times as soon as llama.cpp's load call.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEER = """
import os, sys, time
import llama_cpp.llama_cpp as ll
quiet = ll.llama_log_callback(lambda level, text, data: None)
ll.llama_log_set(quiet, None)
ll.llama_backend_init()
params = ll.llama_model_default_params()
params.n_gpu_layers = 0
start = time.monotonic()
assert ll.llama_model_load_from_file(os.fsencode(sys.argv[1]), params)
print(time.monotonic() - start, flush=True)
os._exit(0)
"""


def run(command, env=None):
    """Its output, seconds, seconds of processor time, peak resident MiB."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out, env={**os.environ, **(env or {})})
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"{command}: failed")
        out.seek(0)
        return out.read().decode(), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=pathlib.Path)
    parser.add_argument("--peer-python", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=pathlib.Path, help="folder of packed weights (default: a temporary one)")
    args = parser.parse_args()
    print("| file | | by the clock, s | processor, s | peak MiB | llama.cpp's load / this |\n|---|---|---|---|---|---|")
    for model in args.models:
        with tempfile.TemporaryDirectory(dir=model.parent) as folder:
            load = [args.penstock, "bench", "-m", model, "--threads", args.threads, "--json", "--no-roofline",
                    "-r", 1, "-p", 0, "-n", 0, "--packed-cache"]
            ways = {"packed at load": lambda: run(load + ["off"]),
                    "packed weights mapped": lambda: run(load + [args.cache or folder])}
            if args.peer_python:
                ways["llama.cpp"] = lambda: run([args.peer_python, "-c", PEER, model])
            for start in ways.values():
                start()  # also makes the packed file and brings all files into memory
            results = {name: [] for name in ways}
            for _ in range(args.rounds):
                for name, start in ways.items():
                    results[name].append(start())
            peer = statistics.median(float(r[0]) for r in results["llama.cpp"]) if args.peer_python else None
            for name, runs in results.items():
                clock, cpu, peak = (statistics.median(r[i] for r in runs) for i in (1, 2, 3))
                if name == "llama.cpp":
                    print(f"| {model.name} | llama.cpp, load | {peer:.2f} | | | 1 |")
                    name = "llama.cpp, process"
                ratio = f"{peer / clock:.2f}" if peer else ""
                print(f"| {model.name} | {name} | {clock:.2f} | {cpu:.2f} | {peak:.0f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
