#!/usr/bin/env python3
"""Sessions of agents through OpenAI's client: time to first token of each turn, without a store and with blocks kept in memory and on a disk.

Usage: PENSTOCK=build/release/penstock bench/agent_sessions.py MODEL [--turns 20] [--tokens 16000] [--cache 160M] [--json FILE]
       (nothing else running; a Python that has the package openai, as those of build/release/clients)

Two agents take turns. Each has a system prompt and tools of its own; a turn sends the whole conversation again, with what the tool that was
called last has said, and the reply is streamed. What a tool says is as long as lets the conversation reach `--tokens` at the last turn. The
KV cache holds one of the conversations, not both. Before turn `--restart` every server is stopped and started again, as by an update.
"""
import argparse
import json
import os
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import time

import openai
import served

TOOLS = [{"type": "function", "function": {"name": name, "description": text, "parameters": {
    "type": "object", "properties": {key: {"type": "string", "description": f"the {key}"} for key in keys}, "required": keys}}}
    for name, text, keys in (("read_file", "Reads a file of the project.", ["path"]), ("run", "Runs a command and returns what it prints.", ["command"]),
                             ("edit", "Replaces text in a file.", ["path", "old", "new"]), ("search", "Searches the project.", ["pattern"]))]
WORDS = "return value for each line of the file that was read and if not found raise error with name and path then call next function".split()


class Server:
    def __init__(self, args, store):
        self.command = [os.environ.get("PENSTOCK", "penstock"), "serve", "-m", args.model, "--port", "0", "--kv-cache-memory", args.cache,
                        "--max-model-len", str(args.tokens + 2000), "--no-log-requests", *args.flags, *(["--kv-store", store] if store else [])]

    def start(self):
        self.process, port = served.start(self.command)
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=600, max_retries=0)
        self.model = self.client.models.list().data[0].id

    def stop(self):
        served.stop(self.process)

    def turn(self, messages, n_tokens):
        """(milliseconds to the first event of the reply, its text, prompt tokens, cached ones)"""
        begin, first, text, usage = time.monotonic(), None, [], None
        for chunk in self.client.chat.completions.create(
                model=self.model, messages=messages, tools=TOOLS, tool_choice="none", temperature=0, max_tokens=n_tokens, stream=True,
                stream_options={"include_usage": True}, extra_body={"ignore_eos": True}):
            if chunk.choices and chunk.choices[0].delta.content:
                first = first or 1e3 * (time.monotonic() - begin)
                text.append(chunk.choices[0].delta.content)
            usage = chunk.usage or usage
        return first or 1e3 * (time.monotonic() - begin), "".join(text), usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens


class Agent:
    def __init__(self, seed, args):
        self.random = random.Random(seed)
        self.n_words = args.tokens // args.turns
        self.messages = [{"role": "system", "content": f"You are agent {seed}. " + self.words(600)},
                         {"role": "user", "content": f"Find out why test {seed} fails."}]

    def words(self, n):
        return " ".join(self.random.choices(WORDS, k=n))

    def go_on(self, reply):
        call = f"call_{len(self.messages)}"
        self.messages += [{"role": "assistant", "content": reply, "tool_calls": [{"id": call, "type": "function", "function": {
            "name": "read_file", "arguments": json.dumps({"path": f"src/part{len(self.messages)}.py"})}}]},
            {"role": "tool", "tool_call_id": call, "content": self.words(self.n_words)}]


def play(args, store):
    """[(prompt tokens, cached tokens, milliseconds to the first token)] of all turns"""
    server, agents, turns = Server(args, store), [Agent(seed, args) for seed in range(2)], []
    server.start()
    try:
        for turn in range(args.turns):
            if args.restart and turn == args.restart:
                server.stop()
                server.start()
            for agent in agents:
                first, text, n_prompt, n_cached = server.turn(agent.messages, args.reply)
                turns.append((n_prompt, n_cached, first))
                agent.go_on(text)
                print(f"\r{store or 'no store'}: turn {turn + 1} of {args.turns}, {n_prompt} tokens, {first:.0f} ms   ", end="", file=sys.stderr, flush=True)
    finally:
        server.stop()
    print(file=sys.stderr)
    return turns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=16000)
    parser.add_argument("--reply", type=int, default=24)
    parser.add_argument("--cache", default="160M")
    parser.add_argument("--restart", type=int, default=10)
    parser.add_argument("--json")
    parser.add_argument("--flags", type=shlex.split, default=[], help="more flags of penstock serve, in one argument")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="agents")
    try:
        stores = {"no store": None, "memory": "memory:4G", "disk": f"{folder}:16G", "memory and disk": f"memory:4G,{folder}/both:16G"}
        results = {name: play(args, store) for name, store in stores.items()}
    finally:
        shutil.rmtree(folder)
    print("| turn | prompt tokens | " + " | ".join(f"{name}, ms" for name in results) + " |\n|" + "---|" * (2 + len(results)))
    for i in range(args.turns):
        at = [2 * i, 2 * i + 1]
        times = " | ".join(f"{statistics.mean(turns[j][2] for j in at):.0f}" for turns in results.values())
        print(f"| {i + 1} | {statistics.mean(results['no store'][j][0] for j in at):.0f} | {times} |")
    sums = [sum(turn[2] for turn in turns) for turns in results.values()]
    print(f"| all | | {' | '.join(f'{each:.0f}' for each in sums)} |")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"command": sys.argv, "turns": results}, out)


if __name__ == "__main__":
    main()
