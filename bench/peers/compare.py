#!/usr/bin/env python3
"""Penstock against llama.cpp, and OpenVINO GenAI if asked, on the same GGUF files: makes the files (random weights of a
known shape), runs them alternately, and prints and saves a table of ratios.

    python3 -m venv peer && CMAKE_ARGS="-DGGML_NATIVE=ON" CC=clang-19 CXX=clang++-19 \\
        peer/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    bench/peers/compare.py --peer-python peer/bin/python --shapes llama-3.2-1b --types q4_0,q4_k_m,q8_0,bf16

--openvino-python names an interpreter with openvino-genai: one sequence, no load times (it converts the file).
--cases names other combinations (llama-3.2-1b:q8_0,qwen2.5-0.5b:q4_k_m); --docs docs/benchmarks.md also writes the
section "Kernels and models" of that file and a plot of the ratios under docs/images.

Pairs go round all files, so that a slow minute of the machine does not fall on one of them; --max-minutes ends the
rounds before the pair that would not fit, and the table says how many pairs each figure has. Each figure is the
median over the pairs of runs. llama.cpp runs with flash attention on and off, and the better of
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
import shlex
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


def run_openvino(args, path):
    text, _, peak = run([args.openvino_python, HERE / "openvino_peer.py", path, "--threads", args.threads, "--prefill",
                         joined(args.prefill), "--decode", args.decode, "--depths", joined(args.depths)])
    return json.loads(text)["results"] | {"peak memory, MiB": peak}


def medians(runs):
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


class Case:
    """One file and the figures of its runs so far."""

    def __init__(self, args, shape, kind):
        self.shape, self.kind = shape, kind
        self.path = args.files / f"{shape}-{kind}.gguf"
        self.ours, self.theirs, self.openvino, self.seconds = [], [], [], 0.0

    def measure(self, args):
        start = time.monotonic()
        if not self.path.exists():
            # Whole or not at all: a file cut short by an interruption would be taken for this one later.
            part = self.path.with_suffix(".part")
            run([args.penstock, "bench", "--shape", self.shape, "--type", self.kind, "--write-gguf", part])
            part.rename(self.path)
            made = time.monotonic() - start
            print(f"{self.shape} {self.kind}: file made in {made:.0f} s", file=sys.stderr, flush=True)
            start = time.monotonic()
        order = [(run_penstock, self.ours), (run_peer, self.theirs)]
        if args.openvino_python:
            order.append((run_openvino, self.openvino))
        results = [(runs, side(args, self.path)) for side, runs in (order if len(self.ours) % 2 == 0 else order[::-1])]
        for runs, result in results:
            runs.append(result)
        self.seconds = time.monotonic() - start
        print(f"{self.shape} {self.kind}: pair {len(self.ours)}, {self.seconds:.0f} s", file=sys.stderr, flush=True)

    def rows(self):
        if not self.ours:
            return []
        mine, other, rows = medians(self.ours), medians(self.theirs), []
        third = medians(self.openvino) if self.openvino else {}
        for name in mine:
            if name not in other:
                continue
            lower_is_better = name.startswith(("load", "peak"))

            def times(figure):
                return figure / mine[name] if lower_is_better else mine[name] / figure

            row = {"shape": self.shape, "type": self.kind, "test": name, "pairs": len(self.ours),
                   "penstock": mine[name], "llama_cpp": other[name], "ratio": times(other[name])}
            if name in third:
                row |= {"openvino": third[name], "openvino_ratio": times(third[name])}
            rows.append(row)
        return rows


def cpu_name():
    match = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return match.group(1) if match else platform.processor()


def describe(report):
    return (f"{report['cpu']}, {report['threads']} threads; {report['date']}; llama-cpp-python "
            f"{report['llama_cpp_python']} ({report['llama_cpp_units']})"
            + (f"; OpenVINO GenAI {report['openvino_genai']}." if report["openvino_genai"] else "."))


def table(report):
    head = ["shape", "type", "test", "pairs", "Penstock", "llama.cpp", "times as good"]
    if report["openvino_genai"]:
        head += ["OpenVINO GenAI", "times as good"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in report["rows"]:
        cells = [row["shape"], row["type"], row["test"], str(row["pairs"]), f"{row['penstock']:.1f}",
                 f"{row['llama_cpp']:.1f}", f"{row['ratio']:.2f}"]
        if report["openvino_genai"]:
            cells += [f"{row['openvino']:.1f}", f"{row['openvino_ratio']:.2f}"] if "openvino" in row else ["–", "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(report):
    """The ratios of the speeds as bars, an SVG image."""
    rows = [row for row in report["rows"] if not row["test"].startswith(("load", "peak"))]
    left, right, step, top = 330, 70, 20, 44
    width, height = 860, top + step * len(rows) + 16
    scale = (width - left - right) / max([1.0] + [row["ratio"] for row in rows])
    one = left + scale
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="{left}" y="18" font-size="14">Tokens per second, as a multiple of llama.cpp</text>']
    for i, row in enumerate(rows):
        y, bar = top + i * step, row["ratio"] * scale
        name = f"{row['shape']} {row['type']}, {row['test']}"
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{name}</text>'
                     f'<rect x="{left}" y="{y}" width="{bar:.1f}" height="15" fill="#2b6cb0"/>'
                     f'<text x="{left + bar + 5:.1f}" y="{y + 12}">{row["ratio"]:.2f}</text>')
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top - 8}" y2="{height - 10}" stroke="#c53030" '
                 f'stroke-dasharray="4 3"/><text x="{one:.1f}" y="{top - 12}" fill="#c53030" '
                 f'text-anchor="middle">1</text></svg>')
    return "\n".join(parts) + "\n"


SECTION = "## Kernels and models"


def write_docs(path, report):
    """Replaces the section in the file, or adds it; other sections stay as they are."""
    image = path.parent / "images" / "benchmarks-models.svg"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_text(plot(report))
    text = path.read_text() if path.exists() else "# Benchmarks\n"
    section = (f"{SECTION}\n{describe(report)} Weights are random, of the named shape. Speeds are tokens per second, "
               f"medians of alternating runs; of llama.cpp the better of flash attention on and off. Load time is a "
               f"whole process of Penstock against the load call alone of llama.cpp.\n\n{table(report)}\n"
               f"![Speed as a multiple of llama.cpp]({image.relative_to(path.parent)})\n\n"
               f"Written by:\n```\n{report['command']}\n```\n")
    start = re.search(rf"^{re.escape(SECTION)}$", text, re.M)
    if start is None:
        path.write_text(text.rstrip("\n") + "\n\n" + section)
        return
    following = re.search(r"^## ", text[start.end():], re.M)
    rest = "\n" + text[start.end() + following.start():] if following else ""
    path.write_text(text[:start.start()] + section + rest)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=pathlib.Path)
    parser.add_argument("--peer-python", required=True, help="an interpreter that has llama-cpp-python")
    parser.add_argument("--openvino-python", help="an interpreter that has openvino-genai; left out if not given")
    parser.add_argument("--shapes", default="llama-3.2-1b,qwen2.5-0.5b,smollm-135m")
    parser.add_argument("--types", default="q4_0,q4_k_m,q8_0,bf16")
    parser.add_argument("--cases", help="SHAPE:TYPE,... instead of all combinations of --shapes and --types")
    parser.add_argument("--prefill", type=numbers, default=[512, 2048])
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--depths", type=numbers, default=[0, 4096])
    parser.add_argument("--batches", type=numbers, default=[1], help="sequences decoding together: 1,2,4,8,16,32")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-minutes", type=float, default=float("inf"), help="fewer pairs rather than longer")
    parser.add_argument("--docs", type=pathlib.Path, help="write the section of this file and its plot too")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--files", default=ROOT / "build/peers", type=pathlib.Path, help="where the GGUF files go")
    parser.add_argument("--keep", action="store_true", help="keep them")
    parser.add_argument("--out", default=ROOT / "build/peers/results.json", type=pathlib.Path,
                        help="JSON; the table goes beside it as .md")
    return parser.parse_args()


def peer_versions(args):
    code = ("import llama_cpp, llama_cpp.llama_cpp as l; print(llama_cpp.__version__); "
            "print(l.llama_print_system_info().decode())")
    version, info = run([args.peer_python, "-c", code])[0].strip().split("\n", 1)
    units = [name for name in ("AMX_INT8", "AVX512_VNNI", "AVX_VNNI", "AVX512", "AVX2") if f"{name} = 1" in info]
    return version, f"built with {units[0]}" if units else "built without wide vectors"


def save(args, report):
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(describe(report) + "\n\n" + table(report))
    if args.docs and report["rows"]:
        write_docs(args.docs, report)


def main():
    args = parse_args()
    start = time.monotonic()
    version, units = peer_versions(args)
    args.files.mkdir(parents=True, exist_ok=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    named = args.cases or joined(f"{shape}:{kind}" for shape in args.shapes.split(",")
                                 for kind in args.types.split(","))
    cases = [Case(args, *case.split(":")) for case in named.split(",")]
    command = shlex.join(["bench/peers/compare.py", *sys.argv[1:]])
    command = command.replace(str(args.peer_python), "peer/bin/python")
    openvino = None
    if args.openvino_python:
        command = command.replace(str(args.openvino_python), "openvino/bin/python")
        openvino = run([args.openvino_python, "-c", "import openvino_genai as g; print(g.__version__)"])[0].strip()
    report = {"cpu": cpu_name(), "threads": args.threads, "llama_cpp_python": version, "llama_cpp_units": units,
              "openvino_genai": openvino,
              "date": datetime.date.today().isoformat(), "command": command, "rows": []}
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
            case.path.unlink(missing_ok=True)
    print(describe(report) + "\n\n" + table(report), end="")


if __name__ == "__main__":
    main()
