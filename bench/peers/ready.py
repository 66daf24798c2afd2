#!/usr/bin/env python3
"""How soon a model is ready and how soon it answers: penstock with and without packed weights on disk, and llama.cpp, in turn.

    bench/peers/ready.py --peer-python peer/bin/python --rounds 5 model.gguf ...

Penstock is `penstock serve`: "ready" is from its start until GET /ready answers with 200, "first token" from its start until
the answer to a request for one token, sent at that moment. llama.cpp's "ready" is its load call alone (its process is
imported and started before), "first token" adds a context and the same prompt. Files are read once before, so that all of
them are in memory; the packed file is made by a start that is not counted. With --cold the model's file and packed weights
are dropped from the page cache before every start, and a row says how long the file takes to read from end to end (what the
disk's own host keeps in memory is beyond this). Prints medians: seconds until both, seconds of processor time and peak
resident MiB until the first token, and llama.cpp's seconds divided by these.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import results as files

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROMPT = list(range(100, 116))
PEER = """
import os, resource, sys, time
import llama_cpp.llama_cpp as ll
quiet = ll.llama_log_callback(lambda level, text, data: None)
ll.llama_log_set(quiet, None)
ll.llama_backend_init()
params = ll.llama_model_default_params()
params.n_gpu_layers = 0
start = time.monotonic()
model = ll.llama_model_load_from_file(os.fsencode(sys.argv[1]), params)
assert model
ready = time.monotonic() - start
params = ll.llama_context_default_params()
params.n_ctx = 2048
params.n_threads = params.n_threads_batch = int(sys.argv[2])
context = ll.llama_init_from_model(model, params)
prompt = [int(token) for token in sys.argv[3].split(",")]
tokens = (ll.llama_token * len(prompt))(*prompt)  # the batch only points at it
assert ll.llama_decode(context, ll.llama_batch_get_one(tokens, len(prompt))) == 0
logits = ll.llama_get_logits_ith(context, -1)
max(logits[:ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))])
first = time.monotonic() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
print(ready, first, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, flush=True)
os._exit(0)
"""


def peer(args, model):
    out = subprocess.run([args.peer_python, "-c", PEER, model, str(args.threads), ",".join(map(str, PROMPT))],
                         check=True, stdout=subprocess.PIPE).stdout
    return tuple(map(float, out.split()))


def ask(port, method, path, body=b""):
    """Status and body of the answer, or (0, b"") while nobody listens."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.connect(("127.0.0.1", port))
        except ConnectionRefusedError:
            return 0, b""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]


def serve(args, model, cache):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    process = subprocess.Popen([args.penstock, "serve", "-m", model, "--port", str(port), "--threads", str(args.threads),
                                "--packed-cache", cache], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while ask(port, "GET", "/ready")[0] != 200:
            if process.poll() is not None:
                sys.exit(f"penstock serve -m {model}: ended with {process.returncode}")
            time.sleep(0.001)
        ready = time.monotonic() - start
        request = {"prompt": PROMPT, "max_tokens": 1, "ignore_eos": True, "temperature": 0}
        status, body = ask(port, "POST", "/v1/completions", json.dumps(request).encode())
        first = time.monotonic() - start
        if status != 200:
            sys.exit(f"penstock serve -m {model}: {status} {body[:500]}")
        proc = pathlib.Path("/proc") / str(process.pid)
        times = (proc / "stat").read_text().rpartition(")")[2].split()
        peak = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmHWM"))
        cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        return ready, first, cpu, int(peak.split()[1]) / 1024
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def read_file(model):
    """As one start: both times are those of reading all of the file, a thread, 8 MiB at a time."""
    start, used, buffer = time.monotonic(), time.process_time(), bytearray(8 << 20)
    with open(model, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    seconds = time.monotonic() - start
    return seconds, seconds, time.process_time() - used, 0


def drop_from_page_cache(files):
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())  # pages that are not on disk yet would stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rows_of(model, medians, rounds):
    """Rows of bench/results of one file."""
    shape, kind = re.fullmatch(r"(.+?)-([a-z]+\d\w*)", model.stem).groups() if re.fullmatch(r".+?-[a-z]+\d\w*", model.stem) else (model.stem, "")
    other, rows = medians.get("llama.cpp"), []
    for i, what in ((0, "ready{}, s"), (1, "first token{}, s"), (3, "peak memory until the first token{}, MiB")):
        for name, way in (("without packed weights", ""), ("packed weights on disk", " with packed weights on disk")):
            row = {"shape": shape, "type": kind, "test": what.format(way), "pairs": rounds, "penstock": medians[name][i]}
            rows.append(row | ({"llama_cpp": other[i], "llama_cpp_ratio": other[i] / medians[name][i]} if other else {}))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=pathlib.Path)
    parser.add_argument("--peer-python", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=pathlib.Path, help="folder of packed weights (default: a temporary one)")
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before every start")
    parser.add_argument("--out", type=pathlib.Path, help="also a file of bench/results (ready-<machine>-<date>.json); models are SHAPE-TYPE.gguf")
    args, rows = parser.parse_args(), []
    print("| file | | ready, s | first token, s | processor, s | peak MiB | llama.cpp / this: ready | first token |")
    print("|---|---|---|---|---|---|---|---|")
    for model in args.models:
        with tempfile.TemporaryDirectory(dir=model.parent) as folder:
            ways = {"without packed weights": lambda: serve(args, model, "off"),
                    "packed weights on disk": lambda: serve(args, model, args.cache or folder)}
            if args.peer_python:
                ways["llama.cpp"] = lambda: peer(args, model)
            if args.cold:
                ways["read from end to end"] = lambda: read_file(model)
            for start in ways.values():
                start()  # also makes the packed file and brings all files into memory
            runs_of = {name: [] for name in ways}
            for _ in range(args.rounds):
                for name, start in ways.items():
                    if args.cold:
                        packed = pathlib.Path(args.cache or folder)
                        drop_from_page_cache([model, *(path for path in packed.rglob("*") if path.is_file())])
                    runs_of[name].append(start())
            medians = {name: [statistics.median(run[i] for run in runs) for i in range(4)] for name, runs in runs_of.items()}
            rows += rows_of(model, medians, args.rounds)
            for name, (ready, first, cpu, peak) in medians.items():
                other = medians.get("llama.cpp")
                ratios = f"{other[0] / ready:.2f} | {other[1] / first:.2f}" if other else " | "
                print(f"| {model.name} | {name} | {ready:.3f} | {first:.2f} | {cpu:.2f} | {peak:.0f} | {ratios} |", flush=True)
    if args.out:
        version = "import llama_cpp; print(llama_cpp.__version__)"
        peers = {"llama_cpp": files.version(args.peer_python, version)} if args.peer_python else {}
        files.write(args.out, files.report(args.threads, peers, rows, [(args.peer_python, "peer/bin/python")]))


if __name__ == "__main__":
    main()
