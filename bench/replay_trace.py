#!/usr/bin/env python3
"""A trace of prompts with the hashes of their blocks, replayed at its pace, scaled down: hit rate, time to first token, bytes written and
read; of servers without and with a --kv-store in memory, on a disk and both, and of llama.cpp's server with a slot file for each prompt.

Usage: PENSTOCK=build/release/penstock bench/replay_trace.py MODEL TRACE.jsonl[.zst] [--scale 32] [--speed 4] [--requests 200] [--output 8]
       [--cache 64M] [--memory 1G] [--restart 100] [--llama-server PROGRAM]        (nothing else running)

A block of the trace (512 tokens, one entry of hash_ids) becomes 512 / scale tokens that its hash decides. Requests are sent at their times,
divided by speed; those whose prompt does not fit the model's context are left out. With --restart every server is stopped and started again
after so many requests, as by an update. llama.cpp's server has no files unless it is told: before each request the file whose prompt has
most in common is restored, and behind it the slot is saved, by the client, as its documentation shows; the time of both counts.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import served

BLOCK = 512
FIRST_ID = 300  # behind the special tokens of common vocabularies


def read_trace(path, n, scale, longest, ids):
    """[(milliseconds, token ids, hashes)], of prompts that fit."""
    lines = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True, text=True).stdout if path.suffix == ".zst" else path.read_text()
    requests, left_out = [], 0
    for line in lines.splitlines():
        one = json.loads(line)
        tokens = [token for block in one["hash_ids"] for token in random.Random(block).choices(range(FIRST_ID, ids), k=BLOCK // scale)]
        tokens = tokens[:max(1, one["input_length"] // scale)]
        if len(tokens) > longest:
            left_out += 1
            continue
        requests.append((one["timestamp"], tokens, one["hash_ids"]))
        if len(requests) == n:
            break
    return requests, left_out


class Client:
    def __init__(self, port):
        self.port = port

    def send(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.read()[:300]}")
        return reply

    def first_token(self, path, body):
        """(milliseconds to the first event with a token, all events)"""
        begin, first, events = time.monotonic(), None, []
        for line in self.send("POST", path, {**body, "stream": True}):
            if not line.startswith(b"data: {"):
                continue
            first = first or 1e3 * (time.monotonic() - begin)
            events.append(json.loads(line[6:]))
        return first, events

    def metrics(self):
        return dict(re.findall(r"^penstock:(\w+?)(?:\{[^}]*\})? ([\d.e+]+)$", self.send("GET", "/metrics").read().decode(), re.M))


class Penstock:
    def __init__(self, args, name, store=None):
        self.args, self.name, self.store = args, name, store
        self.written = self.read = 0

    def start(self):
        command = [os.environ.get("PENSTOCK", "penstock"), "serve", "-m", self.args.model, "--port", "0", "--kv-cache-memory", self.args.cache,
                   "--no-log-requests"]
        self.process, port = served.start(command + (["--kv-store", self.store] if self.store else []))
        self.client = Client(port)
        return self.client.send("GET", "/v1/models")

    def ask(self, tokens, _):
        first, events = self.client.first_token("/v1/completions", {"prompt": tokens, "max_tokens": self.args.output, "ignore_eos": True,
                                                                    "temperature": 0, "stream_options": {"include_usage": True}})
        return first, events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]

    def stop(self):
        metrics = self.client.metrics()
        self.written += float(metrics.get("kv_store_written_bytes_total", 0))
        self.read += float(metrics.get("kv_store_read_bytes_total", 0))
        served.stop(self.process)


class LlamaCpp:
    name = "llama.cpp, slot files"

    def __init__(self, args, folder):
        self.args, self.folder, self.files, self.lock = args, pathlib.Path(folder), {}, threading.Lock()
        self.written = self.read = 0

    def start(self):
        port = random.randrange(20000, 60000)
        self.process = subprocess.Popen([self.args.llama_server, "-m", self.args.model, "--port", str(port), "-np", "1", "--slot-save-path",
                                         f"{self.folder}/"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.client = Client(port)
        while self.process.poll() is None:
            try:
                return self.client.send("GET", "/health")
            except (OSError, RuntimeError):
                time.sleep(0.2)
        sys.exit("llama-server did not start")

    def ask(self, tokens, hashes):
        begin = time.monotonic()
        with self.lock:  # one slot, whose content is restored, used and saved
            common = lambda other: next((i for i, (a, b) in enumerate(zip(hashes, other)) if a != b), min(len(hashes), len(other)))
            best = max(self.files, key=common, default=None)
            if best is not None and common(best) > 0:
                self.read += json.loads(self.client.send("POST", "/slots/0?action=restore", {"filename": self.files[best]}).read())["n_read"]
            waited = 1e3 * (time.monotonic() - begin)
            first, events = self.client.first_token("/completion", {"prompt": tokens, "n_predict": self.args.output, "ignore_eos": True,
                                                                    "temperature": 0, "cache_prompt": True, "id_slot": 0})
            name = f"{len(self.files)}.bin"
            self.written += json.loads(self.client.send("POST", "/slots/0?action=save", {"filename": name}).read())["n_written"]
            self.files[tuple(hashes)] = name
        return waited + first, events[-1]["timings"].get("cache_n", 0)

    def stop(self):
        self.process.terminate()
        self.process.wait(120)


def replay(server, requests, args):
    results, threads = [], []
    server.start()
    offset = time.monotonic()
    for i, (at, tokens, hashes) in enumerate(requests):
        if args.restart and i > 0 and i % args.restart == 0:
            for thread in threads:
                thread.join()
            pause = time.monotonic()
            server.stop()
            server.start()
            offset += time.monotonic() - pause
        time.sleep(max(0, offset + at / 1e3 / args.speed - time.monotonic()))
        threads.append(threading.Thread(target=lambda tokens=tokens, hashes=hashes: results.append((len(tokens), *server.ask(tokens, hashes)))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    server.stop()
    if len(results) != len(requests):
        sys.exit(f"{server.name}: {len(requests) - len(results)} requests have failed")
    times = sorted(first for _, first, _ in results)
    hit = sum(cached for *_, cached in results) / sum(n for n, *_ in results)
    print(f"| {server.name} | {100 * hit:.1f} | {statistics.median(times):.0f} | {times[len(times) * 9 // 10]:.0f} | {statistics.mean(times):.0f} "
          f"| {server.written / 2**20:.0f} | {server.read / 2**20:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--scale", type=int, default=32)
    parser.add_argument("--speed", type=float, default=4)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--output", type=int, default=8)
    parser.add_argument("--cache", default="64M")
    parser.add_argument("--memory", default="1G", help="size of a store in memory")
    parser.add_argument("--store", default="16G", help="size of a store on a disk")
    parser.add_argument("--restart", type=int, default=100)
    parser.add_argument("--longest", type=int, default=4000)
    parser.add_argument("--ids", type=int, default=20000, help="tokens of the vocabulary that are used")
    parser.add_argument("--llama-server")
    args = parser.parse_args()
    requests, left_out = read_trace(args.trace, args.requests, args.scale, args.longest, args.ids)
    seen, known, total = set(), 0, 0
    for _, _, hashes in requests:
        known += next((i for i, each in enumerate(hashes) if each not in seen), len(hashes))
        total += len(hashes)
        seen.update(hashes)
    print(f"{len(requests)} requests in {requests[-1][0] / 1e3 / args.speed:.0f} s, {left_out} longer ones left out; "
          f"{statistics.mean(len(tokens) for _, tokens, _ in requests):.0f} tokens each; an unbounded cache would have {100 * known / total:.1f} %\n")
    print("| | hits, % of tokens | first token, median ms | 9 of 10 | mean | written, MiB | read, MiB |\n|---|---|---|---|---|---|---|")
    folder = tempfile.mkdtemp(prefix="replay")
    try:
        servers = [Penstock(args, "without a store"), Penstock(args, "memory", f"memory:{args.memory}"),
                   Penstock(args, "disk", f"{folder}/disk:{args.store}"),
                   Penstock(args, "memory and disk", f"memory:{args.memory},{folder}/both:{args.store}")]
        if args.llama_server:
            servers.append(LlamaCpp(args, folder))
        for server in servers:
            replay(server, requests, args)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
