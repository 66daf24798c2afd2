#!/usr/bin/env python3
"""The HTTP interface of the running server: every route, every field, errors, streams against plain replies."""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from lora_model import write_adapter
from serving import PROGRAM, SMALL_MODEL, SOURCE, Server

PROMPT = "Once upon a time"
LONGEST_BODY = 200_000
CHAT = [{"role": "user", "content": "say plain words"}]
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}}}
         for name in ("get_weather", "get_time")]
GENERATING = {"/v1/generate": {"prompt": PROMPT, "max_tokens": 2}, "/v1/completions": {"prompt": PROMPT, "max_tokens": 2}}
CHATTING = {"/v1/chat/completions": {"messages": CHAT}, "/v1/responses": {"input": "say plain words"},
            "/v1/messages": {"messages": CHAT, "max_tokens": 8}, "/v1/messages/count_tokens": {"messages": CHAT},
            "/tokenize": {"messages": CHAT}, "/detokenize": {"tokens": [65]}, "/apply-template": {"messages": CHAT},
            "/v1/chat/completions/batch": {"messages": [CHAT]}, "/v1/chat/completions/input_tokens": {"messages": CHAT},
            "/v1/responses/input_tokens": {"input": "x"}, "/v1/responses/compact": {"input": "say plain words"}, "/invocations": {"messages": CHAT},
            "/completion": {"prompt": PROMPT, "n_predict": 2}, "/infill": {"input_prefix": "a", "input_suffix": "b"}}
OLLAMA = {"/api/generate": {"prompt": PROMPT, "options": {"num_predict": 2}, "stream": False},
          "/api/chat": {"messages": CHAT, "stream": False}, "/api/show": {}}

POOLING = {"/v1/embeddings": {"input": "the cat"}, "/pooling": {"input": "the cat"}, "/classify": {"input": "the cat"},
           "/v1/score": {"text_1": "the cat", "text_2": "a dog"}, "/v1/rerank": {"query": "the cat", "documents": ["a dog"]},
           "/v2/rerank": {"query": "the cat", "documents": ["a dog"]}, "/v1/reranking": {"query": "the cat", "documents": ["a dog"]},
           "/embedding": {"content": "the cat"}, "/api/embed": {"input": "the cat"},
           "/api/embeddings": {"prompt": "the cat"}}


def setUpModule():
    global story, script, script_folder, vectors, directory
    directory = tempfile.TemporaryDirectory()
    story = Server().__enter__()
    vectors = Server(SOURCE / "tests" / "golden" / "cross_encoders" / "bert").__enter__()
    script_folder = script_model.write(pathlib.Path(directory.name) / "script")
    script = Server(script_folder, "--max-body-bytes", LONGEST_BODY, "--trust-request-chat-template", "--lora-dir", directory.name, "--data-dir",
                    pathlib.Path(directory.name) / "data").__enter__()


def tearDownModule():
    try:
        story.__exit__()
        vectors.__exit__()
    finally:
        script.__exit__()
        directory.cleanup()


def said(word):
    return {"messages": [{"role": "user", "content": word}]}


def upload(server, content):
    body = (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + content + b"\r\n--x--\r\n")
    status, _, reply = server.request("POST", "/v1/files", body, {"Content-Type": "multipart/form-data; boundary=x"})
    assert status == 200, reply
    return json.loads(reply)["id"]


def error_of(test, reply, status):
    """Checks OpenAI's (or, with a type beside it, Anthropic's, or, a string, Ollama's) error shape; returns the error."""
    error = json.loads(reply)["error"]
    if isinstance(error, str):
        test.assertEqual(set(json.loads(reply)), {"error"})
        return {"message": error}
    test.assertIsInstance(error["message"], str)
    test.assertTrue(error["message"])
    test.assertIsInstance(error["type"], str)
    if json.loads(reply).get("type") == "error":
        test.assertEqual(set(error), {"type", "message"} | ({"details"} if error["message"].startswith("thread: ") else set()))
    else:
        test.assertEqual(error["code"], status)
        test.assertIn("param", error)
    return error


