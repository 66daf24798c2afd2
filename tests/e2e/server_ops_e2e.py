#!/usr/bin/env python3
"""The server's operation: keys and quotas, CORS, logs, limits, overload, deadlines, slow readers, drain, TLS, metrics."""
import base64
import gzip
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import LARGER_MODEL, PROGRAM, SLOW, Server, in_threads, read_all, read_head, read_until, slow_server, wait_for  # noqa: E402

TLS = pathlib.Path(__file__).parent / "tls"
# Never over before somebody looks, on a slow_server(); some seconds there when it has to be waited for.
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
SECONDS = {**LONG, "max_tokens": 50}


def keys(*args):
    done = subprocess.run([PROGRAM, "keys", *args], capture_output=True, text=True, timeout=30 * SLOW)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def idle(server, headers=None):
    """Nothing runs or waits and no block is referenced."""
    names = ("penstock:num_requests_running", "penstock:num_requests_waiting", "penstock:kv_cache_usage_perc")
    return wait_for(lambda: sum(server.metric(name, headers) for name in names) == 0)


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.file = os.path.join(cls.folder.name, "keys.json")
        cls.user = keys("add", "-f", cls.file, "--name", "user")
        cls.scraper = keys("add", "-f", cls.file, "--name", "scraper", "--scope", "metrics")
        cls.admin = keys("add", "-f", cls.file, "--name", "boss", "--scope", "admin")
        cls.few = keys("add", "-f", cls.file, "--requests-per-minute", "2")
        cls.short = keys("add", "-f", cls.file, "--tokens-per-minute", "20")
        cls.server = Server("--api-key-file", cls.file, "--api-key", "plain")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def status(self, method, path, headers=None):
        return self.server.request(method, path, "{}" if method == "POST" else None, headers).status

    def test_every_route_is_denied_without_a_key(self):
        paths = json.loads(self.server.get("/openapi.json", bearer(self.user)).body)["paths"]
        self.assertGreater(len(paths), 8)
        for path, methods in paths.items():
            if path in ("/", "/dashboard", "/live", "/health", "/ready") or path.startswith("/ui/"):
                continue
            for method in methods:
                for headers in ({}, bearer("wrong"), {"x-api-key": "pst-000000000000-00"}, {"Authorization": "Bearer"}):
                    reply = self.server.request(method.upper(), path.replace("{id}", "x"), "{}", headers)
                    self.assertEqual((method, path, reply.status), (method, path, 401))
                    error = reply.json()["error"]
                    if path.startswith("/api/"):  # Ollama's errors are texts
                        self.assertIn("API key", error)
                    else:
                        self.assertEqual(error["type"], "authentication_error")
                    self.assertIn("WWW-Authenticate", reply.headers)
        self.assertEqual(self.status("GET", "/no/such/route"), 401)
        self.assertEqual(self.status("DELETE", "/v1/models"), 401)
        self.assertEqual(self.server.get("/live").json(), {"status": "alive"})
        self.assertEqual(self.server.get("/health").json(), {"status": "healthy"})
        self.assertEqual(self.server.get("/ready").status, 200)

    def test_without_a_key_no_body_is_read(self):
        for headers in ("Content-Length: 30000000", "Content-Length: 99999999999", "Transfer-Encoding: chunked",
                        "Content-Length: 30000000\r\nExpect: 100-continue"):
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n".encode()
            with self.server.raw(head) as sock:
                self.assertTrue(read_head(sock)[0].startswith(b"HTTP/1.1 401 "), headers)
            with self.server.raw(head.replace(b"\r\n\r\n", b"\r\nx-api-key: plain\r\n\r\n")) as sock:
                if "99999999999" in headers:
                    self.assertTrue(read_head(sock)[0].startswith(b"HTTP/1.1 413 "), headers)

    def test_ways_to_send_a_key(self):
        basic = base64.b64encode(f"me:{self.user}".encode()).decode()
        for headers in (bearer(self.user), {"authorization": f"bearer   {self.user}"}, {"x-api-key": self.user},
                        {"Authorization": f"Basic {basic}"}, bearer("plain")):
            self.assertEqual(self.server.get("/v1/models", headers).status, 200, headers)
        self.assertEqual(self.server.get("/v1/models", {"Accept": "text/html"}).headers["WWW-Authenticate"].split()[0], "Basic")

    def test_scopes(self):
        for key, metrics, models, reset in ((self.user, 200, 200, 403), (self.scraper, 200, 403, 403),
                                            (self.admin, 200, 200, 200), ("plain", 200, 200, 200)):
            self.assertEqual(self.status("GET", "/metrics", bearer(key)), metrics)
            self.assertEqual(self.status("GET", "/v1/models", bearer(key)), models)
            self.assertEqual(self.status("POST", "/reset_prefix_cache", bearer(key)), reset)
        self.assertEqual(self.server.generate(headers=bearer(self.scraper)).status, 403)

    def test_request_quota(self):
        replies = [self.server.generate(headers=bearer(self.few), max_tokens=1) for _ in range(3)]
        self.assertEqual([reply.status for reply in replies], [200, 200, 429])
        self.assertEqual(replies[0].headers["x-ratelimit-limit-requests"], "2")
        self.assertEqual(replies[0].headers["x-ratelimit-remaining-requests"], "1")
        self.assertTrue(1 <= int(replies[2].headers["Retry-After"]) <= 30)
        self.assertEqual(replies[2].json()["error"]["type"], "rate_limit_error")
        self.assertEqual(self.server.generate(headers=bearer(self.user), max_tokens=1).status, 200)

    def test_errors_have_the_shape_of_the_api(self):
        few = keys("add", "-f", self.file, "--requests-per-minute", "1")
        self.assertTrue(wait_for(lambda: self.status("GET", "/v1/models", bearer(few)) == 200))
        for headers, status, kind in (({}, 401, "authentication_error"), (bearer(self.scraper), 403, "permission_error"),
                                      (bearer(few), 400, "invalid_request_error"), (bearer(few), 429, "rate_limit_error")):
            reply = self.server.post("/v1/messages", {}, headers)
            self.assertEqual((reply.status, reply.json()["type"], reply.json()["error"]["type"]), (status, "error", kind))
            self.assertEqual(set(reply.json()["error"]), {"type", "message"})

    def test_token_quota(self):
        self.assertEqual(self.server.generate(headers=bearer(self.short), max_tokens=40, ignore_eos=True).status, 200)
        reply = self.server.generate(headers=bearer(self.short))
        self.assertEqual(reply.status, 429)
        # 5 or more prompt and 40 completion tokens of 20 a minute: more than a minute in debt.
        self.assertTrue(60 <= int(reply.headers["Retry-After"]) <= 120)

    def test_keys_come_and_go_while_the_server_runs(self):
        key = keys("add", "-f", self.file, "--name", "short-lived")
        self.assertTrue(wait_for(lambda: self.status("GET", "/v1/models", bearer(key)) == 200))
        listing = keys("list", "-f", self.file)
        self.assertIn("short-lived", listing)
        self.assertNotIn(key, listing)
        keys("revoke", "-f", self.file, key.split("-")[1])
        self.assertTrue(wait_for(lambda: self.status("GET", "/v1/models", bearer(key)) == 401))
        self.assertNotIn("short-lived", keys("list", "-f", self.file))

    def test_the_log_names_the_key_by_its_id(self):
        self.server.get("/v1/models", bearer(self.user))
        self.assertTrue(wait_for(lambda: f"key {self.user.split('-')[1]}" in self.server.log()))
        for key in (self.user, self.admin, self.scraper):
            self.assertNotIn(key, self.server.log())


