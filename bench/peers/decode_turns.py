#!/usr/bin/env python3
"""Decoding of one sequence by Penstock and by llama.cpp or ik_llama.cpp in turns of a few tokens, on the same GGUF file.

    peer/bin/python bench/peers/decode_turns.py model.gguf --threads 2 --rounds 12
    bench/peers/decode_turns.py model.gguf --ik-folder ik/bin --threads 2 --rounds 12

On a shared machine what can be read from memory changes by two within a minute, and a run of some seconds says in which of
them it fell. Here both models stay loaded and take turns of a second, so that both have the same minutes: the ratio is the
median over the rounds of the ratio of the turns' median times per token. Penstock is `penstock serve`, ik_llama.cpp its
`llama-server`, both asked by streaming requests; llama.cpp runs in this process, whose interpreter is the peer's. Idle threads
park between turns. Prints one JSON object.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAUSE = 0.26  # seconds; OpenMP's threads spin for 0.2 after their last work
PROMPT = 4
SMALL_VOCABULARY = 256  # tokens are drawn of these, which every model has


class Served:
    """A server and the moments at which it streams tokens. Subclasses name its command, its route and its request."""

    def __init__(self, args):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [str(part) for part in self.command(args)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{' '.join(command)}: exit code {self.process.returncode}")
            try:
                if self.ask([1, 2], 1).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{args.model}: not ready after a minute")

    def ask(self, prompt, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", self.route, json.dumps({**self.request(prompt, tokens), "temperature": 0, "stream": True}),
                           {"content-type": "application/json"})
        return connection.getresponse()

    def decode(self, tokens):
        """Seconds between one token and the next."""
        response = self.ask([random.randrange(SMALL_VOCABULARY) for _ in range(PROMPT)], tokens + 1)
        if response.status != 200:
            sys.exit(f"{self.route}: status {response.status}, {response.read()[:200]!r}")
        times = []
        while line := response.readline():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
        return [after - before for before, after in zip(times, times[1:])][:tokens]

    def close(self):
        self.process.terminate()
        self.process.wait()


class Penstock(Served):
    route = "/v1/completions"

    def command(self, args):
        return [args.penstock, "serve", "-m", args.model, "-t", args.threads, "--port", self.port, "-c", "512"]

    def request(self, prompt, tokens):
        return {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}


class Ik(Served):
    name, route = "ik_llama.cpp", "/completion"

    def command(self, args):
        repack = ["-rtr"] if args.repack else []
        return [args.ik_folder / "llama-server", "-m", args.model, "-t", args.threads, "--port", self.port, "-c", "512", "-fa", 1, *repack]

    def request(self, prompt, tokens):
        return {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": False}


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, args):
        import llama_cpp.llama_cpp as ll  # of the peer's interpreter, which only this peer needs
        from llama_cpp_peer import Session

        silence = ll.llama_log_callback(lambda level, text, data: None)
        ll.llama_log_set(silence, None)
        ll.llama_backend_init()
        self.silence = silence  # called as long as the library lives
        params = ll.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(os.fsencode(args.model), params)
        if not self.model:
            sys.exit(f"{args.model}: llama.cpp cannot load it")
        self.session = Session(self.model, args, PROMPT + args.tokens + 1, 1)
        self.session.prefill(list(range(1, PROMPT + 1)))

    def decode(self, tokens):
        self.session.cut(0, PROMPT)
        times = []
        for i in range(tokens):
            start = time.perf_counter()
            self.session.run([(random.randrange(SMALL_VOCABULARY), PROMPT + i, 0, True)])
            times.append(time.perf_counter() - start)
        return times

    def close(self):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--penstock", default=str(ROOT / "build/release/penstock"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=16, help="of a turn")
    parser.add_argument("--flash-attention", type=int, default=1)
    parser.add_argument("--ik-folder", type=pathlib.Path, help="the folder of ik_llama.cpp's llama-server, which is then the peer")
    parser.add_argument("--repack", action="store_true", help="ik_llama.cpp repacks weights at its start")
    args = parser.parse_args()
    theirs = Ik(args) if args.ik_folder else LlamaCpp(args)
    ours = Penstock(args)
    try:
        rounds = []
        for i in range(args.rounds + 1):  # the first does not count
            turn = {}
            for side in (ours, theirs) if i % 2 == 0 else (theirs, ours):
                turn[side] = statistics.median(side.decode(args.tokens))
                time.sleep(PAUSE)
            if i > 0:
                rounds.append((turn[ours], turn[theirs]))
    finally:
        ours.close()
        theirs.close()
    ratios = sorted(peer / own for own, peer in rounds)
    best = [min(turn[side] for turn in rounds) for side in (0, 1)]
    middle = [statistics.median(turn[side] for turn in rounds) for side in (0, 1)]
    print(json.dumps({
        "rounds": len(rounds), "tokens": args.tokens,
        "penstock": {"tokens_per_second": 1 / middle[0], "best_turn": 1 / best[0]},
        theirs.name: {"tokens_per_second": 1 / middle[1], "best_turn": 1 / best[1]},
        "times_as_good": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}, indent=1))


if __name__ == "__main__":
    main()
