#!/usr/bin/env python3
"""Batches: how fast they are, and what they cost those who wait. Only loopback; the client runs on the same machine.

  bench/batches.py throughput [--model FILE] [--lines 400] [--prompt 64] [--tokens 64] [--rounds 5]
      run-batch and /v1/batches beside `penstock bench --serve` with the same lengths and as many at once; output tokens/s,
      medians of alternating rounds
  bench/batches.py beside [--model FILE] [--rate 8] [--seconds 30] [--tokens 48] [--rounds 3]
      latencies of requests that come by chance, without and with a batch that runs all the time

PENSTOCK names the program.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))
os.environ.setdefault("PENSTOCK", str(SOURCE / "build" / "release" / "penstock"))
from live_server import PROGRAM, Server  # noqa: E402


def engine_flags(args):
    return ["--max-num-seqs", str(args.sequences), "--kv-cache-memory", args.kv_cache, "--max-model-len", str(args.context)]


def upload(server, text):
    body = ('--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: form-data; name="file"; '
            'filename="in.jsonl"\r\n\r\n' + text + "\r\n--xyz--\r\n")
    return server.request("POST", "/v1/files", body.encode(), {"Content-Type": "multipart/form-data; boundary=xyz"}).json()["id"]


def begin_batch(server, text):
    body = {"input_file_id": upload(server, text), "endpoint": "/v1/completions", "completion_window": "24h"}
    return server.post("/v1/batches", body).json()["id"]


def batch_text(lengths, vocabulary):
    """Prompts of random tokens, as `bench` has them."""
    draw = random.Random(1)
    lines = []
    for i, (prompt, tokens) in enumerate(lengths):
        body = {"prompt": [draw.randrange(10, vocabulary) for _ in range(prompt)], "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        lines.append(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}))
    return "\n".join(lines) + "\n"


def of_bench(args, trace):
    done = subprocess.run([PROGRAM, "bench", "-m", args.model, "--serve", "--trace", str(trace), "--requests", str(args.lines), "--concurrency",
                           str(args.sequences + args.sequences // 4 + 1), "--no-roofline", "--json", *engine_flags(args)],
                          capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    report = report.get("serve", report)
    return report["output_tokens"] / report["seconds"]


def of_run_batch(args, source, folder):
    output = folder / "out.jsonl"
    output.unlink(missing_ok=True)
    done = subprocess.run([PROGRAM, "run-batch", str(source), str(output), "-m", args.model, *engine_flags(args)], capture_output=True, text=True, check=True)
    return float(re.search(r"([\d.]+) tokens/s", done.stderr)[1])


def of_server(args, text, n_tokens, folder):
    with tempfile.TemporaryDirectory(dir=folder) as data, Server("--data-dir", data, "--no-log-requests", *engine_flags(args), model=args.model) as server:
        begin = time.monotonic()
        batch = begin_batch(server, text)
        while server.get(f"/v1/batches/{batch}").json()["status"] != "completed":
            time.sleep(0.1)  # the engine computes on the CPUs that whoever asks uses: a hundred questions a second cost a tenth of them
        return n_tokens / (time.monotonic() - begin)


def throughput(args):
    draw = random.Random(2)
    lengths = [(draw.randint(args.prompt // 2, args.prompt * 3 // 2), draw.randint(args.tokens // 2, args.tokens * 3 // 2)) for _ in range(args.lines)]
    n_tokens = sum(tokens for _, tokens in lengths)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trace, source = folder / "trace.jsonl", folder / "in.jsonl"
        trace.write_text("".join(json.dumps({"timestamp": 0, "input_length": prompt, "output_length": tokens}) + "\n" for prompt, tokens in lengths))
        text = batch_text(lengths, args.vocabulary)
        source.write_text(text)
        ways = [("bench", lambda: of_bench(args, trace)), ("run-batch", lambda: of_run_batch(args, source, folder)),
                ("/v1/batches", lambda: of_server(args, text, n_tokens, folder))]
        rates = {what: [] for what, _ in ways}
        for i in range(args.rounds):
            for what, measure in ways[i % 3:] + ways[:i % 3]:  # none is always the first
                rates[what].append(measure())
    base = statistics.median(rates["bench"])
    for what, all_of_it in rates.items():
        middle = statistics.median(all_of_it)
        print(f"{what:12} {middle:9.0f} tokens/s ({min(all_of_it):.0f} to {max(all_of_it):.0f}), {middle / base:.3f} of bench")


async def one_request(port, body, begin, times):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await reader.readuntil(b"data: ")
    first = time.monotonic() - begin
    await reader.read()
    writer.close()
    times.append((first, time.monotonic() - begin))


async def traffic(port, args, seed):
    draw = random.Random(seed)
    times, tasks, due = [], [], time.monotonic()
    end = due + args.seconds
    while True:
        due += draw.expovariate(args.rate)
        if due > end:
            break
        await asyncio.sleep(max(0, due - time.monotonic()))
        prompt = "Once upon a time there was a " + " ".join(draw.choice(["dog", "cat", "boat", "tree", "girl"]) for _ in range(20))
        body = json.dumps({"prompt": prompt, "max_tokens": args.tokens, "ignore_eos": True, "stream": True}).encode()
        tasks.append(asyncio.create_task(one_request(port, body, time.monotonic(), times)))
    await asyncio.gather(*tasks)
    return times


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def beside(args):
    seen = {False: [], True: []}
    lines = batch_text([(args.prompt, args.line_tokens)] * args.lines, args.vocabulary)
    done = []
    for i in range(args.rounds):
        for with_batch in (False, True):
            with tempfile.TemporaryDirectory() as data, Server("--data-dir", data, "--no-log-requests", *engine_flags(args), model=args.model) as server:
                server.generate()
                if with_batch:
                    batch = begin_batch(server, lines)
                    time.sleep(1)
                seen[with_batch] += asyncio.run(traffic(server.port, args, i))
                if with_batch:
                    state = server.get(f"/v1/batches/{batch}").json()
                    done.append(state["request_counts"]["completed"])
                    assert state["status"] == "in_progress", "the batch was too short: more --lines"
    for name, field in (("first token", 0), ("whole reply", 1)):
        columns = {on: [one[field] * 1000 for one in seen[on]] for on in seen}
        for share in (0.5, 0.9, 0.99):
            alone, both = (quantile(columns[on], share) for on in (False, True))
            print(f"{name:12} p{100 * share:.0f}: {alone:8.1f} ms alone, {both:8.1f} ms beside a batch, {both / alone:.2f} times ({len(columns[True])} requests)")
    print(f"lines of the batch meanwhile: {done}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["throughput", "beside"])
    parser.add_argument("--model", default=str(SOURCE / "models" / "penstock-stories-15m-q8_0.gguf"))
    parser.add_argument("--vocabulary", type=int, default=1000, help="token ids of prompts are below it")
    parser.add_argument("--lines", type=int, default=0)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of a reply, in the mean")
    parser.add_argument("--line-tokens", type=int, default=200, help="beside: of a line of the batch")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--rate", type=float, default=8, help="requests per second")
    parser.add_argument("--seconds", type=float, default=15, help="of a round")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--kv-cache", default="256M")
    parser.add_argument("--context", type=int, default=512)
    args = parser.parse_args()
    args.lines = args.lines or (400 if args.what == "throughput" else 4000)
    args.rounds = args.rounds or (5 if args.what == "throughput" else 3)
    (throughput if args.what == "throughput" else beside)(args)


if __name__ == "__main__":
    main()