class KeysCommand(unittest.TestCase):
    def test_errors(self):
        for args, code in ((["list", "-f", "/nonexistent/keys"], 3), (["add"], 2), (["add", "-f", "/tmp/x", "--scope", "root"], 2),
                           (["revoke", "-f", "/nonexistent/keys", "0123456789ab"], 3), ([], 2)):
            self.assertEqual(subprocess.run([PROGRAM, "keys", *args], capture_output=True).returncode, code, args)

    def test_a_file_that_is_no_key_file_stops_the_start(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("sk-plain-text-key\n")
            file.flush()
            done = subprocess.run([PROGRAM, "serve", "--port", "0", "--api-key-file", file.name], capture_output=True,
                                  text=True, timeout=60 * SLOW)
        self.assertEqual(done.returncode, 4)
        self.assertIn(file.name, done.stderr)
        self.assertNotIn("sk-plain", done.stderr)


class Browsers(unittest.TestCase):
    def preflight(self, server, origin):
        return server.request("OPTIONS", "/v1/completions", None, {
            "Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"})

    def test_cors_is_off_unless_asked(self):
        with Server() as server:
            self.assertEqual(self.preflight(server, "https://app.example").status, 403)
            refused = server.get("/health", {"Origin": "https://app.example"})
            self.assertEqual(refused.status, 403)
            self.assertNotIn("Access-Control-Allow-Origin", refused.headers)
            for evil in ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"},
                         {"Origin": f"http://127.0.0.1:{server.port + 1}"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"},
                         {"Origin": f"http://evil.example:{server.port}", "Host": f"evil.example:{server.port}"}):
                for path in ("/v1/generate", "/reset_prefix_cache"):
                    reply = server.post(path, {"prompt": "x"}, evil)
                    self.assertEqual((evil, reply.status), (evil, 403))
                    self.assertIn("error", reply.json())
            for own in ({"Origin": f"http://127.0.0.1:{server.port}"}, {"Origin": "https://x.example", "Sec-Fetch-Site": "same-origin"}):
                self.assertEqual(server.generate(headers=own).status, 200)
            self.assertTrue(wait_for(lambda: server.metric("penstock:generation_tokens_total") == 16))  # of the two that were answered

    def test_only_json_is_read(self):
        with Server() as server:
            for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
                for path in ("/v1/generate", "/reset_prefix_cache"):
                    reply = server.post(path, {"prompt": "x"}, {"Content-Type": form})
                    self.assertEqual((form, reply.status), (form, 415))
                    self.assertIn("application/json", reply.json()["error"]["message"])

    def test_names_of_the_server(self):
        """A name that somebody else points at this machine (DNS rebinding) makes no page the server's own."""
        with Server("--allowed-host", "llm.example") as server:
            for host, status in (("evil.example", 403), ("llm.example", 200), (f"llm.example:{server.port}", 200), ("localhost", 200)):
                for path in ("/", "/v1/models"):
                    self.assertEqual((host, server.get(path, {"Host": host}).status), (host, status))
        with Server("--host", "0.0.0.0") as server:  # there other clients may use any name of a network
            name = f"evil.example:{server.port}"
            self.assertEqual(server.get("/v1/models", {"Host": name}).status, 200)
            self.assertEqual(server.post("/v1/generate", {"prompt": "x"}, {"Host": name, "Origin": f"http://{name}"}).status, 403)
        for flags in (("--api-key", "k"), ("--allowed-host", "*")):
            with Server(*flags) as server:
                self.assertEqual(server.get("/v1/models", {**bearer("k"), "Host": "any.example"}).status, 200)

    def test_cors_for_one_origin(self):
        with Server("--cors-origin", "https://app.example", "--api-key", "k") as server:
            reply = self.preflight(server, "https://app.example")
            self.assertEqual((reply.status, reply.body), (204, b""))
            self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "https://app.example")
            self.assertEqual(reply.headers["Access-Control-Allow-Headers"], "authorization")
            self.assertIn("POST", reply.headers["Access-Control-Allow-Methods"])
            reply = server.get("/v1/models", {**bearer("k"), "Origin": "https://app.example"})
            self.assertEqual((reply.status, reply.headers["Access-Control-Allow-Origin"]), (200, "https://app.example"))
            self.assertEqual(reply.headers["Vary"], "Origin")
            reply = self.preflight(server, "https://other.example")
            self.assertEqual(reply.status, 403)
            self.assertNotIn("Access-Control-Allow-Origin", reply.headers)


