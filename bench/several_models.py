#!/usr/bin/env python3
"""Several models in one server: tokens per second of each alone, and of all at the same time, by turns.

Usage: PENSTOCK=build/release/penstock bench/several_models.py NAME=MODEL[:WEIGHT] NAME=MODEL[:WEIGHT] ... [--seconds 5] [--rounds 3]
       [--streams 1]   (nothing else running; the last line tells which share of its speed alone each kept)
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

N_TOKENS = 16  # of a request: short, so that few are cut at the end


def load(port, names, seconds, streams):
    """{name: tokens per second} of clients that always wait for something."""
    counts, stop = {name: 0 for name in names}, threading.Event()

    def client(name):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        body = json.dumps({"model": name, "prompt": "Once upon a time", "max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 0})
        while not stop.is_set():
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            data = reply.read()
            if reply.status != 200:
                sys.exit(f"{name}: {reply.status} {data[:300]}")
            if not stop.is_set():
                counts[name] += N_TOKENS

    threads = [threading.Thread(target=client, args=(name,)) for name in names for _ in range(streams)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    elapsed = time.monotonic() - start
    for thread in threads:
        thread.join()
    return {name: count / elapsed for name, count in counts.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=1)
    args = parser.parse_args()
    sections = []
    for text in args.models:
        name, path, weight = re.fullmatch(r"([^=]+)=(.*?)(?::([\d.]+))?", text).groups()
        sections.append({"name": name, "model": path, **({"thread_weight": float(weight)} if weight else {})})
    names = [section["name"] for section in sections]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "models.json"
        config.write_text(json.dumps({"models": sections}))
        server = subprocess.Popen([os.environ.get("PENSTOCK", "penstock"), "serve", "--models-config", str(config), "--port", "0",
                                   "--no-log-requests"], stderr=subprocess.PIPE, text=True)
        try:
            for line in server.stderr:
                if found := re.search(r"serving \S+ at http://[\d.]+:(\d+)", line):
                    break
            else:
                sys.exit("the server did not start")
            port = int(found[1])
            alone, together = {name: [] for name in names}, {name: [] for name in names}
            for _ in range(args.rounds):
                for name in names:
                    alone[name].append(load(port, [name], args.seconds, args.streams)[name])
                for name, rate in load(port, names, args.seconds, args.streams).items():
                    together[name].append(rate)
        finally:
            server.terminate()
            server.wait()
    kept = {}
    for section in sections:
        name = section["name"]
        one, all_ = statistics.median(alone[name]), statistics.median(together[name])
        kept[name] = all_ / one
        print(f"{name}: weight {section.get('thread_weight', 1):g}, alone {one:,.0f} tokens/s, with the others {all_:,.0f}")
    print("kept: " + ", ".join(f"{name} {share:.2f}" for name, share in kept.items()) + f"; together {sum(kept.values()):.2f}")


if __name__ == "__main__":
    main()
