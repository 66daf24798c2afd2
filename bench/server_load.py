#!/usr/bin/env python3
"""How the server carries many connections. Only loopback; the client runs on the same machine.

  bench/server_load.py streams [--connections 1000] [--tokens 64] [--model FILE]   all at once, none dropped; CPU by thread
  bench/server_load.py idle    [--connections 10000]                               resident memory per idle connection

PENSTOCK names the program. The CPU share of the server is that of the threads named penstock-io and penstock-log (sockets,
HTTP, JSON, text) in the whole process; the time in which the engine thread hands out events is shown beside it.
"""
import argparse
import asyncio
import json
import os
import pathlib
import resource
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
os.environ.setdefault("PENSTOCK", str(pathlib.Path(__file__).resolve().parents[1] / "build" / "release" / "penstock"))
from live_server import Server  # noqa: E402

MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"


def raise_file_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def cpu_seconds(pid):
    """{thread name: user + system seconds}"""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        text = (task / "stat").read_text()
        name, fields = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        times[name] = times.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return times


async def one_stream(port, body, started):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    data = await reader.readuntil(b"\r\n\r\n")
    started.append(time.monotonic())
    data += await reader.read()
    writer.close()
    return data.startswith(b"HTTP/1.1 200") and b"data: [DONE]" in data and data.endswith(b"0\r\n\r\n")


async def all_streams(port, args, started):
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": args.tokens, "ignore_eos": True, "stream": True}).encode()
    return await asyncio.gather(*(one_stream(port, body, started) for _ in range(args.connections)), return_exceptions=True)


def streams(args):
    with Server("--max-num-seqs", args.sequences, "--max-model-len", "256", "--kv-cache-memory", args.kv_cache, "--no-log-requests",
                "--max-queued-requests", args.connections, model=args.model) as server:
        server.generate()
        before, counted, start, started = cpu_seconds(server.process.pid), server.metrics(), time.monotonic(), []
        results = asyncio.run(all_streams(server.port, args, started))
        seconds, after, final = time.monotonic() - start, cpu_seconds(server.process.pid), server.metrics()
        used = {name: after[name] - before.get(name, 0) for name in after}
        total = sum(used.values())
        served = sum(value for name, value in used.items() if name in ("penstock-io", "penstock-log"))
        gain = lambda name: sum(final[k] - counted.get(k, 0) for k in final if k.split("{")[0] == "penstock:" + name)  # noqa: E731
        delivery = gain("step_seconds_total") - gain("schedule_seconds_total") - gain("forward_seconds_total") - gain("sample_seconds_total")
        complete = sum(result is True for result in results)
        print(f"streams: {complete} of {args.connections} complete, all open {max(started) - start:.2f} s after the first began")
        print(f"{gain('generation_tokens_total'):.0f} tokens in {seconds:.1f} s; mean batch "
              f"{gain('iteration_num_seqs_sum') / max(gain('iteration_num_seqs_count'), 1):.0f} sequences")
        print("CPU seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in sorted(used.items(), key=lambda kv: -kv[1])))
        print(f"server's share of CPU: {100 * served / total:.1f} %; wall time in which the engine thread hands out events: "
              f"{100 * delivery / seconds:.1f} % of one core; {1e6 * served / gain('generation_tokens_total'):.1f} us per token")
        assert complete == args.connections, [r for r in results if r is not True][:3]


def idle(args):
    raise_file_limit()
    import socket
    with Server("--idle-timeout", "600", model=args.model) as server:
        server.generate()
        before, socks, start = server.rss(), [], time.monotonic()
        for i in range(args.connections):
            socks.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        while server.metric("penstock:http_connections") < args.connections:
            time.sleep(0.05)
        seconds, fresh = time.monotonic() - start, server.rss()
        for sock in socks:  # one request each, then idle again
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        for sock in socks:
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        used = server.rss()
        print(f"{args.connections} idle connections, opened in {seconds:.1f} s: {fresh / 2**20:.1f} MiB resident, "
              f"{(fresh - before) / 2**20:.1f} of it for them ({(fresh - before) / args.connections:.0f} bytes each)")
        print(f"after one request on each: {used / 2**20:.1f} MiB")
        cpu, start = sum(cpu_seconds(server.process.pid).values()), time.monotonic()
        time.sleep(5)
        print(f"CPU while nothing happens: {100 * (sum(cpu_seconds(server.process.pid).values()) - cpu) / (time.monotonic() - start):.1f} %")
        assert server.generate().status == 200
        for sock in socks:
            sock.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("streams", "idle"))
    parser.add_argument("--connections", type=int)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=1024, help="--max-num-seqs of the server")
    parser.add_argument("--kv-cache", default="2G")
    parser.add_argument("--model", default=MODELS / "penstock-stories-15m-q8_0.gguf")
    args = parser.parse_args()
    args.connections = args.connections or {"streams": 1000, "idle": 10000}[args.what]
    raise_file_limit()
    {"streams": streams, "idle": idle}[args.what](args)


if __name__ == "__main__":
    main()
