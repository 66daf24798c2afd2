#!/usr/bin/env python3
"""Every way to write calls through every API that chats, plain and streamed: the replies of tests/frontend/call_matrix_test.cc
(tests/golden/call_replies.jsonl), said to the letter by a model, come out with the same text, thoughts and calls."""
import concurrent.futures
import http.client
import json
import pathlib
import re
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
import scripted_replies
from live_server import Server

PROPERTIES = {"text": {"type": "string"}, "n": {"type": "number"}, "list": {"type": "array"}, "object": {"type": "object"},
              "yes": {"type": "boolean"}, "none": {"type": "null"}}
PARAMETERS = {"f": {"type": "object", "properties": PROPERTIES}, "now": {"type": "object", "properties": {}}}
FUNCTIONS = [{"name": name, "description": "d", "parameters": schema} for name, schema in PARAMETERS.items()]
N_THREADS = 8
ANSWER = '{"name": "f", "born": 1815}'  # f is a tool
# As Phi-4-mini's own: tools are text of a system message, calls of earlier turns do not show.
PHI = ("{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m %}{{ '<|system|>' + m['content'] + '<|tool|>' + m['tools']"
       " + '<|/tool|><|end|>' }}{% else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
# As Kimi K2's: a call shows its id and arguments, a result the id.
KIMI = ("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<|tool_call_begin|>{{ c.id }}"
        "<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}"
        "{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}{#- <|tool_calls_section_begin|> -#}")


def exact(text):
    """JSON in which numbers are the texts that stand there, marked as such; the text itself where it is no JSON."""
    try:
        return json.loads(text, parse_int=lambda n: ("number", n), parse_float=lambda n: ("number", n))
    except ValueError:
        return text


def events(body):
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if fields and fields["data"] != "[DONE]":
            yield exact(fields["data"])


class Said:
    """What a reply says; `arguments` are texts, or objects in the APIs that have objects."""

    def __init__(self):
        self.reasoning, self.content, self.calls, self.ids, self.end = "", "", [], [], None

    def call(self, name, arguments, id):
        self.calls.append([name, arguments])
        self.ids.append(id)

    def parts(self):
        return self.reasoning, self.content, self.calls, self.end


class Chat:
    path = "/v1/chat/completions"
    ends = {"stop": "stop", "tool_calls": "calls", "length": "length"}

    @staticmethod
    def body(name, most):
        tools = [{"type": "function", "function": one} for one in FUNCTIONS]
        return {"messages": [{"role": "user", "content": name}], "tools": tools, "max_tokens": most, "temperature": 0}

    def plain(self, body):
        said, choice = Said(), exact(body)["choices"][0]
        message = choice["message"]
        said.content, said.reasoning, said.end = message["content"] or "", message.get("reasoning", ""), self.ends[choice["finish_reason"]]
        for call in message.get("tool_calls", []):
            said.call(call["function"]["name"], call["function"]["arguments"], call["id"])
        return said

    def streamed(self, body):
        said = Said()
        for event in events(body):
            for choice in event["choices"]:
                delta = choice["delta"]
                said.content += delta.get("content") or ""
                said.reasoning += delta.get("reasoning") or ""
                for call in delta.get("tool_calls", []):
                    at = int(call["index"][1])
                    if "id" in call:
                        assert at == len(said.calls), (at, said.calls)
                        said.call(call["function"]["name"], "", call["id"])
                    said.calls[at][1] += call["function"]["arguments"]
                said.end = self.ends[choice["finish_reason"]] if choice["finish_reason"] else said.end
        return said


class Responses:
    path = "/v1/responses"

    @staticmethod
    def body(name, most):
        return {"input": name, "tools": [{"type": "function", "strict": False, **one} for one in FUNCTIONS], "max_output_tokens": most, "temperature": 0,
                "store": False}

    @staticmethod
    def of_response(response):
        said = Said()
        for item in response["output"]:
            if item["type"] == "function_call":
                said.call(item["name"], item["arguments"], item["call_id"])
            elif item["type"] == "reasoning":
                said.reasoning += "".join(part["text"] for part in item["content"])
            else:
                said.content += "".join(part["text"] for part in item["content"])
        said.end = "length" if response["status"] == "incomplete" else "calls" if said.calls else "stop"
        return said

    def plain(self, body):
        return self.of_response(exact(body))

    def streamed(self, body):
        said = Said()
        for event in events(body):
            kind = event["type"]
            if kind == "response.output_text.delta":
                said.content += event["delta"]
            elif kind == "response.reasoning_text.delta":
                said.reasoning += event["delta"]
            elif kind == "response.output_item.added" and event["item"]["type"] == "function_call":
                said.call(event["item"]["name"], "", event["item"]["call_id"])
            elif kind == "response.function_call_arguments.delta":
                said.calls[-1][1] += event["delta"]
            elif kind in ("response.completed", "response.incomplete"):
                whole = self.of_response(event["response"])
                said.end = whole.end
                assert whole.parts() == said.parts(), (whole.parts(), said.parts())
        return said


class Messages:
    path = "/v1/messages"
    ends = {"end_turn": "stop", "tool_use": "calls", "max_tokens": "length"}

    @staticmethod
    def body(name, most):
        tools = [{"name": one["name"], "description": "d", "input_schema": one["parameters"]} for one in FUNCTIONS]
        return {"messages": [{"role": "user", "content": name}], "tools": tools, "max_tokens": most, "temperature": 0}

    def plain(self, body):
        said, message = Said(), exact(body)
        for block in message["content"]:
            if block["type"] == "tool_use":
                said.call(block["name"], block["input"], block["id"])
            elif block["type"] == "thinking":
                said.reasoning += block["thinking"]
            else:
                said.content += block["text"]
        said.end = self.ends[message["stop_reason"]]
        return said

    def streamed(self, body):
        said = Said()
        for event in events(body):
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                assert event["content_block"]["input"] == {}
                said.call(event["content_block"]["name"], "", event["content_block"]["id"])
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                said.content += delta.get("text", "")
                said.reasoning += delta.get("thinking", "")
                if delta["type"] == "input_json_delta":
                    said.calls[-1][1] += delta["partial_json"]
            elif event["type"] == "message_delta":
                said.end = self.ends[event["delta"]["stop_reason"]]
        return said


class Ollama:
    path = "/api/chat"

    @staticmethod
    def body(name, most):
        tools = [{"type": "function", "function": one} for one in FUNCTIONS]
        return {"messages": [{"role": "user", "content": name}], "tools": tools, "options": {"num_predict": most, "temperature": 0}}

    def plain(self, body):
        return self.lines([exact(body)])

    def streamed(self, body):
        return self.lines([exact(line) for line in body.decode().splitlines()])

    @staticmethod
    def lines(lines):
        said = Said()
        for line in lines:
            message = line["message"]
            said.content += message["content"]
            said.reasoning += message.get("thinking", "")
            for call in message.get("tool_calls", []):
                said.call(call["function"]["name"], call["function"]["arguments"], call["id"])
        assert lines[-1]["done"]
        said.end = "length" if lines[-1]["done_reason"] == "length" else "calls" if said.calls else "stop"
        return said


APIS = {"chat": Chat(), "responses": Responses(), "messages": Messages(), "ollama": Ollama()}


class Client:
    """A connection of each thread."""

    def __init__(self, port):
        self.port, self.all, self.own = port, [], threading.local()

    def post(self, path, body):
        if not hasattr(self.own, "connection"):
            self.own.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            self.all.append(self.own.connection)
        self.own.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = self.own.connection.getresponse()
        self.own.warning = reply.headers["X-Penstock-Warning"]
        return reply.status, reply.read()

    def close(self):
        for connection in self.all:
            connection.close()


def same_objects(given, wanted):
    """Whether calls have the objects that the texts of arguments are; of a text that ends too soon, members of it."""
    return len(given) == len(wanted) and all(
        got[0] == name and (got[1] == exact(text) or (isinstance(exact(text), str) and isinstance(got[1], dict)
                                                      and all(json.dumps(key) in text for key in got[1])))
        for got, (name, text) in zip(given, wanted))


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.replies, cls.scripts, models = scripted_replies.replies(), {}, []
        for n, (name, replies) in enumerate(cls.replies.items()):
            folder = cls.folder / f"model{n}"
            cls.scripts[name] = scripted_replies.write(folder, {**{one["case"]: one["text"] for one in replies}, "answer": ANSWER})
            models.append({"name": cls.model_name(name), "model": str(folder), "tool_call_parser": replies[0]["tools"], "kv_cache_memory": "4MiB",
                           "reasoning_parser": replies[0]["reasoning"] or "none"})
        folder = str(cls.folder / "model0")
        for name, template in (("phi", PHI), ("kimi", KIMI), ("unknown", scripted_replies.TEMPLATE), ("toolless", "{{ messages[0].content }}")):
            models.append({"name": name, "model": folder, "chat_template": template + "\n", "kv_cache_memory": "4MiB",
                           "ignore_tools_without_place": True})
        # The mark is several tokens, and the last of them is not its own.
        thinker = ["<", "think", ">\nso", " and", " on", " it", " goes", " for", " ever", "</", "thi", "nk>Done."]
        folder = script_model.write(cls.folder / "thinker", {"x": thinker}, scripted_replies.TEMPLATE)
        models.append({"name": "thinker", "model": str(folder), "reasoning_parser": "think", "kv_cache_memory": "4MiB"})
        (cls.folder / "models.json").write_text(json.dumps({"models": models}))
        cls.server = cls.enterClassContext(Server("--models-config", cls.folder / "models.json", model=None))
        cls.client = Client(cls.server.port)
        cls.addClassCleanup(cls.client.close)
        cls.pool = cls.enterClassContext(concurrent.futures.ThreadPoolExecutor(N_THREADS))

    @staticmethod
    def model_name(form):
        return re.sub(r"\W+", "-", form)

    def ask(self, api, model, case, stream, most=4096):
        body = {**api.body(case, most), "model": self.model_name(model), "stream": stream}
        status, reply = self.client.post(api.path, body)
        if status != 200:
            raise AssertionError(f"{model}, {case}, {api.path}: {status}: {reply[:500]}")
        return api.streamed(reply) if stream else api.plain(reply)

    def everywhere(self, check, cases):
        """check(api's name, api, stream, case) for every API, streamed and plain; returns the number of requests."""
        def one(work):
            try:
                check(*work)
            except (AssertionError, KeyError, TypeError) as error:
                return f"{work[0]}, {'streamed' if work[2] else 'plain'}, {work[3]['format']}, {work[3]['case']}: {error!r}"
            return None

        work = [(name, api, stream, case) for case in cases for name, api in APIS.items() for stream in (False, True)]
        failures = [failure for failure in self.pool.map(one, work) if failure]
        self.assertFalse(failures, f"{len(failures)} of {len(work)} failed: " + "\n".join(failures[:20]))
        return len(work)

    def test_every_reply_comes_out_of_every_api(self):
        def check(name, api, stream, case):
            said, wanted = self.ask(api, case["format"], case["case"], stream), case["reply"]
            self.assertEqual((said.reasoning, said.content), (wanted["reasoning"], wanted["content"]))
            has_objects = name == "ollama" or (name == "messages" and not stream)
            if has_objects:
                self.assertTrue(same_objects(said.calls, wanted["calls"]), (said.calls, wanted["calls"]))
            else:
                self.assertEqual(said.calls, wanted["calls"])
            self.assertEqual(said.end, "calls" if wanted["calls"] else "stop")
            self.assertTrue(all(wanted == "" or wanted == given for wanted, given in zip(case["ids"], said.ids)), said.ids)
            self.assertTrue(any(case["ids"]) or len(set(said.ids)) == len(said.ids), said.ids)

        n = self.everywhere(check, [case for replies in self.replies.values() for case in replies])
        print(f"{n} replies", file=sys.stderr)


    def test_cut_by_the_limit_there_are_no_marks(self):
        def check(name, api, stream, case):
            n_pieces = len(self.scripts[case["format"]][case["case"]])
            for most in sorted({1, n_pieces // 3, n_pieces // 2, n_pieces - 1} - {0}):
                said, wanted = self.ask(api, case["format"], case["case"], stream, most), case["reply"]
                # The first character of a mark may be text.
                self.assertTrue(wanted["content"].startswith(said.content) or said.content == "<", said.parts())
                self.assertEqual(said.end, "length")
                names = [call[0] for call in said.calls]
                self.assertEqual(names, [call[0] for call in wanted["calls"]][:len(names)])
                for got, call in zip(said.calls, wanted["calls"]):
                    if isinstance(got[1], str):
                        self.assertTrue(call[1].startswith(got[1]), (got, call))
                    else:
                        self.assertLessEqual(got[1].keys(), exact(call[1]).keys())

        # Without a mark, or with one that is a word (functools), the beginning of a call may be text.
        bare = {"glm4", "pythonic", "xlam", "llama3_json", "phi4_mini_json"}
        cases = [case for name, replies in self.replies.items() for case in replies
                 if case["case"] in ("two", "strings", "behind thoughts") and name not in bare]
        print(f"{self.everywhere(check, cases)} replies that are cut", file=sys.stderr)

    def test_forced_calls_that_are_cut_leave_no_text(self):
        choices = {"chat": "required", "responses": "required", "messages": {"type": "any"}}

        def check(name, api, stream, case):
            if name not in choices:
                return
            for most in (1, 4, 9, 16):
                body = {**api.body("one", most), "model": self.model_name(case["format"]), "stream": stream, "tool_choice": choices[name]}
                status, reply = self.client.post(api.path, body)
                self.assertEqual(status, 200, reply)
                said = api.streamed(reply) if stream else api.plain(reply)
                self.assertEqual(said.content, "", (most, said.parts()))

        self.everywhere(check, [replies[0] for replies in self.replies.values() if replies[0]["tools"] != "none"])

    def test_json_under_a_response_format_is_text(self):
        formats = {"chat": {"response_format": {"type": "json_object"}}, "ollama": {"format": "json"},
                   "responses": {"text": {"format": {"type": "json_object"}}}}

        def check(name, api, stream, case):
            if name not in formats:
                return
            body = {**api.body("answer", 100), "model": self.model_name(case["format"]), "stream": stream, **formats[name]}
            status, reply = self.client.post(api.path, body)
            self.assertEqual(status, 200, reply)
            said = api.streamed(reply) if stream else api.plain(reply)
            self.assertEqual(said.parts(), ("", ANSWER, [], "stop"))

        # gpt-oss has its answer in a message of its own.
        self.everywhere(check, [replies[0] for name, replies in self.replies.items() if name != "harmony"])

    def test_the_models_own_ids(self):
        for stream in (False, True):
            said = self.ask(APIS["chat"], "kimi_k2", "two", stream)
            self.assertEqual([id.split(":")[0] for id in said.ids], ["functions.f", "functions.now"])
            for form in ("mistral", "mistral (2)", "mistral (3)"):
                for id in self.ask(APIS["chat"], form, "two", stream).ids:
                    self.assertRegex(id, r"^[0-9A-Za-z]{9}$", form)

    def prompt(self, model, **fields):
        messages = [{"role": "user", "content": "hi"},
                    {"role": "assistant", "content": None,
                     "tool_calls": [{"id": "call_x", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "call_x", "content": "noon"}]
        tools = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
        body = {"model": model, "messages": messages, "tools": tools, **fields}
        status, reply = self.client.post("/apply-template", body)
        self.assertEqual(status, 200, reply)
        return json.loads(reply)["prompt"]

    def test_a_template_that_reads_tools_in_the_system_message(self):
        calls = '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>'
        self.assertEqual(self.prompt("phi"), '<|system|>You are a helpful assistant with some tools.<|tool|>[{"name": "now", "parameters": {}}]'
                         f"<|/tool|><|end|><|user|>hi<|end|><|assistant|>{calls}<|end|><|tool|>noon<|end|><|assistant|>")

    def test_a_format_that_is_not_known_is_told(self):
        self.assertIn("how this model writes calls of tools is not known", self.server.log())
        for model, warning in (("unknown", "its calls stay text"), ("toolless", "left out")):
            for api in APIS.values():
                for stream in (False, True):
                    body = {**api.body("one", 4), "model": model, "stream": stream}
                    self.assertEqual(self.client.post(api.path, body)[0], 200)
                    self.assertIn(warning, self.client.own.warning, (model, api.path))
                    self.client.post(api.path, {key: value for key, value in body.items() if key != "tools"})
                    self.assertIsNone(self.client.own.warning, (model, api.path))

    def test_the_budget_for_thoughts_is_kept_where_their_mark_is_several_tokens(self):
        for budget, thoughts in ((0, "so"), (2, "so and on"), (50, "so and on it goes for ever")):
            body = {"model": "thinker", "messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 20,
                    "thinking_token_budget": budget}
            status, reply = self.client.post("/v1/chat/completions", body)
            self.assertEqual(status, 200, reply)
            self.assertEqual(json.loads(reply)["choices"][0]["message"]["reasoning"], thoughts)

    def test_ids_of_other_servers_fit_a_template_that_shows_them(self):
        self.assertIn("<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>", self.prompt("kimi"))
        self.assertIn("[functions.now:0]", self.prompt("kimi"))

if __name__ == "__main__":
    unittest.main(verbosity=2)
