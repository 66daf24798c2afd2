#!/usr/bin/env python3
"""Chats whose last question means the same: what has to be equal besides, particulars, what is left out, what requests say, SIGKILL."""
import json
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from live_server import MODEL, SLOW, SOURCE, Server
from reply_cache_e2e import status
from server_ops_e2e import bearer, keys

VECTORS = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"
TEMPLATE = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.content }} {% endfor %}"
ASKED = "Can you tell me a story about a little dog who lost a red ball?"
SAME = "can you tell me the story of a little dog who lost a red ball"
# The shipped embedding model is small: what these tests are about is all but how good it is.
FLAGS = ("--reply-cache", "16M", "--reply-cache-by-meaning", "vectors", "--reply-cache-threshold", "0.5")


def models(folder):
    path = pathlib.Path(folder) / "models.json"
    path.write_text(json.dumps({"models": [
        {"name": "small", "model": str(MODEL), "chat_template": TEMPLATE, "keys": []},
        {"name": "vectors", "model": str(VECTORS), "runner": "pooling"}]}))
    return path


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.server = Server("--models-config", models(cls.place.name), *FLAGS, model=None)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.place.cleanup()

    def setUp(self):
        self.server.post("/reset_reply_cache", {})

    def ask(self, question, headers=None, before=(), server=None, **fields):
        messages = [*before, {"role": "user", "content": question}]
        body = {"model": "small", "messages": messages, "max_tokens": 8, "temperature": 0, **fields}
        reply = (server or self.server).post("/v1/chat/completions", body, headers)
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def hits(self, *args, **kwargs):
        return "penstock-meaning; hit" in status(self.ask(*args, **kwargs))


class Meaning(Case):
    def test_a_question_that_means_the_same(self):
        first = self.ask(ASKED)
        self.assertRegex(status(first), r"^penstock-exact; fwd=miss, penstock-meaning; fwd=miss; detail=0\.0000$")
        again = self.ask(SAME)
        self.assertRegex(status(again), r"^penstock-exact; fwd=miss, penstock-meaning; hit; ttl=\d+; detail=0\.\d+$")
        self.assertEqual(again.json()["choices"], first.json()["choices"])
        self.assertEqual(again.json()["usage"]["reply_cache"], "meaning")
        self.assertEqual(status(self.ask(ASKED)).split(";")[1], " hit", "by its key first")
        streamed = self.ask(SAME, stream=True)
        self.assertIn("penstock-meaning; hit", status(streamed))
        said = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or "" for line in streamed.body.decode().splitlines()
                       if line.startswith("data: {"))
        self.assertEqual(said, first.json()["choices"][0]["message"]["content"])

    def test_other_apis(self):
        for path, body in (("/v1/responses", lambda q: {"input": q, "max_output_tokens": 8}),
                           ("/v1/messages", lambda q: {"messages": [{"role": "user", "content": q}], "max_tokens": 8})):
            replies = [self.server.post(path, {"model": "small", "temperature": 0, **body(q)}) for q in (ASKED, SAME)]
            self.assertIn("penstock-meaning; hit", status(replies[1]), replies[1].body)
            self.assertEqual(replies[1].json()["usage"]["reply_cache"], "meaning")
            self.server.post("/reset_reply_cache", {})
        reply = self.server.post("/v1/completions", {"model": "small", "prompt": ASKED, "max_tokens": 2, "temperature": 0})
        self.assertIn("penstock-meaning; fwd=bypass; detail=no-question", status(reply))

    def test_particulars_differ(self):
        pairs = [("Tell me a story about 3 dogs.", "Tell me a story about 4 dogs."), ("Can you tell me a story about Tom and a little dog who lost a red ball?", "Can you tell me a story about Lily and a little dog who lost a red ball?"),
                 ("Why is the dog sad?", "Why is the dog not sad?"), ('Say "dog" to me.', 'Say "cat" to me.'),
                 ("Tell me a story about three dogs.", "Tell me a story about four dogs.")]
        for a, b in pairs:
            with self.subTest(b):
                self.server.post("/reset_reply_cache", {})
                self.ask(a)
                refused = 'penstock:reply_cache_meaning_requests_total{result="miss",why="other-particulars"}'
                before = self.server.metrics()[refused]
                self.assertRegex(status(self.ask(b)), r"penstock-meaning; fwd=miss; detail=0\.\d+-other-particulars$")
                self.assertEqual(self.server.metrics()[refused], before + 1)

    def test_everything_else_is_compared(self):
        system = {"role": "system", "content": "Be brief."}
        turn = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
        self.ask(ASKED)
        for other in ({"before": [system]}, {"before": turn}, {"max_tokens": 9}, {"seed": 4}, {"structured_outputs": {"regex": "[a-z ,.]*"}}, {"cache_salt": "mine"},
                      {"chat_template_kwargs": {"x": 1}}):
            with self.subTest(other):
                self.assertFalse(self.hits(SAME, **other))
                self.assertTrue(self.hits(ASKED + "!", **other), "in a scope of its own")
        self.assertTrue(self.hits(ASKED[:-1]))

    def test_what_is_left_out(self):
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        self.assertIn("detail=tools", status(self.ask(ASKED, tools=[tool], tool_choice="none")))
        self.assertIn("detail=no-question", status(self.ask("", before=[{"role": "user", "content": ASKED}])))
        self.assertIn("detail=too-long", status(self.ask("dog " * 4000, truncate_prompt_tokens=8)))
        self.assertIn("detail=exact-only", status(self.ask(SAME, {"x-penstock-cache": "exact"})))
        self.assertIn("fwd=request", status(self.ask(SAME, {"x-penstock-cache": "refresh"})))
        self.assertEqual(status(self.ask(SAME, {"x-penstock-cache": "off"})), "penstock-exact; fwd=bypass; detail=refused")
        reply = self.server.post("/v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,"}}]}]})
        self.assertEqual(reply.status, 400, "there are no images")

    def test_forgetting_and_metrics(self):
        self.ask(ASKED)
        self.assertTrue(self.hits(SAME))
        self.assertEqual(self.server.post("/reset_reply_cache", {"model": "small"}).json(), {"forgotten": 1})
        self.assertFalse(self.hits(SAME))
        self.assertGreater(self.server.get("/v1/metrics").json()["reply_cache_meaning_hits"], 0)

    def test_age(self):
        self.ask(ASKED)
        time.sleep(2.1)
        self.assertFalse(self.hits(SAME, {"Cache-Control": "max-age=1"}))

    def test_requests_beside_each_other(self):
        """Many at once, of which some are answered so: each has the answer to its own question."""
        import concurrent.futures
        alone = {q: self.ask(q, {"x-penstock-cache": "off"}).json()["choices"][0]["message"]["content"] for q in
                 (f"Tell me a story about {n} dogs." for n in range(2, 10))}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [q for q in alone for _ in range(4)]
            replies = list(pool.map(lambda q: self.ask(q).json()["choices"][0]["message"]["content"], asked))
        self.assertEqual(replies, [alone[q] for q in asked])


