#!/usr/bin/env python3
"""A load through the HTTP server on a visit to a GPU (scripts/visit_cuda): continuous batching, static batching, a prefix that all share.
One JSON object on the standard output.

    scripts/visit_load.py PENSTOCK MODEL BACKEND [--requests 128] [--places 64]

Prompts are random tokens of 32 to 512, outputs of 16 to 256 tokens, drawn once, all at once over as many connections; the shared prefix has 1,000
tokens, prompts 50 more.
"""
import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


async def one(port, request, seconds):
    body = json.dumps({"prompt": request[0], "max_tokens": request[1], "ignore_eos": True, "temperature": 0, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(head.decode() + (await reader.read()).decode()[:500])
    first, usage = None, None
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        first = first or time.monotonic()
        usage = json.loads(line[6:]).get("usage") or usage
    writer.close()
    if usage is None or usage["completion_tokens"] != request[1]:
        raise RuntimeError(f"expected {request[1]} tokens, got {usage}")
    seconds.append((first - begin, time.monotonic() - begin))


async def all_of(port, requests):
    seconds = []
    begin = time.monotonic()
    await asyncio.gather(*(one(port, request, seconds) for request in requests))
    took = time.monotonic() - begin
    firsts = sorted(s[0] for s in seconds)
    return {"requests": len(requests), "prompt_tokens": sum(len(r[0]) for r in requests), "output_tokens": sum(r[1] for r in requests),
            "seconds": took, "output_tokens_per_s": sum(r[1] for r in requests) / took,
            "time_to_first_token_p50_s": statistics.median(firsts), "time_to_first_token_p99_s": firsts[int(0.99 * (len(firsts) - 1))]}


def measure(args, requests, *flags, warm=True):
    port = free_port()
    command = [args.penstock, "serve", "-m", args.model, "--backend", args.backend, "--port", str(port), "--max-num-seqs", str(args.places),
               "--max-model-len", "2048", "--no-log-requests", *flags]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(600):
                try:
                    if urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).status == 200:
                        break
                except OSError:
                    pass
                if server.poll() is not None:
                    break
                time.sleep(0.1)
            if server.poll() is not None:
                log.seek(0)
                sys.exit(f"the server ended: {log.read()[-1500:]}")
            if warm:  # recordings are made while other tokens are computed
                asyncio.run(all_of(port, [([7] * 20, 12)] * args.places))
            return asyncio.run(all_of(port, requests))
        finally:
            server.terminate()
            server.wait(20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock")
    parser.add_argument("model")
    parser.add_argument("backend")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--places", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=100, help="tokens of prompts are below it")
    args = parser.parse_args()
    draw = random.Random(5)

    def prompt(n):
        return [draw.randrange(3, args.vocabulary) for _ in range(n)]

    mixed = [(prompt(draw.randint(32, 512)), draw.randint(16, 256)) for _ in range(args.requests)]
    prefix = prompt(1000)
    shared = [(prefix + prompt(50), 32) for _ in range(args.requests)]
    print(json.dumps({"load": {
        "continuous": measure(args, mixed),
        "static": measure(args, mixed, "--policy", "static", "--max-batch-size", str(args.places)),
        "shared prefix": measure(args, shared),
        "shared prefix, not cached": measure(args, shared, "--no-enable-prefix-caching"),
    }}))


if __name__ == "__main__":
    main()
