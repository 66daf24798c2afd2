#!/usr/bin/env python3
"""What a request can cost: bodies, templates and replies that are out of proportion. Memory stays bounded, /health answers
meanwhile, small requests overtake large ones, work ends with its client, and SIGTERM ends the process in time.

PENSTOCK_BINARY and PENSTOCK_SLOWNESS as for abuse_e2e.py.
"""
import base64
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import MODEL, PROGRAM, SLOW, SOURCE, Server, in_threads, read_all, wait_for  # noqa: E402

MIB = 1 << 20
SIZE = int(33_500_000 / SLOW)  # just inside --max-body-bytes
TEXT = int(4 * MIB / SLOW)  # what is counted at most
# Beside four times the body: pools, scratch memory of the largest stretch, replies under way.
BESIDE = 100 * MIB


def filled(before, piece, after, size):
    return before + piece * ((size - len(before) - len(after)) // len(piece)) + after


def request_of(path, body):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body


def cpu_of(server):
    """Seconds that all its threads have computed."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Health:
    """Asks /health on and on; every answer is counted."""

    def __init__(self, server):
        self.server, self.done, self.n, self.failures, self.longest = server, threading.Event(), 0, [], 0.0
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.done.is_set():
            begin = time.monotonic()
            try:
                if self.server.get("/health", timeout=20).status != 200:
                    self.failures.append("status")
            except OSError as error:
                self.failures.append(repr(error))
            self.longest = max(self.longest, time.monotonic() - begin)
            self.n += 1
            self.done.wait(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.done.set()
        self.thread.join()


class Costs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--no-log-requests", "--trust-request-chat-template", "--max-reply-bytes", 1000000, "--max-num-seqs", 4)
        cls.server.generate()

    @classmethod
    def tearDownClass(cls):
        code, log = cls.server.stop(), cls.server.log()
        cls.server.__exit__()
        assert code == 0, f"exit code {code}: {log[-3000:]}"
        assert "Sanitizer" not in log and "runtime error" not in log, log[-5000:]

    def attack(self, path, body, statuses=(200,), times=4, beside=BESIDE):
        """The reply; memory and the other clients are watched meanwhile."""
        before = self.server.rss()
        self.server.forget_peak()
        with Health(self.server) as health:
            reply = self.server.post(path, body)
        self.assertIn(reply.status, statuses, (path, body[:80], reply.body[:300]))
        self.assertEqual(health.failures, [])
        self.assertGreater(health.n, 0)
        self.assertLess(health.longest, 2 * SLOW, (path, body[:80]))
        if SLOW == 1:  # sanitizers keep shadows of everything
            self.assertLess(self.server.peak() - before, times * len(body) + beside, (path, body[:80]))
        return reply

    def test_large_bodies_that_only_count(self):
        """More than any context is refused, with the limit, before it is looked at."""
        for path, before in (("/tokenize", b'{"with_pieces":true,"content":"'), ("/tokenize", b'{"prompt":"'),
                             ("/tokenize", b'{"messages":[{"role":"user","content":"'), ("/apply-template", b'{"messages":[{"role":"user","content":"'),
                             ("/detokenize", b'{"tokens":[1],"model":"'), ("/v1/messages/count_tokens", b'{"messages":[{"role":"user","content":"')):
            for piece in (b"word ", b"1", b" "):
                reply = self.attack(path, filled(before, piece, b'"}', SIZE), (413,))
                self.assertIn(b"at most 4194304 bytes", reply.body)

    def test_texts_as_long_as_they_may_be(self):
        """Every shape becomes tokens, or is refused with a reason; the reply is made while it is sent."""
        for piece in (b"word ", b"1", b" ", b"a", b"<s>", b"\\n", b"\xf0\x9f\x98\x80", b"a1 ", b"\\u0001"):
            body = filled(b'{"with_pieces":true,"content":"', piece, b'"}', TEXT)
            reply = self.attack("/tokenize", body, (200, 400))
            if reply.status == 400:
                self.assertIn(b"at most 1048576", reply.body)
                continue
            count = int(re.match(rb'{"count":(\d+),', reply.body)[1])
            self.assertGreater(count, 1000)
            self.assertEqual(reply.body.count(b'{"id":'), count)
            self.assertTrue(reply.body.endswith(b'}],"token_strs":null}'))
        body = filled(b'{"return_token_strs":true,"prompt":"', b"word ", b'"}', TEXT)
        tokens = self.attack("/tokenize", body).json()
        self.assertEqual(len(tokens["token_strs"]), tokens["count"])
        self.assertEqual(len(tokens["tokens"]), tokens["count"])

    def test_a_streamed_reply_is_the_same(self):
        few = self.server.post("/tokenize", {"content": "Once upon a time 12 \u00e9", "with_pieces": True}).json()
        many = self.server.post("/tokenize", {"content": "Once upon a time 12 \u00e9" + " x" * 20000, "with_pieces": True}).json()
        self.assertEqual(few["tokens"], many["tokens"][:len(few["tokens"])])
        self.assertEqual(list(few), list(many))
        for token in many["tokens"]:
            self.assertEqual(set(token), {"id", "piece"})

    def test_detokenizing_is_counted(self):
        longest = max(range(256, 1000), key=lambda i: len(self.server.post("/detokenize", {"tokens": [i]}).json()["content"].encode()))
        body = filled(b'{"tokens":[%d' % longest, b",%d" % longest, b"]}", TEXT)
        self.attack("/detokenize", body, (200, 400))

    def test_small_requests_overtake_large_ones(self):
        body = filled(b'{"content":"', b"word 12 ", b'"}', TEXT)
        large = [self.server.raw(request_of("/tokenize", body), timeout=120) for _ in range(6)]
        for i in range(5):
            self.assertEqual(self.server.post("/tokenize", {"content": "small " * 2000 + str(i)}).status, 200)
        # The large ones are done one after the other: the last has not even been begun.
        large[-1].setblocking(False)
        self.assertRaises(BlockingIOError, large[-1].recv, 1)
        for sock in large:
            sock.close()

    def test_work_ends_with_its_client(self):
        body = filled(b'{"content":"', b"word 12 ", b'"}', TEXT)
        start = cpu_of(self.server)
        self.assertEqual(self.server.post("/tokenize", body).status, 200)
        one = cpu_of(self.server) - start
        start = cpu_of(self.server)
        for i in range(30):
            sock = self.server.raw(request_of("/tokenize", body))
            if i % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.assertTrue(wait_for(lambda: self.server.metric("penstock:http_connections") <= 1))
        self.assertEqual(self.server.post("/tokenize", {"content": "word " * 2000}).status, 200)
        self.assertLess(cpu_of(self.server) - start, 10 * one + 1)  # 30 are the clients that left, much is reading what they sent

    def test_templates_of_requests(self):
        text = "{% set x = 'ab c' * 1500000 %}"
        forever = "{% for i in range(100000) %}{% for j in range(100000) %}"
        hours = [forever + "{{ i }}", "{% set ns = namespace(l=[]) %}" + forever + "{% set ns.l = ns.l + ['a' * 1000000 ~ j] %}"]
        hours += [text + forever + "{{ x | length }}{{ x | upper | length }}", text + forever + "{% set y %}{{ x }}{% continue %}{% endset %}",
                  text + forever + "{% if 'zz' in x %}{% endif %}"]
        hours += [text + forever + "{% set y = " + what + " %}" for what in ("x.swapcase()", "x ~ i", "x | urlencode", "x | tojson", "x[::-1]", "x | striptags")]
        large = ["{% set x = 'a' * 100000000 %}", "{% set x = ['a' * 4000000] * 900000 %}{{ x | join }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"]
        large += [text + rest for rest in ("{{ x | title }}", "{{ x.split() | length }}", "{% set x = x * 60 %}{{ x }}", "{{ x.strip('abc d') }}" * 50)]
        for n, source in enumerate([hour + "{% endfor %}{% endfor %}" for hour in hours] + large):
            body = {"messages": [{"role": "user", "content": "x"}], "chat_template": source}
            path = "/v1/chat/completions" if n % 3 == 0 else "/apply-template"
            reply = self.attack(path, json.dumps(body).encode(), (200, 400))
            self.assertLess(len(reply.body), 40 * MIB)

    def test_replies_are_counted_before_they_are_computed(self):
        prompt = "Once upon a time " * 40
        for fields in ({"prompt_logprobs": 20, "n": 1, "prompt": [prompt] * 100}, {"logprobs": 20, "n": 100, "max_tokens": 200, "prompt": "x"},
                       {"echo": True, "logprobs": 20, "prompt": [prompt] * 100, "stream": True},
                       {"prompt_logprobs": 20, "n": 100, "prompt": prompt}, {"echo": True, "logprobs": 20, "n": 100, "prompt": prompt},
                       {"echo": True, "logprobs": 20, "n": 2, "best_of": 100, "prompt": prompt}):
            reply = self.attack("/v1/completions", json.dumps({"max_tokens": 1, **fields}).encode(), (400,))
            self.assertIn(b"--max-reply-bytes", reply.body)
        chat = {"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ messages[0].content }}", "logprobs": True, "top_logprobs": 20, "n": 100,
                "max_tokens": 100}
        self.assertIn(b"--max-reply-bytes", self.attack("/v1/chat/completions", json.dumps(chat).encode(), (400,)).body)
        self.assertEqual(self.server.post("/v1/completions", {"prompt": prompt[:100], "prompt_logprobs": 5, "logprobs": 5, "max_tokens": 5}).status, 200)

    def test_what_a_stream_tells_at_once(self):
        prompt = "Once upon a time " * 100
        with Server("--no-log-requests") as server:
            ask = {"prompt": prompt, "echo": True, "logprobs": 20, "max_tokens": 1}
            reply = server.post("/v1/completions", {**ask, "n": 20, "stream": True})
            self.assertEqual(reply.status, 400, reply.body[:300])
            self.assertIn(b"without stream", reply.body)
            self.assertEqual(server.post("/v1/completions", {**ask, "n": 2, "stream": True}).status, 200)
            self.assertEqual(server.post("/v1/completions", {**ask, "n": 20}).status, 200)

    def test_chats_that_are_cut(self):
        for body in (filled(b'{"truncate_prompt_tokens":10,"prompt":"', b"word ", b'"}', SIZE),
                     filled(b'{"truncate_prompt_tokens":10,"chat_template":"x","messages":[{"role":"assistant","content":"', b"word ", b'"}]}', SIZE)):
            reply = self.attack("/v1/chat/completions" if b"messages" in body[:80] else "/v1/completions", body, (400,))
            self.assertIn(b"truncate_prompt_tokens", reply.body)


CALL = {"name": "f", "arguments": '{"a": {"b": 1}}'}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
ITEMS = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "function_call", "call_id": "c", **CALL},
         {"type": "function_call_output", "call_id": "c", "output": '{"a": 1}'}]
SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}}}'
CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]},
                     {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": CALL}]},
                     {"role": "tool", "tool_call_id": "c", "content": '{"a": 1}'}],
        "tools": [{"type": "function", "function": FUNCTION}], "chat_template_kwargs": {"a": {}}, "chat_template": "{{ messages[0].content }}{# tools #}"}
# Bodies of routes that read objects of any members.
BODIES = [("/v1/conversations", {"items": ITEMS, "metadata": {"a": "b"}}),
          ("/v1/responses", {"input": ITEMS, "max_output_tokens": 1, "metadata": {}, "tools": [{"type": "function", **FUNCTION}]}),
          ("/v1/responses/input_tokens", {"input": ITEMS}), ("/v1/chat/completions", {**CHAT, "max_tokens": 1}), ("/tokenize", CHAT), ("/apply-template", CHAT),
          ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": {}}}]},
                                                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}]}),
          ("/api/chat", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": {}}}}]}], "stream": False,
                         "options": {"num_predict": 1}}),
          ("/v1/completions", {"prompt": "x", "max_tokens": 1, "logit_bias": {"1": 0}, "structured_outputs": {"json": SCHEMA}}),
          ("/completion", {"prompt": "x", "n_predict": 1, "logit_bias": {"1": 0}}), ("/v1/grammar/check", {"json_schema": SCHEMA}), ("/v1/batches", {"metadata": {}})]
MEMBERS = {f"k{i}": i for i in range(50_000)}


def with_members(value):
    """Copies of the value, each with MEMBERS in one of its objects or in one that a text of it spells; and where they are."""
    if isinstance(value, dict):
        yield "", {**value, **MEMBERS}
    if isinstance(value, str) and value.startswith('{"'):
        yield from ((f"(text){place}", json.dumps(one)) for place, one in with_members(json.loads(value)))
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        for place, one in with_members(inner):
            copy = value.copy()
            copy[key] = one
            yield f".{key}{place}", copy


class Members(unittest.TestCase):
    """The library's ordered objects look through all their members for each that is added."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server("--data-dir", cls.folder.name, "--no-log-requests", "--trust-request-chat-template", "--tool-call-parser", "hermes",
                            "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}{# tools #}")
        cls.server.generate(guided_regex="[a-z]")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.server.__exit__()
        cls.folder.cleanup()
        assert code == 0, code

    def within_a_second(self, method, path, body=None, what=""):
        """The reply, of whatever status."""
        start = cpu_of(self.server)
        reply = self.server.request(method, path, body)
        self.assertLess(cpu_of(self.server) - start, SLOW, (method, path, what, reply.status, reply.body[:200]))
        self.assertLess(reply.status, 500, (method, path, what, reply.body[:200]))
        return reply

    def test_many_members_in_every_object(self):
        for path, base in BODIES:
            if path != "/v1/batches":  # without a file
                reply = self.within_a_second("POST", path, json.dumps(base))
                self.assertEqual(reply.status, 200, (path, reply.body[:300]))
            for place, body in with_members(base):
                with self.subTest(path=path, place=place):
                    self.within_a_second("POST", path, json.dumps(body), place)

    def test_many_members_of_what_is_kept(self):
        answered = 0
        for place, items in [("none", ITEMS), *with_members(ITEMS)]:
            with self.subTest(place=place):
                made = self.within_a_second("POST", "/v1/conversations", json.dumps({"items": items}), place).json()
                path = f"/v1/conversations/{made['id']}"
                page = self.within_a_second("GET", path + "/items", what=place).json()
                self.assertEqual(len(page["data"]), len(ITEMS))
                for item in page["data"]:
                    self.within_a_second("GET", f"{path}/items/{item['id']}", what=place)
                self.within_a_second("POST", "/v1/responses", json.dumps({"conversation": made["id"], "input": "x", "max_output_tokens": 1}), place)
                reply = self.within_a_second("POST", "/v1/responses", json.dumps({"input": items, "max_output_tokens": 1}), place).json()
                if "id" in reply:  # what was not refused for its unknown fields
                    answered += 1
                    for rest in ("", "/input_items"):
                        self.within_a_second("GET", f"/v1/responses/{reply['id']}{rest}", what=place)
                    self.within_a_second("POST", "/v1/responses", json.dumps({"previous_response_id": reply["id"], "input": "x", "max_output_tokens": 1}), place)
        self.assertGreater(answered, 1)


