#!/usr/bin/env python3
"""The cache of replies in a server: what a hit takes, and what looking for one costs those who find none. Only loopback; the client
runs on the same machine.

  bench/reply_cache.py hits [--requests 500]
      chats whose reply is kept, one after the other on one connection: of equal requests, and of questions that mean the same, each
      asked for the first time, beside the time that /v1/embeddings takes for such a question
  bench/reply_cache.py misses [--rounds 15] [--requests 150] [--at-once 16]
      output tokens/s of chats of which none was asked before: without a cache, with one of equal requests, and with one by meaning;
      three servers by turns, medians of each round's ratios

PENSTOCK names the program.
"""
import argparse
import asyncio
import http.client
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))
os.environ.setdefault("PENSTOCK", str(SOURCE / "build" / "release" / "penstock"))
from live_server import LARGER_MODEL, SOURCE, Server  # noqa: E402

EXACT = ["--reply-cache", "256MiB"]
MEANING = [*EXACT, "--reply-cache-by-meaning", "vectors"]
THINGS = ["river", "castle", "garden", "mountain", "window", "letter", "market", "bridge", "forest", "kitchen", "school", "winter"]


def server_with(folder, flags):
    config = pathlib.Path(folder) / "models.json"
    config.write_text(json.dumps({"models": [
        {"name": "chat", "model": str(LARGER_MODEL), "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"},
        {"name": "vectors", "model": str(SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"), "runner": "pooling"}]}))
    return Server("--models-config", config, "--no-log-requests", "--max-num-seqs", 16, "--kv-cache-memory", "256M", *flags, model=None)


def chat(text, n_tokens):
    return json.dumps({"model": "chat", "messages": [{"role": "user", "content": text}], "max_tokens": n_tokens, "temperature": 0,
                       "ignore_eos": True}).encode()


def question(i):
    """Numbers differ, so that none has the meaning of another."""
    return f"Tell me about the {THINGS[i % 12]} and the {THINGS[i // 12 % 12]} near house number {i}"


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.connect()

    def timed(self, path, body):
        """(milliseconds, Cache-Status)"""
        start = time.perf_counter()
        self.connection.request("POST", path, body, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        reply.read()
        assert reply.status == 200, reply.status
        return (time.perf_counter() - start) * 1000, reply.headers.get("Cache-Status", "")


def tell(what, times):
    times = sorted(times)
    print(f"{what:44} p50 {times[len(times) // 2]:6.2f} ms   p99 {times[int(0.99 * (len(times) - 1))]:6.2f} ms   ({len(times)})")


def hits(args):
    with tempfile.TemporaryDirectory() as folder, server_with(folder, MEANING) as server:
        client = Client(server.port)
        for i in range(args.requests):
            client.timed("/v1/chat/completions", chat(question(i), 16))
        exact, meaning, vectors, alone = [], [], [], []
        for i in range(args.requests):
            took, said = client.timed("/v1/chat/completions", chat(question(i), 16))
            assert "penstock-exact; hit" in said, said
            exact.append(took)
            took, said = client.timed("/v1/chat/completions", chat(question(i) + "!", 16))
            if "penstock-meaning; hit" in said:
                meaning.append(took)
                vectors.append(client.timed("/v1/embeddings", json.dumps({"model": "vectors", "input": question(i) + "?"}).encode())[0])
            alone.append(client.timed("/tokenize", json.dumps({"model": "chat", "prompt": question(i)}).encode())[0])
    tell("an equal request", exact)
    tell("a question that means the same", meaning)
    tell("/v1/embeddings of such a question", vectors)
    tell("/tokenize of such a question", alone)


async def ask_all(port, bodies, at_once):
    async def worker():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while bodies:
            body = bodies.pop()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                         % len(body) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            assert b"; hit" not in head, head
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(length)
        writer.close()
    await asyncio.gather(*(worker() for _ in range(at_once)))


def misses(args):
    kinds = {"without": [], "equal requests": EXACT, "by meaning": MEANING}
    rates = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        servers = {}
        try:
            for kind, flags in kinds.items():
                servers[kind] = server_with(folder, flags)
            for i in range(args.rounds + 1):
                for kind in list(kinds)[i % 3:] + list(kinds)[:i % 3]:
                    bodies = [chat(question(i * args.requests + n), args.tokens) for n in range(args.requests)]
                    start = time.monotonic()
                    asyncio.run(ask_all(servers[kind].port, bodies, args.at_once))
                    if i > 0:
                        rates[kind].append(args.requests * args.tokens / (time.monotonic() - start))
        finally:
            for server in servers.values():
                server.__exit__(None, None, None)
    for kind, all_of_it in rates.items():
        ratio = statistics.median(one / base for one, base in zip(all_of_it, rates["without"]))
        print(f"{kind:16} {statistics.median(all_of_it):8.0f} tokens/s ({min(all_of_it):.0f} to {max(all_of_it):.0f}), {ratio:.3f} of without")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["hits", "misses"])
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=48, help="of a reply")
    parser.add_argument("--at-once", type=int, default=16)
    args = parser.parse_args()
    args.requests = args.requests or (500 if args.what == "hits" else 150)
    (hits if args.what == "hits" else misses)(args)


if __name__ == "__main__":
    main()