def wrong_values(schema):
    """Values of a type that a field's schema does not allow."""
    kinds = {"null": None, "boolean": True, "integer": 3, "number": 1.5, "string": "\0wrong", "array": [{}], "object": {"\0": 1}}
    allowed = set()
    for one in schema.get("anyOf", [schema]):
        types = one.get("type", [])
        allowed |= {types} if isinstance(types, str) else set(types)
        for value in one.get("enum", []):
            allowed |= {kind for kind, sample in kinds.items() if type(sample) is type(value)}
    if "number" in allowed:
        allowed.add("integer")
    return [value for kind, value in kinds.items() if kind not in allowed]


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.paths = script.get("/openapi.json")["paths"]
        admin = {f"/v1/models/{action}": {"model": script.model} for action in ("load", "unload", "reload")}
        admin["/v1/load_lora_adapter"] = {"lora_name": "style", "lora_path": str(write_adapter(pathlib.Path(directory.name) / "style", script_folder))}
        admin["/v1/unload_lora_adapter"] = {"lora_name": "style"}
        cls.admin = admin
        cls.bodies = {**GENERATING, **CHATTING, **OLLAMA, **POOLING, **admin}
        cls.bodies["/v1/conversations"] = {}
        cls.bodies["/v1/batches"] = {"input_file_id": upload(script, b"{}\n"), "endpoint": "/v1/completions", "completion_window": "24h"}

    def schema(self, path):
        return self.paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]

    def posts(self):
        for path, methods in self.paths.items():
            if "requestBody" in methods.get("post", {}) and "{" not in path:
                yield path

    def test_every_route_that_reads_a_body_is_tried_here(self):
        self.assertLessEqual(set(self.bodies), set(self.posts()))

    def test_other_methods(self):
        for path, methods in self.paths.items():
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
                if method.lower() in methods:
                    continue
                status, headers, reply = script.request(method, path.replace("{id}", "x"), "{}")
                self.assertEqual((method, path, status), (method, path, 405))
                error_of(self, reply, 405)
                self.assertIn(list(methods)[0].upper(), headers["allow"])

    def test_unknown_routes(self):
        for path in ("/v1/none", "/v1", "/v2/completions", "/v1/completions/", "/..%2f..%2fetc/passwd", "/v1/models/none"):
            status, _, reply = script.request("GET", path)
            self.assertEqual((path, status), (path, 404))
            error_of(self, reply, 404)

    def test_malformed_bodies(self):
        bodies = ["", "{", "[]", "7", '"text"', "null", '{"prompt": "\xff"}'.encode("latin-1"), "[" * 5000, '{"a":' * 5000,
                  '{"prompt": "a" "b"}', b"\x00\x01\x02"]
        for path in self.posts():
            for body in bodies:
                status, _, reply = script.request("POST", path, body)
                self.assertEqual((path, body[:20], status), (path, body[:20], 400))
                error_of(self, reply, 400)

    def test_errors_of_messages_have_their_apis_shape(self):
        for method, path, body, status, kind in (
                ("GET", "/v1/messages", None, 405, "invalid_request_error"), ("POST", "/v1/messages/none", "{}", 404, "not_found_error"),
                ("POST", "/v1/messages", "{", 400, "invalid_request_error"),
                ("POST", "/v1/messages/count_tokens", "x" * (LONGEST_BODY + 1), 413, "request_too_large")):
            got, _, reply = script.request(method, path, body)
            error = json.loads(reply)
            self.assertEqual((path, got, error["type"], error["error"]["type"]), (path, status, "error", kind))
        for path in ("/v1/messagesx", "/v1/chat/completions"):
            self.assertNotIn("type", json.loads(script.request("GET", path)[2]))

    def test_oversized_bodies(self):
        body = json.dumps({"prompt": "x" * LONGEST_BODY})
        for path in self.posts():
            status, _, reply = script.request("POST", path, body)
            self.assertEqual((path, status), (path, 413))
            self.assertRegex(error_of(self, reply, 413)["message"], f"at most ({LONGEST_BODY}|65536) bytes")  # 64 KiB where a body means little

    def test_unknown_fields_are_left_out_with_a_warning(self):
        for path in self.posts():
            server = story if path in GENERATING else vectors if path in POOLING else script
            status, headers, reply = server.request("POST", path, json.dumps({**self.bodies.get(path, {}), "zzz": 1}))
            if path in self.admin or path in ("/v1/batches", "/v1/conversations", "/reset_reply_cache"):
                self.assertEqual((path, status), (path, 400))
                self.assertIn("zzz", error_of(self, reply, 400)["message"])
                continue
            self.assertEqual((path, status), (path, 200 if path in self.bodies else 400), reply)
            self.assertEqual((path, headers.get("x-penstock-warning")), (path, "zzz: this server knows no such field, it is left out"))

    def test_misspelt_fields_are_refused_by_name(self):
        for path in self.posts():
            known = max((name for name in self.schema(path)["properties"]), key=len)
            name = known[:2] + known[3:]
            if len(known) < 6:  # other words are as near
                continue
            status, _, reply = script.request("POST", path, json.dumps({**self.bodies.get(path, {}), name: 1}))
            self.assertEqual((path, status), (path, 400))
            message = error_of(self, reply, 400)["message"]
            self.assertTrue(name in message and known in message, message)

    def test_fields_of_other_routes_are_refused_by_name(self):
        """They would change the answer; the routes of llama.cpp and Ollama leave them out, as those do."""
        other = {"max_completion_tokens": 1, "stop_sequences": ["a"], "system": "s", "documents": []}
        for path, more in {"/v1/generate": {"response_format": {"type": "json_object"}, "messages": [], "tools": [], "suffix": "s"},
                           "/v1/completions": {"messages": [], "tools": []}, "/v1/chat/completions": {"prompt": "p", "input": "i"},
                           "/v1/responses": {"max_tokens": 1, "stop": ["a"]}, "/v1/messages": {"stop": ["a"], "input": "i"}}.items():
            for name, value in {**other, **more}.items():
                if name in self.schema(path)["properties"] and self.schema(path)["properties"][name].get("type") != "null":
                    continue
                status, _, reply = script.request("POST", path, json.dumps({**self.bodies[path], name: value}))
                self.assertEqual((path, name, status), (path, name, 400))
                self.assertIn(name, error_of(self, reply, 400)["message"])

    def test_beam_search_is_refused_with_all_that_belongs_to_it(self):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/generate"):
            defaults = {"use_beam_search": False, "beam_width": 1, "early_stopping": False, "length_penalty": 1}
            status, _, reply = script.request("POST", path, json.dumps({**self.bodies[path], **defaults}))
            self.assertEqual((path, status, reply), (path, 200, reply))
            for name, value in {"use_beam_search": True, "beam_width": 3, "early_stopping": True, "length_penalty": 2}.items():
                status, _, reply = script.request("POST", path, json.dumps({**self.bodies[path], name: value}))
                self.assertEqual((path, status), (path, 400))
                error = error_of(self, reply, 400)
                self.assertIn(f"{name}: expected", error["message"])
                if path != "/v1/messages":  # Anthropic's errors have no such field
                    self.assertEqual((path, error["param"]), (path, name))

    def test_unknown_fields_can_be_refused(self):
        with Server(script_folder, "--strict-fields") as server:
            for path in CHATTING:
                status, _, reply = server.request("POST", path, json.dumps({**self.bodies[path], "zzz": 1}))
                self.assertEqual((path, status), (path, 400))
                self.assertIn("zzz: this server knows no such field", error_of(self, reply, 400)["message"])
            closed = server.get("/openapi.json")["paths"]["/v1/chat/completions"]["post"]["requestBody"]
            self.assertIs(closed["content"]["application/json"]["schema"]["additionalProperties"], False)
        self.assertNotIn("additionalProperties", self.schema("/v1/chat/completions"))

    def test_missing_fields_are_named(self):
        for path in self.posts():
            for name in self.schema(path).get("required", []):
                body = {key: value for key, value in self.bodies[path].items() if key != name}
                status, _, reply = script.request("POST", path, json.dumps(body))
                self.assertEqual((path, name, status), (path, name, 400))
                self.assertIn(name, error_of(self, reply, 400)["message"])

    def test_every_optional_field_accepts_null(self):
        for path in self.bodies:
            schema = self.schema(path)
            nulls = {name: None for name in schema["properties"] if name not in schema.get("required", [])}
            self.assertGreater(len(nulls) + path.startswith("/v1/models/"), 0)
            server = story if path in GENERATING else vectors if path in POOLING else script
            status, _, reply = server.request("POST", path, json.dumps({**nulls, **self.bodies[path]}))
            self.assertEqual((path, status), (path, 200), reply)

    def test_wrong_types_are_named(self):
        for path in self.bodies:
            for name, field in self.schema(path)["properties"].items():
                for value in wrong_values(field):
                    status, _, reply = script.request("POST", path, json.dumps({**self.bodies[path], name: value}))
                    self.assertEqual((path, name, value, status), (path, name, value, 400), reply)
                    self.assertIn(name, error_of(self, reply, 400)["message"])

    def test_errors_name_the_parameter(self):
        reply = script.post("/v1/completions", {"prompt": "x", "top_p": 7}, 400)
        self.assertEqual(reply["error"]["param"], "top_p")
        reply = script.post("/v1/chat/completions", {"messages": [{"role": 5}]}, 400)
        self.assertEqual(reply["error"]["param"], "messages[0].role")

    def test_another_models_name(self):
        for path in ("/v1/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/tokenize", "/api/generate",
                     "/api/chat", "/api/show"):
            status, _, reply = script.request("POST", path, json.dumps({**self.bodies.get(path, {}), "model": "gpt-9"}))
            self.assertEqual((path, status), (path, 404))
            self.assertIn("gpt-9", error_of(self, reply, 404)["message"])

    def test_models(self):
        models = story.get("/v1/models")["data"]
        self.assertEqual([model["id"] for model in models], [story.model])
        self.assertEqual(story.get("/v1/models/" + story.model), models[0])