class Logs(unittest.TestCase):
    def test_json_lines_without_prompts(self):
        with Server("--log-format", "json", "--api-key", "k") as server:
            reply = server.generate("a most secret prompt", {**bearer("k"), "x-request-id": "mine-1"})
            self.assertEqual(reply.headers["x-request-id"], "mine-1")
            server.get("/evil%0aline%22", {**bearer("k"), "x-request-id": "bad id\twith space"})
            self.assertEqual(server.stop(), 0)
            lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
            self.assertNotIn("secret", server.log())
        requests = [line for line in lines if line["event"] == "request"]
        self.assertEqual([(r["path"], r["status"]) for r in requests], [("/v1/generate", 200), ('/evil\nline"', 404)])
        self.assertEqual(requests[0]["id"], "mine-1")
        self.assertEqual(requests[0]["completion_tokens"], 8)
        self.assertEqual(requests[0]["method"], "POST")
        self.assertGreater(requests[0]["seconds"], 0)
        self.assertRegex(requests[1]["id"], r"^req-[0-9a-f]{16}$")
        self.assertRegex(requests[0]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$")

    def test_prompts_when_asked(self):
        with Server("--log-prompts") as server:
            server.generate("a most secret prompt")
            server.get("/two%0alines")
            server.get("/a%e2%80%a8b%e2%80%aec%e2%81%a6d%e2%80%a6")  # a line's end, turns of the direction; an ellipsis
            self.assertEqual(server.stop(), 0)
            log = server.log()
        self.assertIn("a most secret prompt", log)
        self.assertIn("/two\\x0alines 404", log)
        self.assertIn("/a\\u2028b\\u202ec\\u2066d\u2026 404", log)

    def test_none_when_not_wanted(self):
        with Server("--no-log-requests") as server:
            server.generate()
            self.assertEqual(server.stop(), 0)
            self.assertEqual(len(server.log().splitlines()), 1)


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-header-bytes", "4096", "--max-body-bytes", "10000", "--header-timeout", "0.5",
                            "--body-timeout", "0.5", "--idle-timeout", "1")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def answer(self, data, timeout=20):
        with self.server.raw(data, timeout) as sock:
            reply = read_all(sock).decode(errors="replace")
        match = re.match(r"HTTP/1\.1 (\d+)", reply)
        return int(match.group(1)) if match else 0, reply

    def test_sizes(self):
        status, reply = self.answer(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 5000 + b"\r\n\r\n")
        self.assertEqual(status, 431)
        self.assertIn("4096", reply)
        self.assertIn('"error"', reply)
        status, reply = self.answer(b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n")
        self.assertEqual(status, 413)
        chunk = b"3e8\r\n" + b"z" * 1000 + b"\r\n"
        status, _ = self.answer(b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + 11 * chunk)
        self.assertEqual(status, 413)

    def test_times(self):
        start = time.monotonic()
        self.assertEqual(self.answer(b"GET /health HT")[0], 408)
        self.assertEqual(self.answer(b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")[0], 408)
        self.assertEqual(self.answer(b"")[0], 0)  # idle: closed without a word
        self.assertLess(time.monotonic() - start, 75 * SLOW)  # the default of --idle-timeout alone

    def test_connections(self):
        with Server("--max-connections", "8") as server:
            socks = [server.raw() for _ in range(8)]
            with server.raw() as one_more:
                reply = read_all(one_more).decode()
            self.assertRegex(reply, r"HTTP/1\.1 503 ")
            self.assertIn("Retry-After: 1", reply)
            for sock in socks:
                sock.close()
            self.assertTrue(wait_for(lambda: server.get("/health").status == 200))

    def test_bodies_of_all_requests_together(self):
        with Server("--max-total-body-bytes", "100000") as server:
            head = b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n"
            with server.raw(head + b"a" * 80000) as first:
                self.assertTrue(wait_for(lambda: server.metric("penstock:http_body_bytes") == 80000 - 16384))  # of a small body nothing counts
                with server.raw(head + b"a" * 80000) as second:
                    self.assertIn(b"503", read_head(second)[0])
                first.sendall(b"a" * 10000)
                self.assertIn(b"400", read_head(first)[0])  # not JSON
            self.assertTrue(wait_for(lambda: server.metric("penstock:http_body_bytes") == 0))


class Overload(unittest.TestCase):
    def test_a_full_queue_says_when_to_come_back(self):
        with slow_server("--max-num-seqs", "1", "--max-queued-requests", "1") as server:
            first = server.stream({**SECONDS, "stream": True, "n": 2})
            read_until(first, b"data:")
            second = server.stream({**LONG, "stream": True, "max_tokens": 4})
            # The two and the one that asks.
            self.assertTrue(wait_for(lambda: server.metric("penstock:http_requests_in_flight") == 3))
            refused = server.generate()
            self.assertEqual(refused.status, 429)
            self.assertEqual(int(refused.headers["Retry-After"]), 1)  # nothing is known yet
            self.assertIn(b"[DONE]", read_until(first, b"0\r\n\r\n"))
            self.assertIn(b"[DONE]", read_until(second, b"0\r\n\r\n"))
            self.assertEqual(server.generate().status, 200)
            self.assertTrue(wait_for(lambda: server.metric("vllm:admission_rejections_total") == 1))

    def test_when_to_come_back_is_estimated(self):
        """Half the queue, at the speed of the requests so far."""
        with slow_server("--max-num-seqs", "1", "--max-queued-requests", "20") as server:
            timings = server.post("/v1/completions", {**SECONDS, "timings": True}).json()["timings"]
            seconds = (timings["prefill_ms"] + timings["decode_ms"]) / 1000
            socks = [server.stream({**LONG, "stream": True})]
            read_until(socks[0], b"data:")
            socks += [server.stream({**LONG, "stream": True}) for _ in range(20)]
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_waiting") == 20))
            refused = server.generate()
            self.assertEqual(refused.status, 429)
            self.assertAlmostEqual(int(refused.headers["Retry-After"]), seconds * 20 / 2, delta=1.5 + seconds)
            for sock in socks:
                sock.close()

    def test_deadline(self):
        with slow_server("--request-timeout", "0.2", "--max-num-seqs", "1") as server:
            first = server.stream({**LONG, "stream": True})
            late = server.post("/v1/completions", LONG)
            tail = read_until(first, b"0\r\n\r\n").decode()
            self.assertEqual(late.status, 504)
            self.assertIn("deadline", late.json()["error"]["message"])
            self.assertIn("deadline", tail)
            self.assertTrue(idle(server))

    def test_deadline_of_the_request(self):
        with slow_server() as server:
            late = server.post("/v1/completions", LONG, {"x-request-timeout": "0.05"})
            self.assertEqual(late.status, 504)
            for wrong in ("-1", "soon", "nan", "0", "1e99"):
                self.assertEqual(server.post("/v1/completions", LONG, {"x-request-timeout": wrong}).status, 400)
            self.assertEqual(server.generate(headers={"x-request-timeout": "60"}).status, 200)
            self.assertTrue(idle(server))

    def test_comments_keep_a_silent_stream_alive(self):
        with slow_server("--sse-keep-alive-interval", "0.1", "--max-num-seqs", "1") as server:
            first = server.stream({**LONG, "stream": True, "n": 4})
            read_until(first, b"data:")
            second = server.stream({"prompt": "x", "max_tokens": 2, "stream": True})
            self.assertIn(b"\r\n: ", read_until(second, b"\n: "))
            first.close()  # and then it is the second one's turn
            self.assertIn(b"[DONE]", read_until(second, b"0\r\n\r\n"))

    def test_pings_keep_a_silent_message_alive(self):
        template = "{{ messages[0].content }}"
        with slow_server("--sse-keep-alive-interval", "0.1", "--max-num-seqs", "1", "--chat-template", template) as server:
            first = server.stream({**LONG, "stream": True, "n": 4})
            read_until(first, b"data:")
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "stream": True}
            second = server.stream(body, "/v1/messages")
            self.assertIn(b'event: ping\ndata: {"type": "ping"}\n\n', read_until(second, b'"ping"}\n\n'))
            first.close()  # and then it is the second one's turn
            self.assertIn(b"message_stop", read_until(second, b"0\r\n\r\n"))

    def test_comments_while_a_call_is_gathered(self):
        """Tokens come, but Python's calls are told as a whole."""
        text = {"type": "string", "minLength": 60, "maxLength": 80}
        tool = {"type": "function", "function": {"name": "note", "parameters": {
            "type": "object", "properties": {"text": text}, "required": ["text"], "additionalProperties": False}}}
        template = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{{ messages[0].content }}"
        with slow_server("--sse-keep-alive-interval", "0.02", "--chat-template", template, "--tool-call-parser", "pythonic") as server:
            body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False,
                    "max_tokens": 200, "stream": True}
            before, call, _ = read_until(server.stream(body, "/v1/chat/completions"), b"[DONE]").partition(b'"tool_calls":[')
            self.assertTrue(call)
            self.assertIn(b": keep-alive", before.partition(b'"role":"assistant"')[2])

    def test_a_silent_stream_of_lines_has_no_comments(self):
        with slow_server("--sse-keep-alive-interval", "0.1", "--max-num-seqs", "1") as server:
            first = server.stream({**LONG, "stream": True, "n": 4})
            read_until(first, b"data:")
            second = server.stream({"prompt": "x", "raw": True, "options": {"num_predict": 2}}, "/api/generate")
            head = read_until(second, b"\r\n\r\n")
            time.sleep(0.4)
            first.close()  # and then it is the second one's turn
            lines = read_until(second, b"\r\n0\r\n\r\n", head).partition(b"\r\n\r\n")[2]
            self.assertNotIn(b"\n: ", lines)
            self.assertIn(b'"done":true', lines)

    def test_the_load_counts_what_generates(self):
        with slow_server() as server:
            self.assertEqual(server.get("/load").json(), {"server_load": 0})
            socks = [server.stream({**LONG, "stream": True}) for _ in range(2)]
            for sock in socks:
                read_until(sock, b"data:")
            self.assertEqual(server.get("/load").json(), {"server_load": 2})
            for sock in socks:
                sock.close()
            self.assertTrue(wait_for(lambda: server.get("/load").json() == {"server_load": 0}))

    def test_a_client_that_leaves_frees_its_blocks_at_once(self):
        with slow_server() as server:
            for body in ({**LONG, "stream": True, "n": 4}, {**LONG, "n": 4}):
                sock = server.stream(body)
                self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") == 4))
                sock.close()
                self.assertTrue(idle(server))
            self.assertTrue(wait_for(lambda: server.metric("penstock:http_disconnects_total") == 2))
            self.assertTrue(wait_for(lambda: server.metric("penstock:request_success_abort_total") == 8))
            self.assertLess(server.metric("penstock:generation_tokens_total"), 2 * 4 * 400)

    def test_a_reader_that_does_not_read_is_bounded_and_then_gone(self):
        with Server("--write-timeout", "1", "--max-num-seqs", "64") as server:
            server.generate()
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            body = json.dumps({**LONG, "stream": True, "n": 32, "logprobs": 5}).encode()
            start = server.rss()
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.assertTrue(wait_for(lambda: server.metric("penstock:http_disconnects_total") == 1, 60))
            self.assertLess(server.rss() - start, 48 << 20)
            self.assertTrue(idle(server))
            self.assertEqual(server.generate().status, 200)
            sock.close()


def readiness(server):
    """/ready's status; None when the connection, just made, was closed as one that says nothing: where a drain begins."""
    try:
        return server.get("/ready").status
    except ConnectionError:
        return None


class Drain(unittest.TestCase):
    def test_requests_under_way_are_finished(self):
        with slow_server() as server:
            plain = json.dumps({**SECONDS, "n": 2}).encode()
            sock = server.stream({**SECONDS, "stream": True, "n": 2})
            other = server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(plain) + plain)
            idler = server.raw()
            data = read_until(sock, b"data:")
            self.assertTrue(wait_for(lambda: server.metric("penstock:http_requests_in_flight") == 3))
            server.terminate()
            self.assertTrue(wait_for(lambda: readiness(server) == 503))
            refused = server.generate()
            self.assertEqual((refused.status, refused.headers["Connection"]), (503, "close"))
            self.assertTrue(1 <= int(refused.headers["Retry-After"]) <= 30)  # what is left of --shutdown-timeout
            self.assertEqual(server.get("/live").status, 200)
            health = server.get("/health")
            self.assertEqual((health.status, health.json()["status"]), (503, "draining"))
            data = read_until(sock, b"0\r\n\r\n", data)
            self.assertIn(b'"length"', data)
            self.assertIn(b"[DONE]", data)
            self.assertIn(b"200 OK", read_all(other))
            self.assertEqual(read_all(idler), b"")
            self.assertEqual(server.process.wait(30 * SLOW), 0)

    def test_at_the_timeout_they_are_cut_and_told(self):
        with slow_server("--shutdown-timeout", "0.3", "--max-num-seqs", "2") as server:
            streams = [server.stream({**LONG, "stream": True, "n": 2}) for _ in range(4)]
            plain = server.stream(LONG)
            read_until(streams[0], b"data:")
            server.terminate()
            self.assertEqual(server.process.wait(30 * SLOW), 0)
            for sock in streams:
                self.assertIn(b"[DONE]", read_all(sock))
            self.assertRegex(read_all(plain), rb"HTTP/1.1 503 ")

    def test_the_kv_store_survives_sigkill(self):
        prompt = "Once upon a time there was a little girl who liked to play in the garden with her dog and her cat. "
        with tempfile.TemporaryDirectory() as folder:
            args = ("--kv-store", f"{folder}:64M", "--batch-invariant")
            with Server(*args) as server:
                first = server.generate(prompt)
                wait_for(lambda: server.metric("penstock:kv_store_written_blocks_total") >= 1, 30)
                time.sleep(0.5 * SLOW)  # for the blocks behind the first
                server.process.kill()
            with Server(*args) as server:
                self.assertEqual(server.generate(prompt).json()["text"], first.json()["text"])
                self.assertGreaterEqual(server.metric("penstock:kv_store_read_blocks_total"), 1)
                self.assertGreaterEqual(server.metric("penstock:prompt_tokens_cached_total"), 16)
                self.assertEqual(server.metric("penstock:kv_store_damaged_blocks_total"), 0)

    def test_servers_share_a_redis(self):
        prompt = "Once upon a time there was a little girl who liked to play in the garden with her dog and her cat. "
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # the same program under the name of another (tests/engine/redis_server.h)
        redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", "s e"],
                                 executable="/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)
        self.addCleanup(redis.wait)
        self.addCleanup(redis.kill)
        args = ("--kv-store", f"redis://:s%20e@127.0.0.1:{port}/1", "--batch-invariant")
        with Server(*args) as one, Server(*args) as other:
            first = one.generate(prompt)
            wait_for(lambda: one.metric("penstock:kv_store_written_blocks_total") >= 1, 30)
            time.sleep(0.5 * SLOW)  # for the blocks behind the first
            self.assertEqual(other.generate(prompt).json()["text"], first.json()["text"])
            self.assertGreaterEqual(other.metric("penstock:prompt_tokens_from_store_total"), 16)
            redis.kill()
            redis.wait()
            self.assertEqual(other.generate(prompt + "They").status, 200)
            self.assertEqual(one.generate("The dog. " + prompt).status, 200)

    def test_usage_tells_why_a_prompt_was_not_cached(self):
        flags = ("--chat-template", "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}", "--prefix-history", 4096)
        story = "Once upon a time there was a little girl who liked to play in the garden with her dog and her cat. "

        def ask(server, last, path="/v1/chat/completions"):
            text = "She had a red ball. " * 4 + last
            asked = {"/v1/completions": {"prompt": story + text, "max_tokens": 4}, "/v1/responses": {"instructions": story, "input": text, "max_output_tokens": 16},
                     "/v1/messages": {"system": story, "messages": [{"role": "user", "content": text}], "max_tokens": 4},
                     "/v1/chat/completions": {"messages": [{"role": "system", "content": story}, {"role": "user", "content": text}], "max_tokens": 4}}
            usage = server.post(path, {**asked[path], "temperature": 0}).json()["usage"]
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or usage
            return details["cache_miss"], details.get("cached_tokens", details.get("cache_read_input_tokens"))

        with Server(*flags, env={"PENSTOCK_LOG": "info"}) as server:
            self.assertEqual(ask(server, "It was big.")[0]["reason"], "new")
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"):
                if path == "/v1/completions":
                    ask(server, "It was big.", path)  # this API's prompts begin with <s>
                miss, cached = ask(server, f"It was small, said {path}.", path)
                self.assertEqual(miss["reason"], "differs", path)
                if path == "/v1/chat/completions":
                    self.assertIn("big", miss["had"])
                    self.assertIn("small", miss["has"])
                if path != "/v1/completions":
                    self.assertEqual((miss["message"], miss["role"]), (1, "user"), path)
                self.assertGreater(miss["token"], 40, path)
                self.assertEqual(miss["tiers"]["memory"]["tokens"], cached, path)
                self.assertGreater(miss["tiers"]["computed"]["tokens"], 0, path)
            server.post("/reset_prefix_cache", {})
            miss, cached = ask(server, "It was big.")
            self.assertEqual((miss["reason"], cached), ("not_kept", 0))
            self.assertEqual(ask(server, "It was big.")[0]["reason"], "none")
            self.assertEqual(server.stop(), 0)
            self.assertRegex(server.log(), r"request \d+: of \d+ prompt tokens \d+ were in memory and 0 in the store")
            self.assertNotIn("garden", server.log())
        with Server(*flags[:2]) as server:
            reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}).json()
            self.assertEqual(reply["usage"]["prompt_tokens_details"], {"cached_tokens": 0})

    def test_idle_server_goes_at_once_and_a_second_signal_does_not_wait(self):
        with Server() as server:
            start = time.monotonic()
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(30 * SLOW), 0)
            self.assertLess(time.monotonic() - start, 25 * SLOW)  # not --shutdown-timeout
        with slow_server() as server:
            sock = server.stream({**LONG, "stream": True})
            read_until(sock, b"data:")
            server.terminate()
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(30 * SLOW), 130)
            sock.close()


