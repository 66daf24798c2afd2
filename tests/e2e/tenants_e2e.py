#!/usr/bin/env python3
"""What API keys learn of each other (nothing), spend of each other's (nothing) and more than they may (nothing); a lost database loses no file."""
import json
import pathlib
import socket
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import batches_e2e
from batches_e2e import COMPLETIONS, line
from live_server import LARGER_MODEL, MODEL, SLOW_KERNELS, SOURCE, Server, in_threads, read_head, read_until, wait_for
from server_ops_e2e import bearer, keys

VECTORS = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"
LETTER = "Dear {}, we are glad to tell you that the position at our bank is yours, and that your pay will be high. " * 2
TEMPLATE = ("--chat-template", "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}")
NAMES = ["Alice", "Bob", "Carol", "Dave", "Erin"]


def id_of(headers):
    return headers["Authorization"].split("-")[1]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = str(self.folder / "keys.json")

    def key(self, *flags):
        return bearer(keys("add", "-f", self.file, *map(str, flags)))

    def config(self, *models):
        path = self.folder / "models.json"
        path.write_text(json.dumps({"models": [{"kv_cache_memory": "64M", **one} for one in models]}))
        return path

    def serve(self, *flags, **more):
        return Server("--api-key-file", self.file, *flags, **more)

    def used(self, server, headers):
        reply = server.get("/v1/usage", headers).json()
        return reply["total"]["input_tokens"] + reply["total"]["output_tokens"]


