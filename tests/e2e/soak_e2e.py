#!/usr/bin/env python3
"""The server at saturation, with cancels and errors mixed in: memory stays flat, every request is answered once, and the
server's counters equal what the clients saw.

SOAK_SECONDS (default 20) says for how long; the long run is SOAK_SECONDS=600 tests/e2e/soak_e2e.py with PENSTOCK set.
"""
import asyncio
import collections
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import SLOW, SLOW_KERNELS, Server, wait_for  # noqa: E402

SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))
CLIENTS = 48
GROWTH = 8 << 20  # bytes that the resident set may still grow after its first third: arenas, not leaks


class Client:
    """Sends requests one after another and counts how each ended."""

    def __init__(self, port, number, seen, end):
        self.port, self.seen, self.end, self.rng = port, seen, end, random.Random(number)

    async def run(self):
        while time.monotonic() < self.end:
            kind = self.rng.choices(("plain", "stream", "cancel", "bad", "long", "lost", "many"), (30, 30, 15, 6, 6, 6, 7))[0]
            outcome = await asyncio.wait_for(getattr(self, kind)(), 120 * SLOW)
            self.seen[outcome] += 1
            if outcome == "429":
                await asyncio.sleep(self.rng.uniform(0.05, 0.2))

    async def send(self, method, path, body):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = json.dumps(body).encode()
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), reader, writer

    async def whole(self, method, path, body):
        status, reader, writer = await self.send(method, path, body)
        text = await reader.read()
        writer.close()
        return status, text

    def body(self, **fields):
        return {"prompt": f"Story {self.rng.randrange(20)}: once upon a time", "max_tokens": self.rng.randrange(1, 60),
                "ignore_eos": True, "seed": self.rng.randrange(1000), **fields}

    def check(self, status, text, *expected):
        if status == 429:
            return "429"
        assert status in expected, (status, text[:300])
        return str(status)

    async def plain(self):
        body = self.body()
        status, text = await self.whole("POST", "/v1/generate", body)
        if status == 200:
            reply = json.loads(text)
            assert reply["tokens_generated"] == body["max_tokens"], (reply, body)
            self.seen["tokens"] += reply["tokens_generated"]
        return self.check(status, text, 200)

    async def many(self):
        body = self.body(n=3)
        status, text = await self.whole("POST", "/v1/completions", body)
        if status == 200:
            reply = json.loads(text)
            assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
            self.seen["tokens"] += reply["usage"]["completion_tokens"]
            self.seen["more sequences"] += 2
        return self.check(status, text, 200)

    async def stream(self):
        status, text = await self.whole("POST", "/v1/completions", self.body(stream=True, stream_options={"include_usage": True}))
        if status == 200:
            assert text.count(b"data: [DONE]") == 1 and text.count(b'"length"') == 1, text[-500:]
            events = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: {")]
            self.seen["tokens"] += json.loads(events[-1])["usage"]["completion_tokens"]
        return self.check(status, text, 200)

    async def cancel(self):
        status, reader, writer = await self.send("POST", "/v1/completions", self.body(stream=True, max_tokens=400))
        if status == 200:
            await reader.read(self.rng.randrange(1, 3000))
        writer.transport.abort()
        return "429" if status == 429 else "cancelled"

    async def bad(self):
        return self.check(*await self.whole("POST", "/v1/generate", self.body(temperature="hot")), 400)

    async def long(self):
        return self.check(*await self.whole("POST", "/v1/completions", self.body(prompt="word " * 5000)), 400)

    async def lost(self):
        return self.check(*await self.whole("GET", "/no/such/route", {}), 404)


async def soak(server, seen):
    start = time.monotonic()
    clients = [asyncio.create_task(Client(server.port, i, seen, start + SECONDS).run()) for i in range(CLIENTS)]
    memory = []
    while not all(client.done() for client in clients):
        await asyncio.sleep(0.5)
        memory.append((time.monotonic() - start, server.rss()))
        assert server.process.poll() is None, server.log()[-3000:]
        for client in clients:
            if client.done():
                client.result()  # its exception, if it had one
    return memory


def check_counters(server, seen):
    metrics = server.metrics()
    total = lambda name, *parts: sum(v for k, v in metrics.items()  # noqa: E731
                                     if k.split("{")[0] == name and all(part in k for part in parts))
    routes = ('path="/v1/generate"', 'path="/v1/completions"', 'path="other"')
    answered = {status: sum(total("penstock:http_requests_total", route, f'status="{status}"') for route in routes)
                for status in (0, 200, 400, 404, 429)}
    # A cancelled stream counts as left, or as answered when its last byte was out before the client left.
    expected = {status: seen[str(status)] for status in (400, 404, 429)}
    assert {status: answered[status] for status in expected} == expected, (answered, seen)
    assert answered[0] + answered[200] == seen["200"] + seen["cancelled"], (answered, seen)
    assert answered[200] >= seen["200"], (answered, seen)
    ends = {reason: total(f"penstock:request_success_{reason}_total") for reason in ("stop", "length", "abort", "error")}
    assert sum(ends.values()) == seen["200"] + seen["cancelled"] + seen["more sequences"], (ends, seen)
    assert ends["error"] == 0 and ends["stop"] == 0, ends
    assert total("penstock:admission_rejections_total") == seen["429"], seen
    assert total("penstock:generation_tokens_total") >= seen["tokens"], seen
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "http_body_bytes"):
        assert total("penstock:" + name) == 0, name
    return ends


def main():
    seen = collections.Counter()
    # Plain C++ on one core, and fewer places than clients: the queue is full on any machine.
    with Server("--max-num-seqs", "16", "--max-queued-requests", "8", "--threads", "1", "--no-log-requests", env=SLOW_KERNELS) as server:
        memory = asyncio.run(soak(server, seen))
        assert wait_for(lambda: server.metric("penstock:http_connections") <= 1), "connections stay open"
        assert wait_for(lambda: server.metric("penstock:num_requests_running") == 0), "sequences go on running"
        ends = check_counters(server, seen)
        settled = [rss for at, rss in memory if at > SECONDS / 3]
        third = len(settled) // 3 or 1
        early, late = sorted(settled[:third])[third // 2], sorted(settled[-third:])[third // 2]
        print(f"{SECONDS:.0f} s: {dict(seen)}; sequences ended: {ends}; resident {early / 2**20:.1f} MiB early, {late / 2**20:.1f} late, "
              f"{max(settled) / 2**20:.1f} at most; {server.metric('penstock:generation_tokens_total') / SECONDS:.0f} tokens/s")
        assert late - early < GROWTH, "memory grows"
        for kind in ("200", "400", "404", "cancelled", "429"):
            assert seen[kind] > 0, f"no {kind} among {seen}"
        assert server.stop() == 0, server.log()[-3000:]
        assert "Sanitizer" not in server.log(), server.log()[-5000:]


if __name__ == "__main__":
    main()
