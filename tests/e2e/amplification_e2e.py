#!/usr/bin/env python3
"""Small requests that cause much work, and large fields that are repeated: each is bounded, and nobody else waits for it.

PENSTOCK_BINARY and PENSTOCK_SLOWNESS as for abuse_e2e.py.
"""
import json
import pathlib
import re
import resource
import sqlite3
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from batches_e2e import COMPLETIONS, Case as BatchCase, line
from costs_e2e import Health
from live_server import MODEL, SLOW, SOURCE, Server, in_threads, read_head, slow_server, wait_for
from server_ops_e2e import bearer, keys

MIB = 1 << 20
TEMPLATE = ("--chat-template", "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}{{ tools }}")


class Lists(unittest.TestCase):
    """Lists that are gone through for every token, or for every token of the vocabulary."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--no-log-requests", "--reply-cache", "16MiB", "--allow-image-urls", *TEMPLATE)
        cls.server.generate()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.server.__exit__()

    def ask(self, path, body, longest=1.0):
        """The reply; nobody waited for it."""
        body = json.dumps(body).encode()
        before = self.server.rss()
        self.server.forget_peak()
        with Health(self.server) as health:
            reply = self.server.post(path, body)
        self.assertEqual(health.failures, [])
        self.assertLess(health.longest, longest * SLOW, body[:100])
        if SLOW == 1:
            self.assertLess(self.server.peak() - before, 4 * len(body) + 100 * MIB, body[:100])
        return reply

    def refused(self, path, body, words):
        reply = self.ask(path, body)
        self.assertEqual((reply.status, reply.json()["error"]["message"][:len(words)]), (400, words))

    def test_lists_that_are_too_long(self):
        prompt = {"prompt": "Once", "max_tokens": 50, "n": 64, "ignore_eos": True}
        ids = list(range(1000)) * 100
        self.refused("/v1/completions", {**prompt, "banned_token_ids": ids}, "banned_token_ids: expected at most")
        self.refused("/v1/completions", {**prompt, "allowed_token_ids": ids}, "allowed_token_ids: expected at most")
        self.refused("/v1/completions", {**prompt, "stop_token_ids": ids}, "stop_token_ids: expected at most 1024 tokens, got 100000")
        self.refused("/v1/completions", {**prompt, "logit_bias": {"0" * (i // 500) + str(i % 500): 1 for i in range(20000)}},
                     "logit_bias: expected at most 4096 tokens")
        self.refused("/v1/completions", {**prompt, "bad_words": ["word " * 2_000_000]}, "bad_words: expected strings of at most 16384 bytes")
        self.refused("/v1/completions", {**prompt, "stop": ["x" * 8_000_000]}, "stop: expected strings of at most 16384 bytes")
        self.refused("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stop_sequences": ["x" * 8_000_000, "y" * 8_000_000]},
                     "stop_sequences: expected strings of at most 16384 bytes")
        self.refused("/completion", {"prompt": "Once", "n_predict": 1, "dry_multiplier": 1, "dry_sequence_breakers": [f"{i} x" for i in range(100_000)]},
                     "dry_sequence_breakers: expected at most 1024 strings, got 100000")

    def test_lists_as_long_as_they_may_be(self):
        """Of many prompts, for which they become tokens once."""
        words = [f"{i:x} and".ljust(15, "x") for i in range(1024)]
        body = {"prompt": ["Once upon"] * 128, "max_tokens": 2, "temperature": 0, "bad_words": words, "stop": words, "dry_multiplier": 0.5,
                "dry_sequence_breakers": words, "banned_token_ids": list(range(500)), "logit_bias": {str(i): 1 for i in range(500)}}
        reply = self.ask(COMPLETIONS, body, longest=0.5)
        self.assertEqual((reply.status, len(reply.json()["choices"])), (200, 128), reply.body[:300])

    def test_a_grammar_beside_many_prompts(self):
        schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": False, "description": "x" * 3 * MIB}
        reply = self.ask(COMPLETIONS, {"prompt": ["x"] * 128, "max_tokens": 1, "guided_json": schema})
        self.assertEqual(reply.status, 200, reply.body[:300])

    def test_what_every_choice_repeats(self):
        """Settings and texts of the request count as parts of the reply."""
        body = {"prompt": "Once", "n_predict": 1, "grammar": "root ::= [a-z ]*\n" + "# a note\n" * (3 * MIB // 9)}
        self.assertEqual(self.ask("/completion", body).status, 200)
        self.refused("/completion", {**body, "n": 100}, "n: the reply may become")
        self.refused("/completion", {**body, "n": 2, "stream": True}, "stream: prompts, their ids and log-probabilities and settings may be repeated")

    def test_bans_hold(self):
        ids = self.server.post("/tokenize", {"prompt": "there was a little"}).json()["tokens"]
        plain = self.server.post(COMPLETIONS, {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0, "return_token_ids": True}).json()
        banned = sorted(set(plain["choices"][0]["token_ids"]) | set(ids) | set(range(300, 400)))
        reply = self.server.post(COMPLETIONS, {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0, "return_token_ids": True,
                                               "banned_token_ids": banned}).json()
        self.assertGreater(len(banned), 64)
        self.assertFalse(set(reply["choices"][0]["token_ids"]) & set(banned))

    def test_bodies_in_which_pictures_by_url_are_looked_for(self):
        for value in ([], {}, 0):
            self.refused("/v1/chat/completions", {"messages": [value] * 4_000_000, "user": "image http"}, "body: too many values")

    def test_names_that_a_choice_of_tools_has(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        names = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(20_000)]
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "tools": tools,
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": names}}}
        reply = self.ask("/v1/chat/completions", body)
        self.assertEqual(reply.status, 400)

    def test_errors_repeat_little(self):
        """Whichever field is megabytes long."""
        routes = json.loads(self.server.get("/openapi.json").body)["paths"]
        long, n = "x\u0001" * (MIB // 4), 0
        for path, methods in routes.items():
            content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
            if content is None or "{id}" in path:
                continue
            fields = content["schema"]["properties"]
            basis = {name: "x" for name in content["schema"].get("required", [])}
            if "messages" in basis:
                basis["messages"] = [{"role": "user", "content": "x"}]
            basis.update({name: 1 for name in ("max_tokens", "max_output_tokens", "n_predict") if name in fields})
            for name in [*fields, long]:
                reply = self.server.post(path, {**basis, name: long})
                n += 1
                if reply.status != 200:
                    self.assertLess(len(reply.body), 20_000, (path, name[:30], reply.status))
                elif path != "/tokenize":  # whose reply is the tokens of the text
                    self.assertLess(len(reply.body), len(long) + 100_000, (path, name[:30]))
        self.assertGreater(n, 300)

    def test_bodies_of_routes_that_need_none(self):
        for method, path, status in (("GET", "/health", 413), ("GET", "/v1/models", 413), ("POST", "/v1/batches", 413), ("POST", "/v1/models/load", 413),
                                     ("POST", "/reset_reply_cache", 413), ("GET", "/ui/x", 413), ("POST", "/api/pull", 413), ("POST", "/tokenize", 400)):
            reply = self.server.request(method, path, b" " * 70_000)
            self.assertEqual(reply.status, status, (path, reply.body[:200]))


class Memory(unittest.TestCase):
    @unittest.skipIf(SLOW > 1, "sanitizers reserve address space of their own")
    def test_requests_that_it_runs_out_for(self):
        """They fail, wherever that is; the process goes on."""
        parameters = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20)}}
        chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}] * 400, "max_tokens": 2,
                "tools": [{"type": "function", "function": {"name": f"f{i}", "parameters": parameters}} for i in range(60)]}
        with Server("--no-log-requests", *TEMPLATE) as server:
            server.generate()
            none = resource.RLIM_INFINITY

            def ask(_):
                try:
                    return server.post("/v1/chat/completions", chat, timeout=3).status
                except OSError as error:  # it has no memory for a reply
                    return str(error)
            for more in (256 << 10, MIB, MIB, 3 * MIB, 3 * MIB):
                size = int(re.search(r"VmSize:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1]) * 1024
                resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + more, none))
                in_threads(24, ask)
                resource.prlimit(server.process.pid, resource.RLIMIT_AS, (none, none))
                self.assertIsNone(server.process.poll(), server.log()[-1000:])
            self.assertTrue(wait_for(lambda: server.generate().status == 200))
            self.assertEqual(server.stop(), 0)


class Places(unittest.TestCase):
    """Every choice is a sequence with memory of its own while it waits: they are counted, not the requests."""
    ASK = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "n": 100, "stream": True}

    def test_choices_that_wait(self):
        with slow_server("--max-queued-requests", 52, "--max-num-seqs", 4) as server:
            socks = [server.stream(self.ASK) for _ in range(3)]
            for sock in socks:
                self.assertTrue(read_head(sock)[0].startswith(b"HTTP/1.1 200"))
            refused = server.post(COMPLETIONS, self.ASK)
            self.assertEqual((refused.status, "Retry-After" in refused.headers), (429, True), refused.body)
            for sock in socks:
                sock.close()
            self.assertTrue(wait_for(lambda: server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1, "n": 100}).status == 200))

    def test_one_key_leaves_room_for_others(self):
        with tempfile.TemporaryDirectory() as folder:
            file = str(pathlib.Path(folder) / "keys.json")
            one, two = (bearer(keys("add", "-f", file)) for _ in range(2))
            with slow_server("--max-queued-requests", 140, "--max-num-seqs", 4, "--api-key-file", file) as server:
                socks = [server.stream(self.ASK, headers=one) for _ in range(3)]
                socks.append(server.stream(self.ASK, headers=two))
                for sock in socks:
                    self.assertTrue(read_head(sock)[0].startswith(b"HTTP/1.1 200"))
                self.assertEqual(server.post(COMPLETIONS, self.ASK, one).status, 429)
                for sock in socks:
                    sock.close()


    def test_keys_take_turns_in_the_engine(self):
        """Whoever comes behind many requests of another key waits for one of them, and not for all."""
        with tempfile.TemporaryDirectory() as folder:
            file = str(pathlib.Path(folder) / "keys.json")
            one, two = (bearer(keys("add", "-f", file)) for _ in range(2))
            with slow_server("--max-num-seqs", 1, "--api-key-file", file) as server:
                body = {"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True, "stream": True}
                socks = [server.stream({**body, "n": 2}, headers=one) for _ in range(20)]
                self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_waiting", one) >= 19))
                self.assertEqual(server.post(COMPLETIONS, {**body, "stream": False}, two).status, 200)
                self.assertGreater(server.metric("penstock:num_requests_waiting", one), 12)
                for sock in socks:
                    sock.close()


class Stored(BatchCase):
    """What is kept is listed, and gone on from, by requests of a few bytes."""

    def test_metadata_and_windows(self):
        with self.serve() as server:
            file = self.upload(server, [line(1)])
            batch = {"input_file_id": file, "endpoint": COMPLETIONS, "completion_window": "24h"}
            for fields in ({"metadata": {str(i): "x" for i in range(17)}}, {"metadata": {"a": "x" * 513}}, {"metadata": {"k" * 65: "x"}},
                           {"completion_window": "0" * 100 + "24h"}):
                self.assertEqual(server.post("/v1/batches", {**batch, **fields}).status, 400, fields)
            self.assertEqual(server.post("/v1/batches", {**batch, "metadata": {"k" * 64: "x" * 512}}).status, 200)

    def test_mistakes_of_a_batch(self):
        with self.serve() as server:
            made = self.create(server, [line("a" * 3 * MIB), line("a" * 3 * MIB)])
            ended = self.wait(server, made["id"])
            self.assertEqual(ended["status"], "failed")
            self.assertLess(len(json.dumps(ended)), 5000)
            self.assertIn("custom_id: expected at most 512 bytes", ended["errors"]["data"][0]["message"])

    def test_responses_repeat_little(self):
        with self.serve(*TEMPLATE) as server:
            for fields in ({"metadata": {"a": "x" * MIB}}, {"user": "x" * 513}, {"text": {"format": {"type": "text"}}, "metadata": {"a": 1}}):
                self.assertEqual(server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, **fields}).status, 400, fields)
            tools = [{"type": "function", "name": "f", "parameters": {"description": "x" * 5 * MIB}}]
            reply = server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "tools": tools, "tool_choice": "none"})
            self.assertEqual(reply.status, 400)
            self.assertIn("that the reply repeats", reply.json()["error"]["message"])

    def test_conversations_are_bounded_like_bodies(self):
        with self.serve("--max-body-bytes", MIB, *TEMPLATE) as server:
            def junk(size):  # that no template shows
                return [{"type": "message", "role": "user", "content": "hi", "note": "x" * size}]
            first = server.post("/v1/responses", {"input": junk(700_000), "max_output_tokens": 1}).json()
            second = server.post("/v1/responses", {"input": junk(700_000), "max_output_tokens": 1, "previous_response_id": first["id"]}).json()
            reply = server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "previous_response_id": second["id"]})
            self.assertEqual(reply.status, 400, reply.body[:200])
            self.assertIn("expected a conversation of at most 1048576 bytes", reply.json()["error"]["message"])
            self.assertEqual(server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "previous_response_id": first["id"]}).status, 200)


    def test_many_small_values_are_bounded_like_those_of_bodies(self):
        """However many requests they came with."""
        item = {"type": "message", "role": "user", "content": "hi", "note": [[]] * 60_000}
        with self.serve("--no-log-requests", *TEMPLATE) as server:
            made = server.post("/v1/conversations", {}).json()["id"]
            for _ in range(8):
                reply = server.post(f"/v1/conversations/{made}/items", {"items": [item]})
                self.assertEqual(reply.status, 200, reply.body[:300])
            before = server.rss()
            server.forget_peak()
            reply = server.post("/v1/responses", {"input": "hi", "conversation": made, "max_output_tokens": 1})
            self.assertEqual(reply.status, 400, reply.body[:300])
            self.assertIn("values in", reply.json()["error"]["message"])
            if SLOW == 1:
                self.assertLess(server.peak() - before, 40 * MIB)

    def test_a_page_of_items_is_bounded(self):
        with self.serve(*TEMPLATE) as server:
            items = [{"type": "message", "role": "user", "content": f"{i}", "note": "x" * 3 * MIB} for i in range(6)]
            path = f"/v1/conversations/{server.post('/v1/conversations', {'items': items}).json()['id']}/items"
            seen, after = [], ""
            while after is not None:
                reply = server.get(f"{path}?limit=100&order=asc{after}")
                self.assertEqual(reply.status, 200, reply.body[:300])
                self.assertLess(len(reply.body), 5 * MIB)
                page = reply.json()
                seen += [item["content"][0]["text"] for item in page["data"]]
                after = f"&after={page['last_id']}" if page["has_more"] else None
            self.assertEqual(seen, [f"{i}" for i in range(6)])

    def test_what_a_reply_repeats_is_written_apart(self):
        """The connections' thread hands it on as it is."""
        values = [0] * 170_000
        with self.serve(*TEMPLATE, "--no-log-requests") as server:
            server.generate()
            tools = [{"type": "web_search", "of_nobody": [*values, "x" * 3_400_000]}]
            note = [{"role": "user", "content": "hi", "note": [*values * 5, "x" * 28_000_000]}]
            for path, body, longest in (("/v1/responses", {"tools": tools, "stream": True}, 0.1), ("/v1/responses", {"tools": tools}, 0.04),
                                        ("/v1/responses/compact", {"input": note}, 0.2)):
                body = json.dumps({"input": "hi", **body} if "compact" in path else {"input": "hi", "max_output_tokens": 2, **body})
                took = []
                for _ in range(3):
                    before = server.thread_seconds("penstock-io")
                    reply = server.post(path, body)
                    took.append(server.thread_seconds("penstock-io") - before)
                    self.assertEqual(reply.status, 200, reply.body[:300])
                self.assertLess(min(took), longest * SLOW, path)


