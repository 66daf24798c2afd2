#!/usr/bin/env python3
"""Decoding of one sequence by Penstock and by llama.cpp in turns of a few tokens, on the same GGUF file.

    peer/bin/python bench/peers/decode_turns.py model.gguf --threads 2 --rounds 12

On a shared machine what can be read from memory changes by two within a minute, and a run of some seconds says in which of
them it fell. Here both models stay loaded and take turns of a second, so that both have the same minutes: the ratio is the
median over the rounds of the ratio of the turns' median times per token. Penstock is `penstock serve`, whose idle threads
park; between turns the peer's are given the time to do so. Prints one JSON object. Run with the peer's interpreter.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time

import llama_cpp.llama_cpp as ll

from llama_cpp_peer import Session

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAUSE = 0.26  # seconds; OpenMP's threads spin for 0.2 after their last work
PROMPT = 4


class Penstock:
    def __init__(self, args):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [args.penstock, "serve", "-m", args.model, "-t", str(args.threads), "--port", str(self.port), "-c", "512"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{args.penstock} serve: exit code {self.process.returncode}")
            try:
                if self.ask({"prompt": [1, 2], "max_tokens": 1}).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{args.model}: not ready after a minute")

    def ask(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        return connection.getresponse()

    def decode(self, tokens, vocabulary):
        response = self.ask({"prompt": [random.randrange(vocabulary) for _ in range(PROMPT)], "max_tokens": tokens + 1,
                             "temperature": 0, "ignore_eos": True, "stream": True})
        if response.status != 200:
            sys.exit(f"serve: status {response.status}, {response.read()[:200]!r}")
        times = []
        while line := response.readline():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
        return [after - before for before, after in zip(times, times[1:])][:tokens]

    def close(self):
        self.process.terminate()
        self.process.wait()


class LlamaCpp:
    def __init__(self, args):
        params = ll.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(os.fsencode(args.model), params)
        if not self.model:
            sys.exit(f"{args.model}: llama.cpp cannot load it")
        self.vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.session = Session(self.model, args, PROMPT + args.tokens + 1, 1)
        self.session.prefill(list(range(1, PROMPT + 1)))

    def decode(self, tokens):
        self.session.cut(0, PROMPT)
        times = []
        for i in range(tokens):
            start = time.perf_counter()
            self.session.run([(random.randrange(self.vocabulary), PROMPT + i, 0, True)])
            times.append(time.perf_counter() - start)
        return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--penstock", default=str(ROOT / "build/release/penstock"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=16, help="of a turn")
    parser.add_argument("--flash-attention", type=int, default=1)
    args = parser.parse_args()
    silence = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silence, None)
    ll.llama_backend_init()
    theirs = LlamaCpp(args)
    ours = Penstock(args)
    try:
        rounds = []
        for i in range(args.rounds + 1):  # the first does not count
            turns = []
            for decode in (lambda: ours.decode(args.tokens, theirs.vocabulary), lambda: theirs.decode(args.tokens)):
                turns.append(statistics.median(decode()))
                time.sleep(PAUSE)
            if i > 0:
                rounds.append(turns)
    finally:
        ours.close()
    ratios = sorted(peer / own for own, peer in rounds)
    best = [min(turn[side] for turn in rounds) for side in (0, 1)]
    middle = [statistics.median(turn[side] for turn in rounds) for side in (0, 1)]
    print(json.dumps({
        "rounds": len(rounds), "tokens": args.tokens,
        "penstock": {"tokens_per_second": 1 / middle[0], "best_turn": 1 / best[0]},
        "llama_cpp": {"tokens_per_second": 1 / middle[1], "best_turn": 1 / best[1]},
        "times_as_good": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}, indent=1))


if __name__ == "__main__":
    main()
