#!/usr/bin/env python3
"""Replies that are given again: equal requests of every route, streamed and whole, who may share them, what requests say, restarts."""
import json
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from live_server import LARGER_MODEL, MODEL, SLOW, Server
from server_ops_e2e import bearer, keys

TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
STORY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
CACHE = ("--reply-cache", "16M", "--chat-template", TEMPLATE)
FLEETING = ("id", "created", "created_at", "item_id", "completed_at", "total_duration", "eval_duration", "prompt_eval_duration",
            "latency_ms", "tokens_per_second", "reply_cache", "cached_tokens", "cache_read_input_tokens", "input_tokens")


def status(reply):
    return reply.headers.get("Cache-Status", "")


def plain(value):
    """Without what is another time's, or says where it came from."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in FLEETING}
    return [plain(one) for one in value] if isinstance(value, list) else value


def events(reply):
    lines = reply.body.decode().splitlines()
    found = [line.removeprefix("data: ") for line in lines if line.startswith(("data: {", "{"))]
    return [plain(json.loads(one)) for one in found]


def text_of(chunks):
    """What a stream says in all, however it is cut into events."""
    said = ""
    for one in chunks:
        for choice in one.get("choices", ()):
            said += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        said += one.get("delta", "") if isinstance(one.get("delta"), str) else (one.get("delta") or {}).get("text", "")
        said += one.get("response", "") if isinstance(one.get("response"), str) else ""
        said += one.get("text", "") + ((one.get("message") or {}).get("content") or "" if "done" in one else "")
    return said


ROUTES = {
    "/v1/completions": STORY,
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "One day Tom"}], "max_tokens": 8, "temperature": 0},
    "/v1/responses": {"input": "One day Tom", "max_output_tokens": 8, "temperature": 0},
    "/v1/messages": {"model": MODEL.name, "messages": [{"role": "user", "content": "One day Tom"}], "max_tokens": 8, "temperature": 0},
    "/v1/generate": STORY,
    "/api/generate": {"model": MODEL.name, "prompt": "One day Tom", "options": {"num_predict": 8, "temperature": 0}},
    "/api/chat": {"model": MODEL.name, "messages": [{"role": "user", "content": "One day Tom"}], "options": {"num_predict": 8, "temperature": 0}},
}


class Exact(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*CACHE)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def setUp(self):
        self.assertEqual(self.server.post("/reset_reply_cache", {}).status, 200)

    def ask(self, headers=None, path="/v1/completions", **fields):
        reply = self.server.post(path, {**STORY, **fields}, headers)
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def test_every_route_whole_and_streamed(self):
        for path, body in ROUTES.items():
            for first, second in ((False, False), (True, True), (False, True), (True, False)):
                with self.subTest(path=path, first=first, second=second):
                    self.server.post("/reset_reply_cache", {})
                    generated = self.server.metric("penstock:generation_tokens_total")
                    replies = [self.server.post(path, {**body, "stream": stream}) for stream in (first, second)]
                    self.assertEqual([one.status for one in replies], [200, 200], replies[1].body)
                    self.assertEqual(status(replies[0]), "penstock-exact; fwd=miss")
                    self.assertRegex(status(replies[1]), r"^penstock-exact; hit; ttl=\d+$")
                    self.assertRegex(replies[1].headers["Age"], r"^\d+$")
                    self.assertEqual(self.server.metric("penstock:generation_tokens_total"), generated + 8, "computed once")
                    if first == second and not first:
                        self.assertEqual(*[plain(one.json()) for one in replies])
                    if first == second and first:
                        self.assertEqual(*[text_of(events(one)) for one in replies])
                        self.assertEqual(plain(events(replies[0])[-1]), plain(events(replies[1])[-1]))

    def test_usage_tells(self):
        first, second = self.ask().json(), self.ask().json()
        self.assertNotIn("reply_cache", first["usage"])
        self.assertEqual(second["usage"]["reply_cache"], "exact")
        self.assertEqual(second["usage"]["prompt_tokens_details"]["cached_tokens"], second["usage"]["prompt_tokens"])
        self.assertEqual(second["usage"]["total_tokens"], first["usage"]["total_tokens"])
        self.assertNotEqual(first["id"], second["id"])

    def test_everything_that_matters_is_compared(self):
        self.ask()
        others = ({"prompt": "Once upon a time "}, {"max_tokens": 9}, {"seed": 1}, {"stop": ["x"]}, {"logprobs": 1}, {"n": 2},
                  {"cache_salt": "mine"}, {"repetition_penalty": 1.1}, {"logit_bias": {"5": 1}}, {"ignore_eos": True},
                  {"structured_outputs": {"regex": "[a-z ,]*"}}, {"prompt": ["Once upon a time", "One"]}, {"model": MODEL.name, "min_tokens": 2})
        for other in others:
            with self.subTest(other):
                self.assertIn("fwd=miss", status(self.ask(**other)))
                again = self.ask(**other)
                self.assertIn("hit", status(again))
        self.assertIn("hit", status(self.ask(user="somebody")), "what changes nothing is not compared")

    def test_log_probabilities_stop_strings_and_several_choices(self):
        for fields in ({"logprobs": 3, "max_tokens": 6}, {"stop": ["time", "girl", "was"], "max_tokens": 40}, {"n": 3, "seed": 5, "temperature": 1},
                       {"prompt": ["One day", "Tom had"], "logprobs": 0, "n": 2, "seed": 1, "temperature": 0.7}):
            with self.subTest(fields):
                self.assertEqual(plain(self.ask(**fields).json()), plain(self.ask(**fields).json()))
                self.assertIn("hit", status(self.ask(**fields)))

    def test_random_replies_are_not_given_again(self):
        for _ in range(2):
            self.assertEqual(status(self.ask(temperature=1)), "penstock-exact; fwd=bypass; detail=sampled")
        on = {"x-penstock-cache": "on"}
        self.assertIn("miss", status(self.ask(on, temperature=1)))
        self.assertIn("hit", status(self.ask(on, temperature=1)))
        self.assertIn("bypass; detail=prompt-logprobs", status(self.ask(prompt_logprobs=1)))

    def test_what_requests_say(self):
        self.ask()
        for headers in ({"Cache-Control": "no-store"}, {"x-penstock-cache": "off"}):
            self.assertIn("fwd=bypass; detail=refused", status(self.ask(headers)))
        for headers in ({"Cache-Control": "max-age=0, no-cache"}, {"x-penstock-cache": "refresh"}):
            self.assertIn("fwd=request", status(self.ask(headers)))
        self.assertIn("hit", status(self.ask({"Cache-Control": "max-age=100"})))
        self.assertIn("hit", status(self.ask({"Cache-Control": "s-maxage=0, private"})), "not about this cache")
        time.sleep(2.1)
        self.assertIn("miss", status(self.ask({"Cache-Control": "max-age=1"})))
        reply = self.server.post("/v1/completions", STORY, {"x-penstock-cache": "perhaps"})
        self.assertEqual(reply.status, 400)
        self.assertIn("x-penstock-cache: expected on, exact, refresh or off, got perhaps", reply.json()["error"]["message"])

    def test_a_client_that_leaves_leaves_nothing(self):
        sock = self.server.stream({**STORY, "max_tokens": 400, "ignore_eos": True, "stream": True})
        sock.recv(100)
        sock.close()
        end = time.monotonic() + 30 * SLOW
        while self.server.metric("penstock:num_requests_running") > 0 and time.monotonic() < end:
            time.sleep(0.02)
        reply = self.ask(max_tokens=400, ignore_eos=True)
        self.assertEqual(reply.json()["usage"]["completion_tokens"], 400)

    def test_forgetting(self):
        self.ask()
        self.assertEqual(self.server.post("/reset_reply_cache", {"model": MODEL.name}).json(), {"forgotten": 1})
        self.assertIn("miss", status(self.ask()))
        self.assertEqual(self.server.post("/reset_reply_cache", {"model": "nobody"}).status, 404)
        self.assertEqual(self.server.post("/reset_reply_cache", {"modle": "x"}).status, 400)
        self.assertIn("hit", status(self.ask()))

    def test_metrics(self):
        before = self.server.metrics()
        self.ask(), self.ask(), self.ask(), self.ask(temperature=1)
        after = self.server.metrics()
        name = "penstock:reply_cache_requests_total"
        grown = {labels: after[name + labels] - before[name + labels] for labels in
                 ('{result="hit",by="exact"}', '{result="miss",by=""}', '{result="bypass",by="sampled"}')}
        self.assertEqual(list(grown.values()), [2, 1, 1])
        self.assertEqual(after["penstock:reply_cache_entries"], 1)
        saved = 'penstock:reply_cache_tokens_saved_total{of="completion"}'
        self.assertEqual(after[saved] - before[saved], 16)
        self.assertGreater(self.server.get("/v1/metrics").json()["reply_cache_hits"], 1)

    def test_a_long_reply_is_streamed_whole(self):
        body = {**STORY, "max_tokens": 450, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        first, second = self.server.post("/v1/completions", body), self.server.post("/v1/completions", body)
        self.assertEqual(text_of(events(first)), text_of(events(second)))
        self.assertNotIn(b"keep-alive", second.body)
        self.assertTrue(second.body.endswith(b"data: [DONE]\n\n"))
        self.assertEqual(json.loads(second.body.decode().split("data: ")[-2])["usage"]["reply_cache"], "exact")


class Owners(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = self.folder / "keys.json"
        self.keys = [bearer(keys("add", "-f", self.file, "--name", name)) for name in ("a", "b")]

    def statuses(self, *flags, **fields):
        with Server(*CACHE, "--api-key-file", self.file, *flags) as server:
            return [status(server.post("/v1/completions", {**STORY, **fields}, key)) for key in (self.keys[0], self.keys[1], self.keys[0])]

    def test_a_key_has_its_own(self):
        a, b, again = self.statuses()
        self.assertIn("miss", a)
        self.assertIn("miss", b)
        self.assertIn("hit", again)

    def test_keys_may_share(self):
        self.assertEqual(["hit" in one for one in self.statuses("--reply-cache-across-keys")], [False, True, True])

    def test_what_is_given_again_costs_no_quota(self):
        few = bearer(keys("add", "-f", self.file, "--tokens-per-minute", "20"))
        with Server(*CACHE, "--api-key-file", self.file) as server:
            self.assertEqual([server.post("/v1/completions", STORY, few).status for _ in range(6)], [200] * 6)

    def test_only_where_it_is_asked_for(self):
        with Server(*CACHE, "--reply-cache-on-request") as server:
            on = {"x-penstock-cache": "on"}
            self.assertIn("bypass; detail=not-asked", status(server.generate()))
            self.assertIn("miss", status(server.generate(headers=on)))
            self.assertIn("hit", status(server.generate(headers=on)))

    def test_without_a_cache_nothing_is_said(self):
        with Server() as server:
            self.assertEqual(status(server.generate()), "")
            self.assertEqual(server.post("/reset_reply_cache", {}).status, 404)


class OnDisk(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def serve(self, *flags, **more):
        return Server(*CACHE, "--data-dir", self.folder, *flags, **more)

    def ask(self, server, n):
        reply = server.post("/v1/completions", {**STORY, "max_tokens": n})
        self.assertEqual(reply.status, 200)
        return reply

    def test_replies_outlive_the_server(self):
        with self.serve() as server:
            texts = [self.ask(server, n).json()["choices"] for n in (3, 4)]
            self.assertEqual(server.stop(), 0)
        with self.serve() as server:
            self.read(server, 2)
            again = [self.hit(server, n) for n in (3, 4)]
            self.assertEqual([one.json()["choices"] for one in again], texts)
        with self.serve(model=LARGER_MODEL) as server:
            self.assertIn("miss", status(self.ask(server, 3)))

    def read(self, server, n):
        """Waits until n replies are there: those on the disk are read beside what is served."""
        end = time.monotonic() + 20 * SLOW
        while server.metric("penstock:reply_cache_entries") < n and time.monotonic() < end:
            time.sleep(0.02)

    def hit(self, server, n):
        reply = self.ask(server, n)
        self.assertIn("; hit", status(reply))
        return reply

    def test_sigkill_at_any_moment(self):
        """What is there afterwards is whole and right; what was written some time before is there."""
        with Server() as alone:
            right = {n: alone.post("/v1/completions", {**STORY, "max_tokens": n}).json()["choices"][0]["text"] for n in range(1, 41)}
        kept = set()
        for round_ in range(6):
            with self.serve() as server:
                self.read(server, len(kept))
                for n in kept:
                    self.assertEqual(self.hit(server, n).json()["choices"][0]["text"], right[n])
                fresh = range(1 + 6 * round_, 7 + 6 * round_)
                for n in fresh:
                    self.assertEqual(self.ask(server, n).json()["choices"][0]["text"], right[n])
                time.sleep(0.05 * round_)  # some are written, some are being written, some are not
                if round_ % 3 == 2:
                    time.sleep(1 * SLOW)
                    kept |= set(fresh)
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
        with self.serve() as server:
            self.read(server, len(kept))
            for n in kept:
                self.hit(server, n)
            for n, text in right.items():
                self.assertEqual(self.ask(server, n).json()["choices"][0]["text"], text)

    def test_forgotten_ones_do_not_come_back(self):
        with self.serve() as server:
            self.ask(server, 3)
            time.sleep(0.5)
            self.assertEqual(server.post("/reset_reply_cache", {}).json(), {"forgotten": 1})
            self.assertEqual(server.stop(), 0)
        with self.serve() as server:
            time.sleep(0.3)
            self.assertIn("miss", status(self.ask(server, 3)))

    def test_a_damaged_file_disturbs_nobody(self):
        (self.folder / "cache.db").write_text("not a database, and long enough that somebody looks at what it says")
        with self.serve() as server:
            self.assertIn("replies are kept in memory only", server.log())
            self.ask(server, 3)
            self.assertIn("hit", status(self.ask(server, 3)))
        self.assertTrue((self.folder / "cache.db").read_text().startswith("not a database"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