class Turns(BatchCase):
    """Keys that ask for much, and keys that do not."""

    def setUp(self):
        super().setUp()
        self.file = str(self.folder / "keys.json")
        self.one, self.two = (bearer(keys("add", "-f", self.file)) for _ in range(2))

    def test_batches(self):
        """Whose batch is small does not wait for the end of another one's."""
        with self.serve("--api-key-file", self.file, "--no-log-requests") as server:
            large = self.create(server, [line(i, prompt="Once upon a time", max_tokens=20, ignore_eos=True) for i in range(15000)], headers=self.one)
            self.wait(server, large["id"], until=("in_progress",), headers=self.one)
            small = self.create(server, [line(i) for i in range(3)], headers=self.two)
            self.assertEqual(self.wait(server, small["id"], headers=self.two)["status"], "completed")
            self.assertEqual(self.state(server, large["id"], self.one)["status"], "in_progress")
            server.post(f"/v1/batches/{large['id']}/cancel", {}, self.one)
            ended = self.wait(server, large["id"], headers=self.one)
            self.assertEqual(ended["status"], "cancelled")
            self.assertEqual(len(self.results(server, ended["output_file_id"], self.one)), ended["request_counts"]["completed"])

    def test_conversations_that_are_gone_on_from(self):
        """A key leaves a quarter of their memory to others."""
        body = {"stream": True, "store": False, "max_output_tokens": 400, "ignore_eos": True, "input": "hi"}
        with slow_server("--data-dir", self.folder / "data", "--api-key-file", self.file, "--max-body-bytes", MIB, "--max-total-body-bytes", 4 * MIB,
                         *TEMPLATE) as server:
            ids = {}
            for key in (self.one, self.two):
                note = {"type": "message", "role": "user", "content": "hi", "note": "x" * 900_000}
                ids[key["Authorization"]] = server.post("/v1/responses", {"input": [note], "max_output_tokens": 1}, key).json()["id"]

            def go_on(key):
                sock = server.stream({**body, "previous_response_id": ids[key["Authorization"]]}, "/v1/responses", key)
                return sock, read_head(sock)[0].split(b" ", 2)[1]
            under_way = [go_on(self.one) for _ in range(5)]
            self.assertEqual([status for _, status in under_way], [b"200"] * 3 + [b"429"] * 2)
            under_way.append(go_on(self.two))
            self.assertEqual(under_way[-1][1], b"200")
            for sock, _ in under_way:
                sock.close()
            self.assertTrue(wait_for(lambda: go_on(self.one)[1] == b"200"))

    def test_responses_in_the_background(self):
        """Their events are counted before they are begun, and a key leaves a quarter of that memory to others."""
        tools = [{"type": "web_search", "of_nobody": "x" * (4 * MIB - 1000)}]
        body = json.dumps({"background": True, "stream": True, "max_output_tokens": 400, "ignore_eos": True, "input": "hi", "tools": tools})
        with slow_server("--data-dir", self.folder / "data", "--api-key-file", self.file, "--no-log-requests", *TEMPLATE) as server:
            server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1}, self.one)
            before = server.rss()

            def begin(key):
                sock = server.raw(f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                  f"Authorization: {key['Authorization']}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode(), timeout=60)
                status = read_head(sock)[0].split(b" ", 2)[1]
                sock.close()
                return status
            statuses = [begin(self.one) for _ in range(12)]
            self.assertLessEqual(statuses.count(b"200"), 9, statuses)
            self.assertEqual(statuses[-1], b"429")
            self.assertEqual(begin(self.two), b"200")
            if SLOW == 1:
                self.assertLess(server.rss() - before, 400 * MIB)

    def test_chores(self):
        """Whoever keeps much holds up nobody who keeps little."""
        note = {"type": "message", "role": "user", "content": "hi", "note": [*[0] * 500_000, "x" * 26_000_000]}
        body = json.dumps({"items": [note]})
        with self.serve("--api-key-file", self.file, "--no-log-requests") as server:
            self.assertEqual(server.get("/v1/conversations/conv_1", self.two).status, 404)
            ended = []
            posts = threading.Thread(target=in_threads, args=(6, lambda i: ended.append(server.post("/v1/conversations", body, self.one).status)))
            posts.start()
            self.assertTrue(wait_for(lambda: ended, step=0.001))
            for _ in range(4):
                self.assertEqual(server.get("/v1/conversations/conv_1", self.two).status, 404)
            self.assertLess(len(ended), 4)
            posts.join()
            self.assertEqual(ended, [200] * 6)

    def test_chores_of_a_response_are_its_keys(self):
        """While the database waits, what one key keeps is on one of the two threads: the other one answers another key."""
        with self.serve("--api-key-file", self.file, *TEMPLATE) as server:
            self.assertEqual(server.post("/v1/conversations", {}, self.one).status, 200)
            database = sqlite3.connect(next(self.folder.rglob("penstock.db")), isolation_level=None)
            database.execute("BEGIN IMMEDIATE")
            kept = []
            asks = [("/v1/responses", {"input": "Once", "max_output_tokens": 1}), ("/v1/conversations", {})]
            threads = [threading.Thread(target=lambda ask=ask: kept.append(server.post(*ask, self.one).status)) for ask in asks]
            for thread in threads:
                thread.start()
                time.sleep(0.5)
            answered = threading.Event()
            other = threading.Thread(target=lambda: (server.post("/v1/conversations", {"colour": "red"}, self.two), answered.set()))
            other.start()
            in_time = answered.wait(4)  # the database gives up after 5 s
            self.assertEqual(kept, [])
            database.execute("ROLLBACK")
            database.close()
            for thread in [*threads, other]:
                thread.join()
            self.assertTrue(in_time)
            self.assertEqual(kept, [200, 200])

    def test_damaged_results(self):
        """They end their batch, and hold up nobody else's."""
        with self.serve("--api-key-file", self.file) as server:
            large = self.create(server, [line(i, prompt="Once upon a time", max_tokens=50, ignore_eos=True) for i in range(3000)], headers=self.one)
            self.assertTrue(wait_for(lambda: self.state(server, large["id"], self.one)["request_counts"]["completed"] > 3))
            small = self.create(server, [line(1)], headers=self.one)
            server.process.kill()
            server.process.wait()
        output = self.folder / "data" / "batches" / f"{large['id']}.output.jsonl"
        output.write_bytes(b"\0\0garbage\n" + output.read_bytes())
        with self.serve("--api-key-file", self.file) as server:
            self.assertEqual(self.wait(server, small["id"], headers=self.one)["status"], "completed")
            ended = self.state(server, large["id"], self.one)
            self.assertEqual((ended["status"], ended["errors"]["data"][0]["code"]), ("failed", "damaged"))
            self.assertNotIn(str(self.folder), json.dumps(ended))

    def test_paths(self):
        """Where files lie is told to administrators."""
        chief = bearer(keys("add", "-f", self.file, "--scope", "admin"))
        with self.serve("--api-key-file", self.file, "--served-model-name", "story") as server:
            for headers, path in ((self.one, "story"), (chief, str(MODEL))):
                self.assertEqual(server.get("/props", headers).json()["model_path"], path)
            for path in ("/props", "/v1/models", "/api/tags", "/api/ps", "/slots", "/metrics", "/v1/metrics", "/tokenizer_info", "/openapi.json"):
                self.assertNotIn(str(SOURCE).encode(), server.get(path, self.one).body, path)


class Pairs(unittest.TestCase):
    def test_a_long_query_beside_many_documents(self):
        """It becomes tokens once, and is refused before it is copied."""
        model = SOURCE / "tests" / "golden" / "cross_encoders" / "bert"
        with Server("--runner", "pooling", "--no-log-requests", model=model) as server:
            server.post("/v1/rerank", {"query": "the cat", "documents": ["a mat"]})
            for more, status in (({}, 400), ({"truncate_prompt_tokens": -1}, 200)):
                before = server.rss()
                server.forget_peak()
                with Health(server) as health:
                    reply = server.post("/v1/rerank", {"query": "the cat " * 200_000, "documents": ["x"] * 2000, "return_documents": False, **more})
                self.assertEqual(reply.status, status, reply.body[:300])
                self.assertLess(health.longest, 2 * SLOW)
                if SLOW == 1:
                    self.assertLess(server.peak() - before, 200 * MIB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
