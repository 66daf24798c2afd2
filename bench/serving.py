#!/usr/bin/env python3
"""Batching policies, the prefix cache and the KV layouts under one load, llama.cpp and OpenVINO GenAI beside them.

    bench/serving.py --trace AzureLLMInferenceTrace_conv.csv [--shape qwen2.5-0.5b] [--type q8_0]
                     [--peer-python peer/bin/python] [--openvino-python openvino/bin/python] [--rounds 3] [--only "all at once" --add]

Requests are taken from the trace in its order, lengths times --length-scale, longer ones than --max-length left out; the
arrivals keep the trace's pattern and are scaled to a rate. The rows go round in turn, --rounds times; the table has the
medians. "static, padded" is static batching where every prompt and output of a batch takes as long as its longest, as
libraries do it that pad; only the tokens asked for count. llama.cpp runs without flash attention, its faster setting here (bench/peers/llama_cpp_load.py says how it is
driven). Weights are random, of the named shape, and outputs have the trace's lengths.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "peers"))
import results as files  # noqa: E402


def read_trace(args, length_scale, max_length, most=None):
    """[(seconds since the first, prompt tokens, output tokens)]"""
    chosen = []
    with open(args.trace) as file:
        for row in csv.DictReader(file):
            clock = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26])
            prompt, output = (max(1, round(int(row[key]) * length_scale))
                              for key in ("ContextTokens", "GeneratedTokens"))
            if prompt + output <= max_length:
                chosen.append((clock, prompt, output))
            if len(chosen) == (most or args.requests):
                break
    return [((clock - chosen[0][0]).total_seconds(), prompt, output) for clock, prompt, output in chosen]


def write_load(path, requests, rate):
    """rate 0: all at once."""
    scale = (len(requests) - 1) / max(requests[-1][0], 1e-9) / rate if rate else 0
    path.write_text("".join(json.dumps({"timestamp": arrival * scale * 1000, "input_length": prompt,
                                        "output_length": output}) + "\n" for arrival, prompt, output in requests))
    return path


def padded(requests, batch):
    """Every batch in order of arrival takes its longest prompt and its longest output."""
    batches = [requests[i:i + batch] for i in range(0, len(requests), batch)]
    return [(arrival, max(r[1] for r in each), max(r[2] for r in each)) for each in batches for arrival, _, _ in each]


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def rows_of(args, folder, model):
    """[(group, name, command, output tokens that count or None for all)]"""
    requests = read_trace(args, args.length_scale, args.max_length)
    at_once = write_load(folder / "at_once.jsonl", requests, 0)
    paced = write_load(folder / "paced.jsonl", requests, args.rate)
    shared = folder / "shared.jsonl"
    shared.write_text("".join(json.dumps({"timestamp": 0, "input_length": 1050, "output_length": 32}) + "\n"
                              for _ in range(16)))

    many = folder / "many.jsonl"
    many.write_text("".join(json.dumps({"timestamp": 0, "input_length": 20, "output_length": 24}) + "\n"
                            for _ in range(256)))
    whole = write_load(folder / "whole.jsonl", read_trace(args, 1, 4000)[:24], 0)

    def ours(trace, *flags, seqs=args.seqs, requests=args.requests):
        return [args.penstock, "bench", "-m", model, "--serve", "--json", "--no-roofline", "--threads", args.threads,
                "--requests", requests, "--trace", trace, "--max-num-seqs", seqs, *flags]

    def theirs(trace, *flags):
        return [args.peer_python, HERE / "peers" / "llama_cpp_load.py", model, "--trace", trace, "--threads",
                args.threads, "--slots", args.seqs, *flags]

    def openvino(trace, *flags, seqs=args.seqs):
        return [args.openvino_python, HERE / "peers" / "openvino_load.py", model, "--trace", trace, "--threads",
                args.threads, "--slots", seqs, *flags]

    # The contiguous layout reserves the longest request for every sequence.
    small = ["--kv-cache-memory", args.small_cache, "--max-model-len", args.max_length]
    rows = [("all at once", "continuous", ours(at_once)),
            ("all at once", "static", ours(at_once, "--policy", "static")),
            ("all at once", "dynamic", ours(at_once, "--policy", "dynamic")),
            ("all at once", "llama.cpp", theirs(at_once)),
            ("all at once", "OpenVINO GenAI", openvino(at_once)),
            (f"{args.rate:g} requests/s", "chunks chosen by time", ours(paced)),
            (f"{args.rate:g} requests/s", "chunks of 2,048", ours(paced, "--prefill-chunk", 2048)),
            (f"{args.rate:g} requests/s", "llama.cpp", theirs(paced)),
            ("16 share 1,000 tokens", "prefix cache", ours(shared, "--shared-prefix", 1000)),
            ("16 share 1,000 tokens", "without it",
             ours(shared, "--shared-prefix", 1000, "--no-enable-prefix-caching")),
            ("16 share 1,000 tokens", "llama.cpp", theirs(shared, "--shared-prefix", 1000)),
            (f"{args.small_cache} of KV", "paged", ours(at_once, *small, seqs=64)),
            (f"{args.small_cache} of KV", "contiguous", ours(at_once, *small, "--kv-layout", "contiguous", seqs=64)),
            ("many sequences", "64", ours(many, seqs=64, requests=64)),
            ("many sequences", "256", ours(many, seqs=256, requests=256)),
            ("the trace's own lengths", "continuous", ours(whole, requests=24))]
    for rate in args.rates:
        paces = write_load(folder / f"paced{rate}.jsonl", requests[:args.rate_requests], rate)
        rows += [(f"rate {rate:g}/s", policy, ours(paces, "--policy", policy, requests=args.rate_requests))
                 for policy in ("continuous", "static")]
    short = read_trace(args, args.length_scale / 2, args.max_length / 2, args.saturating)
    saturating = write_load(folder / "saturating.jsonl", short, 0)
    for seqs in (16, 32, 64):
        rows += [(f"{args.saturating} at once, {seqs} places", policy,
                  ours(saturating, "--policy", policy, seqs=seqs, requests=args.saturating))
                 for policy in ("continuous", "static")]
    wasted = write_load(folder / "padded.jsonl", padded(short, 16), 0)
    rows.append((f"{args.saturating} at once, 16 places", "static, padded",
                 ours(wasted, "--policy", "static", seqs=16, requests=args.saturating)))
    useful = sum(output for _, _, output in short)
    there = {"llama.cpp": args.peer_python, "OpenVINO GenAI": args.openvino_python}
    return [(group, name, command, useful if name == "static, padded" else None)
            for group, name, command in rows if there.get(name, True)]


COLUMNS = {
    "output tokens/s": lambda r: r["output_tokens_per_second"],
    "TTFT p50, s": lambda r: r["time_to_first_token"]["p50"],
    "TTFT p99, s": lambda r: r["time_to_first_token"]["p99"],
    "between tokens p50, ms": lambda r: r["inter_token_latency"]["p50"] * 1000,
    "between tokens p99, ms": lambda r: r["inter_token_latency"]["p99"] * 1000,
    "tokens computed": lambda r: r.get("computed_tokens", float("nan")),
    "most at once": lambda r: r.get("most_running", float("nan")),
    "blocks unfilled, %": lambda r: r.get("mean_waste", float("nan")) * 100,
    "scheduling, % of steps": lambda r: r.get("schedule_share", float("nan")) * 100,
    "scheduling, µs per step": lambda r: r.get("schedule_seconds_per_step", float("nan")) * 1e6,
}


def cell(value):
    if value != value:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(results):
    lines = ["| load | | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for (group, name), runs in results.items():
        values = [statistics.median(column(run) for run in runs) for column in COLUMNS.values()]
        lines.append(f"| {group} | {name} | " + " | ".join(map(cell, values)) + " |")
    return "\n".join(lines)


KEYS = ("output_tokens_per_s", "ttft_p50_s", "ttft_p99_s", "between_p50_ms", "between_p99_ms")  # of bench/results, as COLUMNS begin


def save_results(args, results):
    """The medians as a file of bench/results."""
    versions = {"llama_cpp": (args.peer_python, "import llama_cpp; print(llama_cpp.__version__)"),
                "openvino": (args.openvino_python, "import openvino_genai as g; print(g.__version__)")}
    peers = {peer: files.version(python, program) for peer, (python, program) in versions.items() if python}
    model = args.model.stem if args.model else f"{args.shape} {args.type}"
    rows = [{"model": model, "load": group, "program": name,
             **{key: statistics.median(column(run) for run in runs) for key, column in zip(KEYS, COLUMNS.values())}}
            for (group, name), runs in results.items() if runs]
    hide = [(args.peer_python, "peer/bin/python"), (args.openvino_python, "openvino/bin/python"), (args.trace, pathlib.Path(args.trace).name),
            (args.penstock, "build/release/penstock")]
    files.write(args.results, files.report(args.threads, peers, rows, [pair for pair in hide if pair[0]]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=pathlib.Path)
    parser.add_argument("--peer-python", help="an interpreter that has llama-cpp-python; left out if not given")
    parser.add_argument("--openvino-python", help="an interpreter that has openvino-genai; left out if not given")
    parser.add_argument("--trace", required=True)
    parser.add_argument("--shape", default="qwen2.5-0.5b")
    parser.add_argument("--type", default="q8_0")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--length-scale", type=float, default=0.25)
    parser.add_argument("--max-length", type=int, default=1000)
    parser.add_argument("--seqs", type=int, default=16, help="sequences at once, of all engines")
    parser.add_argument("--rate", type=float, default=2, help="requests per second of the paced load")
    parser.add_argument("--saturating", type=int, default=96, help="requests of half the length, all at once")
    parser.add_argument("--small-cache", default="64MiB")
    parser.add_argument("--rates", type=float, nargs="*", default=[], help="more rates, continuous and static")
    parser.add_argument("--rate-requests", type=int, default=32, help="requests at each of them")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file instead of --shape and --type")
    parser.add_argument("--add", action="store_true", help="to the runs that --out holds already")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose load and name contain this")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/serving.json")
    parser.add_argument("--results", type=pathlib.Path, help="also the medians as a file of bench/results (load-<machine>-<date>.json)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = args.model or folder / f"{args.shape}-{args.type}.gguf"
        if not args.model:
            subprocess.run([args.penstock, "bench", "--shape", args.shape, "--type", args.type, "--write-gguf", model],
                           check=True)
        rows = [row for row in rows_of(args, folder, model) if args.only in f"{row[0]}, {row[1]}"]
        results = {}
        if args.add and args.out.exists():
            results = {(each["load"], each["row"]): each["runs"] for each in json.loads(args.out.read_text())}
        for row in rows:
            results.setdefault(row[:2], [])
        for number in range(args.rounds):
            for group, name, command, useful in rows:
                result = run(command)
                if useful:
                    result["output_tokens_per_second"] = useful / result["seconds"]
                results[group, name].append(result)
                print(f"round {number + 1}: {group}, {name}: {results[group, name][-1]['seconds']:.1f} s",
                      file=sys.stderr, flush=True)
            saved = [{"load": g, "row": n, "runs": [{k: v for k, v in r.items() if k != "samples"} for r in runs]}
                     for (g, n), runs in results.items()]
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(saved, indent=1) + "\n")
    print(table(results))
    if args.results:
        save_results(args, results)


if __name__ == "__main__":
    main()