class Limits(unittest.TestCase):
    def test_a_prompt_that_is_too_long_gives_both_numbers(self):
        longest = story.get("/v1/models")["data"][0]["max_model_len"]
        for body in ({"prompt": [5] * (longest + 9)}, {"prompt": [[5], [5] * (longest + 9)], "stream": True}):
            error = story.post("/v1/completions", body, 400)["error"]
            self.assertEqual(error["message"], f"This model's maximum context length is {longest} tokens. However, the prompt has "
                                               f"{longest + 9} tokens.")
            self.assertEqual((error["type"], error["param"], error["code"]), ("invalid_request_error", "prompt", "context_length_exceeded"))
        error = story.post("/v1/completions", {"prompt": [5] * longest, "max_tokens": 1}, 400)["error"]
        self.assertIn("leaves none for the reply", error["message"])
        longest = script.get("/v1/models")["data"][0]["max_model_len"]
        for path, body, param in (("/v1/chat/completions", said("x" * 2000), "messages"), ("/v1/responses", {"input": "x" * 2000}, "input"),
                                  ("/v1/messages", {**said("x" * 2000), "max_tokens": 5}, None)):
            _, _, reply = script.request("POST", path, json.dumps(body))
            error = json.loads(reply)["error"]
            self.assertRegex(error["message"], rf"maximum context length is {longest} tokens.* 20\d\d tokens")
            if param:
                self.assertEqual((error["param"], error["code"]), (param, "context_length_exceeded"))
            else:
                self.assertRegex(error["message"], "^prompt is too long: ")

    def test_truncation_happens_when_asked_for(self):
        whole = story.post("/v1/completions", {"prompt": PROMPT, "truncate_prompt_tokens": 2, "max_tokens": 4, "temperature": 0})
        ids = story.post("/tokenize", {"prompt": PROMPT})["tokens"]
        short = story.post("/v1/completions", {"prompt": ids[-2:], "max_tokens": 4, "temperature": 0})
        self.assertEqual(whole["usage"]["prompt_tokens"], 2)
        self.assertEqual(whole["choices"][0]["text"], short["choices"][0]["text"])
        for side, kept in (("left", ids[-3:]), ("right", ids[:3]), (None, ids[-3:])):
            reply = story.post("/v1/completions", {"prompt": PROMPT, "truncate_prompt_tokens": 3, "truncation_side": side,
                                                   "max_tokens": 1, "return_token_ids": True})
            self.assertEqual((side, reply["choices"][0]["prompt_token_ids"]), (side, kept))

    def test_what_is_not_supported_says_so(self):
        for path, body, word in (
                ("/v1/completions", {"prompt": [65], "suffix": "y"}, "suffix"),
                ("/v1/completions", {"prompt": "x", "response_format": {"type": "xml"}}, "response_format"),
                ("/v1/chat/completions", {**said("x"), "response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
                ("/v1/chat/completions", {**said("x"), "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
                ("/v1/chat/completions", {**said("x"), "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "get_weather"),
                ("/v1/chat/completions", {**said("x"), "tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
                ("/v1/chat/completions", {**said("x"), "tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
                ("/v1/chat/completions", {**said("x"), "tool_choice": "required"}, "tool_choice"),
                ("/v1/chat/completions", {**said("x"), "n": 1000}, "n"),
                ("/v1/chat/completions", {**said("x"), "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
                ("/v1/chat/completions", {**said("x"), "top_logprobs": 2}, "top_logprobs"),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}, "content"),
                ("/v1/completions", {"prompt": "x", "logprobs": 21}, "logprobs"),
                ("/v1/completions", {"prompt": ["x"] * 200}, "prompt"),
                ("/v1/completions", {"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options"),
                ("/v1/completions", {"prompt": "x", "n": 3, "best_of": 2}, "best_of"),
                ("/v1/completions", {"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
                ("/v1/completions", {"prompt": "x", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
                ("/v1/completions", {"prompt": [[10 ** 9]]}, "prompt"),
                ("/v1/completions", {"prompt": "x", "stream_interval": 5}, "stream_interval"),
                ("/v1/completions", {"prompt": "x", "request_id": "x" * 257}, "request_id: expected at most 256"),
                ("/v1/chat/completions", {**said("x"), "best_of": 2}, "best_of"),
                ("/tokenize", {**said("x"), "prompt": "x"}, "got both"),
                ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
                ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": ""}]}]}, "input[0]"),
                ("/v1/messages", {**said("x"), "max_tokens": 5, "thinking": {"type": "sometimes"}}, "thinking"),
                ("/v1/messages", {**said("x"), "max_tokens": 5, "tool_choice": {"type": "any"}}, "tool_choice")):
            with self.subTest(path=path, body=body):
                _, _, reply = script.request("POST", path, json.dumps(body))
                self.assertIn(word, error_of(self, reply, 400)["message"])

    def test_a_model_without_a_template_cannot_chat(self):
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
            _, _, reply = story.request("POST", path, json.dumps(CHATTING[path]))
            self.assertEqual(error_of(self, reply, 400)["message"], "the model has no chat template, and none was given")

    def test_compressed_bodies_are_refused(self):
        for path, body in {**GENERATING, **CHATTING}.items():
            status, _, reply = script.request("POST", path, gzip.compress(json.dumps(body).encode()), {"Content-Encoding": "gzip"})
            self.assertEqual((path, status), (path, 400))
            self.assertIn("gzip", error_of(self, reply, 400)["message"])
        status, _, _ = script.request("POST", "/detokenize", json.dumps({"tokens": [65]}), {"Content-Encoding": "identity"})
        self.assertEqual(status, 200)

    def test_templates_of_requests_must_be_trusted(self):
        reply = story.post("/v1/chat/completions", {**said("x"), "chat_template": "{{ messages[0].content }}"}, 400)
        self.assertIn("--trust-request-chat-template", reply["error"]["message"])

    def test_tools_need_a_template_that_knows_them(self):
        body = {**said("x"), "tools": TOOLS, "chat_template": "{{ messages[0].content }}"}
        self.assertIn("tools", script.post("/v1/chat/completions", body, 400)["error"]["message"])


class Names(unittest.TestCase):
    """What a model and a path may be called."""

    def test_several_names_of_the_model(self):
        with Server(SMALL_MODEL, "--served-model-name", "first", "vendor/second") as server:
            self.assertEqual([model["id"] for model in server.get("/v1/models")["data"]], ["first", "vendor/second"])
            for name in ("first", "vendor/second"):
                self.assertEqual(server.get(f"/v1/models/{name}")["id"], name)
                reply = server.post("/v1/completions", {"model": name, "prompt": PROMPT, "max_tokens": 1})
                self.assertEqual(reply["model"], "first")
            error = server.post("/v1/completions", {"model": "third", "prompt": PROMPT}, 404)["error"]
            self.assertEqual((error["param"], error["message"]), ("model", "model: expected first or vendor/second, got third"))
            self.assertEqual(server.request("GET", "/v1/models/third")[0], 404)
            self.assertIn('model_name="first"', server.request("GET", "/metrics")[2].decode())

    def test_any_name_and_no_tools_by_option(self):
        tools = {**said(PROMPT), "tools": TOOLS, "max_tokens": 2, "temperature": 0}
        with Server(SMALL_MODEL, "--any-model-name", "--ignore-tools-without-place", "--chat-template", "{{ messages[0].content }}") as server:
            for path, body in (("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", said(PROMPT)), ("/tokenize", {"prompt": PROMPT})):
                server.post(path, {**body, "model": "gpt-4o-mini"})
            plain = server.post("/v1/chat/completions", {**said(PROMPT), "max_tokens": 2, "temperature": 0})
            self.assertEqual(server.post("/v1/chat/completions", tools)["choices"], plain["choices"])
        with Server(SMALL_MODEL, "--chat-template", "{{ messages[0].content }}") as server:
            self.assertEqual(server.post("/v1/chat/completions", tools, 400)["error"]["param"], "tools")

    def test_paths_without_their_version(self):
        body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0}
        self.assertEqual(story.post("/completions", body)["choices"], story.post("/v1/completions", body)["choices"])
        self.assertEqual(script.post("/chat/completions", said("plain"))["object"], "chat.completion")
        self.assertEqual(script.get("/models"), script.get("/v1/models"))
        self.assertEqual(script.get(f"/models/{script.model}")["id"], script.model)
        self.assertEqual(script.post("/messages", {"model": script.model, **said("x"), "max_tokens": 0}, 400)["type"], "error")
        self.assertEqual(script.request("GET", "/completions")[0], 405)

    def test_the_description_needs_no_server(self):
        done = subprocess.run([PROGRAM, "completion", "openapi"], capture_output=True, check=True)
        self.assertEqual(json.loads(done.stdout), script.get("/openapi.json"))

    def test_a_root_path(self):
        body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0}
        with Server(SMALL_MODEL, "--root-path", "/llm/") as server:
            replies = [server.post(path, body)["choices"] for path in ("/llm/v1/completions", "/llm/completions", "/v1/completions")]
            self.assertEqual(replies, [replies[0]] * 3)
            self.assertEqual(server.get("/openapi.json")["servers"], [{"url": "/llm"}])
            self.assertEqual(server.get("/llm/openapi.json")["servers"], [{"url": "/llm"}])
            self.assertIn(b"<html", server.request("GET", "/llm/")[2])
            self.assertEqual(server.request("GET", "/llm/ui/app.js")[0], 200)
            status, headers, _ = server.request("GET", "/llm")
            self.assertEqual((status, headers["location"]), (308, "/llm/"))
            for path in ("/llmx/v1/models", "/llm/llm/v1/models", "/other/v1/models"):
                self.assertEqual((path, server.request("GET", path)[0]), (path, 404))
        for wrong in ("llm", "/a b", "/a?b"):
            with self.assertRaisesRegex(AssertionError, "root path: expected a path"):
                Server(SMALL_MODEL, "--root-path", wrong)


class Starts(unittest.TestCase):
    """What the options of the command line do, and which are refused."""

    def refused(self, expected, *flags, model=SMALL_MODEL):
        with self.assertRaisesRegex(AssertionError, expected):
            Server(model, *flags)

    def test_a_template_is_a_file_or_a_text(self):
        self.refused("there is no file You are helpful", "--chat-template", "You are helpful")
        self.refused("there is no file", "--chat-template", directory.name)
        odd = pathlib.Path(directory.name) / "a {{ name }}"
        odd.write_text("from the file: {{ messages[0].content }}")
        for given, text in ((odd, "from the file: x"), ("as a text: {{ messages[0].content }}", "as a text: x"), ("no\nbraces", "no\nbraces")):
            with Server(SMALL_MODEL, "--chat-template", given) as server:
                reply = server.post("/v1/chat/completions", {**said("x"), "max_tokens": 1, "return_prompt_text": True})
                self.assertEqual(reply["prompt_text"].replace("<s>", "").strip(), text)

    def test_an_option_that_is_given_twice(self):
        self.refused("--host: given 2 times, expected once", "--host", "127.0.0.1", "--host", "127.0.0.2")

    def test_more_context_than_the_model_was_made_for(self):
        with Server(SMALL_MODEL, "--max-model-len", 2000) as server:
            self.assertTrue(any("max_model_len is 2000, the model was made for 512" in line for line in server.log), server.log)
            self.assertEqual(server.get("/v1/models")["data"][0]["max_model_len"], 2000)
            reply = server.post("/v1/completions", {"prompt": [5] * 1000, "max_tokens": 200, "ignore_eos": True})
            self.assertEqual(reply["usage"]["total_tokens"], 1200)
        self.refused("--max-model-len", "--max-model-len", 99_999_999_999)

    def test_log_probabilities_of_the_whole_vocabulary(self):
        for most in (-1, 4096):
            with Server(SMALL_MODEL, "--max-logprobs", most, "--chat-template", "{{ messages[0].content }}") as server:
                body = {"prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": -1}
                rows = server.post("/v1/completions", body)["choices"][0]["prompt_logprobs"]
                self.assertEqual({len(row) for row in rows[1:]}, {4096})
                reply = server.post("/v1/chat/completions", {**said(PROMPT), "max_tokens": 1, "logprobs": True, "top_logprobs": -1})
                self.assertEqual(len(reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]), 4096)
        for fields in ({"prompt_logprobs": -1}, {"logprobs": -1}, {"prompt_logprobs": 21}):
            error = story.post("/v1/completions", {"prompt": PROMPT, **fields}, 400)["error"]
            self.assertEqual(error["param"], list(fields)[0])
            self.assertIn("--max-logprobs", error["message"])

    def test_log_probabilities_of_every_api_are_bounded(self):
        body = {"input": PROMPT, "max_output_tokens": 1, "include": ["message.output_text.logprobs"]}
        with Server(SMALL_MODEL, "--max-logprobs", 2, "--chat-template", "{{ messages[0].content }}") as server:
            server.post("/v1/responses", {**body, "top_logprobs": 2})
            for path, fields in (("/v1/responses", {**body, "top_logprobs": 3}), ("/v1/chat/completions", {**said(PROMPT), "logprobs": True, "top_logprobs": 3}),
                                 ("/completion", {"prompt": PROMPT, "n_probs": 3}), ("/v1/completions", {"prompt": PROMPT, "logprobs": 3})):
                self.assertIn("--max-logprobs", server.post(path, fields, 400)["error"]["message"], path)


class Completions(unittest.TestCase):
    def complete(self, **fields):
        return story.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, **fields})

    def test_stream_is_the_plain_text(self):
        for fields in ({"seed": 7, "temperature": 1}, {"seed": 1, "n": 3, "temperature": 1.5, "top_p": 0.9},
                       {"stop": [" little", "."]}, {"stop": "a", "include_stop_str_in_output": True, "n": 2},
                       {"echo": True, "logprobs": 2}, {"prompt": [PROMPT, "The dog"], "n": 2, "seed": 3, "temperature": 1},
                       {"logprobs": 1, "stop": "girl"}, {"max_tokens": 1}, {"skip_special_tokens": False, "max_tokens": 400}):
            with self.subTest(fields):
                body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, **fields}
                plain = story.post("/v1/completions", body)
                chunks = story.chunks("/v1/completions", {**body, "stream_options": {"include_usage": True}})
                self.assertEqual(chunks[-1]["choices"], [])
                usage = [{k: v for k, v in one["usage"].items() if not k.endswith("details")} for one in (chunks[-1], plain)]
                self.assertEqual(*usage)
                for choice in plain["choices"]:
                    parts = [part for chunk in chunks for part in chunk["choices"] if part["index"] == choice["index"]]
                    self.assertEqual("".join(part["text"] for part in parts), choice["text"])
                    self.assertEqual([p["finish_reason"] for p in parts if p["finish_reason"]], [choice["finish_reason"]])
                    if choice["logprobs"]:
                        tokens = [token for part in parts for token in (part["logprobs"] or {"tokens": []})["tokens"]]
                        self.assertEqual(tokens, choice["logprobs"]["tokens"])

    def test_alternatives_are_in_order_of_probability(self):
        for fields in ({}, {"echo": True}, {"stream": True}):
            body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 1, "seed": 4, "logprobs": 5, **fields}
            if fields.get("stream"):
                rows = [row for chunk in story.chunks("/v1/completions", body) for row in chunk["choices"][0]["logprobs"]["top_logprobs"]]
            else:
                rows = story.post("/v1/completions", body)["choices"][0]["logprobs"]["top_logprobs"]
            values = [list(row.values())[:5] for row in rows if row]  # a chosen token that is not among them comes last
            self.assertGreater(len(values), 10)
            self.assertEqual(values, [sorted(row, reverse=True) for row in values])
        prompt = self.complete(prompt_logprobs=3)["choices"][0]["prompt_logprobs"]
        for row in prompt[1:]:
            ranks = [one["rank"] for one in list(row.values())[1:]]
            self.assertEqual(ranks, sorted(ranks))

    def test_text_offsets_index_the_text(self):
        ids = story.post("/tokenize", {"prompt": PROMPT})["tokens"]
        bytes_only = story.post("/tokenize", {"prompt": "\u20ac\U0001f600\u4e16\u00e9", "add_special_tokens": False})["tokens"]
        for fields in ({"prompt": PROMPT}, {"prompt": " " + PROMPT + "  there"}, {"prompt": ids}, {"prompt": ids[1:]}, {"prompt": "\u20ac \u4e16\u00e9."},
                       {"prompt": PROMPT, "allowed_token_ids": bytes_only, "temperature": 100, "seed": 2, "ignore_eos": True}):
            for echo in (True, False):
                body = {"max_tokens": 9, "temperature": 0, "logprobs": 0, "echo": echo, **fields}
                choice = story.post("/v1/completions", body)["choices"][0]
                text, found = choice["text"], choice["logprobs"]
                self.assertEqual(len(found["text_offset"]), len(found["tokens"]))
                self.assertEqual(found["text_offset"], sorted(found["text_offset"]))
                n_whole = 0
                for token, offset in zip(found["tokens"], found["text_offset"]):
                    if token.startswith("bytes:"):
                        continue
                    begun = text[offset:].startswith(token) or text[offset:].startswith(token.lstrip(" "))
                    self.assertTrue(begun or token in ("<s>", "</s>"), (fields, token, offset, text))
                    n_whole += begun
                if echo:
                    self.assertGreater(n_whole, 3)
                    self.assertEqual(found["text_offset"][0], 0)
                parts = [part for chunk in story.chunks("/v1/completions", body) for part in chunk["choices"]]
                self.assertEqual([offset for part in parts for offset in part["logprobs"]["text_offset"]], found["text_offset"])

    def test_fields_that_are_always_there(self):
        plain = self.complete()
        self.assertRegex(plain["system_fingerprint"], r"^penstock-[\d.]+-[0-9a-f]{8}$")
        chunks = story.chunks("/v1/completions", {"prompt": PROMPT, "max_tokens": 3})
        self.assertEqual({chunk["system_fingerprint"] for chunk in chunks}, {plain["system_fingerprint"]})
        self.assertEqual([plain["choices"][0][name] for name in ("logprobs", "prompt_logprobs", "prompt_token_ids", "token_ids")], [None] * 4)
        chat = script.post("/v1/chat/completions", said("plain"))
        self.assertEqual([chat["prompt_logprobs"], chat["prompt_token_ids"], chat["choices"][0]["token_ids"]], [None] * 3)
        self.assertNotEqual(chat["system_fingerprint"], plain["system_fingerprint"])

    def test_too_many_choices_are_blamed_on_what_asked_for_them(self):
        for fields, param in (({"n": 129}, "n"), ({"best_of": 129}, "best_of"), ({"prompt": ["x"] * 65, "n": 2}, "prompt"),
                              ({"prompt": ["x"] * 2000}, "prompt"), ({"prompt": [[]]}, "prompt")):
            error = story.post("/v1/completions", {"prompt": "x", **fields}, 400)["error"]
            self.assertEqual((fields, error["param"]), (fields, param))

    def test_usage_of_streams(self):
        for path, body in (("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}), ("/v1/chat/completions", said("think")),
                           ("/v1/chat/completions", {**said("several"), "tools": TOOLS}), ("/v1/chat/completions", {**said("endless"), "max_tokens": 5})):
            server = story if path == "/v1/completions" else script
            whole = server.post(path, body)["usage"]
            for options, total, continuous in (({}, False, False), ({"include_usage": False, "continuous_usage_stats": True}, False, False),
                                               ({"include_usage": True}, True, False), ({"include_usage": True, "continuous_usage_stats": True}, True, True)):
                chunks = server.chunks(path, {**body, "stream_options": options})
                if total:
                    last = chunks.pop()
                    self.assertEqual(last["choices"], [])
                    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                        self.assertEqual(last["usage"][name], whole[name])
                self.assertTrue(all(chunk["choices"] for chunk in chunks))
                self.assertEqual({"usage" in chunk for chunk in chunks}, {continuous})
                if not continuous:
                    continue
                counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
                self.assertEqual(counts, sorted(set(counts)))  # no two tell the same
                self.assertEqual(counts[-1], whole["completion_tokens"])
                self.assertEqual(counts[0] == 0, path != "/v1/completions")  # the role alone
                self.assertIsNotNone(chunks[-1]["choices"][0]["finish_reason"])
                for chunk in chunks:
                    self.assertEqual(chunk["usage"]["total_tokens"], chunk["usage"]["prompt_tokens"] + chunk["usage"]["completion_tokens"])

    def test_usage_can_be_forced(self):
        with Server(SMALL_MODEL, "--enable-force-include-usage", "--chat-template", "{{ messages[0].content }}") as server:
            for path, body in (("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", said(PROMPT))):
                chunks = server.chunks(path, {**body, "max_tokens": 5, "temperature": 0})
                self.assertTrue(all("usage" in chunk for chunk in chunks))
                self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]), ([], 5))

    def test_characters_are_never_cut(self):
        # Only tokens of single bytes: characters arrive in pieces, and many bytes belong to none.
        names = story.post("/tokenize", {"prompt": "\u20ac\U0001f600\u4e16\u00e9", "add_special_tokens": False})["tokens"]
        body = {"prompt": PROMPT, "allowed_token_ids": names, "temperature": 100, "max_tokens": 120, "n": 2, "seed": 9,
                "ignore_eos": True}
        plain = story.post("/v1/completions", body)["choices"]
        self.assertTrue(any(ord(c) > 127 and c != "\ufffd" for c in plain[0]["text"]), plain)
        chunks = story.chunks("/v1/completions", body)
        for choice in plain:
            pieces = [part["text"] for chunk in chunks for part in chunk["choices"] if part["index"] == choice["index"]]
            self.assertEqual("".join(pieces), choice["text"])
            self.assertLess(len([piece for piece in pieces if piece]), 120)  # some wait for their character's end

    def test_stop_strings_across_tokens(self):
        text = story.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 20, "temperature": 0})["choices"][0]["text"]
        for start in range(2, len(text) - 12, 3):
            stop = text[start:start + 9]
            body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "stop": stop}
            parts = [chunk["choices"][0] for chunk in story.chunks("/v1/completions", body)]
            self.assertEqual("".join(part["text"] for part in parts), text[:text.index(stop)])
            self.assertEqual((parts[-1]["finish_reason"], parts[-1]["stop_reason"]), ("stop", stop))

    def test_a_huge_prompt_holds_nobody_up(self):
        huge = json.dumps({"prompt": "word " * 2_000_000})
        replies = []
        thread = threading.Thread(target=lambda: replies.append(story.request("POST", "/v1/completions", huge)[0]))
        thread.start()
        n_small = 0
        while thread.is_alive():
            self.assertEqual(story.get("/health"), {"status": "healthy"})
            n_small += 1
        thread.join()
        self.assertEqual(replies, [400])
        self.assertGreater(n_small, 20)

    def test_seeds(self):
        texts = [self.complete(seed=seed, temperature=1)["choices"][0]["text"] for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_stop(self):
        text = self.complete()["choices"][0]["text"]
        word = text.split()[4]
        choice = self.complete(stop=[word])["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]), (text[:text.index(word)], "stop", word))
        choice = self.complete(stop=[word], include_stop_str_in_output=True)["choices"][0]
        self.assertEqual(choice["text"], text[:text.index(word) + len(word)])
        token = self.complete(return_token_ids=True)["choices"][0]["token_ids"][3]
        self.assertEqual(self.complete(stop_token_ids=[token])["choices"][0]["stop_reason"], token)

    def test_logprobs(self):
        reply = self.complete(logprobs=2, echo=True, max_tokens=3)
        logprobs, text = reply["choices"][0]["logprobs"], reply["choices"][0]["text"]
        n = reply["usage"]["total_tokens"]
        self.assertEqual([len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [n] * 4)
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertTrue(text.startswith(PROMPT))
        for token, logprob, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
            self.assertLessEqual(logprob, 0)
            self.assertEqual(top[token], logprob)
        # Greedy tokens are the most likely ones.
        for token, top in list(zip(logprobs["tokens"], logprobs["top_logprobs"]))[-3:]:
            self.assertEqual(max(top, key=top.get), token)
        ids = self.complete(logprobs=0, return_tokens_as_token_ids=True, return_token_ids=True)["choices"][0]
        self.assertEqual(ids["logprobs"]["tokens"], [f"token_id:{i}" for i in ids["token_ids"]])

    def test_scoring_without_generating(self):
        ids = story.post("/tokenize", {"prompt": PROMPT})["tokens"]
        scored = self.complete(prompt=[ids], echo=True, logprobs=1, max_tokens=0)["choices"][0]["logprobs"]
        longer = self.complete(prompt=[ids], echo=True, logprobs=1, max_tokens=1)["choices"][0]["logprobs"]
        self.assertEqual(scored["token_logprobs"], longer["token_logprobs"][:len(ids)])

    def test_prompt_logprobs(self):
        choice = self.complete(prompt_logprobs=1)["choices"][0]
        ids = story.post("/tokenize", {"prompt": PROMPT})["tokens"]
        self.assertIsNone(choice["prompt_logprobs"][0])
        for token, row in list(zip(ids, choice["prompt_logprobs"]))[1:]:
            self.assertIn(str(token), row)
            self.assertGreaterEqual(row[str(token)]["rank"], 1)

    def test_best_of_returns_the_most_likely(self):
        body = {"prompt": PROMPT, "seed": 5, "temperature": 2, "max_tokens": 8, "logprobs": 0}
        all_of = story.post("/v1/completions", {**body, "n": 4})["choices"]
        best = story.post("/v1/completions", {**body, "best_of": 4, "n": 2})
        mean = [(sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["tokens"]), c["text"]) for c in all_of]
        self.assertEqual([c["text"] for c in best["choices"]], [text for _, text in sorted(mean, reverse=True)[:2]])
        self.assertEqual([c["index"] for c in best["choices"]], [0, 1])

    def test_tokens_can_be_allowed_and_biased(self):
        ids = story.post("/tokenize", {"prompt": " dog cat", "add_special_tokens": False})["tokens"]
        choice = self.complete(allowed_token_ids=ids, return_token_ids=True)["choices"][0]
        self.assertLessEqual(set(choice["token_ids"]), set(ids))
        choice = self.complete(logit_bias={str(ids[0]): 100}, return_token_ids=True)["choices"][0]
        self.assertEqual(set(choice["token_ids"]), {ids[0]})

    def test_empty_lists_of_what_is_allowed_are_refused(self):
        for fields, word in (({"allowed_token_ids": []}, "allowed_token_ids"), ({"structured_outputs": {"choice": []}}, "structured_outputs"),
                             ({"guided_choice": []}, "choice")):
            error = story.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, **fields}, 400)["error"]
            self.assertIn(word, error["message"])

    def test_salts_separate_cached_prompts(self):
        def cached(salt):
            reply = story.post("/v1/completions", {"prompt": [list(range(100, 180))], "max_tokens": 1, "cache_salt": salt})
            return reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached("a"), 0)
        self.assertGreater(cached("a"), 0)
        self.assertEqual(cached("b"), 0)

    def test_usage_in_every_chunk(self):
        chunks = story.chunks("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True,
                                                  "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 6)

    def test_request_id_priority_timings(self):
        reply = self.complete(request_id="mine", priority=-3, timings=True)
        self.assertEqual(reply["id"], "cmpl-mine")
        self.assertGreaterEqual(reply["timings"]["decode_ms"], 0)

    def test_every_form_of_reply_has_timings_when_asked(self):
        for path, body in {**GENERATING, "/v1/chat/completions": said("plain"), "/v1/responses": {"input": "plain"},
                           "/v1/messages": {**said("plain"), "max_tokens": 8}}.items():
            server = story if path in GENERATING else script
            self.assertNotIn("timings", server.post(path, body))
            plain = server.post(path, {**body, "timings": True})["timings"]
            streamed = [data.get("timings") or data.get("response", {}).get("timings") for _, data in
                        server.events(path, {**body, "timings": True}) if isinstance(data, dict)]
            found = [one for one in streamed if one]
            self.assertEqual((path, len(found)), (path, 1))
            for timings in (plain, found[0]):
                self.assertLessEqual({"queued_ms", "prefill_ms", "decode_ms"}, set(timings))

    def test_the_prompt_comes_back_when_asked(self):
        ids = story.post("/tokenize", {"prompt": PROMPT})["tokens"]
        # A first token that is only part of a character sends no text yet.
        part = story.post("/tokenize", {"prompt": "\u20ac", "add_special_tokens": False})["tokens"][-2:]
        for fields in ({}, {"allowed_token_ids": part, "max_tokens": 3}):
            body = {"prompt": PROMPT, "max_tokens": 2, "return_prompt_text": True, "return_token_ids": True, **fields}
            choice = story.post("/v1/completions", body)["choices"][0]
            self.assertEqual((choice["prompt_text"], choice["prompt_token_ids"]), (PROMPT, ids))
            parts = [chunk["choices"][0] for chunk in story.chunks("/v1/completions", body)]
            told = [(part["prompt_text"], part["prompt_token_ids"]) for part in parts if "prompt_text" in part]
            self.assertEqual(told, [(PROMPT, ids)])
            streamed = [token for part in parts for token in part.get("token_ids", [])]
            self.assertEqual(len(streamed), body["max_tokens"])
        text = script.post("/v1/chat/completions", {**said("plain"), "return_prompt_text": True})["prompt_text"]
        self.assertEqual(script.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"],
                         script.post("/tokenize", said("plain"))["tokens"])
        first = script.chunks("/v1/chat/completions", {**said("plain"), "return_prompt_text": True})[0]
        self.assertEqual(first["choices"][0]["prompt_text"], text)

    def test_generate(self):
        body = {"prompt": PROMPT, "max_tokens": 9, "seed": 4}
        plain = story.post("/v1/generate", body)
        named = story.post("/v1/generate", {**body, "model": story.model, "request_id": "mine"})
        self.assertEqual((named["id"], named["text"]), ("mine", plain["text"]))
        self.assertEqual(plain["tokens_generated"], 9)
        self.assertLessEqual({"text", "latency_ms", "tokens_per_second"}, set(plain))
        events = [data for _, data in story.events("/v1/generate", body)]
        self.assertEqual("".join(event.get("text", "") for event in events), plain["text"])
        self.assertTrue(events[-1]["done"])

    def test_tokens_and_text(self):
        reply = story.post("/tokenize", {"prompt": PROMPT, "return_token_strs": True})
        self.assertEqual((reply["count"], len(reply["token_strs"])), (len(reply["tokens"]),) * 2)
        bare = story.post("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})["tokens"]
        self.assertEqual(reply["tokens"][-len(bare):], bare)
        self.assertEqual(story.post("/detokenize", {"tokens": bare})["prompt"].strip(), PROMPT)
        info = story.get("/tokenizer_info")
        self.assertEqual((info["bos_token"], info["eos_token"]), ("<s>", "</s>"))


# What the script model says: (reasoning, text, calls).
REPLIES = {
    "plain": ("", "Hello there!", []),
    "weather": ("", "", [("get_weather", {"city": "Paris"})]),
    "think": ("Let me think.", "The answer is 42.", []),
    "several": ("Two cities.", "I will look.", [("get_weather", {"city": "Rome"}), ("get_time", {})]),
    "broken": ("", "<tool_call>this is no call</tool_call> at all", []),
}


LETTER = ("send_letter", '{"text":"Dear friend,\\n how are you today?","copies":2}')


def letter(**fields):
    return {**said("letter"), **fields, "tools": [{"type": "function", "function": {"name": "send_letter", "parameters": {"type": "object"}}}]}


def join_calls(calls, delta):
    """Adds what a chat's delta says of calls; the first piece of each has its id and name."""
    for piece in delta.get("tool_calls", []):
        if piece["index"] == len(calls):
            assert piece["id"] and piece["type"] == "function" and piece["function"]["name"], piece
            calls.append({**piece, "function": dict(piece["function"])})
        else:
            assert piece.keys() == {"index", "function"} and piece["index"] == len(calls) - 1, piece
            calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


class Chats(unittest.TestCase):
    def check_message(self, name, message, finish):
        reasoning, text, calls = REPLIES[name]
        self.assertEqual(message.get("reasoning") or "", reasoning)
        self.assertEqual(message["content"] or "", text)
        found = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])]
        self.assertEqual(found, calls)
        self.assertEqual(finish, "tool_calls" if calls else "stop")
        self.assertEqual(len({call["id"] for call in message.get("tool_calls", [])}), len(calls))

    def test_replies_are_taken_apart(self):
        for name in REPLIES:
            with self.subTest(name):
                body = {**said(name), "tools": TOOLS}
                choice = script.post("/v1/chat/completions", body)["choices"][0]
                self.check_message(name, choice["message"], choice["finish_reason"])
                message, finish, roles = {"content": "", "reasoning": "", "tool_calls": []}, None, []
                for chunk in script.chunks("/v1/chat/completions", body):
                    part = chunk["choices"][0]
                    finish = part["finish_reason"] or finish
                    roles.append(part["delta"].get("role"))
                    for key in ("content", "reasoning"):
                        message[key] += part["delta"].get(key) or ""
                    join_calls(message["tool_calls"], part["delta"])
                self.check_message(name, message, finish)
                self.assertEqual(roles, ["assistant"] + [None] * (len(roles) - 1))

    def test_arguments_stream(self):
        for fields in ({}, {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, {"logprobs": True}):
            deltas = [choice["delta"] for chunk in script.chunks("/v1/chat/completions", letter(**fields)) for choice in chunk["choices"]]
            pieces = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", [])]
            self.assertEqual(pieces, ['{"text":"Dear', " friend", ",\\n how", " are you", ' today?","copies"', ":2}"])
            calls = []
            for delta in deltas:
                join_calls(calls, delta)
            plain = script.post("/v1/chat/completions", letter())["choices"][0]["message"]["tool_calls"]
            for got in (calls, plain):
                self.assertEqual([(call["function"]["name"], call["function"]["arguments"]) for call in got], [LETTER])

    def test_a_call_that_is_cut_has_its_arguments_so_far(self):
        choice = script.post("/v1/chat/completions", letter(max_tokens=3))["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertIsNone(choice["message"]["content"])
        [call] = choice["message"]["tool_calls"]
        self.assertEqual(call["function"], {"name": "send_letter", "arguments": '{"text":"Dear friend'})
        calls = []
        for chunk in script.chunks("/v1/chat/completions", letter(max_tokens=3)):
            join_calls(calls, chunk["choices"][0]["delta"])
        self.assertEqual([one["function"] for one in calls], [call["function"]])
        cut = script.post("/v1/chat/completions", letter(max_tokens=1))["choices"][0]["message"]  # its name is not certain
        self.assertEqual((cut["content"], "tool_calls" in cut), ("", False))

    def test_without_tools_a_call_is_text(self):
        for body in (said("weather"), {**said("weather"), "tools": TOOLS, "tool_choice": "none"}):
            message = script.post("/v1/chat/completions", body)["choices"][0]["message"]
            self.assertNotIn("tool_calls", message)
            self.assertIn('"get_weather"', message["content"])

    def test_one_call_is_not_given_again_for_several(self):
        body = {**said("several"), "tools": TOOLS, "temperature": 0}
        with Server(script_folder, "--reply-cache", "16M") as server:
            for parallel, n in ((False, 1), (True, 2), (False, 1), (True, 2)):
                message = server.post("/v1/chat/completions", {**body, "parallel_tool_calls": parallel})["choices"][0]["message"]
                self.assertEqual(len(message["tool_calls"]), n)

    def test_one_call_only(self):
        body = {**said("several"), "tools": TOOLS, "parallel_tool_calls": False}
        choice = script.post("/v1/chat/completions", body)["choices"][0]
        self.assertEqual([call["function"]["name"] for call in choice["message"]["tool_calls"]], ["get_weather"])
        self.assertEqual(choice["finish_reason"], "tool_calls")
        # The call is whole with the fifth token. The engine may have come to the limit before it is told.
        for _ in range(40):
            choice = script.post("/v1/chat/completions", {**body, "max_tokens": 6})["choices"][0]
            self.assertEqual((choice["finish_reason"], len(choice["message"]["tool_calls"])), ("tool_calls", 1))

    def test_an_error_behind_a_stop_string_is_none(self):
        """Behind the stop string no token is left, which the engine may find before it is told of it."""
        body = {"prompt": "<|go:plain|>", "max_tokens": 8, "temperature": 0, "stop": ["Hello"], "bad_words": [" there", " "],
                "structured_outputs": {"regex": "Hello there!"}}
        with_error = script.request("POST", "/v1/completions", json.dumps({**body, "stop": None}))
        self.assertEqual((with_error[0], b"no token can be chosen" in with_error[2]), (400, True))
        for _ in range(40):
            choice = script.post("/v1/completions", body)["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]), ("", "stop", "Hello"))

    def test_parsers_can_be_named_and_switched_off(self):
        model = script_model.write(pathlib.Path(directory.name) / "script")
        with Server(model, "--tool-call-parser", "none", "--reasoning-parser", "none") as server:
            message = server.post("/v1/chat/completions", {**said("think"), "tools": TOOLS})["choices"][0]["message"]
            self.assertEqual(message["content"], "<think>\nLet me think.\n</think>\n\nThe answer is 42.")
        with Server(model, "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1") as server:
            choice = server.post("/v1/chat/completions", {**said("several"), "tools": TOOLS})["choices"][0]
            self.check_message("several", choice["message"], choice["finish_reason"])
        with self.assertRaisesRegex(AssertionError, "hermes"):
            Server(model, "--tool-call-parser", "nonsense")

    def test_a_budget_ends_the_reasoning(self):
        for n in (0, 1, 2, 7):
            body = {**said("ponder"), "thinking_token_budget": n, "max_tokens": 40}
            reply = script.post("/v1/chat/completions", body)
            message, thought = reply["choices"][0]["message"], " ".join((["so", "and"] * 4)[:n])
            self.assertEqual((message.get("reasoning", ""), message["content"]), (thought, "Right then."))
            self.assertEqual(reply["usage"]["completion_tokens"], 1 + n + 1 + 3)
            streamed = [chunk["choices"][0]["delta"] for chunk in script.chunks("/v1/chat/completions", body)]
            self.assertEqual("".join(one.get("content") or "" for one in streamed), "Right then.")
            thinking = {"type": "enabled", "budget_tokens": n}
            blocks = script.post("/v1/messages", {**said("ponder"), "max_tokens": 40, "thinking": thinking})["content"]
            self.assertEqual([block.get("thinking") or block.get("text") for block in blocks], [one for one in (thought, "Right then.") if one])
        for n in (-1, 1000, None):
            reply = script.post("/v1/chat/completions", {**said("ponder"), "thinking_token_budget": n, "max_tokens": 40})
            self.assertEqual((reply["choices"][0]["finish_reason"], reply["choices"][0]["message"]["content"]), ("length", ""))
        plain = script.post("/v1/chat/completions", {**said("plain"), "thinking_token_budget": 0})
        self.assertEqual(plain["choices"][0]["message"]["content"], "Hello there!")
        prompt = "<|user|>x<|end|><|assistant|><|go:ponder|>"
        text = script.post("/v1/completions", {"prompt": prompt, "thinking_token_budget": 3, "max_tokens": 40})["choices"][0]["text"]
        self.assertEqual(text, "<think>so and so </think>Right then.")
        opened = script.post("/v1/completions", {"prompt": prompt + "<think>", "thinking_token_budget": 2, "max_tokens": 40})
        self.assertEqual(opened["choices"][0]["text"], "so and </think>Right then.")
        error = story.post("/v1/completions", {"prompt": PROMPT, "thinking_token_budget": 3}, 400)["error"]
        self.assertEqual(error["param"], "thinking_token_budget")

    def test_reasoning_can_be_left_out(self):
        reply = script.post("/v1/chat/completions", {**said("think"), "include_reasoning": False})
        self.assertNotIn("reasoning", reply["choices"][0]["message"])
        self.assertEqual(reply["choices"][0]["message"]["content"], "The answer is 42.")
        self.assertGreater(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_the_conversation_goes_on_after_a_call(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        prompts = set()
        for content in ({"content": None}, {}, {"content": ""}, {"content": []}, {"content": None, "refusal": None, "annotations": []}):
            for result in ("sunny", [{"type": "text", "text": "sunny"}]):
                messages = [{"role": "user", "content": "weather"}, {"role": "assistant", **content, "tool_calls": [call]},
                            {"role": "tool", "tool_call_id": "call_1", "content": result}]
                reply = script.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "return_prompt_text": True})
                self.assertEqual(reply["choices"][0]["message"]["content"], "It is sunny in Paris.")
                prompts.add(reply["prompt_text"])
        self.assertEqual(len(prompts), 1)
        self.assertIn('<|assistant|>[get_weather {"city": "Paris"}]<|end|>', prompts.pop())

    def test_logprobs(self):
        body = {**said("think"), "logprobs": True, "top_logprobs": 2}
        choice = script.post("/v1/chat/completions", body)["choices"][0]
        tokens = [one["token"] for one in choice["logprobs"]["content"]]
        self.assertEqual("".join(tokens[:4]), "".join(script_model.SCRIPTS["think"]))
        self.assertEqual({len(one["top_logprobs"]) for one in choice["logprobs"]["content"]}, {2})
        streamed = [one["token"] for chunk in script.chunks("/v1/chat/completions", body) for part in chunk["choices"]
                    for one in (part["logprobs"] or {"content": []})["content"]]
        self.assertEqual(streamed, tokens)

    def test_choices_and_lengths(self):
        reply = script.post("/v1/chat/completions", {**said("endless"), "n": 2, "max_completion_tokens": 5})
        self.assertEqual([c["message"]["content"] for c in reply["choices"]], ["la li la li la "] * 2)
        self.assertEqual({c["finish_reason"] for c in reply["choices"]}, {"length"})
        self.assertEqual(reply["usage"]["completion_tokens"], 10)
        reply = script.post("/v1/chat/completions", {**said("endless"), "stop": ["li la"]})
        self.assertEqual((reply["choices"][0]["message"]["content"], reply["choices"][0]["stop_reason"]), ("la ", "li la"))

    def test_roles_templates_and_endings(self):
        reply = script.post("/v1/chat/completions", {"messages": [{"role": "developer", "content": "be kind"}, *CHAT]})
        self.assertEqual(reply["choices"][0]["message"]["content"], "Hello there!")
        given = script.post("/v1/chat/completions", {**said("x"), "chat_template": "{{ messages[0].content ~ go }}",
                                                     "chat_template_kwargs": {"go": "<|go:sunny|>"}})
        self.assertEqual(given["choices"][0]["message"]["content"], "It is sunny in Paris.")
        reply = script.post("/v1/chat/completions", {"messages": [*CHAT, {"role": "assistant", "content": "Hello"}], "echo": True,
                                                     "continue_final_message": True, "add_generation_prompt": False})
        self.assertEqual(reply["choices"][0]["message"]["content"], "Hello there!")
        parts = [{"role": "user", "content": [{"type": "text", "text": "say"}, {"type": "text", "text": "sunny"}]}]
        self.assertEqual(script.post("/v1/chat/completions", {"messages": parts})["choices"][0]["message"]["content"],
                         "It is sunny in Paris.")

    def test_seeded_stream_is_the_plain_text(self):
        with Server(SMALL_MODEL, "--chat-template", "{{ messages[0].content }}") as server:
            body = {**said(PROMPT), "seed": 11, "temperature": 1.2, "max_tokens": 30, "n": 2}
            plain = server.post("/v1/chat/completions", body)["choices"]
            chunks = server.chunks("/v1/chat/completions", body)
            for choice in plain:
                text = "".join(part["delta"].get("content", "") for chunk in chunks for part in chunk["choices"]
                               if part["index"] == choice["index"])
                self.assertEqual(text, choice["message"]["content"])


class Responses(unittest.TestCase):
    tools = [{"type": "function", "name": tool["function"]["name"], "parameters": {}, "strict": False} for tool in TOOLS]

    def parts(self, response):
        """(reasoning, text, calls) of a response's items."""
        reasoning, text, calls = "", "", []
        for item in response["output"]:
            if item["type"] == "function_call":
                calls.append((item["name"], json.loads(item["arguments"])))
                continue
            joined = "".join(part["text"] for part in item["content"])
            reasoning, text = (reasoning + joined, text) if item["type"] == "reasoning" else (reasoning, text + joined)
        return reasoning, text, calls

    def test_plain_and_stream(self):
        for name in REPLIES:
            with self.subTest(name):
                body = {"input": name, "tools": self.tools}
                plain = script.post("/v1/responses", body)
                self.assertEqual(plain["status"], "completed")
                self.assertEqual(self.parts(plain), REPLIES[name])
                kinds = [item["type"] for item in plain["output"]]
                self.assertEqual(kinds, [kind for kind, said in zip(("reasoning", "message"), REPLIES[name]) if said]
                                 + ["function_call"] * len(REPLIES[name][2]))
                events = script.events("/v1/responses", body)
                self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
                self.assertEqual([kind for kind, _ in events], [data["type"] for _, data in events])
                self.assertEqual([kind for kind, _ in events[:2]], ["response.created", "response.in_progress"])
                self.assertEqual(events[-1][0], "response.completed")
                last = events[-1][1]["response"]
                self.assertEqual(self.parts(last), REPLIES[name])
                self.check_items(events, last)

    def check_items(self, events, response):
        """What the events of every item add up to is the item at the end."""
        for index, item in enumerate(response["output"]):
            mine = [(kind, data) for kind, data in events if data.get("output_index") == index]
            self.assertEqual(mine[0][0], "response.output_item.added")
            self.assertEqual(mine[-1], ("response.output_item.done", {**mine[-1][1], "item": item}))
            deltas = "".join(data["delta"] for kind, data in mine if kind.endswith(".delta"))
            self.assertEqual(deltas, item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
            self.assertTrue(all(data["item_id"] == item["id"] for _, data in mine if "item_id" in data))

    def test_arguments_stream(self):
        body = {"input": "letter", "tools": [{"type": "function", "name": "send_letter", "parameters": {}, "strict": False}]}
        events = script.events("/v1/responses", body)
        self.assertEqual(len([kind for kind, _ in events if kind == "response.function_call_arguments.delta"]), 6)
        [done] = [data for kind, data in events if kind == "response.function_call_arguments.done"]
        self.assertEqual((done["name"], done["arguments"]), LETTER)
        self.check_items(events, events[-1][1]["response"])
        body["max_output_tokens"] = 3
        events = script.events("/v1/responses", body)
        for response in (script.post("/v1/responses", body), events[-1][1]["response"]):
            [item] = response["output"]
            self.assertEqual((item["status"], item["arguments"]), ("incomplete", '{"text":"Dear friend'))
        self.check_items(events, response)

    def test_length_and_fields(self):
        reply = script.post("/v1/responses", {"input": "endless", "max_output_tokens": 3, "instructions": "sing",
                                              "metadata": {"a": "b"}})
        self.assertEqual((reply["status"], reply["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual((reply["instructions"], reply["metadata"], reply["store"]), ("sing", {"a": "b"}, True))
        self.assertEqual(reply["usage"]["output_tokens"], 3)
        self.assertEqual(script.events("/v1/responses", {"input": "endless", "max_output_tokens": 3})[-1][0], "response.incomplete")

    def test_items_as_input(self):
        items = [{"role": "user", "content": [{"type": "input_text", "text": "weather"}]},
                 {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                 {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
                 {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}]
        self.assertEqual(self.parts(script.post("/v1/responses", {"input": items}))[1], "It is sunny in Paris.")

    def test_logprobs(self):
        body = {"input": "plain", "include": ["message.output_text.logprobs"], "top_logprobs": 1}
        content = script.post("/v1/responses", body)["output"][0]["content"][0]
        self.assertEqual("".join(one["token"] for one in content["logprobs"]), "Hello there!")


class Messages(unittest.TestCase):
    tools = [{"name": tool["function"]["name"], "input_schema": {"type": "object"}} for tool in TOOLS]

    def parts(self, content):
        reasoning = "".join(block["thinking"] for block in content if block["type"] == "thinking")
        text = "".join(block["text"] for block in content if block["type"] == "text")
        return reasoning, text, [(block["name"], block["input"]) for block in content if block["type"] == "tool_use"]

    def streamed(self, events):
        """The message that a stream's events build, with every rule of their order checked."""
        self.assertEqual(events[0][0], "message_start")
        self.assertEqual([kind for kind, _ in events[-2:]], ["message_delta", "message_stop"])
        message, open_block, pieces = events[0][1]["message"], None, ""
        for kind, data in events[1:-2]:
            if kind == "content_block_start":
                self.assertIsNone(open_block)
                self.assertEqual(data["index"], len(message["content"]))
                open_block, pieces = data["content_block"], ""
            elif kind == "content_block_delta":
                delta = data["delta"]
                field = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": None, "signature_delta": "signature"}[delta["type"]]
                if field is None:
                    pieces += delta["partial_json"]
                else:
                    open_block[field] += delta[field]
            else:
                self.assertEqual(kind, "content_block_stop")
                if open_block["type"] == "tool_use":
                    open_block["input"] = json.loads(pieces) if pieces.endswith("}") else pieces
                message["content"].append(open_block)
                open_block = None
        return {**message, **events[-2][1]["delta"], "usage": events[-2][1]["usage"]}

    def test_plain_and_stream(self):
        for name in REPLIES:
            with self.subTest(name):
                body = {**said(name), "max_tokens": 50, "tools": self.tools}
                plain = script.post("/v1/messages", body)
                self.assertEqual(self.parts(plain["content"]), REPLIES[name])
                kinds = [block["type"] for block in plain["content"]]
                self.assertEqual(kinds, [kind for kind, said in zip(("thinking", "text"), REPLIES[name]) if said]
                                 + ["tool_use"] * len(REPLIES[name][2]))
                self.assertEqual(plain["stop_reason"], "tool_use" if REPLIES[name][2] else "end_turn")
                built = self.streamed(script.events("/v1/messages", body))
                self.assertEqual(self.parts(built["content"]), REPLIES[name])
                self.assertEqual(built["stop_reason"], plain["stop_reason"])
                self.assertEqual(built["usage"]["output_tokens"], plain["usage"]["output_tokens"])

    def test_arguments_stream(self):
        body = {**said("letter"), "max_tokens": 50, "tools": [{"name": "send_letter", "input_schema": {"type": "object"}}]}
        events = script.events("/v1/messages", body)
        deltas = [data["delta"] for kind, data in events if kind == "content_block_delta"]
        self.assertEqual([delta["type"] for delta in deltas], ["input_json_delta"] * 6)
        plain = script.post("/v1/messages", body)
        self.assertEqual(self.parts(plain["content"])[2], [("send_letter", json.loads(LETTER[1]))])
        self.assertEqual(self.parts(self.streamed(events)["content"]), self.parts(plain["content"]))
        for n, whole, begun in ((3, {}, '{"text":"Dear friend'), (6, {"text": "Dear friend,\n how are you today?"}, LETTER[1][:-3])):
            cut = script.post("/v1/messages", {**body, "max_tokens": n})
            self.assertEqual((cut["stop_reason"], self.parts(cut["content"])), ("max_tokens", ("", "", [("send_letter", whole)])))
            built = self.streamed(script.events("/v1/messages", {**body, "max_tokens": n}))
            self.assertEqual(self.parts(built["content"])[2][0][1][:len(begun)], begun)

    def test_stops(self):
        reply = script.post("/v1/messages", {**said("endless"), "max_tokens": 3})
        self.assertEqual(reply["stop_reason"], "max_tokens")
        reply = script.post("/v1/messages", {**said("plain"), "max_tokens": 9, "stop_sequences": ["there"]})
        self.assertEqual((reply["stop_reason"], reply["stop_sequence"], reply["content"][0]["text"]), ("stop_sequence", "there", "Hello "))

    def test_blocks_as_input(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": "weather", "cache_control": {"type": "ephemeral"}}]},
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
                                                      {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]}]
        body = {"system": [{"type": "text", "text": "be brief"}], "messages": messages, "tools": self.tools}
        reply = script.post("/v1/messages", {**body, "max_tokens": 20})
        self.assertEqual(reply["content"], [{"type": "text", "text": "It is sunny in Paris."}])
        counted = script.post("/v1/messages/count_tokens", body)["input_tokens"]
        self.assertEqual(counted, reply["usage"]["input_tokens"] + reply["usage"]["cache_read_input_tokens"])

    def test_a_begun_reply_is_continued(self):
        messages = [*CHAT, {"role": "assistant", "content": "Hello"}]
        self.assertEqual(script.post("/v1/messages", {"messages": messages, "max_tokens": 9})["content"][0]["text"], " there!")

    def test_thinking_is_a_variable_of_the_template(self):
        template = "{{ messages[0].content }}{{ '<|go:think|>' if enable_thinking else '<|go:sunny|>' }}"
        model = script_model.write(pathlib.Path(directory.name) / "script")
        with Server(model, "--chat-template", template, "--reasoning-parser", "qwen3") as server:
            for thinking, kinds in (({"type": "enabled", "budget_tokens": 2048}, ["thinking", "text"]),
                                    ({"type": "adaptive"}, ["thinking", "text"]), ({"type": "disabled"}, ["text"])):
                reply = server.post("/v1/messages", {**said("x"), "max_tokens": 20, "thinking": thinking})
                self.assertEqual([block["type"] for block in reply["content"]], kinds)

    def test_one_call_only(self):
        reply = script.post("/v1/messages", {**said("several"), "max_tokens": 50, "tools": self.tools,
                                             "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}})
        self.assertEqual(len(self.parts(reply["content"])[2]), 1)

    def test_errors_have_anthropics_shape(self):
        reply = script.post("/v1/messages", {**said("x")}, 400)
        self.assertEqual((reply["type"], reply["error"]["type"]), ("error", "invalid_request_error"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