class Tls(unittest.TestCase):
    def test_tls12_and_later(self):
        with Server("--ssl-certfile", TLS / "cert.pem", "--ssl-keyfile", TLS / "key.pem") as server:
            context = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
            context.set_alpn_protocols(["h2", "http/1.1"])
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context.minimum_version = context.maximum_version = version
                with context.wrap_socket(server.raw(), server_hostname="127.0.0.1") as sock:
                    self.assertEqual(sock.selected_alpn_protocol(), "http/1.1")
                    body = json.dumps({**LONG, "max_tokens": 8, "stream": True}).encode()
                    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                    for _ in range(2):  # keep-alive
                        sock.sendall(request)
                        self.assertIn(b"[DONE]", read_until(sock, b"0\r\n\r\n"))
                    sock.sendall(request + request)  # a pipeline
                    data = read_until(sock, b"0\r\n\r\n")
                    if data.count(b"[DONE]") < 2:
                        read_until(sock, b"0\r\n\r\n", data.split(b"0\r\n\r\n", 1)[1])
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings(action="ignore"):  # that they are old
                old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            with self.assertRaises(OSError):
                old.wrap_socket(server.raw(), server_hostname="127.0.0.1")
            with server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") as plain:
                self.assertIn(read_all(plain)[:5], (b"", b"\x15\x03\x01\x00\x02", b"\x15\x03\x03\x00\x02"))
            # A client that leaves in the middle of a TLS stream.
            sock = context.wrap_socket(server.raw(), server_hostname="127.0.0.1")
            body = json.dumps({**LONG, "stream": True, "n": 4}).encode()
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            read_until(sock, b"data:")
            sock.close()
            self.assertEqual(server.stop(), 0)

    def test_half_a_certificate_is_an_error(self):
        done = subprocess.run([PROGRAM, "serve", "--port", "0", "--ssl-certfile", TLS / "cert.pem"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)


class Observed(unittest.TestCase):
    def test_counters_add_up(self):
        with Server("--no-log-requests") as server:
            replies = in_threads(12, lambda i: server.generate(f"Number {i}", max_tokens=i + 1, ignore_eos=True))
            self.assertEqual([reply.status for reply in replies], [200] * 12)
            for path, status in (("/nope", 404), ("/v1/generate", 405)):
                self.assertEqual(server.get(path).status, status)
            # A reply can be there before it is counted.
            self.assertTrue(wait_for(lambda: server.metric("penstock:e2e_request_latency_seconds_count") == 12))
            metrics = server.metrics()
            value = lambda name: sum(v for k, v in metrics.items() if k.split("{")[0] == name)  # noqa: E731
            n_tokens = sum(range(1, 13))
            for prefix in ("penstock:", "vllm:"):
                self.assertEqual(value(prefix + "generation_tokens_total"), n_tokens)
                self.assertEqual(value(prefix + "request_generation_tokens_sum"), n_tokens)
                self.assertEqual(value(prefix + "e2e_request_latency_seconds_count"), 12)
                self.assertEqual(value(prefix + "time_to_first_token_seconds_count"), 12)
                self.assertEqual(value(prefix + "inter_token_latency_seconds_count"), n_tokens - 12)
            length = [v for k, v in metrics.items() if k.startswith("vllm:request_success_total{") and 'finished_reason="length"' in k]
            self.assertEqual(length, [12])
            by_route = {k: v for k, v in metrics.items() if k.startswith("penstock:http_requests_total")}
            self.assertEqual(by_route['penstock:http_requests_total{path="/v1/generate",method="POST",status="200"}'], 12)
            self.assertEqual(sum(v for k, v in by_route.items() if 'status="404"' in k or 'status="405"' in k), 2)
            for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
                self.assertGreater(metrics[name], 0)
            summary = server.get("/v1/metrics").json()
            self.assertEqual((summary["total_requests"], summary["total_tokens"]), (12, n_tokens))
            for field in ("avg_latency_ms", "avg_tokens_per_second", "avg_batch_size", "avg_time_to_first_token_ms"):
                self.assertGreater(summary[field], 0)
            self.assertGreaterEqual(summary["avg_batch_size"], 1)
            self.assertLessEqual(summary["avg_batch_size"], 12)

    def test_vllm_names_can_be_switched_off(self):
        with Server("--no-vllm-metrics") as server:
            self.assertFalse([name for name in server.metrics() if name.startswith("vllm:")])

    def test_timings_when_asked(self):
        with Server() as server:
            self.assertNotIn("timings", server.post("/v1/completions", {**LONG, "max_tokens": 2}).json())
            timings = server.post("/v1/completions", {**LONG, "max_tokens": 9, "timings": True}).json()["timings"]
            self.assertEqual(timings["preemptions"], 0)
            for name in ("prefill_ms", "decode_ms", "max_inter_token_ms"):
                self.assertGreater(timings[name], 0)

    def test_head(self):
        with Server() as server:
            reply = server.request("HEAD", "/health")
            self.assertEqual((reply.status, reply.body), (200, b""))
            self.assertEqual(reply.headers["Content-Length"], str(len(server.get("/health").body)))

    def test_metrics_in_gzip(self):
        with Server("--cors-origin", "https://app.example") as server:
            plain = server.get("/metrics")
            self.assertIsNone(plain.headers["Content-Encoding"])
            zipped = server.get("/metrics", {"Accept-Encoding": "gzip, deflate", "Origin": "https://app.example"})
            self.assertEqual((zipped.status, zipped.headers["Content-Encoding"]), (200, "gzip"))
            self.assertIn("Accept-Encoding", ", ".join(zipped.headers.get_all("Vary")))
            self.assertIn("Origin", ", ".join(zipped.headers.get_all("Vary")))
            names = [line.split()[2] for line in plain.body.decode().splitlines() if line.startswith("# TYPE")]
            self.assertEqual([line.split()[2] for line in gzip.decompress(zipped.body).decode().splitlines() if line.startswith("# TYPE")], names)
            self.assertLess(len(zipped.body), len(plain.body) // 5)
            self.assertIsNone(server.get("/metrics", {"Accept-Encoding": "gzip;q=0"}).headers["Content-Encoding"])

    def test_health_says_when_requests_are_answered(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([PROGRAM, "serve", "-m", str(LARGER_MODEL), "--host", "127.0.0.1", "--port", str(port), "--kv-cache-memory", "64M"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            def ask(method, path, body=None):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * SLOW)
                try:
                    connection.request(method, path, body)
                    reply = connection.getresponse()
                    return reply.status, reply.headers, reply.read()
                except ConnectionError:  # it does not listen yet
                    return None, None, None
                finally:
                    connection.close()

            end = time.monotonic() + 60 * SLOW
            while True:
                status, headers, body = ask("GET", "/health")
                if status == 200:
                    break
                if status is not None:
                    self.assertEqual((status, json.loads(body)["status"]), (503, "loading"))
                    self.assertGreaterEqual(int(headers["Retry-After"]), 1)
                    self.assertEqual(ask("GET", "/live")[0], 200)
                self.assertLess(time.monotonic(), end)
            self.assertEqual(ask("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1}))[0], 200)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
