#!/usr/bin/env python3
"""aiperf, a load generator for servers of this API, against a server that is started for it.

  bench/aiperf.py [--endpoint completions|chat|responses] [--concurrency 32] [--requests 256] [--input 64] [--output 64]

aiperf is taken from --aiperf, else from an environment that is made under build/aiperf (some 1.2 GB from PyPI, which is why
no test does this). PENSTOCK names the program. Fails unless every request was answered in full.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
os.environ.setdefault("PENSTOCK", str(ROOT / "build" / "release" / "penstock"))
from live_server import Server  # noqa: E402

VERSION = "0.13.0"
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"  # the small models have none
SHOWN = {"request_throughput": "requests/s", "output_token_throughput": "tokens/s", "time_to_first_token": "ms to the first token",
         "inter_token_latency": "ms between tokens", "request_latency": "ms per request"}


def environment():
    """The program aiperf, installed if need be."""
    place = ROOT / "build" / "aiperf"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "-q", "--only-binary", ":all:", f"aiperf=={VERSION}"], check=True)
        (place / "complete").touch()
    return place / "bin" / "aiperf"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", default="completions", choices=("completions", "chat", "responses"))
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--input", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--output", type=int, default=64, help="tokens of a reply")
    parser.add_argument("--model", default=ROOT / "models" / "penstock-stories-15m-q8_0.gguf")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "models" / "penstock-stories-1m-bf16", help="of the model")
    parser.add_argument("--aiperf")
    args = parser.parse_args()
    program = args.aiperf or environment()
    with tempfile.TemporaryDirectory() as folder, Server("--max-num-seqs", args.concurrency, "--chat-template", TEMPLATE,
                                                         "--no-log-requests", "--kv-cache-memory", "256M", model=args.model) as server:
        shutil.copytree(args.tokenizer, pathlib.Path(folder) / "tokenizer")  # it takes a folder's relative path for local
        command = [program, "profile", "--model", pathlib.Path(args.model).name, "--url", f"http://127.0.0.1:{server.port}",
                   "--endpoint-type", args.endpoint, "--streaming", "--concurrency", args.concurrency, "--request-count", args.requests,
                   "--isl", args.input, "--osl", args.output, "--extra-inputs", "ignore_eos:true", "--tokenizer", "./tokenizer",
                   "--ui", "none", "--artifact-dir", "out", "--workers-max", 1]
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
        found = list(pathlib.Path(folder).glob("out/**/profile_export_aiperf.json"))
        if done.returncode != 0 or not found:
            sys.exit(f"{done.stdout[-4000:]}{done.stderr[-4000:]}\naiperf ended with {done.returncode}")
        result = json.loads(found[0].read_text())
        failed = [line for path in pathlib.Path(folder).glob("out/**/profile_export.jsonl") for line in path.read_text().splitlines()
                  if json.loads(line).get("error")]
    for name, unit in SHOWN.items():
        numbers = result.get(name) or {}
        print(f"{numbers.get('avg', float('nan')):10.2f} {unit}" + (f", p99 {numbers['p99']:.2f}" if numbers.get("p99") else ""))
    print(f"{result['request_count']['avg']:10.0f} requests of {args.requests} complete, {len(failed)} failed")
    sys.exit(bool(failed) or result["request_count"]["avg"] != args.requests)


if __name__ == "__main__":
    main()