class Prompts(Case):
    """Whether one key can find out what another one has asked."""

    def guesses(self, server, headers, **fields):
        """How many tokens of each guess are told to be cached."""
        replies = [server.post(COMPLETIONS, {"prompt": LETTER.format(name, name), "max_tokens": 1, **fields}, headers).json() for name in NAMES]
        return [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in replies]

    def ask(self, server, headers, **fields):
        return server.post(COMPLETIONS, {"prompt": LETTER.format("Carol", "Carol"), "max_tokens": 1, **fields}, headers)

    def test_cached_tokens(self):
        mine, other, chief = self.key(), self.key(), self.key("--scope", "admin")
        with self.serve("--api-key", "plain-one", "--api-key", "plain-two") as server:
            for asks, guesses in ((mine, other), (bearer("plain-one"), bearer("plain-two")), (mine, chief)):
                self.ask(server, asks)
                found = self.guesses(server, guesses)
                self.assertEqual(found[2], found[1], found)  # Carol's is like the others: what one guess gives the next
            self.assertGreater(self.ask(server, mine).json()["usage"]["prompt_tokens_details"]["cached_tokens"], 20)  # its own

    def test_no_salt_leads_to_another_key(self):
        mine, other = self.key(), self.key()
        with self.serve() as server:
            self.ask(server, mine)
            self.ask(server, mine, cache_salt="ours")
            for salt in (f"{id_of(mine)}\n", id_of(mine), "ours", "\n"):
                found = self.guesses(server, other, cache_salt=salt)
                self.assertEqual(found[2], found[1], salt)
            self.assertGreater(self.ask(server, mine, cache_salt="ours").json()["usage"]["prompt_tokens_details"]["cached_tokens"], 20)

    def test_keys_may_share(self):
        mine, other = self.key(), self.key()
        with self.serve("--prefix-cache-across-keys") as server:
            self.ask(server, mine)
            self.assertGreater(self.guesses(server, other)[2], 20)

    def test_why_a_prompt_was_not_cached(self):
        """Whatever is shared, nobody is told a word of what another key has asked."""
        mine, other, chief = self.key(), self.key(), self.key("--scope", "admin")
        with self.serve("--prefix-cache-across-keys", "--prefix-history", 4096) as server:
            self.ask(server, mine)
            for asks in (other, chief, {**other, "x-forwarded-for": "1.2.3.4"}):
                reply = server.post(COMPLETIONS, {"prompt": LETTER.format("Bob", "Bob"), "max_tokens": 1, "user": id_of(mine)}, asks)
                self.assertNotIn(b"Carol", reply.body)
            miss = server.post(COMPLETIONS, {"prompt": LETTER.format("Erin", "Erin"), "max_tokens": 1}, mine).json()["usage"]["prompt_tokens_details"]["cache_miss"]
            self.assertIn("Carol", miss["had"])  # its own

    def test_kept_replies_of_administrators(self):
        """Keys that may do everything are not one key."""
        chiefs = [self.key("--scope", "admin") for _ in range(2)]
        with self.serve("--reply-cache", "1M") as server:
            asked = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
            said = [server.post(COMPLETIONS, asked, one).headers["Cache-Status"] for one in (*chiefs, *chiefs)]
            self.assertEqual(["hit" in one for one in said], [False, False, True, True], said)

    def test_slots(self):
        mine, other, chief = self.key(), self.key(), self.key("--scope", "admin")
        with self.serve("--threads", 1, model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            sock = server.stream({"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}, headers=mine)
            read_until(sock, b"data: ")
            busy = {name: [one for one in server.get("/slots", who).json() if one["is_processing"]] for name, who in (("mine", mine), ("other", other), ("chief", chief))}
            self.assertEqual([len(one) for one in busy.values()], [1, 1, 1])
            for name in ("mine", "chief"):
                self.assertGreater(busy[name][0]["n_prompt_tokens"], 0)
            self.assertEqual({"n_prompt_tokens", "params", "next_token"} & set(busy["other"][0]), set())


class Models(Case):
    def test_what_is_one_keys_only_is_named_to_nobody_else(self):
        mine, other, watch, chief = self.key(), self.key(), self.key("--scope", "metrics"), self.key("--scope", "admin")
        models = self.config({"name": "veiled", "model": str(MODEL), "keys": [id_of(mine)]}, {"name": "open", "model": str(MODEL)},
                             {"name": "veiled-vectors", "model": str(VECTORS), "runner": "pooling", "keys": [id_of(mine)]})
        with self.serve("--models-config", models, "--data-dir", self.folder / "data", model=None) as server:
            self.assertEqual(server.post(COMPLETIONS, {"model": "veiled", "prompt": "x", "max_tokens": 1}, mine).status, 200)
            paths = server.get("/openapi.json", other).json()["paths"]
            asked = [path for path, methods in paths.items() if "get" in methods]
            self.assertGreater(len(asked), 15)
            for path in (*asked, "/v1/models/veiled", "/v1/models/none", "/props?model=none", "/slots?model=none", "/dashboard"):
                self.assertNotIn(b"veiled-vectors", server.get(path.replace("{id}", "none"), other).body, path)
                if path != "/v1/models/veiled":
                    self.assertNotIn(b"veiled", server.get(path.replace("{id}", "none"), other).body, path)
            for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/tokenize", "/completion", "/api/show", "/api/chat"):
                body = {"model": "none", "prompt": "x", "input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
                self.assertNotIn(b"veiled", server.post(path, body, other).body, path)
            for who in (mine, watch, chief):  # whoever may use it, or looks after the server
                self.assertIn(b'model_name="veiled"', server.get("/metrics", who).body)
            self.assertIn(b'model_name="open"', server.get("/metrics", other).body)
            first = server.get("/v1/metrics", mine).json()["generation_tokens"], server.get("/v1/metrics", other).json()["generation_tokens"]
            self.assertEqual((first[0] > 0, first[1]), (True, 0))  # each of the first model that it may use


class Revoked(Case):
    def revoke(self, headers):
        keys("revoke", "-f", self.file, id_of(headers))

    def serve(self, *flags):
        return super().serve("--data-dir", self.folder / "data", "--threads", 1, *TEMPLATE, *flags, model=LARGER_MODEL, env=SLOW_KERNELS)

    def batch(self, server, headers):
        case = batches_e2e.Case()
        case.folder = self.folder
        lines = [line(i, prompt="Once upon a time", max_tokens=200, ignore_eos=True) for i in range(200)]
        return case, case.create(server, lines, headers=headers)

    def finish(self, server, name="generation_tokens_total"):
        """What is computed from now on, once nothing is any more."""
        chief = self.chief
        self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running", chief) == 0))
        before = server.metric(f"penstock:{name}", chief)
        time.sleep(1)
        return server.metric(f"penstock:{name}", chief) - before

    def test_batches(self):
        mine, self.chief = self.key(), self.key("--scope", "admin")
        with self.serve() as server:
            case, made = self.batch(server, mine)
            case.wait(server, made["id"], until=("in_progress",), headers=mine)
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running", self.chief) > 0))
            self.revoke(mine)
            self.assertEqual(self.finish(server), 0)
            _, again = self.batch(server, self.chief)  # the runner goes on with others'
            case.wait(server, again["id"], until=("in_progress",), headers=self.chief)
            self.assertEqual(server.stop(), 0)
        with self.serve() as server:  # and it is over for good
            again = self.key()
            self.assertTrue(wait_for(lambda: server.get("/v1/models", again).status == 200))
            self.assertEqual(server.get("/v1/batches", mine).status, 401)

    def test_a_batch_of_a_key_that_went_while_nobody_served(self):
        mine, self.chief = self.key(), self.key("--scope", "admin")
        with self.serve() as server:
            case, made = self.batch(server, mine)
            case.wait(server, made["id"], until=("in_progress",), headers=mine)
            self.assertEqual(server.stop(), 0)
        self.revoke(mine)
        with self.serve() as server:
            self.assertEqual(self.finish(server), 0)

    def test_responses_in_the_background(self):
        mine, self.chief = self.key(), self.key("--scope", "admin")
        with self.serve() as server:
            for i in range(3):
                reply = server.post("/v1/responses", {"input": f"Tell me {i}", "background": True, "max_output_tokens": 400}, mine)
                self.assertEqual(reply.status, 200, reply.body)
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running", self.chief) > 0))
            self.revoke(mine)
            self.assertEqual(self.finish(server), 0)
            self.assertEqual(server.stop(), 0)


class Limits(Case):
    """What a key may use holds however many requests there are at once."""
    ASK = {"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True}

    def test_forty_at_once(self):
        for flags, budget in ((("--tokens-per-day", 300), 300), (("--tokens-per-month", 300), 300)):
            mine = self.key(*flags)
            with self.serve() as server:
                statuses = in_threads(40, lambda i: server.post(COMPLETIONS, self.ASK, mine).status)
                self.assertLessEqual(set(statuses), {200, 429})
                self.assertGreater(statuses.count(200), 2)
                used = self.used(server, mine)
                self.assertLessEqual(used, budget)
                self.assertGreater(used, budget - 60)  # and what is there may be used

    def test_a_cost(self):
        mine = self.key("--cost-per-day", "0.01")
        models = self.config({"name": "story", "model": str(MODEL), "price": {"input": 10, "cached_input": 1, "output": 50}})
        with self.serve("--models-config", models, model=None) as server:
            statuses = in_threads(40, lambda i: server.post(COMPLETIONS, {**self.ASK, "n": 2}, mine).status)
            self.assertLessEqual(set(statuses), {200, 429})
            total = server.get("/v1/usage", mine).json()["total"]
            self.assertLessEqual(total["cost"], 0.01)
            self.assertGreater(total["cost"], 0.005)

    def test_what_is_left_is_told(self):
        mine = self.key("--tokens-per-day", 100)
        with self.serve(*TEMPLATE) as server:
            self.assertEqual(server.post(COMPLETIONS, {**self.ASK, "n": 3}, mine).status, 429)  # prompt + 3 * 40
            reply = server.post(COMPLETIONS, {**self.ASK, "max_tokens": 200}, mine)
            self.assertEqual((reply.status, self.used(server, mine)), (429, 0))
            self.assertIn("this request may use", reply.json()["error"]["message"])
            self.assertGreater(int(reply.headers["Retry-After"]), 1)
            chat = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True}
            reply = server.post("/v1/chat/completions", chat, mine)  # nobody said how long: as long as it may be
            self.assertEqual((reply.status, reply.json()["choices"][0]["finish_reason"]), (200, "length"), reply.body)
            self.assertEqual(self.used(server, mine), 100)
            self.assertEqual(server.post("/completion", {"prompt": "Once"}, mine).status, 429)

    def test_vectors(self):
        mine = self.key("--tokens-per-day", 300)
        with self.serve(model=VECTORS) as server:
            statuses = in_threads(40, lambda i: server.post("/v1/embeddings", {"input": ["a small cat"] * 10}, mine).status)
            self.assertLessEqual(set(statuses), {200, 429})
            self.assertIn(200, statuses)
            self.assertLessEqual(self.used(server, mine), 300)

    def test_batches_and_responses(self):
        mine = self.key("--tokens-per-day", 300)
        with self.serve("--data-dir", self.folder / "data", *TEMPLATE) as server:
            case = batches_e2e.Case()
            case.folder = self.folder
            made = case.create(server, [line(i, **self.ASK) for i in range(30)], headers=mine)
            for i in range(10):
                asked = server.post("/v1/responses", {"input": "hi", "background": True, "max_output_tokens": 40}, mine)
                self.assertIn(asked.status, (200, 429))
            ended = case.wait(server, made["id"], headers=mine)
            self.assertEqual(ended["status"], "completed")
            errors = case.results(server, ended["error_file_id"], mine)
            self.assertEqual({one["error"]["code"] for one in errors.values()}, {"budget_exceeded"})
            self.assertTrue(wait_for(lambda: server.get("/load", mine).json()["server_load"] == 0))
            self.assertLessEqual(self.used(server, mine), 300)

    def test_a_quota_of_tokens(self):
        mine = self.key("--tokens-per-minute", 300)
        with self.serve() as server:
            begin = time.monotonic()
            statuses = in_threads(40, lambda i: server.post(COMPLETIONS, self.ASK, mine).status)
            minutes = (time.monotonic() - begin) / 60
            self.assertLessEqual(set(statuses), {200, 429})
            self.assertGreater(statuses.count(200), 2)
            self.assertLessEqual(self.used(server, mine), 300 * (1 + minutes))
            # What a reply did not need is there again.
            short = self.key("--tokens-per-minute", 100)
            self.assertTrue(wait_for(lambda: server.get("/v1/models", short).status == 200))
            for _ in range(4):
                reply = server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 60, "stop": ["e", "a", "i", "o", "t", " "]}, short)
                self.assertEqual(reply.status, 200, reply.body)


class Places(Case):
    LONG = {"prompt": "Once upon a time", "max_tokens": 480, "ignore_eos": True, "stream": True}

    def test_who_has_all_places_gives_one(self):
        mine, other, chief = self.key(), self.key(), self.key("--scope", "admin")
        with self.serve("--max-num-seqs", 4, "--threads", 1, model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            streams = [server.stream(self.LONG, headers=mine) for _ in range(4)]
            for stream in streams:
                read_until(stream, b"data: ")
            self.assertEqual(server.post(COMPLETIONS, {"prompt": "Hello", "max_tokens": 4}, other).status, 200)
            self.assertEqual(server.metric("penstock:num_preemptions_total", chief), 1)
            # on a slow machine the first of them has ended, beside the short one
            kept = [f"penstock:num_requests_{state}" for state in ("running", "waiting")] + [f"penstock:request_success_{end}_total" for end in ("stop", "length")]
            self.assertEqual(sum(server.metric(name, chief) for name in kept), 5)

    def test_vectors_that_nobody_reads_leave_room_for_others(self):
        mine, other = self.key(), self.key()
        with self.serve("--runner", "pooling", "--max-reply-bytes", 1 << 20, "--no-log-requests", model=VECTORS) as server:
            width = len(server.post("/v1/embeddings", {"input": "a"}, mine).json()["data"][0]["embedding"])
            body = json.dumps({"input": ["a"] * ((1 << 20) // (12 * width))})

            def ask(key):
                sock = server.raw()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.sendall(f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: {key['Authorization']}\r\n"
                             f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
                return read_head(sock)[0].split(b" ", 2)[1]
            self.assertEqual([ask(mine) for _ in range(4)], [b"200"] * 3 + [b"429"])
            self.assertEqual(ask(other), b"200")


class LostDatabase(Case):
    def test_files_outlive_it(self):
        data = self.folder / "data"
        case = batches_e2e.Case()
        case.folder = self.folder
        with Server("--data-dir", data) as server:
            file = case.upload(server, [line(1)])
            content = server.get(f"/v1/files/{file}/content").body
            self.assertEqual(server.stop(), 0)
        whole = (data / "penstock.db").read_bytes()
        for lose in ((data / "penstock.db").unlink, lambda: (data / "penstock.db").write_bytes(b"")):
            lose()
            for path in data.glob("penstock.db-*"):
                path.unlink()
            with Server("--data-dir", data) as server:
                self.assertEqual(server.get("/v1/files").json()["data"], [])
                self.assertIn("quarantine", server.log())
                self.assertEqual(server.stop(), 0)
            self.assertEqual((data / "quarantine" / file).read_bytes(), content)
            (data / "quarantine" / file).rename(data / "files" / file)
        for path in data.glob("penstock.db-*"):
            path.unlink()
        (data / "penstock.db").write_bytes(whole)
        with Server("--data-dir", data) as server:
            self.assertEqual(server.get(f"/v1/files/{file}/content").body, content)


if __name__ == "__main__":
    unittest.main(verbosity=2)
