#!/usr/bin/env python3
"""What a hostile or broken client can do to the server: no crash, healthy requests go on, blocks, memory and descriptors
return to where they were.

PENSTOCK_BINARY names another build (sanitizers), PENSTOCK_SLOWNESS multiplies the time limits for it, ABUSE_ROUNDS the rounds
of the disconnect storm (10).
"""
import json
import os
import random
import re
import socket
import struct
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import SLOW, Server, in_threads, read_all, read_head, read_until, wait_for  # noqa: E402

ROUNDS = int(os.environ.get("ABUSE_ROUNDS", "10"))
STORM = 200
# Bytes that a test may leave resident without another look: pools and caches fill at first use, and sanitizers keep much. What is
# more than that must not grow when the test is repeated.
FIRST_USE = (16 << 20) * (8 if SLOW > 1 else 1)
REPETITIONS = 3


def http(method, path, body=b"", *headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body and not any(h.lower().startswith(("transfer-encoding", "content-length")) for h in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


GENERATE = json.dumps({"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}).encode()
STREAM = json.dumps({"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()


def status_of(reply):
    found = re.match(rb"HTTP/1\.[01] (\d{3})", reply)
    return int(found.group(1)) if found else 0


class Healthy:
    """A well-behaved client in the background: every request of it must succeed with the same text."""

    def __init__(self, server):
        self.server, self.done, self.texts, self.failures = server, threading.Event(), set(), []
        self.thread = threading.Thread(target=self.run)
        self.n = 0

    def run(self):
        while not self.done.is_set():
            try:
                reply = self.server.generate()
                if reply.status == 200:
                    self.texts.add(reply.json()["text"])
                else:
                    self.failures.append((reply.status, reply.body))
            except Exception as error:  # noqa: B902
                self.failures.append(repr(error))
            self.n += 1
            self.done.wait(0.05)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.done.set()
        self.thread.join()


class Abuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # The batch-invariant engine gives the healthy client the same text whatever else runs.
        cls.server = Server("--data-dir", cls.folder.name, "--no-log-requests", "--header-timeout", "1", "--body-timeout", "2", "--idle-timeout", "20",
                            "--write-timeout", "2", "--max-num-seqs", "16", "--batch-invariant", "--max-queued-requests", "1000")
        cls.healthy = Healthy(cls.server).__enter__()
        for i in range(20):
            cls.server.generate(f"Warm {i}")
        cls.server.generate(guided_regex="[a-z]")  # starts the threads that compile
        cls.rss, cls.files, cls.threads = cls.server.rss(), cls.server.n_files(), cls.server.n_threads()

    @classmethod
    def tearDownClass(cls):
        cls.healthy.__exit__()
        code = cls.server.stop()
        log = cls.server.log()
        cls.server.__exit__()
        cls.folder.cleanup()
        assert code == 0, f"exit code {code}: {log[-3000:]}"
        assert "Sanitizer" not in log and "runtime error" not in log, log[-5000:]
        assert not cls.healthy.failures, cls.healthy.failures[:5]
        assert len(cls.healthy.texts) == 1, cls.healthy.texts
        assert cls.healthy.n > 5, cls.healthy.n

    def setUp(self):
        self.n_healthy = self.healthy.n

    def tearDown(self):
        server = self.server
        self.assertIsNone(server.process.poll(), server.log()[-3000:])
        self.assertEqual(server.generate().status, 200)
        failures, self.healthy.failures = self.healthy.failures, []
        self.assertEqual(failures, [])
        # All that is left is what the healthy client does: at most its one sequence, at most two connections.
        self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_waiting") == 0), "requests stay in the queue")
        self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") <= 1), "sequences go on running")
        self.assertTrue(wait_for(lambda: server.metric("penstock:kv_cache_usage_perc") <= 0.01), "blocks are not freed")
        self.assertTrue(wait_for(lambda: server.metric("penstock:http_connections") <= 2), "connections stay open")
        self.assertTrue(wait_for(lambda: server.n_files() <= self.files + 4), "descriptors leak")
        self.assertTrue(wait_for(lambda: server.metric("penstock:http_body_bytes") <= 1000), "bodies stay in memory")
        self.assertLessEqual(server.n_threads(), self.threads + 2)  # some start at their first use
        self.check_memory()

    def check_memory(self):
        """A leak grows with every repetition; what was merely not used before has come once."""
        growth = []
        for _ in range(REPETITIONS):
            before = Abuse.rss
            wait_for(lambda: self.server.rss() - before < FIRST_USE, 5)
            Abuse.rss = self.server.rss()
            growth.append(Abuse.rss - before)
            if growth[-1] < FIRST_USE:
                return
            getattr(self, self._testMethodName)()
        self.fail(f"the resident memory grows by {growth} bytes with each repetition")

    def send(self, data, timeout=30):
        with self.server.raw(timeout=timeout) as sock:
            try:
                sock.sendall(data)
            except ConnectionError:
                pass  # refused before it was all sent; the answer may still be there
            return read_all(sock)

    def expect(self, data, *statuses):
        reply = self.send(data)
        self.assertIn(status_of(reply), statuses, (data[:200], reply[:300]))
        return reply

    def test_slow_loris(self):
        socks = [self.server.raw() for _ in range(150)]
        for sock in socks:
            self.addCleanup(sock.close)
        head = http("POST", "/v1/generate", GENERATE)
        start = time.monotonic()
        n_sent, n_cut = 0, 0
        for byte in range(len(head)):  # a byte each, every 50 ms: a head takes 4 s, the limit is 1 s
            for sock in list(socks):
                try:
                    sock.sendall(head[byte:byte + 1])
                    n_sent += 1
                except ConnectionError:
                    socks.remove(sock)
                    n_cut += 1
            if n_cut > 100 or time.monotonic() - start > 10 * SLOW:
                break
            time.sleep(0.05)
        replies = [status_of(read_all(sock)) for sock in socks]
        self.assertGreater(n_cut + sum(status in (0, 408) for status in replies), 140)
        self.assertGreater(self.server.metric("penstock:http_requests_timed_out_total"), 100)
        self.assertTrue(wait_for(lambda: self.healthy.n > self.n_healthy))

    def test_slow_bodies(self):
        head = http("POST", "/v1/generate", b"", "Content-Length: 1000000")
        replies = in_threads(30, lambda i: self.send(head + b"x" * i * 100))
        self.assertEqual({status_of(reply) for reply in replies}, {408})

    def test_half_closed(self):
        def half(i):
            with self.server.raw() as sock:
                data = http("POST", "/v1/completions", STREAM if i % 2 else GENERATE)
                sock.sendall(data if i % 3 else data[:len(data) // 2])
                sock.shutdown(socket.SHUT_WR)
                return read_all(sock)
        for reply in in_threads(30, half):
            self.assertIsInstance(reply, bytes)

    def test_reset_in_every_phase(self):
        data = http("POST", "/v1/completions", STREAM)
        for cut in [0, 1, 10, 60, len(data) - 10, len(data)] * 8:
            sock = self.server.raw(data[:cut])
            if cut == len(data) and cut % 2:
                sock.recv(10)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()

    def test_large_bodies(self):
        size = 100 << 20
        self.expect(http("POST", "/v1/generate", b"", f"Content-Length: {size}"), 413)
        for n_digits in (18, 19, 20, 40, 1000):
            self.expect(http("POST", "/v1/generate", b"", "Content-Length: " + "9" * n_digits), 400, 413)
        piece = b"a" * (1 << 20)
        for head, wrap in ((http("POST", "/v1/generate", b"", f"Content-Length: {size}"), lambda p: p),
                           (http("POST", "/v1/generate", b"", "Transfer-Encoding: chunked"), lambda p: b"100000\r\n" + p + b"\r\n")):
            with self.server.raw(head) as sock:
                sent = 0
                try:
                    while sent < size:
                        sock.sendall(wrap(piece))
                        sent += len(piece)
                except ConnectionError:
                    pass
                self.assertLess(sent, size)
        # Just inside the limit: a prompt much longer than the context.
        prompt = json.dumps({"prompt": "word " * (6 << 20 >> 2), "max_tokens": 1}).encode()
        reply = self.expect(http("POST", "/v1/generate", prompt, "Connection: close"), 400)
        self.assertIn(b"tokens", reply)
        self.assertTrue(wait_for(lambda: self.healthy.n > self.n_healthy))

    def test_json(self):
        bodies = [b"[" * 100000, b'{"a":' * 100000, b'{"prompt":' + b"[" * 60 + b"]" * 60 + b"}", b"{", b"", b"null", b"[]", b'"x"',
                  b'{"prompt":"x","prompt":"y","max_tokens":1e999}', b'{"prompt": 1' + b"0" * 5000 + b"}", b'{"prompt":"\\ud800"}',
                  b'{"prompt":"\xff\xfe","max_tokens":1}', b'{"prompt":"\xed\xa0\x80"}', b'\xef\xbb\xbf{"prompt":1}', b"\x00" * 1000,
                  b'{"prompt":"x","max_tokens":-5}', b'{"prompt":"x","n":100000000}', b'{"prompt":"x","temperature":"hot"}',
                  b'{"prompt":"x","stop":' + b"[" + b'"a",' * 20000 + b'"b"]}', b'{"prompt":"x","max_tokens":99999999999999999999}',
                  b'{"prompt":"x","logit_bias":{"99999999":1}}', b'{"prompt":"x","seed":-1.5}', b'{"prompt":[[' + b"1," * 20000 + b"1]]}",
                  b'{"prompt":[' + b'"a",' * 20000 + b'"a"]}', b'{"messages":' + b"[" * 63 + b"]" * 63 + b"}",
                  b'{"messages":[{"role":"user","content":' + b'{"a":' * 50 + b"1" + b"}" * 50 + b"}]}", b'{"prompt":"' + b"\\u0000" * 1000 + b'"}']
        routes = json.loads(self.server.get("/openapi.json").body)["paths"]
        paths = [path.replace("{id}", "none") for path, methods in routes.items() if "post" in methods]
        self.assertGreater(len(paths), 20)
        for path in paths:
            for body in bodies:
                reply = self.send(http("POST", path, body, "Connection: close"))
                status = status_of(reply)
                self.assertTrue(status in (200, 400, 404, 413, 415, 422), (path, body[:60], reply[:300]))
                if status != 200:
                    self.assertIn("error", json.loads(reply.partition(b"\r\n\r\n")[2]))

    def test_nobody_puts_a_server_to_sleep_that_was_not_told_to(self):
        for path in ("/sleep", "/sleep?level=1", "/wake_up"):
            self.expect(http("POST", path, b"{}", "Connection: close"), 404)
        self.assertEqual(json.loads(self.server.get("/is_sleeping").body), {"is_sleeping": False})

    def test_ids_and_queries(self):
        """Of every route that has any: what they do not know is refused, whatever it is."""
        routes = json.loads(self.server.get("/openapi.json").body)["paths"]
        ids = ["x", "%00", "%ff%fe", "..%2f..%2fetc%2fpasswd", "'%20OR%201=1--", "a" * 8000, "resp_" + "0" * 24, "%F0%9F%98%80"]
        queries = ["", "?limit=-1", "?limit=9" + "9" * 100, "?after=%00", "?starting_after=-1&stream=true", "?start=0000-00-00", "?" + "&".join(f"q{i}=1" for i in range(500))]
        for path, methods in routes.items():
            for method in methods:
                if method == "post" and "{id}" not in path or path in ("/metrics", "/v1/metrics"):
                    continue
                for one in ids if "{id}" in path else [""]:
                    for query in queries:
                        reply = self.send(http(method.upper(), path.replace("{id}", one) + query, b"", "Connection: close"))
                        self.assertIn(status_of(reply), (200, 400, 404, 415), (method, path, one[:40], query[:40], reply[:200]))
                        self.assertNotIn(b"root:", reply)

    def test_what_a_refused_body_costs(self):
        """Bodies as large as they may be, of every shape, take a few times their size and a moment (with sanitizers, smaller ones)."""
        def filled(piece, before, after):
            return before + (piece * ((int(33_000_000 / SLOW) - len(before) - len(after)) // len(piece)))[:-1] + after
        names = b"{" + b",".join(b'"%d":1' % i for i in range(int(2_700_000 / SLOW))) + b"}"
        chat = "/v1/chat/completions"
        for path, body in (("/v1/completions", filled(b"[],", b'{"prompt":[', b"]}")), (chat, filled(b"{},", b'{"messages":[', b"]}")),
                           ("/v1/completions", filled(b'"a",', b'{"prompt":[', b"]}")), ("/v1/completions", filled(b"1,", b'{"prompt":[', b"]}")),
                           ("/v1/completions", filled(b"[1],", b'{"prompt":[', b"]}")), ("/v1/completions", names),
                           (chat, b'{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":' + names + b"}"),
                           ("/v1/completions", filled(b"word ,", b'{"prompt":"', b'"}')), ("/v1/generate", filled(b"x", b'{"prompt":"', b'"}')),
                           ("/v1/generate", filled(b"x", b'{"prompt":"', b"")), ("/v1/generate", filled(b"x", b'{"prompt":"', b'\x01"}')),
                           ("/completion", filled(b"[],", b'{"prompt":[', b"]}")), ("/completion", filled(b'"a",1,', b'{"prompt":[', b"]}")),
                           ("/completion", b'{"prompt":"x","logit_bias":' + names + b"}"),
                           ("/completion", filled(b'["a",1],', b'{"prompt":"x","logit_bias":[', b"]}")),
                           ("/infill", filled(b'{"text":"x"},', b'{"input_prefix":"","input_suffix":"","input_extra":[', b"]}")),
                           ("/infill", filled(b'{"a":1},', b'{"input_prefix":"","input_suffix":"","input_extra":[', b"]}")),
                           ("/infill", filled(b"x", b'{"input_suffix":"","input_prefix":"', b'"}')),
                           (chat, filled(b'{"role":"user","content":"x"},', b'{"messages":[', b"]}")),
                           ("/v1/responses", filled(b'{"a":{}},', b'{"input":[', b"]}")),
                           ("/v1/grammar/check", filled(b'{"a":1},', b'{"json_schema":{"enum":[', b"]}}")),
                           (chat, filled(b'{"type":"text","text":"x"},', b'{"messages":[{"role":"user","content":[', b"]}]}"))):
            before = self.server.rss()
            self.server.forget_peak()
            start = time.monotonic()
            reply = self.server.post(path, body)
            self.assertEqual((reply.status, body[:30]), (400, body[:30]), reply.body[:300])
            self.assertLess(len(reply.body), 1000)
            self.assertLess(time.monotonic() - start, 10 * SLOW, body[:30])
            if SLOW == 1:  # sanitizers keep shadows of everything
                self.assertLess(self.server.peak() - before, 4 * len(body), body[:30])
        self.assertTrue(wait_for(lambda: self.healthy.n > self.n_healthy))

    def test_hostile_grammars(self):
        """Each compiles within its budget or is too large, and nobody else waits for it."""
        large = {"type": "object", "properties": {f"property {i}": {"type": "string", "pattern": f"^[a-z]{{1,{i % 9 + 1}}}x{i}"} for i in range(16000)}}
        chain = {"$ref": "#/$defs/d0", "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(20000)}}
        chain["$defs"]["d20000"] = {"type": "null"}
        bounds = {"type": "array", "minItems": 10 ** 9, "maxItems": 10 ** 9, "items": {"type": "string", "minLength": 10 ** 9, "maxLength": 10 ** 9}}
        product = {"allOf": [{"anyOf": [{"properties": {f"{i}_{j}": {"type": "integer"}}, "required": [f"{i}_{j}"]} for j in range(10)]} for i in range(10)]}
        forms = {"a megabyte": {"guided_json": large}, "a chain of references": {"guided_json": chain}, "bounds": {"guided_json": bounds},
                 "a product": {"guided_json": product}, "a loop": {"guided_json": {"$ref": "#"}},
                 "nested counts": {"guided_regex": "((((a{1,1000}){1,1000}){1,1000}){1,1000}b)*c"}, "nested stars": {"guided_regex": "(((a*)*)*|a+)*b"},
                 "deep groups": {"guided_regex": "(" * 5000 + "a" + ")*" * 5000}, "an alternation": {"guided_regex": "|".join(f"a{i}*b{i}" for i in range(20000))},
                 "a window": {"guided_regex": ".*a.{40}b.*"}, "left recursion": {"guided_grammar": 'root ::= root root | root "a" | "" | "a"'},
                 "many rules": {"guided_grammar": "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1} | r{i + 1}\n" for i in range(20000)) + 'r20000 ::= "a"'},
                 "choices": {"guided_choice": [f"choice {i * 7919 % 100003}" for i in range(100000)]}}
        for name, fields in forms.items():
            waited, done = [], threading.Event()

            def others():
                while not done.is_set():
                    begin = time.monotonic()
                    self.assertEqual(self.server.get("/health").status, 200)
                    waited.append(time.monotonic() - begin)
                    done.wait(0.01)
            thread = threading.Thread(target=others)
            thread.start()
            begin = time.monotonic()
            reply = self.server.generate(max_tokens=3, **fields)
            took = time.monotonic() - begin
            done.set()
            thread.join()
            if reply.status != 200:
                self.assertEqual(reply.status, 400, (name, reply.body[:300]))
                self.assertRegex(reply.json()["error"]["message"], r"\((too_large|unsupported|invalid)\)$|body: ", name)
            self.assertLess(took, 10 * SLOW, name)
            self.assertLess(max(waited), 1.5 * SLOW, name)

    def test_clients_that_leave_while_their_schema_compiles(self):
        def slow(i):  # as much as one may ask for, never known from before
            self.n_asked = getattr(self, "n_asked", 0) + 1
            word = f"{os.getpid()}_{self.n_asked}_{i}"
            return {"type": "object", "properties": {f"{word} {j}": {"type": "string", "pattern": f"^[a-z]{{1,9}}x{j}"} for j in range(1000)}}
        for i in range(40):
            sock = self.server.stream({"prompt": "x", "max_tokens": 200, "stream": True, "guided_json": slow(i)})
            if i % 2:
                time.sleep(0.01)
            sock.close()
        begin = time.monotonic()
        self.assertEqual(self.server.generate(guided_regex="[a-f]{3}").status, 200)
        self.assertLess(time.monotonic() - begin, 10 * SLOW)

    def test_malformed_http(self):
        long_line = b"GET /" + b"a" * 100000
        for data in (b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", long_line, b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n: empty\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", b"GET / HTTP/1.1\nHost: x\n\n",
                     b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x10\r\n\r\n",
                     b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
                     b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     http("GET", "/", b"", *[f"h{i}: v" for i in range(20000)]), http("GET", "/", b"", "x: " + "y" * 40000),
                     os.urandom(2000)):
            reply = self.send(data)
            self.assertIn(status_of(reply), (0, 400, 404, 405, 408, 431, 501, 505), (data[:100], reply[:200]))
        for path in ("/../../etc/passwd", "/ui/../../etc/passwd", "/ui/%2e%2e/%2e%2e/etc/passwd", "/v1/models/../../../etc/passwd",
                     "/%00", "/" + "%2f" * 5000, "//", "/\xff\xfe", "/v1/models/%ff%fe"):
            reply = self.expect(http("GET", path, b"", "Connection: close"), 400, 404, 405)
            self.assertNotIn(b"root:", reply)

    def test_chunked_encoding(self):
        head = http("POST", "/v1/generate", b"", "Transfer-Encoding: chunked", "Connection: close")
        good = b"%x\r\n%s\r\n0\r\n\r\n" % (len(GENERATE), GENERATE)
        self.expect(head + good, 200)
        self.expect(head + b"".join(b"1\r\n%c\r\n" % byte for byte in GENERATE) + b"0\r\n\r\n", 200)
        self.expect(head + b"%x;ext=\"1\"\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(GENERATE), GENERATE), 200)
        for body in (b"zz\r\n", b"-5\r\nabcde\r\n", b"5\r\nabcdeXX", b"ffffffffffffffffff\r\n", b"5" * 5000, b"5;" + b"e" * 200000 + b"\r\n",
                     b"1\r\na\r\n0\r\n" + b"T: x\r\n" * 50000 + b"\r\n", b"\r\n\r\n"):
            self.expect(head + body, 0, 400, 408, 413, 431)
        self.expect(http("POST", "/v1/generate", b"", "Transfer-Encoding: gzip, chunked", "Connection: close") + good, 501)
        self.expect(http("POST", "/v1/generate", b"", "Transfer-Encoding: gzip") + good, 501)
        self.expect(http("POST", "/v1/generate", b"", "Transfer-Encoding: identity", "Content-Length: 5") + GENERATE, 400)
        self.expect(http("POST", "/v1/generate", GENERATE, "Host: y"), 400)

    def test_pipelining(self):
        n = 40
        with self.server.raw(http("POST", "/v1/generate", GENERATE) * n) as sock:
            data = b""
            while data.count(b"tokens_generated") < n:
                piece = sock.recv(65536)
                self.assertTrue(piece, data[-300:])
                data += piece
            self.assertEqual(data.count(b"HTTP/1.1 200"), n)
        # More requests than are ever read: the rest waits in the kernel and goes with the client.
        socks = [self.server.raw() for _ in range(10)]
        for sock in socks:
            sock.setblocking(False)
            for _ in range(200):
                try:
                    sock.send(http("POST", "/v1/completions", STREAM) * 20)
                except BlockingIOError:
                    break
        time.sleep(0.5)
        for sock in socks:
            sock.close()

    def test_disconnect_storms(self):
        rng = random.Random(7)
        for _ in range(ROUNDS):
            socks = [self.server.stream(json.loads(STREAM), timeout=60) for _ in range(STORM)]
            for sock in rng.sample(socks, 10):  # some have read, some have not
                read_head(sock)
            for sock in socks:
                if rng.random() < 0.5:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            self.assertTrue(wait_for(lambda: self.server.metric("penstock:num_requests_running") <= 1, 30))
        self.assertTrue(wait_for(lambda: self.healthy.n > self.n_healthy))

    def test_connections_that_say_nothing(self):
        socks = [self.server.raw() for _ in range(500)]
        self.assertEqual(self.server.generate().status, 200)
        for sock in socks:
            sock.close()

    def test_many_keep_alive_requests_on_one_connection(self):
        with self.server.raw() as sock:
            for i in range(300):
                sock.sendall(http("GET", "/health" if i % 2 else "/nope"))
                data = read_until(sock, b"}")
                self.assertEqual(status_of(data), 200 if i % 2 else 404)
                if i % 2 == 0:
                    while not data.endswith(b"}}"):
                        data += sock.recv(1000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
