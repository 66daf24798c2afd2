#!/usr/bin/env python3
"""Time to first token of long prompts, computed by one server and by two: a prefill and a decode server that share a Redis, the decode
server asked when the prompt is stored ("behind"), or at once, so that it reads the blocks while they are made ("beside").

Usage: PENSTOCK=build/release/penstock bench/split.py MODEL [--tokens 4000] [--rounds 5] [--wait 10] [--ids 300:500] [--prefill-flags "..."]
       [--flags "..."]                                                                                   (nothing else running)

Every round asks all three ways, one after the other, with a prompt of its own each, of token ids within --ids. A Redis of Debian's
redis-tools runs beside. The servers have one thread each, so that the three share a machine of two cores.
"""
import argparse
import http.client
import json
import os
import random
import re
import shlex
import socket
import statistics
import subprocess
import threading
import time

import served


class Server:
    def __init__(self, *flags):
        self.process, self.port = served.start([os.environ["PENSTOCK"], "serve", "--host", "127.0.0.1", "--port", "0", *flags])

    def send(self, body, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {reply.read()[:300]}")
        return reply

    def first_token(self, prompt, headers=None):
        """Asks for a stream and returns when its first text is there."""
        reply = self.send({"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True}, headers)
        while not reply.readline().startswith(b"data: "):
            pass
        reached = time.monotonic()
        reply.read()
        return reached

    def read_tokens(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return float(re.search(r"^penstock:prompt_tokens_from_store_total\S* (\S+)$", text, re.M)[1])


def redis():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                               executable="/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    return process, f"redis://127.0.0.1:{port}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wait", type=float, default=10)
    parser.add_argument("--ids", default="300:500")
    parser.add_argument("--flags", default="", help="of all servers")
    parser.add_argument("--prefill-flags", default="")
    arguments = parser.parse_args()
    first, end = map(int, arguments.ids.split(":"))
    store, url = redis()
    flags = ["-m", arguments.model, "--threads", "1", *shlex.split(arguments.flags)]
    servers = [Server(*flags), Server(*flags, "--kv-store", url, "--role", "prefill", *shlex.split(arguments.prefill_flags)),
               Server(*flags, "--kv-store", url, "--role", "decode")]
    alone, prefill, decode = servers

    def prompt():
        return [random.randrange(first, end) for _ in range(arguments.tokens)]

    def behind(tokens):
        prefill.send({"prompt": tokens, "max_tokens": 2}).read()
        return decode.first_token(tokens)

    def beside(tokens):
        maker = threading.Thread(target=lambda: prefill.send({"prompt": tokens, "max_tokens": 2}).read())
        maker.start()
        reached = decode.first_token(tokens, {"x-prefill-wait": str(arguments.wait)})
        maker.join()
        return reached

    ways = {"one server": alone.first_token, "behind": behind, "beside": beside}
    seconds = {name: [] for name in ways}
    try:
        for one in servers:  # each has computed a prompt, and knows how long that takes
            one.send({"prompt": prompt(), "max_tokens": 2}).read()
        for i in range(arguments.rounds):
            for name in list(ways)[i % 3:] + list(ways)[:i % 3]:
                tokens, before = prompt(), decode.read_tokens()
                begun = time.monotonic()
                seconds[name].append(ways[name](tokens) - begun)
                print(f"round {i + 1} {name}: {seconds[name][-1]:.3f} s, {decode.read_tokens() - before:.0f} tokens read", flush=True)
        for name, all_of in seconds.items():
            print(f"{name}: median {statistics.median(all_of):.3f} s ({min(all_of):.3f} to {max(all_of):.3f})")
    finally:
        for one in servers:
            one.process.kill()
        store.kill()


if __name__ == "__main__":
    main()
