#!/usr/bin/env python3
"""What a form costs until the first token: of a JSON Schema of about 4 KB, and of a forced call of one of many tools.

    bench/structured_first_token.py [--penstock build/release/penstock] [-n 40] [--tools 500]

Starts the server with its built-in model. Each round asks for one token: without a form, with one that is new to the
server, and with the same once more. The request without a form carries the schema's bytes too, as text. Medians in
milliseconds, seen by the client.
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Prompts are short, however many tools there are.
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}tools{% endif %}"
MEMBERS = ({"type": "string", "description": "what it is about and why"}, {"type": "integer", "minimum": 0, "maximum": 500},
           {"enum": ["alpha", "beta", "gamma"]}, {"type": "array", "items": {"type": "string", "maxLength": 30}},
           {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "boolean"}}, "required": ["x"]},
           {"type": "string", "format": "date"})


def schema_of(seed, size=3900):
    chosen, members = random.Random(seed), {}
    while len(json.dumps(members)) < size:
        members[f"field_{seed}_{len(members)}"] = chosen.choice(MEMBERS)
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def tools_of(seed, n):
    chosen = random.Random(seed)
    tools = []
    for i in range(n):
        members = {f"arg_{k}": chosen.choice(MEMBERS) for k in range(chosen.randint(2, 5))}
        parameters = {"type": "object", "properties": members, "required": list(members)[:2]}
        tools.append({"type": "function", "function": {"name": f"tool_{seed}_{i}", "strict": True, "parameters": parameters}})
    return tools


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ms(self, path, body):
        data = json.dumps({"max_tokens": 1, "temperature": 0, **body})
        begin = time.perf_counter()
        self.connection.request("POST", path, data, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        text = reply.read()
        taken = 1e3 * (time.perf_counter() - begin)
        assert reply.status == 200, text[:500]
        return taken


def print_row(name, rounds):
    free, new, known = (statistics.median(column) for column in zip(*rounds))
    more = [statistics.median(r[i] - r[0] for r in rounds) for i in (1, 2)]
    print(f"| {name} | {free:.2f} | {new:.2f} (+{more[0]:.2f}) | {known:.2f} (+{more[1]:.2f}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock")
    parser.add_argument("-n", type=int, default=40)
    parser.add_argument("--tools", type=int, default=500)
    options = parser.parse_args()
    command = [options.penstock, "serve", "--port", "0", "--tool-call-parser", "hermes", "--chat-template", TEMPLATE]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        port = next(int(found[1]) for found in (re.search(r"at http://[\d.]+:(\d+)", line) for line in server.stdout) if found)
        client = Client(port)
        schemas, calls = [], []
        for seed in range(options.n):
            body, schema = {"prompt": "Once"}, schema_of(seed)
            form = {**body, "json_schema": schema}
            schemas.append([client.ms("/v1/completions", b) for b in ({**body, "user": json.dumps(schema)}, form, form)])
        for seed in range(max(1, options.n // 4)):
            body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools_of(seed, options.tools)}
            forced = {**body, "tool_choice": "required"}
            calls.append([client.ms("/v1/chat/completions", b) for b in ({**body, "tool_choice": "none"}, forced, forced)])
    finally:
        server.terminate()
        server.wait()
    print("| ms | without | new form | known form |\n|---|---|---|---|")
    print_row("schema of 4 KB", schemas)
    print_row(f"call of one of {options.tools} tools", calls)


if __name__ == "__main__":
    main()
