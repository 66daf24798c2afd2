"""Calls in every format: asked for, drawn at random under the format's grammar, read back, and held against jsonschema.

Each row of the list of parsers has a server of its own with a template that says little; where the data folder is
(PENSTOCK_TEST_DATA), each real chat template has one too. The model tells stories: that calls come at
all, with these arguments, is the grammar's doing. Started by tests/e2e/server_clients_e2e.py.
"""
import itertools
import json
import os
import pathlib
import re
import subprocess
import unittest

import jsonschema

from serving import PROGRAM, SMALL_MODEL, SOURCE, Server

# The prompt only names the tools.
TEMPLATE = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.content or '' }}{% endfor %}"
DATA = pathlib.Path(os.environ.get("PENSTOCK_TEST_DATA", SOURCE.parent / "shared" / "data")) / "templates" / "jinja"
SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2, "maxLength": 12},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "hours": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 23}, "maxItems": 3},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "book_room": {
        "type": "object",
        "properties": {
            "guest": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "child": {"type": "boolean"}},
                      "required": ["name", "child"], "additionalProperties": False},
            "note": {"type": ["string", "null"], "maxLength": 10},
        },
        "required": ["guest", "note"],
        "additionalProperties": False,
    },
}
TOOLS = [{"type": "function", "function": {"name": name, "description": "does it", "strict": True, "parameters": schema}}
         for name, schema in SCHEMAS.items()]
# What templates of models that call no tools, or whose calls are not known, are refused with.
WITHOUT_CALLS = ("has no place for them", "how the model writes calls is not known", "chat template, line")
VALIDATORS = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}


def formats():
    """The names of all parsers, from the program's own list."""
    refused = subprocess.run([PROGRAM, "serve", "-m", SMALL_MODEL, "--port", "0", "--tool-call-parser", "no such"],
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    listed = re.search(r"expected one of (.*), got", refused.stdout + refused.stderr)
    assert listed, refused.stdout + refused.stderr
    return listed[1].split(", ")


def asked(seed, **fields):
    return {"messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS, "tool_choice": "required", "temperature": 1.4,
            "max_tokens": 500, "seed": seed, **fields}


class CallFormats(unittest.TestCase):
    def check_calls(self, calls):
        self.assertTrue(calls)
        for name, arguments in calls:
            VALIDATORS[name].validate(json.loads(arguments))

    def said(self, server, seed, finish="tool_calls", **fields):
        """The calls; None where max_tokens cut them off, or what some formats have in front of them, which is free text."""
        choice = server.post("/v1/chat/completions", asked(seed, **fields))["choices"][0]
        if choice["finish_reason"] == "length":
            return None
        self.assertEqual(choice["finish_reason"], finish, choice)
        return [(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]]

    def streamed(self, server, seed, **fields):
        calls = {}
        for chunk in server.chunks("/v1/chat/completions", asked(seed, **fields)):
            for call in (chunk["choices"] or [{"delta": {}}])[0]["delta"].get("tool_calls") or []:
                name, arguments = calls.get(call["index"], ("", ""))
                function = call["function"]
                calls[call["index"]] = (name + (function.get("name") or ""), arguments + (function.get("arguments") or ""))
        return [calls[index] for index in sorted(calls)]

    def rounds(self, n, said):
        """What the first n seeds give with which the model comes to calls."""
        tried = ((seed, said(seed)) for seed in range(40))
        found = list(itertools.islice(((seed, calls) for seed, calls in tried if calls is not None), n))
        self.assertEqual(len(found), n, "seeds with which a call came")
        return found

    def hold(self, server, n):
        one = {"parallel_tool_calls": False}
        for seed, calls in self.rounds(n, lambda seed: self.said(server, seed, **one)):
            self.assertEqual(len(calls), 1)
            self.check_calls(calls)
            streamed = self.streamed(server, seed, **one)
            for _ in range(5):  # a prompt may have the time in it, to the second
                if streamed == calls or (again := self.said(server, seed, **one)) == calls:
                    break
                calls, streamed = again, self.streamed(server, seed, **one)
            self.assertEqual(streamed, calls)
        choice = {"type": "function", "function": {"name": "book_room"}}
        for _, calls in self.rounds(1, lambda seed: self.said(server, seed, "stop", tool_choice=choice)):
            self.assertEqual([name for name, _ in calls], ["book_room"])
            self.check_calls(calls)

    def test_every_format(self):
        names = formats()
        self.assertGreaterEqual(len(names), 20)
        for name in names:
            with self.subTest(format=name), Server(SMALL_MODEL, "--chat-template", TEMPLATE, "--tool-call-parser", name,
                                                   "--batch-invariant", "--max-model-len", 2000) as server:
                self.hold(server, 3)

    def test_real_templates(self):
        if not DATA.is_dir():
            self.skipTest(f"no test data at {DATA}")
        held, without = 0, []
        for file in sorted(DATA.glob("*.jinja")):
            with self.subTest(template=file.name), Server(SMALL_MODEL, "--chat-template", file, "--reasoning-parser", "none",
                                                            "--batch-invariant", "--max-model-len", 8000) as server:
                status, _, reply = server.request("POST", "/v1/chat/completions", json.dumps(asked(0, max_tokens=1)))
                if status != 200:
                    self.assertRegex(json.loads(reply)["error"]["message"], "|".join(WITHOUT_CALLS))
                    without.append(file.name)
                    continue
                self.hold(server, 1)
                held += 1
        print(f"{held} real templates; no calls, or a request that the template refuses: {', '.join(without)}")
        self.assertGreaterEqual(held, 40)


if __name__ == "__main__":
    unittest.main()