class Schemas(unittest.TestCase):
    """Tools whose references make much of little."""

    def test_references_of_tools(self):
        chain = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
        several = {name: {"$ref": f"#/$defs/{name}"} for name in ("list", "object", "pair", "d0")}
        defs = {**chain, "d40": {"type": "string"}, "list": {"type": "array", "items": {"$ref": "#/$defs/list"}},
                "object": {"type": "object", "properties": {"a": {"$ref": "#/$defs/object"}}},
                "pair": {"type": "object", "properties": {"a": {"$ref": "#/$defs/pair"}, "b": {"$ref": "#/$defs/pair"}}}}
        many = {f"d{i}": {"type": "integer"} for i in range(10000)}
        schemas = {name: {"type": "object", "$defs": defs, "properties": {"a": one}} for name, one in several.items()}
        schemas["many"] = {"type": "object", "$defs": many, "properties": {f"p{i}": {"$ref": f"#/$defs/d{i}"} for i in range(10000)}}
        names = {"name": {"type": "string", "enum": [f"n{i}" for i in range(5000)]}}
        schemas["names"] = {"type": "object", "$defs": names, "properties": {f"p{i}": {"$ref": "#/$defs/name"} for i in range(5000)}}
        told = {"told": {"type": "array", "description": "x" * 1_000_000}}
        schemas["told"] = {"type": "object", "$defs": told, "properties": {f"p{i}": {"$ref": "#/$defs/told"} for i in range(5000)}}
        for parser in ("hermes", "qwen3_coder", "gemma4", "pythonic"):
            with Server("--no-log-requests", "--trust-request-chat-template", "--tool-call-parser", parser) as server:
                server.generate(guided_regex="[a-z]")
                for name, schema in schemas.items():
                    for choice in ("auto", "required"):
                        body = {**CHAT, "max_tokens": 1, "tool_choice": choice, "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
                        with self.subTest(parser=parser, schema=name, choice=choice):
                            start = cpu_of(server)
                            self.assertIn(server.post("/v1/chat/completions", body).status, (200, 400))
                            self.assertLess(cpu_of(server) - start, 2 * SLOW)
                self.assertEqual(server.stop(), 0)


class Vectors(unittest.TestCase):
    def test_vectors_are_counted_before_they_are_computed(self):
        with Server("--runner", "pooling", "--no-log-requests", "--max-reply-bytes", 1000000) as server:
            server.post("/pooling", {"input": "x"})
            before = server.rss()
            server.forget_peak()
            text = "Once upon a time there was a little girl. " * 8
            for fields in ({"task": "token_embed", "input": [text] * 1000}, {"task": "token_embed", "input": [text] * 1000, "encoding_format": "base64"},
                           {"task": "embed", "input": ["x"] * 2048}):
                reply = server.post("/pooling", fields)
                self.assertEqual(reply.status, 400, reply.body[:300])
                self.assertIn(b"--max-reply-bytes", reply.body)
            self.assertEqual(server.post("/v1/embeddings", {"input": ["x"] * 2048}).status, 400)
            self.assertEqual(server.post("/pooling", {"task": "token_embed", "input": text}).status, 200)
            for body in (filled(b'{"input":"', b"word ", b'"}', SIZE), filled(b'{"truncate_prompt_tokens":5,"input":"', b"word ", b'"}', SIZE)):
                self.assertEqual(server.post("/v1/embeddings", body).status, 400)
            if SLOW == 1:
                self.assertLess(server.peak() - before, 4 * SIZE + BESIDE)
            self.assertEqual(server.stop(), 0)


class Shutdown(unittest.TestCase):
    def test_while_bodies_are_worked_on(self):
        """It ends in time, by itself, whatever is being read, rendered, tokenized and written."""
        hour = "{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}"
        work = [request_of("/tokenize", filled(b'{"with_pieces":true,"content":"', b"a 1", b'"}', TEXT)),
                request_of("/v1/completions", filled(b'{"prompt":"', b"word ", b'"}', SIZE)),
                request_of("/v1/chat/completions", filled(b'{"chat_template":"{{ messages }}","messages":[{"role":"assistant","content":"', b"x\\n", b'"}]}', SIZE)),
                request_of("/apply-template", json.dumps({"messages": [], "chat_template": hour}).encode()),
                request_of("/detokenize", filled(b'{"tokens":[1', b",300", b"]}", TEXT))]
        for round_ in range(4):
            with Server("--no-log-requests", "--trust-request-chat-template", "--shutdown-timeout", "1" if round_ % 2 else "0.2") as server:
                socks = in_threads(10, lambda i: server.raw(work[(i + round_) % len(work)], timeout=60))
                time.sleep(0.05 * round_)
                begin = time.monotonic()
                self.assertEqual(server.stop(timeout=20), 0, server.log()[-2000:])
                self.assertLess(time.monotonic() - begin, 11 * SLOW)
                for sock in socks:
                    read_all(sock)


@unittest.skipUnless(os.geteuid() == 0, "the number of threads is limited for another user, whom only root may become")
class Threads(unittest.TestCase):
    def test_the_system_has_no_more_threads(self):
        """A model that cannot be loaded for want of them is an error, everything else goes on, and SIGTERM ends it as ever."""
        nobody = ("setpriv", "--reuid=65534", "--clear-groups")
        for right, path in (("-x", PROGRAM), ("-r", MODEL)):
            if subprocess.run([*nobody, "test", right, str(path)]).returncode != 0:
                self.skipTest(f"another user has no access to {path}")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            os.chmod(file.name, 0o644)
            models = [{"name": "first", "model": str(MODEL)}, {"name": "second", "model": str(MODEL), "load": "first use"}]
            json.dump({"models": models}, file)
            file.flush()
            args = ("--models-config", file.name, "--no-log-requests")
            with Server(*args, model=None, launcher=nobody) as server:
                server.generate(model="first", guided_regex="[a-z]{2}")
                n = server.n_threads()
            for _ in range(20):
                with Server(*args, model=None, launcher=(*nobody, "prlimit", f"--nproc={n}:{n}")) as server:
                    # Threads that have just ended count for a moment: then it does not start, whoever asks for it meanwhile.
                    try:
                        reply = server.generate(model="first", guided_regex="[a-z]{4}")
                        started = b"shutting down" not in reply.body
                    except OSError:
                        started = False
                    if not started:
                        self.assertTrue(wait_for(lambda: "Resource temporarily unavailable" in server.log()))
                        continue
                    self.assertEqual(reply.status, 200, reply.body)
                    for _ in range(2):
                        reply = server.generate(model="second")
                        self.assertIn(reply.status, (429, 503), reply.body)
                        self.assertEqual(server.generate(model="first", guided_regex="[a-z]{3}").status, 200)
                    self.assertEqual(server.stop(), 0, server.log()[-2000:])
                    return
            self.fail(f"no server starts with {n} threads")


class DeepFiles(unittest.TestCase):
    """JSON that others wrote nests as deeply as they like: it is refused, wherever it is read."""

    def test_files_of_a_hundred_thousand_levels(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            model = path / "model"
            model.mkdir()
            (path / "template").write_text("{{ messages }}")
            for text in ('{"a":' * 100000 + "1" + "}" * 100000, "[" * 100000 + "]" * 100000, '{"models":[' * 100000 + "]}" * 100000,
                         '/* " */{"models":' + "[" * 100000 + "]" * 100000 + "}"):
                (path / "deep.json").write_text(text)
                for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors.index.json"):
                    (model / name).write_text(text)
                (path / "lines").write_text('{"custom_id":"1","method":"POST","url":"/v1/completions","body":' + text + "}\n")
                deep = path / "deep.json"
                for command in (["serve", "--models-config", deep, "--port", 0], ["render", "--template", path / "template", "--context", deep],
                                ["serve", "-m", model, "--port", 0], ["inspect", "-m", model], ["tokenize", "-m", model, "--ids", "x"],
                                ["serve", "--api-key-file", deep, "--port", 0], ["keys", "list", "--file", deep],
                                ["run-batch", "-i", path / "lines", "-o", path / "out"]):
                    done = subprocess.run([PROGRAM, *map(str, command)], capture_output=True, timeout=60 * SLOW, check=False)
                    self.assertIn(done.returncode, range(1, 6), (command, text[:20], done.returncode, done.stderr[-300:]))


class Files(unittest.TestCase):
    """Pictures and sounds that are only counted: bodies as large as those of chats, of which all but the files is bounded as text is."""
    GOLDEN = SOURCE / "tests" / "golden"
    attack = Costs.attack

    def serve(self, model):
        self.server = self.enterContext(Server("--no-log-requests", "--max-num-seqs", 4, "--max-model-len", 512, model=self.GOLDEN / model))
        return json.loads((self.GOLDEN / model / "golden.json").read_text())[0]["messages"]

    @staticmethod
    def chunk(name, size):
        """What a PNG or a WAV file may have beside what counts."""
        return (struct.pack(">I", size) + name + bytes(size) + struct.pack(">I", zlib.crc32(name + bytes(size))) if name == b"teSt"
                else name + struct.pack("<I", size) + bytes(size))

    def count(self, path, body, **how):
        reply = self.attack(path, json.dumps(body).encode(), **how).json()
        return len(reply["tokens"]) if "tokens" in reply else reply["input_tokens"]

    def routes(self, small, large, url, parts):
        """(path, body with the small file, with the large one); parts: of messages and of Responses."""
        for path, list_name, part in (("/tokenize", "messages", parts[0]), ("/v1/chat/completions/input_tokens", "messages", parts[0]),
                                      ("/v1/messages/count_tokens", "messages", parts[1]), ("/v1/responses/input_tokens", "input", parts[2])):
            if part is not None:
                yield path, *({list_name: [{"role": "user", "content": [part(url + base64.b64encode(file).decode())]}]} for file in (small, large))

    def test_pictures(self):
        messages = self.serve("seeing/qwen3_vl")
        url = next(part["image_url"]["url"] for part in messages[0]["content"] if part["type"] == "image_url")
        small = base64.b64decode(url.split(",")[1])
        end = small.rindex(b"IEND") - 4
        large = small[:end] + self.chunk(b"teSt", int(18 * MIB / SLOW)) + small[end:]
        parts = (lambda url: {"type": "image_url", "image_url": {"url": url}},
                 lambda url: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url.split(",")[1]}},
                 lambda url: {"type": "input_image", "image_url": url})
        for path, of_small, of_large in self.routes(small, large, "data:image/png;base64,", parts):
            with self.subTest(path):
                n = self.count(path, of_small)
                self.assertGreater(n, 4)
                self.assertEqual(self.count(path, of_large), n)
        shown = [self.attack("/apply-template", json.dumps({"messages": [{"role": "user", "content": [parts[0](
            "data:image/png;base64," + base64.b64encode(file).decode())]}]}).encode()).json() for file in (small, large)]
        self.assertEqual(shown[0], shown[1])

    def test_sounds(self):
        messages = self.serve("hearing/qwen2_audio")
        small = base64.b64decode(messages[0]["content"][0]["input_audio"]["data"])
        large = small + self.chunk(b"test", int(10 * MIB / SLOW))
        large = large[:4] + struct.pack("<I", len(large) - 8) + large[8:]
        for way in (lambda url: {"type": "audio_url", "audio_url": {"url": url}},
                    lambda url: {"type": "input_audio", "input_audio": {"data": url.split(",")[1], "format": "wav"}}):
            for path, of_small, of_large in self.routes(small, large, "data:audio/wav;base64,", (way, None, None)):
                with self.subTest(path):
                    self.assertEqual(self.count(path, of_large), self.count(path, of_small))

    def test_texts_beside_files_and_texts_like_files(self):
        self.serve("seeing/qwen3_vl")
        for before in (b'{"messages":[{"role":"user","content":"', b'{"messages":[{"role":"user","content":[{"type":"text","text":"'):
            for path in ("/tokenize", "/v1/messages/count_tokens", "/v1/chat/completions/input_tokens", "/apply-template"):
                reply = self.attack(path, filled(before, b"word ", b'"}', SIZE), (413,))
                self.assertIn(b"at most 4194304 bytes", reply.body)
                closed = b'"}]}' if before.endswith(b'"content":"') else b'"}]}]}'
                reply = self.attack(path, filled(before + b";base64,", b"word", closed, SIZE), (400,))
                self.assertIn(b"at most 4194304 bytes", reply.body)
        for before, closed in ((b'{"prompt":"data:image/png;base64,', b'"}'), (b'{"content":"data:image/png;base64,', b'"}'),
                               (b'{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","description":'
                                b'"data:image/png;base64,', b'"}}]}')):
            reply = self.attack("/tokenize", filled(before, b"word", closed, SIZE), (400,))
            self.assertIn(b"at most 4194304 bytes", reply.body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
