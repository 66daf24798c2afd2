#!/usr/bin/env python3
"""model: "auto": rules, the learned score and its training, the cascade, keys, dry runs, costs, what configurations are refused."""
import base64
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SOURCE, Server
from server_ops_e2e import bearer, keys

VECTORS = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"
TEMPLATE = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.content }} {% endfor %}"
STORY = {"model": "auto", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


def config(folder, routes, **small):
    path = pathlib.Path(folder) / "models.json"
    path.write_text(json.dumps({"models": [
        {"name": "small", "model": str(MODEL), "chat_template": TEMPLATE, "price": {"input": 1, "output": 2}, **small},
        {"name": "large", "model": str(LARGER_MODEL), "chat_template": TEMPLATE, "price": {"input": 10, "output": 20}},
        {"name": "vectors", "model": str(VECTORS), "runner": "pooling"}], "routes": routes}))
    return path


def auto(**fields):
    return {"name": "auto", "small": "small", "large": "large", **fields}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def serve(self, *routes, flags=(), **small):
        return self.enterContext(Server("--models-config", config(self.folder, list(routes), **small), *flags, model=None))

    def answered(self, server, body, headers=None, path="/v1/completions", status=200):
        """(model of the reply, what the header says)"""
        reply = server.post(path, body, headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json().get("model"), reply.headers.get("x-penstock-route", "")


class Rules(Case):
    def test_each(self):
        rules = [{"if": {"header": {"X-Tier": "gold"}}, "use": "large"}, {"if": {"max_seconds": 5}, "use": "small"},
                 {"if": {"code": True}, "use": "large"}, {"if": {"mathematics": True}, "use": "large"},
                 {"if": {"language": ["zh", "de"]}, "use": "large"}, {"if": {"tools": True}, "use": "large"},
                 {"if": {"json": True}, "use": "large"}, {"if": {"min_characters": 500}, "use": "large"}]
        server = self.serve(auto(rules=rules))
        chat = lambda text, **more: {"model": "auto", "messages": [{"role": "user", "content": text}], "max_tokens": 2, **more}  # noqa: E731
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        cases = [(chat("Tell me a story about a dog."), {}, "small", "otherwise"),
                 (chat("Tell me a story about a dog."), {"X-Tier": "gold"}, "large", "rule 1: header"),
                 (chat("Write a python function. ```def f(): pass```"), {"x-request-timeout": "4"}, "small", "rule 2: time"),
                 (chat("Write a python function that reverses a list."), {}, "large", "rule 3: code"),
                 (chat("Tom has 3 apples and buys 4. How many has he?"), {}, "large", "rule 4: mathematics"),
                 (chat("Wie ist das Wetter und was ist die Stadt der Liebe?"), {}, "large", "rule 5: language"),
                 (chat("讲一个关于小狗的故事"), {}, "large", "rule 5: language"),
                 (chat("Look.", tools=[tool], tool_choice="none"), {}, "large", "rule 6: tools"),
                 (chat("Say it.", response_format={"type": "json_object"}), {}, "large", "rule 7: json"),
                 (chat("the dog ran. " * 50), {}, "large", "rule 8: length")]
        for body, headers, model, reason in cases:
            with self.subTest(reason, text=body["messages"][0]["content"][:40]):
                got, header = self.answered(server, body, headers, "/v1/chat/completions")
                self.assertEqual(got, model, header)
                self.assertEqual(header, f'auto; model={model}; reason="{reason}"')
        metrics = server.metrics()
        self.assertEqual(metrics['penstock:route_decisions_total{route="auto",model="small",reason="rule"}'], 1)
        self.assertEqual(metrics['penstock:route_decisions_total{route="auto",model="small",reason="otherwise"}'], 1)

    def test_every_api_and_streams(self):
        server = self.serve(auto(rules=[{"if": {"min_characters": 40}, "use": "large"}]))
        long = "One day a little dog went to the park and saw a cat."
        apis = {"/v1/completions": lambda t: {"prompt": t, "max_tokens": 4}, "/v1/responses": lambda t: {"input": t, "max_output_tokens": 4},
                "/v1/messages": lambda t: {"messages": [{"role": "user", "content": t}], "max_tokens": 4},
                "/v1/chat/completions": lambda t: {"messages": [{"role": "user", "content": [{"type": "text", "text": t}]}], "max_tokens": 4},
                "/api/chat": lambda t: {"messages": [{"role": "user", "content": t}], "options": {"num_predict": 4}},
                "/api/generate": lambda t: {"prompt": t, "options": {"num_predict": 4}}}
        for path, body in apis.items():
            for stream in (False, True):
                for text, model in (("One day", "small"), (long, "large")):
                    with self.subTest(path, stream=stream, model=model):
                        reply = server.post(path, {"model": "auto", **body(text), "stream": stream})
                        self.assertEqual(reply.status, 200, reply.body)
                        self.assertIn(f"model={model};", reply.headers["x-penstock-route"])
        self.assertEqual(self.answered(server, {**STORY, "model": "large"}), ("large", ""), "who names a model has it")
        self.assertIn("auto", [one["id"] for one in server.get("/v1/models").json()["data"]])
        self.assertEqual(server.get("/v1/models/auto").json()["id"], "auto")
        self.assertEqual(server.post("/v1/completions", {**STORY, "temperature": "hot"}).status, 400)
        self.assertEqual(server.post("/v1/completions", {**STORY, "model": "autos"}).status, 404)

    def test_keys(self):
        file = pathlib.Path(self.folder) / "keys.json"
        made = [keys("add", "-f", file, "--name", name) for name in ("poor", "rich", "other")]
        ids = [one["id"] for one in json.loads(file.read_text())["keys"]]
        path = pathlib.Path(self.folder) / "models.json"
        path.write_text(json.dumps({"models": [{"name": "small", "model": str(MODEL), "keys": ids[:2]},
                                               {"name": "large", "model": str(LARGER_MODEL), "keys": [ids[1]]},
                                               {"name": "apart", "model": str(MODEL)}],
                                    "routes": [auto(rules=[{"if": {"min_characters": 1}, "use": "large"}]),
                                               {**auto(rules=[{"if": {"key": ids[1]}, "use": "large"}]), "name": "by-key"},
                                               {**auto(cascade={"min_mean_logprob": 0}), "name": "careful"}, {**auto(dry_run=True), "name": "dry"}]}))
        server = self.enterContext(Server("--models-config", path, "--api-key-file", file, model=None))
        got, header = self.answered(server, STORY, bearer(made[0]))
        self.assertEqual(got, "small")
        self.assertIn("the key may not use the other", header)
        self.assertEqual(self.answered(server, STORY, bearer(made[1]))[0], "large")
        for key, model in zip(made, ("small", "large")):
            self.assertEqual(self.answered(server, {**STORY, "model": "by-key"}, bearer(key))[0], model)
            # Neither a doubtful answer nor a dry run asks a model that the key may not use.
            for route in ("careful", "dry"):
                self.assertEqual(self.answered(server, {**STORY, "model": route}, bearer(key))[0], model)
        # Who may use neither model has no such route.
        listed = lambda key: [one["id"] for one in server.request("GET", "/v1/models", headers=bearer(key)).json()["data"]]  # noqa: E731
        self.assertEqual(listed(made[0]), ["small", "apart", "auto", "by-key", "careful", "dry"])
        self.assertEqual(listed(made[2]), ["apart"])
        self.assertEqual(server.request("GET", "/v1/models/auto", headers=bearer(made[2])).status, 404)
        reply = server.post("/v1/completions", STORY, bearer(made[2]))
        self.assertEqual(reply.status, 404)
        self.assertNotIn("small", reply.body.decode())

    def test_dry_run(self):
        server = self.serve(auto(dry_run=True))
        self.assertEqual(self.answered(server, STORY), ("large", 'auto; model=small; reason="otherwise"; dry-run; answered-by=large'))

    def test_costs(self):
        server = self.serve(auto(rules=[{"if": {"header": {"x-hard": "1"}}, "use": "large"}]))
        server.post("/v1/completions", {**STORY, "ignore_eos": True})
        server.post("/v1/completions", {**STORY, "ignore_eos": True}, {"x-hard": "1"})
        usage = server.post("/v1/completions", {**STORY, "model": "small", "ignore_eos": True}).json()["usage"]
        n, m = usage["prompt_tokens"], usage["completion_tokens"]
        values = server.get("/v1/metrics").json()
        self.assertAlmostEqual(values["route_cost"], 11e-6 * n + 22e-6 * m, 12)
        self.assertAlmostEqual(values["route_cost_saved"], 9e-6 * n + 18e-6 * m, 12)


class Cascade(Case):
    def test_an_answer_that_is_not_good_enough_is_never_seen(self):
        for least, kept in ((0.0, False), (-100.0, True)):
            for stream in (False, True):
                with self.subTest(least=least, stream=stream):
                    server = self.serve(auto(cascade={"min_mean_logprob": least}))
                    body = {**STORY, "max_tokens": 30, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
                    reply = server.post("/v1/completions", body)
                    right = server.post("/v1/completions", {**body, "model": "small" if kept else "large"})
                    text = lambda one: one.json()["choices"][0]["text"] if not stream else "".join(  # noqa: E731
                        c["text"] for line in one.body.decode().splitlines() if line.startswith("data: {") for c in json.loads(line[6:])["choices"])
                    self.assertEqual(text(reply), text(right))
                    if stream:
                        self.assertTrue(reply.body.endswith(b"data: [DONE]\n\n"))
                    self.assertIn("cascade=kept" if kept else 'cascade=abandoned; answered-by=large; doubt="mean log-probability -',
                                  reply.headers["x-penstock-route"])
                    result = "kept" if kept else "abandoned"
                    self.assertEqual(server.metrics()[f'penstock:route_cascade_total{{route="auto",result="{result}"}}'], 1)
                    self.assertGreater(server.get("/v1/metrics").json()["route_cost"], 0)
                    server.stop()

    def test_logprobs_do_not_show(self):
        server = self.serve(auto(cascade={"min_mean_logprob": -100}))
        choice = server.post("/v1/completions", STORY).json()["choices"][0]
        self.assertIsNone(choice["logprobs"])
        self.assertEqual(len(server.post("/v1/completions", {**STORY, "logprobs": 1}).json()["choices"][0]["logprobs"]["tokens"]), 8)

    def test_own_check(self):
        for at_least, kept in ((0.0, True), (1.0, False)):
            server = self.serve(auto(cascade={"check": {"prompt": "Q: {question} A: {answer} Is that right?", "yes": "Yes", "at_least": at_least}}))
            reply = server.post("/v1/chat/completions", {"model": "auto", "messages": [{"role": "user", "content": "One day"}], "max_tokens": 4})
            self.assertEqual(reply.status, 200)
            self.assertIn("cascade=kept" if kept else 'cascade=abandoned; answered-by=large; doubt="own check 0.', reply.headers["x-penstock-route"])
            server.stop()

    def test_mistakes_are_answered_once(self):
        server = self.serve(auto(cascade={"min_mean_logprob": -1}))
        reply = server.post("/v1/completions", {**STORY, "stop": 5})
        self.assertEqual(reply.status, 400)
        self.assertIn("stop", reply.json()["error"]["message"])

    def test_with_the_cache(self):
        server = self.serve(auto(cascade={"min_mean_logprob": -100}), flags=("--reply-cache", "1M"))
        replies = [server.post("/v1/completions", STORY) for _ in range(2)]
        self.assertIn("hit", replies[1].headers["Cache-Status"])
        self.assertIn("cascade=kept", replies[1].headers["x-penstock-route"])
        self.assertEqual(*[one.json()["choices"] for one in replies])

    def test_a_client_that_leaves(self):
        server = self.serve(auto(cascade={"min_mean_logprob": -100}))
        for _ in range(5):
            sock = server.stream({**STORY, "max_tokens": 400, "ignore_eos": True, "stream": True})
            sock.close()
        for _ in range(int(200 * SLOW)):
            if server.metric("penstock:num_requests_running") + server.metric("penstock:num_requests_waiting") == 0:
                break
            __import__("time").sleep(0.05)
        self.assertEqual(server.metric("penstock:num_requests_running"), 0)
        self.assertEqual(server.post("/v1/completions", STORY).status, 200)


def base64_of(file):
    return "data:image/png;base64," + base64.b64encode(file).decode()


class Pictures(Case):
    SEEING = SOURCE / "tests" / "golden" / "seeing" / "qwen3_vl"
    URL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

    def start(self, *routes):
        path = pathlib.Path(self.folder) / "models.json"
        eyes = {"model": str(self.SEEING), "max_model_len": 512}
        path.write_text(json.dumps({"models": [{"name": "small", "model": str(MODEL), "chat_template": TEMPLATE}, {"name": "large", **eyes}],
                                    "routes": list(routes)}))
        return self.enterContext(Server("--models-config", path, model=None))

    def test_go_to_the_model_that_sees(self):
        server = self.start(auto(cascade={"min_mean_logprob": -100}), {**auto(), "name": "plain"},
                            {**auto(small="large", large="small", otherwise="large"), "name": "reversed"},
                            {**auto(rules=[{"if": {"pictures": True}, "use": "large"}]), "name": "ruled"},
                            {**auto(large="small"), "name": "blind"})
        url, file = self.URL, self.URL.split(",")[1]
        part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": file}}
        user = lambda content, **more: {"messages": [{"role": "user", "content": content, **more}]}  # noqa: E731
        chat = user([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}])
        asks = {"/v1/chat/completions": {**chat, "max_tokens": 2},
                "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}], "max_output_tokens": 2},
                "/v1/messages": {**user([part]), "max_tokens": 2},
                "/api/chat": {**user("What?", images=[file]), "options": {"num_predict": 2}}}
        why = "otherwise; the model chosen has no eyes"
        for path, body in asks.items():
            for route in ("auto", "plain", "reversed"):
                with self.subTest(path, route=route):
                    reply = server.post(path, {**body, "model": route, "stream": False})
                    self.assertEqual(reply.status, 200, reply.body)
                    self.assertEqual(reply.headers["x-penstock-route"], f'{route}; model=large; reason="{why}"')
        got, header = self.answered(server, {**asks["/v1/chat/completions"], "model": "ruled"}, path="/v1/chat/completions")
        self.assertEqual((got, header), ("large", 'ruled; model=large; reason="rule 1: pictures"'))
        reply = server.post("/v1/chat/completions", {**chat, "model": "blind"})
        self.assertEqual(reply.status, 400)
        self.assertIn("no eyes", reply.json()["error"]["message"])
        # Errors about pictures: a bound is no reason to try again, and a client does not name the place.
        huge = base64_of(struct.pack(">4s4sII", b"\x89PNG", b"\r\n\x1a\n", 13, 0x49484452) + struct.pack(">IIBBBBB", 50000, 50000, 8, 2, 0, 0, 0) + b"crc!")
        for message, part in (("messages[0].content[0]: expected a picture of at most 67108864 pixels", {"type": "image_url", "image_url": {"url": huge}}),
                              ("messages[0].content[0]: expected a data URL", {"type": "image", "penstock_place": "x" * 1_000_000})):
            reply = server.post("/v1/chat/completions", {**user([part]), "model": "large", "max_tokens": 2})
            self.assertEqual((reply.status, reply.json()["error"]["message"][:len(message)]), (400, message))
        # Text that names a picture's type is no picture.
        for body in (user("image_url"), user([{"type": "text", "text": "image"}])):
            header = self.answered(server, {**body, "max_tokens": 2, "model": "auto"}, path="/v1/chat/completions")[1]
            self.assertIn("model=small", header)

    def test_models_are_not_loaded_to_see_whether_they_see(self):
        path, none = pathlib.Path(self.folder) / "models.json", pathlib.Path(self.folder) / "none"
        none.mkdir()
        (none / "config.json").write_text((self.SEEING / "config.json").read_text())
        (none / "model.safetensors").write_text("no weights")
        later = {"chat_template": TEMPLATE, "load": "first use"}
        path.write_text(json.dumps({
            "models": [{"name": "small", "model": str(MODEL), "chat_template": TEMPLATE}, {"name": "blind", "model": str(MODEL), **later},
                       {"name": "large", "model": str(self.SEEING), "max_model_len": 512, "load": "first use"},
                       {"name": "none", "model": str(none), "load": "first use"}],
            "routes": [auto(small="blind"), {**auto(small="blind", large="small"), "name": "text"}, {**auto(large="none"), "name": "gone"}]}))
        server = self.enterContext(Server("--models-config", path, model=None))
        chat = {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": self.URL}}]}]}
        states = lambda: {one["id"]: one["state"] for one in server.get("/v1/models").json()["data"] if "state" in one}  # noqa: E731
        reply = server.post("/v1/chat/completions", {**chat, "model": "auto"})
        self.assertEqual((reply.status, reply.json().get("model")), (200, "large"), reply.body)
        self.assertEqual((states()["blind"], states()["large"]), ("unloaded", "loaded"))
        for route in ("text", "gone"):
            reply = server.post("/v1/chat/completions", {**chat, "model": route})
            self.assertIn("no eyes", reply.json()["error"]["message"])
        self.assertEqual(states()["none"], "unloaded")

    def test_of_tools(self):
        server = self.start(auto())
        asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}
        shown = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": self.URL.split(",")[1]}}]}]}
        reply = server.post("/v1/messages", {"model": "auto", "max_tokens": 2, "messages": [{"role": "user", "content": "Look."}, asked, shown]})
        self.assertIn("model=large", reply.headers["x-penstock-route"], reply.body)


class Score(Case):
    def train(self, lines, *flags, code=0):
        data, out = pathlib.Path(self.folder) / "data.jsonl", pathlib.Path(self.folder) / "router.json"
        data.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
        done = subprocess.run([PROGRAM, "route", "train", "-d", data, "-m", VECTORS, "-o", out, *flags], capture_output=True, text=True,
                              timeout=300 * SLOW)
        self.assertEqual(done.returncode == 0, code == 0, done.stderr)
        return out, done.stdout + done.stderr

    def test_train_and_route(self):
        animals = ("dog", "cat", "bird", "fish", "bear", "rabbit", "horse", "mouse")
        easy = [f"The little {a} was happy and played with the {b} in the park." for a in animals for b in animals]
        hard = [f"He bought {i} boxes of {j} pens and gave away {i} of the boxes." for i in range(2, 10) for j in range(3, 11)]
        lines = [line for e, h in zip(easy, hard) for line in ({"prompt": e, "label": "small"},
                 {"messages": [{"role": "user", "content": h}], "small": 0.1, "large": 0.9})]
        out, said = self.train(lines)
        self.assertRegex(said, r"128 examples, \d+ of them held out")
        self.assertGreater(float(said.split("AUC ")[1].split()[0]), 0.9)
        server = self.serve(auto(score={"file": str(out), "model": "vectors"}))
        for text, model in (("The little duck was happy and played with the frog in the park.", "small"),
                            ("He bought 12 boxes of 4 pens and gave away 5 of the boxes.", "large")):
            got, header = self.answered(server, {**STORY, "prompt": text})
            self.assertEqual(got, model, header)
            self.assertRegex(header, r'reason="score 0\.\d{3}, threshold 0\.\d{3}"')
        server.stop()
        server = self.serve(auto(score={"file": str(out), "model": "vectors", "threshold": 0.0}))
        self.assertEqual(self.answered(server, STORY)[0], "large")
        self.assertEqual(self.answered(server, {**STORY, "prompt": [1, 2, 3]})[0], "small", "nothing to score")

    def test_bad_examples(self):
        for lines, message in ((["{"], "data.jsonl:1: expected a JSON object"), ([{"label": 1}], ":1: expected prompt"),
                               ([{"prompt": "a", "label": 0}, {"prompt": "a"}], ":2: expected label"), ([{"prompt": "a", "label": 0}] * 9, "others, got 0 and"),
                               ([], "got 0 and 0")):
            self.assertIn(message, self.train(lines, code=1)[1])


class Bad(Case):
    def test_configurations(self):
        score = pathlib.Path(self.folder) / "score.json"
        score.write_text("{}")
        cases = [({}, "name: expected"), (auto(small="nobody"), "route auto: there is no model nobody"), ({**auto(), "name": "small"}, "the name is taken"),
                 (auto(otherwise="medium"), 'expected "small" or "large"'), (auto(speed=1), "speed: there is no such field"),
                 (auto(rules=[{"if": {"colour": 1}, "use": "large"}]), "rules[0].if.colour: there is no such field"),
                 (auto(rules=[{"if": {}, "use": "large"}]), "expected a condition"), (auto(rules=[{"use": "large"}]), "expected if and use"),
                 (auto(rules=[{"if": {"code": True}, "use": "x"}]), "there is no model x"), (auto(rules={}), "rules: expected a list"),
                 (auto(cascade={}), "expected min_mean_logprob, check or both"), (auto(cascade={"check": {"prompt": "x"}}), "expected a text with {answer}"),
                 (auto(score={"file": "x"}), "expected file, and model"), (auto(score={"file": "/nowhere", "model": "vectors"}), "/nowhere: No such file"),
                 (auto(score={"file": str(score), "model": "vectors"}), "expected what `penstock route train` writes")]
        for route, message in cases:
            with self.subTest(message):
                with self.assertRaises(AssertionError) as raised:
                    self.serve(route)
                self.assertIn(message, str(raised.exception))
        with self.assertRaises(AssertionError) as raised:
            self.serve(auto(), auto())
        self.assertIn("the name is taken", str(raised.exception))
        with self.assertRaises(AssertionError) as raised:
            self.serve(auto(), price={"input": -1})
        self.assertIn("price.input: expected 0 to 1e9", str(raised.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
