#!/usr/bin/env python3
"""llama.cpp's forms of the tokenizer's routes, and Ollama's API: every route, streams against whole replies and both against OpenAI's routes, options, errors in its own shape."""
import concurrent.futures
import datetime
import json
import pathlib
import tempfile
import time
import unittest

import script_model
from serving import SMALL_MODEL, SOURCE, Server

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "num_predict": 12}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "d",
                                         "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
TIMES = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def setUpModule():
    global story, script, vectors, directory
    directory = tempfile.TemporaryDirectory()
    story = Server().__enter__()
    script = Server(script_model.write(pathlib.Path(directory.name) / "script")).__enter__()
    vectors = Server(SOURCE / "tests" / "golden" / "sentences" / "mean_normalized").__enter__()


def tearDownModule():
    for server in (story, script, vectors):
        server.__exit__()
    directory.cleanup()


def whole(server, path, body, status=200):
    return server.post(path, {**body, "stream": False}, status)


def lines(server, path, body):
    """A stream's objects; the absence of "stream" asks for one."""
    status, headers, reply = server.request("POST", path, json.dumps(body))
    assert status == 200, reply
    assert headers["content-type"] == "application/x-ndjson", headers
    assert reply.endswith(b"\n"), reply[-100:]
    return [json.loads(line) for line in reply.decode().splitlines()]


def chat(word, **fields):
    return {"messages": [{"role": "user", "content": word}], **fields}