class Owners(unittest.TestCase):
    def test_never_across_keys_unless_allowed(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "keys.json"
            a, b = (bearer(keys("add", "-f", file, "--name", name)) for name in ("a", "b"))
            for flags, shared in (((), False), (("--reply-cache-across-keys",), True)):
                with Server("--models-config", models(folder), *FLAGS, *flags, "--api-key-file", file, model=None) as server:
                    Case.ask(self, ASKED, a, server=server)
                    self.assertEqual("penstock-meaning; hit" in status(Case.ask(self, SAME, b, server=server)), shared)
                    self.assertIn("hit", status(Case.ask(self, SAME, a, server=server)))

    def test_bad_flags(self):
        for flags, message in ((("--reply-cache-by-meaning", "vectors"), "there is no cache"),
                               (("--reply-cache", "1M", "--reply-cache-by-meaning", "nobody"), "--reply-cache-by-meaning: model: expected")):
            with self.assertRaisesRegex(AssertionError, message):
                Server(*flags)

    def test_a_model_that_gives_no_vectors(self):
        with self.assertRaisesRegex(AssertionError, "gives text and no vectors"):
            Server("--reply-cache", "1M", "--reply-cache-by-meaning", MODEL.name)


class OnDisk(unittest.TestCase):
    def test_sigkill_at_any_moment(self):
        questions = [f"Please tell me a story about the little dog and its {thing}." for thing in ("ball", "bed", "friend", "tree", "house", "garden")]
        with tempfile.TemporaryDirectory() as folder:
            def serve():
                return Server("--models-config", models(folder), *FLAGS, "--data-dir", pathlib.Path(folder) / "data", model=None)
            right, kept = {}, []
            for round_, question in enumerate(questions):
                with serve() as server:
                    end = time.monotonic() + 20 * SLOW
                    while server.metric("penstock:reply_cache_entries") < len(kept) and time.monotonic() < end:
                        time.sleep(0.02)
                    for known in kept:
                        reply = Case.ask(self, known + "..", server=server)
                        self.assertIn("penstock-meaning; hit", status(reply))
                        self.assertIn(reply.json()["choices"][0]["message"]["content"], right.values())
                    right[question] = Case.ask(self, question, {"x-penstock-cache": "refresh"}, server=server).json()["choices"][0]["message"]["content"]
                    time.sleep(0.06 * round_)
                    if round_ % 2:
                        time.sleep(1 * SLOW)
                        kept.append(question)
                    server.process.send_signal(signal.SIGKILL)
                    server.process.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