class Generate(unittest.TestCase):
    def check_end(self, last):
        self.assertTrue(last["done"])
        for name in TIMES:
            self.assertGreaterEqual(last[name], 0)
            self.assertIsInstance(last[name], int)
        self.assertGreaterEqual(last["total_duration"], last["prompt_eval_duration"] + last["eval_duration"])

    def test_the_same_as_openais(self):
        expected = story.post("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "return_token_ids": True})
        choice = expected["choices"][0]
        reply = whole(story, "/api/generate", {"model": story.model, "prompt": PROMPT, "options": GREEDY})
        self.assertEqual((reply["response"], reply["done_reason"], reply["model"]), (choice["text"], "length", story.model))
        self.assertEqual((reply["prompt_eval_count"], reply["eval_count"]),
                         (expected["usage"]["prompt_tokens"], expected["usage"]["completion_tokens"]))
        self.assertEqual(reply["context"], choice["prompt_token_ids"] + choice["token_ids"])
        self.check_end(reply)
        self.assertRegex(reply["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")

    def test_a_stream_is_the_whole_reply(self):
        body = {"prompt": PROMPT, "options": GREEDY}
        reply, stream = whole(story, "/api/generate", body), lines(story, "/api/generate", body)
        self.assertGreater(len(stream), 3)
        self.assertEqual("".join(line["response"] for line in stream), reply["response"])
        self.assertEqual([line["done"] for line in stream], [False] * (len(stream) - 1) + [True])
        self.assertEqual(stream[-1]["context"], reply["context"])
        self.check_end(stream[-1])

    def test_going_on_with_the_context(self):
        first = whole(story, "/api/generate", {"prompt": PROMPT, "options": GREEDY})
        ids = story.post("/tokenize", {"prompt": " and", "add_special_tokens": False})["tokens"]
        second = whole(story, "/api/generate", {"prompt": " and", "context": first["context"], "options": GREEDY})
        expected = story.post("/v1/completions", {"prompt": first["context"] + ids, "temperature": 0, "max_tokens": 12})
        self.assertEqual(second["response"], expected["choices"][0]["text"])
        self.assertIn("context", whole(story, "/api/generate", {"prompt": "x", "context": [10 ** 6]}, 400)["error"])

    def test_options(self):
        def text(**options):
            return whole(story, "/api/generate", {"prompt": PROMPT, "options": {"num_predict": 12, **options}})["response"]
        greedy = text(temperature=0)
        self.assertEqual(text(top_k=1), greedy)
        self.assertEqual(text(seed=7, temperature=2), text(seed=7, temperature=2))
        self.assertNotEqual(text(seed=7, temperature=2), text(seed=8, temperature=2))
        word = greedy.split()[2]
        self.assertEqual(text(temperature=0, stop=[word]), greedy[:greedy.index(word)])
        self.assertEqual(text(temperature=0, stop=word), greedy[:greedy.index(word)])
        self.assertNotEqual(text(temperature=0, repeat_penalty=50, num_predict=40), text(temperature=0, num_predict=40))
        self.assertEqual(text(temperature=0, repeat_penalty=50, repeat_last_n=0, num_predict=40), text(temperature=0, num_predict=40))
        far = text(temperature=0, repeat_penalty=50, repeat_last_n=-1, num_predict=120)
        self.assertEqual(text(temperature=0, repeat_penalty=50, repeat_last_n=64, num_predict=120), text(temperature=0, repeat_penalty=50, num_predict=120))
        self.assertNotEqual(text(temperature=0, repeat_penalty=50, num_predict=120), far)  # the default looks at the last 64
        self.assertEqual(text(top_p=0), greedy)
        self.assertEqual(text(temperature=0, num_ctx=0), greedy)
        self.assertEqual(text(temperature=0, num_ctx=-1), greedy)
        self.assertEqual(text(temperature=0, num_ctx=64, num_gpu=1, num_thread=2, use_mmap=True), greedy)

    def test_without_a_limit_the_context_is_filled(self):
        with Server(SMALL_MODEL, "--max-model-len", 32) as server:
            for n in ({}, {"num_predict": -1}, {"num_predict": -2}):
                # The model may end its story before.
                reply = whole(server, "/api/generate", {"prompt": PROMPT, "options": {"temperature": 0, **n}})
                self.assertLessEqual(reply["prompt_eval_count"] + reply["eval_count"], 32)
                self.assertGreater(reply["eval_count"], 16)

    def test_the_template_and_raw(self):
        self.assertEqual(whole(script, "/api/generate", {"prompt": "plain"})["response"], "Hello there!")
        thought = whole(script, "/api/generate", {"prompt": "think", "system": "s"})
        self.assertEqual((thought["thinking"], thought["response"]), ("Let me think.", "The answer is 42."))
        raw = whole(script, "/api/generate", {"prompt": "think", "raw": True, "options": {"num_predict": 3}})
        self.assertNotIn("context", raw)
        self.assertEqual(raw["prompt_eval_count"], len(script.post("/tokenize", {"prompt": "think"})["tokens"]))

    def test_loading(self):
        for body, reason in (({}, "load"), ({"prompt": ""}, "load"), ({"keep_alive": 0}, "unload"), ({"keep_alive": "5m"}, "load")):
            status, _, reply = story.request("POST", "/api/generate", json.dumps(body))
            reply = json.loads(reply)
            self.assertEqual((status, reply["response"], reply["done"], reply["done_reason"]), (200, "", True, reason))
        self.assertEqual(whole(script, "/api/chat", {"messages": []})["done_reason"], "load")

    def test_formats(self):
        schema = {"type": "string", "enum": ["yes, it is", "no, never"]}
        reply = whole(story, "/api/generate", {"prompt": PROMPT, "format": schema, "options": {"num_predict": 60, "temperature": 0}})
        self.assertIn(json.loads(reply["response"]), schema["enum"])
        any_json = whole(story, "/api/generate", {"prompt": PROMPT, "format": "json", "options": {"num_predict": 8, "temperature": 0}})
        self.assertTrue(any_json["response"].lstrip().startswith("{"))
        self.assertEqual(whole(script, "/api/generate", {"prompt": "plain", "format": ""})["response"], "Hello there!")
        wrong = whole(story, "/api/generate", {"prompt": "x", "format": {"type": "nothing"}}, 400)["error"]
        self.assertTrue(wrong.startswith("format"), wrong)

    def test_logprobs(self):
        body = {"prompt": PROMPT, "logprobs": True, "top_logprobs": 2, "options": GREEDY}
        rows = whole(story, "/api/generate", body)["logprobs"]
        streamed = [row for line in lines(story, "/api/generate", body) for row in line.get("logprobs", [])]
        self.assertEqual([row["token"] for row in rows], [row["token"] for row in streamed])
        self.assertEqual((len(rows), len(rows[0]["top_logprobs"])), (12, 2))
        self.assertLessEqual(rows[0]["logprob"], 0)


class Chat(unittest.TestCase):
    def test_text(self):
        reply = whole(script, "/api/chat", chat("plain"))
        self.assertEqual((reply["message"], reply["done_reason"]), ({"role": "assistant", "content": "Hello there!"}, "stop"))
        stream = lines(script, "/api/chat", chat("plain"))
        self.assertEqual([line["message"]["content"] for line in stream], ["Hello", " there", "!", ""])
        self.assertEqual(stream[-1]["eval_count"], reply["eval_count"])

    def test_thinking(self):
        for think in ({}, {"think": True}, {"think": "high"}):
            message = whole(script, "/api/chat", chat("think", **think))["message"]
            self.assertEqual((message["thinking"], message["content"]), ("Let me think.", "The answer is 42."))
        stream = lines(script, "/api/chat", chat("think"))
        self.assertEqual("".join(line["message"].get("thinking", "") for line in stream), "Let me think.")
        self.assertEqual("".join(line["message"]["content"] for line in stream), "The answer is 42.")

    def test_tools(self):
        body = chat("weather", tools=[TOOL])
        [call] = whole(script, "/api/chat", body)["message"]["tool_calls"]
        self.assertEqual((call["function"]["name"], call["function"]["arguments"]), ("get_weather", {"city": "Paris"}))
        [streamed] = [one for line in lines(script, "/api/chat", body) for one in line["message"].get("tool_calls", [])]
        self.assertEqual(streamed["function"], call["function"])
        messages = [*body["messages"], {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": "18 degrees", "tool_name": "get_weather"}]
        self.assertEqual(whole(script, "/api/chat", {"messages": messages, "tools": [TOOL]})["message"]["content"],
                         "It is sunny in Paris.")

    def test_many_at_once(self):
        words = {"plain": "Hello there!", "think": "The answer is 42.", "sunny": "It is sunny in Paris."}
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            asked = list(words) * 8
            for word, stream in zip(asked, pool.map(lambda word: lines(script, "/api/chat", chat(word)), asked)):
                self.assertEqual("".join(line["message"]["content"] for line in stream), words[word])

    def test_a_client_that_leaves_disturbs_nobody(self):
        import http.client
        connection = http.client.HTTPConnection(script.host, script.port, timeout=30)
        connection.request("POST", "/api/chat", json.dumps(chat("endless")))
        connection.getresponse().read(200)
        connection.close()
        self.assertEqual(whole(script, "/api/chat", chat("plain"))["message"]["content"], "Hello there!")


class Models(unittest.TestCase):
    def test_lists(self):
        [tag] = story.get("/api/tags")["models"]
        [running] = story.get("/api/ps")["models"]
        self.assertEqual((tag["name"], tag["model"], running["name"]), (story.model,) * 3)
        self.assertRegex(tag["digest"], "^[0-9a-f]{64}$")
        self.assertGreater(tag["size"], 1000)
        self.assertEqual(running["context_length"], story.get("/v1/models")["data"][0]["max_model_len"])
        self.assertEqual(story.get("/api/version"), story.get("/version"))

    def test_show(self):
        shown = script.post("/api/show", {"model": script.model})
        self.assertEqual(shown["capabilities"], ["completion", "tools", "thinking"])
        self.assertIn("tool_call", shown["template"])
        self.assertEqual(vectors.post("/api/show", {"model": vectors.model})["capabilities"], ["embedding"])
        family = shown["details"]["family"]
        self.assertEqual(shown["model_info"]["general.architecture"], family)
        self.assertGreater(shown["model_info"][family + ".context_length"], 0)

    def test_names(self):
        for name in (script.model, script.model + ":latest"):
            self.assertEqual(whole(script, "/api/chat", chat("plain", model=name))["model"], name)
        for name in ("gpt-9", "gpt-9:latest", script.model + ":7b", ":latest"):
            self.assertIn("gpt-9" if "gpt" in name else "model", whole(script, "/api/chat", chat("x", model=name), 404)["error"])

    def test_embed(self):
        texts = ["the cat sat", "a dog"]
        expected = [one["embedding"] for one in vectors.post("/v1/embeddings", {"input": texts})["data"]]
        reply = vectors.post("/api/embed", {"input": texts})
        self.assertEqual(reply["embeddings"], expected)
        self.assertGreater(reply["prompt_eval_count"], 4)
        self.assertEqual(vectors.post("/api/embed", {"input": texts[0]})["embeddings"], expected[:1])
        self.assertEqual(vectors.post("/api/embeddings", {"prompt": texts[0]})["embedding"], expected[0])
        self.assertEqual(len(vectors.post("/api/embed", {"input": "a", "dimensions": 4})["embeddings"][0]), 4)
        self.assertEqual(vectors.post("/api/embed", {"input": []})["embeddings"], [])
        self.assertEqual(vectors.post("/api/embeddings", {"prompt": ""})["embedding"], [])
        long = {"input": "the cat " * 5000}
        self.assertEqual(len(vectors.post("/api/embed", long)["embeddings"]), 1)
        self.assertIn("error", vectors.post("/api/embed", {**long, "truncate": False}, 400))

    def test_what_is_refused(self):
        for method, path in (("POST", "pull"), ("POST", "push"), ("POST", "create"), ("POST", "copy"), ("DELETE", "delete")):
            status, _, reply = story.request(method, f"/api/{path}", json.dumps({"model": "x"}))
            self.assertEqual((path, status), (path, 400))
            self.assertIn("chosen when it starts", json.loads(reply)["error"])
        for path, body, word in (
                ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
                ("/api/generate", {"prompt": "x", "images": ["aGk="]}, "images"),
                ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "template"),
                ("/api/generate", {"prompt": "x", "suffix": "y", "system": "z"}, "system"),
                ("/api/generate", {"prompt": "x", "raw": True, "system": "y"}, "system"),
                ("/api/generate", {"prompt": "x", "options": {"num_ctx": 10 ** 8}}, "options.num_ctx"),
                ("/api/generate", {"prompt": "x", "options": {"repeat_last_n": -2}}, "options.repeat_last_n"),
                ("/api/generate", {"prompt": "x", "options": {"temperatur": 1}}, "temperatur"),
                ("/api/generate", {"prompt": "x", "options": {"top_p": 7}}, "options.top_p"),
                ("/api/generate", {"prompt": "x", "top_logprobs": 3}, "top_logprobs"),
                ("/api/chat", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
                ("/api/embed", {"input": "x"}, "--runner pooling")):
            with self.subTest(path=path, body=body):
                self.assertIn(word, whole(script, path, body, 400)["error"] if path != "/api/embed" else
                              script.post(path, body, 400)["error"])
        self.assertIn("needs a chat template", whole(story, "/api/generate", {"prompt": "x", "think": True}, 400)["error"])
        self.assertIn("vectors", whole(vectors, "/api/chat", chat("x"), 400)["error"])

    def test_errors_have_the_apis_shape(self):
        for method, path, body, status in (("GET", "/api/none", None, 404), ("GET", "/api/chat", None, 405), ("POST", "/api/chat", "{", 400)):
            got, _, reply = script.request(method, path, body)
            self.assertEqual((path, got, type(json.loads(reply)["error"])), (path, status, str))

    def test_keys(self):
        with Server(SMALL_MODEL, "--api-key", "secret") as server:
            for method, path in (("POST", "/api/generate"), ("GET", "/api/tags"), ("POST", "/api/pull")):
                status, _, reply = server.request(method, path, "{}")
                self.assertEqual((path, status, type(json.loads(reply)["error"])), (path, 401, str))
            self.assertEqual(server.request("GET", "/api/tags", headers={"Authorization": "Bearer secret"})[0], 200)


class LlamaCpp(unittest.TestCase):
    def test_tokenize(self):
        bare = story.post("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})["tokens"]
        full = story.post("/tokenize", {"prompt": PROMPT})["tokens"]
        self.assertEqual(story.post("/tokenize", {"content": PROMPT})["tokens"], bare)
        self.assertEqual(story.post("/tokenize", {"content": PROMPT, "add_special": True})["tokens"], full)
        self.assertEqual(story.post("/tokenize", {"content": ""})["tokens"], [])
        special = script_model.EOS
        self.assertEqual(len(script.post("/tokenize", {"content": special})["tokens"]), 1)
        self.assertGreater(len(script.post("/tokenize", {"content": special, "parse_special": False})["tokens"]), 1)

    def test_pieces(self):
        text = "the c\u00e1t \U0001f600"
        ids = story.post("/tokenize", {"content": text})["tokens"]
        pieces = story.post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
        self.assertEqual([one["id"] for one in pieces], ids)
        as_bytes = b"".join(bytes(one["piece"]) if isinstance(one["piece"], list) else one["piece"].encode() for one in pieces)
        self.assertEqual(as_bytes.decode().strip(), text)
        self.assertTrue(any(isinstance(one["piece"], list) for one in pieces))
        self.assertEqual(story.post("/detokenize", {"tokens": ids})["content"].strip(), text)

    def test_the_forms_do_not_mix(self):
        for body, word in (({"content": "x", "prompt": "y"}, "beside prompt"), ({"content": "x", "add_special_tokens": True}, "content"),
                           ({"prompt": "x", "with_pieces": True}, "with_pieces"), ({"messages": [], "add_special": True}, "messages"),
                           ({**chat("x"), "content": "x"}, "beside messages")):
            self.assertIn(word, script.post("/tokenize", body, 400)["error"]["message"])

    def test_templates(self):
        text = script.post("/apply-template", chat("plain"))["prompt"]
        self.assertEqual(script.post("/tokenize", {"content": text})["tokens"], script.post("/tokenize", chat("plain"))["tokens"])
        self.assertIn("get_weather", script.post("/apply-template", chat("plain", tools=[TOOL]))["prompt"])
        open_end = script.post("/apply-template", chat("plain", add_generation_prompt=False))["prompt"]
        self.assertTrue(text.startswith(open_end) and len(text) > len(open_end))
        self.assertIn("template", story.post("/apply-template", chat("x"), 400)["error"]["message"])


class KeepAlive(unittest.TestCase):
    def loaded(self):
        return story.get("/api/ps")["models"]

    def wait(self, there):
        deadline = time.monotonic() + 30
        while bool(self.loaded()) != there and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(bool(self.loaded()), there)

    def test_a_model_goes_and_comes_back(self):
        self.addCleanup(whole, story, "/api/generate", {"keep_alive": -1})
        whole(story, "/api/generate", {"keep_alive": "1h30m"})
        gone = datetime.datetime.fromisoformat(self.loaded()[0]["expires_at"]) - datetime.datetime.now(datetime.timezone.utc)
        self.assertAlmostEqual(gone.total_seconds(), 5400, delta=60)
        reply = whole(story, "/api/generate", {"keep_alive": 0})
        self.assertEqual((reply["done"], reply["done_reason"]), (True, "unload"))
        self.wait(False)
        state = lambda: story.get("/v1/models")["data"][0]["state"]
        deadline = time.monotonic() + 30
        while state() == "unloading" and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(state(), "unloaded")
        reply = whole(story, "/api/generate", {"prompt": PROMPT, "options": GREEDY, "keep_alive": "300ms"})
        self.assertEqual(reply["eval_count"], 12)
        for _ in range(3):  # who looks does not use it
            story.get("/v1/metrics")
            story.request("GET", "/metrics")
        self.wait(False)
        whole(story, "/api/generate", {"keep_alive": -1})
        time.sleep(0.5)
        self.assertEqual(self.loaded()[0]["expires_at"], "9999-12-31T23:59:59Z")

    def test_what_is_no_time(self):
        for value in ("", "soon", "5 m", "-", "m", "1h2", "1x", "inf", "nan"):
            self.assertIn("keep_alive", whole(story, "/api/generate", {"keep_alive": value}, 400)["error"], value)
        self.assertIn("keep_alive", vectors.post("/api/embed", {"input": "a", "keep_alive": "x"}, 400)["error"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
