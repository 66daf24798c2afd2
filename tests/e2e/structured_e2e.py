#!/usr/bin/env python3
"""Structured outputs over HTTP: every field of every API that asks for a form, the text that comes of it, and what is refused."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import PROGRAM, SMALL_MODEL, Server

PROMPT = "Once upon a time"
# A chat of a model that only tells stories: what is not held to a form is no JSON.
TEMPLATE = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.content or '' }}{% endfor %}"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["name", "age"], "additionalProperties": False}
TAG = {"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</a>"}}
OLD_TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
SAMPLING = {"temperature": 1.2, "seed": 4}
MISSPELT = {"properties": {"a": {"minLenght": 1}}}


def setUpModule():
    global server
    server = Server(SMALL_MODEL, "--chat-template", TEMPLATE, "--tool-call-parser", "hermes").__enter__()


def tearDownModule():
    server.__exit__()


def completion(**fields):
    return server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 300, **SAMPLING, **fields})["choices"][0]["text"]


def generated(**fields):
    return server.post("/v1/generate", {"prompt": PROMPT, "max_tokens": 300, **SAMPLING, **fields})["text"]


def said(**fields):
    return {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 300, **SAMPLING, **fields}


def chat(**fields):
    choice = server.post("/v1/chat/completions", said(**fields))["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    return choice["message"]["content"]


def response(**fields):
    reply = server.post("/v1/responses", {"input": PROMPT, "max_output_tokens": 300, **SAMPLING, **fields})
    assert reply["status"] == "completed", reply
    return reply["output"][0]["content"][0]["text"]


def message(**fields):
    reply = server.post("/v1/messages", said(**fields))
    assert reply["stop_reason"] == "end_turn", reply
    return reply["content"][0]["text"]


class Forms(unittest.TestCase):
    def person(self, text):
        value = json.loads(text)
        self.assertEqual(list(value), ["name", "age"])
        self.assertTrue(len(value["name"]) <= 8 and 1 <= value["age"] <= 9, text)

    def test_schemas_in_every_api(self):
        named = {"name": "person", "description": "who", "schema": SCHEMA, "strict": False}
        for ask in (completion, chat):
            for form in ({"type": "json_schema", "json_schema": named}, {"type": "json_schema", "schema": SCHEMA},
                         {"type": "json_object", "schema": SCHEMA}):
                self.person(ask(response_format=form))
        for ask in (completion, chat, response, message, generated):
            for fields in ({"structured_outputs": {"json": SCHEMA}}, {"structured_outputs": {"json": json.dumps(SCHEMA)}},
                           {"guided_json": SCHEMA}, {"json_schema": SCHEMA}):
                self.person(ask(**fields))
        self.person(response(text={"format": {"type": "json_schema", **named}, "verbosity": None}))
        self.person(message(output_config={"format": {"type": "json_schema", "schema": SCHEMA}}))
        self.person(message(output_format={"type": "json_schema", "schema": SCHEMA}))

    def test_json_objects(self):
        plain = {"type": "json_object"}
        # A model that tells stories would go on inside its first string.
        bias = {"logit_bias": {str(token): 12 for token in server.post("/tokenize", {"prompt": '"}', "add_special_tokens": False})["tokens"]}}
        for text in (completion(response_format=plain, **bias), chat(response_format=plain, **bias), response(text={"format": plain}, **bias),
                     generated(structured_outputs={"json_object": True}, **bias)):
            self.assertIsInstance(json.loads(text), dict, text)

    def test_other_forms(self):
        for ask in (completion, chat, response, message, generated):
            self.assertIn(ask(structured_outputs={"choice": ["red", "green"]}), ("red", "green"))
            self.assertIn(ask(guided_choice=["red", "green"]), ("red", "green"))
            self.assertRegex(ask(structured_outputs={"regex": "[a-f]{2}[0-9]"}), "^[a-f]{2}[0-9]$")
            self.assertRegex(ask(guided_regex="[a-f]{2}[0-9]"), "^[a-f]{2}[0-9]$")
            for fields in ({"grammar": 'root ::= "<" [a-z]{1,9} ">"'}, {"guided_grammar": 'root ::= "<" [a-z]{1,9} ">"'},
                           {"structured_outputs": {"grammar": 'root ::= "<" [a-z]{1,9} ">"'}}):
                self.assertRegex(ask(**fields), "^<[a-z]{1,9}>$")

    def test_structural_tags(self):
        for text in (completion(response_format=TAG), chat(response_format=TAG), response(text={"format": TAG}),
                     message(structured_outputs={"structural_tag": json.dumps(TAG)}), generated(structured_outputs={"structural_tag": TAG})):
            found = re.fullmatch("<a>(.*)</a>", text, re.S)
            self.assertTrue(found, text)
            self.person(found[1])
        # Text is free until the trigger.
        forced = completion(response_format=OLD_TAG, allowed_token_ids=None, max_tokens=20)
        self.assertNotIn("<f", forced)

    def test_spaces(self):
        style = {"disable_any_whitespace": True}
        compact = completion(structured_outputs={"json": SCHEMA, **style})
        self.assertNotRegex(re.sub(r'"(\\.|[^"\\])*"', '""', compact), r"\s")  # in strings there may be spaces
        self.assertRegex(completion(structured_outputs={"json": SCHEMA, "whitespace_pattern": " "}), r'^{ "name" : ".*" , "age" : [1-9](\.0+)? }$')
        self.assertRegex(completion(guided_json=SCHEMA, guided_whitespace_pattern=" "), '^{ "name" : ')
        closed = completion(structured_outputs={"json": {"properties": {"a": {"const": "x"}}, "type": "object"}, "disable_additional_properties": True, **style})
        self.assertIn(closed, ("{}", '{"a":"x"}'))
        # Options alone are those of the form that another field gives.
        compact = completion(response_format={"type": "json_object", "schema": {"enum": [{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9]}]}}, structured_outputs=style)
        self.assertNotIn(" ", compact)

    def test_no_form(self):
        free = chat_text = server.post("/v1/chat/completions", said(max_tokens=9))["choices"][0]["message"]["content"]
        for fields in ({"response_format": {"type": "text"}}, {"response_format": None}, {"structured_outputs": None}, {"guided_json": None}):
            chat_text = server.post("/v1/chat/completions", said(max_tokens=9, **fields))["choices"][0]["message"]["content"]
            self.assertEqual(chat_text, free)

    def test_streams_and_several(self):
        body = {"prompt": [PROMPT, "The cat"], "n": 3, "max_tokens": 300, **SAMPLING, "structured_outputs": {"json": SCHEMA}}
        whole = server.post("/v1/completions", body)["choices"]
        texts = [""] * 6
        for chunk in server.chunks("/v1/completions", body):
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, [choice["text"] for choice in whole])
        self.assertGreater(len(set(texts)), 1)
        for text in texts:
            self.person(text)

    def test_responses_repeat_their_format(self):
        form = {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}
        reply = server.post("/v1/responses", {"input": PROMPT, "max_output_tokens": 300, "text": {"format": form}})
        self.assertEqual(reply["text"]["format"], form)
        self.assertEqual(server.post("/v1/responses", {"input": PROMPT, "max_output_tokens": 2})["text"], {"format": {"type": "text"}})


class ClosedObjects(unittest.TestCase):
    """Schemas as pydantic makes them: nothing in them says additionalProperties."""

    OPEN = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "in": {"$ref": "#/$defs/In"}}, "required": ["a", "in"],
            "$defs": {"In": {"type": "object", "properties": {"b": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["b"]}}}
    # Of two names, of which the schema has one.
    TWO = {"type": "object", "properties": {"a": {"const": 1}}, "propertyNames": {"enum": ["a", "zz"]}}

    def fits(self, value):
        self.assertEqual((list(value), list(value["in"])), (["a", "in"], ["b"]))

    def closed(self, text):
        self.assertRegex(text, r'^\{"a": ?"[xy]", ?"in": ?\{"b": ?[1-9](\.0+)?\}\}$')

    def test_every_field(self):
        named = {"name": "n", "schema": self.OPEN}
        for ask in (completion, chat):
            for strict in (True, False):
                self.closed(ask(response_format={"type": "json_schema", "json_schema": {**named, "strict": strict}}))
        for ask in (completion, chat, response, message, generated):
            for fields in ({"structured_outputs": {"json": self.OPEN}}, {"guided_json": self.OPEN}, {"json_schema": self.OPEN}):
                self.closed(ask(**fields))
        self.closed(response(text={"format": {"type": "json_schema", **named}}))
        self.closed(message(output_config={"format": {"type": "json_schema", "schema": self.OPEN}}))
        options = {"options": {"num_predict": 300, "temperature": 1.2, "seed": 4}, "stream": False, "format": self.OPEN}
        said_there = [{"role": "user", "content": PROMPT}]
        self.closed(server.post("/api/chat", {"model": SMALL_MODEL.name, "messages": said_there, **options})["message"]["content"])
        self.closed(server.post("/api/generate", {"model": SMALL_MODEL.name, "prompt": PROMPT, **options})["response"])

    def test_tools(self):
        for strict in ({"strict": True}, {}):
            choice = {"tool_choice": "required", "parallel_tool_calls": False}
            reply = server.post("/v1/chat/completions", said(tools=tools_of(self.OPEN, **strict), **choice))["choices"][0]["message"]
            self.fits(json.loads(reply["tool_calls"][0]["function"]["arguments"]))
            reply = server.post("/v1/messages", said(tools=anthropic_tools(self.OPEN, **strict), tool_choice={"type": "tool", "name": "find"}))
            self.fits(reply["content"][0]["input"])

    def texts(self, run=None, n=32, **fields):
        body = {"prompt": PROMPT, "max_tokens": 300, "temperature": 2, "seed": 1, "n": n, **fields}
        return [choice["text"] for choice in (run or server).post("/v1/completions", body)["choices"]]

    def test_opened(self):
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": self.TWO}}}
        for closed in (form, {"structured_outputs": {"json": self.TWO, "disable_additional_properties": True}}):
            self.assertFalse(any("zz" in text for text in self.texts(**closed)))
        opening = {"additional_properties": True}
        for opened in ({**form, "structured_outputs": opening}, {"structured_outputs": {"json": self.TWO, **opening}}):
            self.assertTrue(any("zz" in text for text in self.texts(**opened)), opened)
        tools = [{"type": "function", "function": {"name": "find", "parameters": self.TWO}}]
        for fields, is_open in (({}, False), ({"structured_outputs": opening}, True)):
            body = said(tools=tools, tool_choice={"type": "function", "function": {"name": "find"}}, n=32, **fields) | {"temperature": 2}
            calls = [choice["message"].get("tool_calls") for choice in server.post("/v1/chat/completions", body)["choices"]]
            self.assertEqual(any("zz" in call[0]["function"]["arguments"] for call in calls if call), is_open, calls)
        both = {"json": self.TWO, "disable_additional_properties": True, **opening}
        status, _, reply = server.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "structured_outputs": both}))
        self.assertEqual(status, 400)
        self.assertIn("additional_properties", json.loads(reply)["error"]["message"])

    def test_opened_by_the_server(self):
        with Server(SMALL_MODEL, "--structured-outputs-config", json.dumps({"additional_properties": True})) as open_server:
            self.assertTrue(any("zz" in text for text in self.texts(open_server, guided_json=self.TWO)))
            closed = {"json": self.TWO, "disable_additional_properties": True}
            self.assertFalse(any("zz" in text for text in self.texts(open_server, structured_outputs=closed)))

    def test_check(self):
        closed, opened = ({"structured_outputs": {"json": self.TWO, "additional_properties": value}} for value in (False, True))
        found = [server.post("/v1/grammar/check", fields)["canonical"] for fields in (closed, opened, {"guided_json": self.TWO})]
        self.assertNotEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])


class Refusals(unittest.TestCase):
    def refusal(self, path, body):
        status, _, reply = server.request("POST", path, json.dumps(body))
        self.assertEqual(status, 400, reply)
        return json.loads(reply)["error"]

    def test_the_place_in_the_request(self):
        schema, named = MISSPELT, {"name": "n", "schema": MISSPELT}
        base = {"/v1/completions": {"prompt": PROMPT}, "/v1/chat/completions": said(), "/v1/responses": {"input": PROMPT},
                "/v1/generate": {"prompt": PROMPT}}
        for path, fields, param in (
                ("/v1/completions", {"response_format": {"type": "json_schema", "json_schema": named}}, "response_format.json_schema.schema"),
                ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": named}}, "response_format.json_schema.schema"),
                ("/v1/chat/completions", {"response_format": {"type": "json_object", "schema": schema}}, "response_format.schema"),
                ("/v1/completions", {"structured_outputs": {"json": schema}}, "structured_outputs.json"),
                ("/v1/completions", {"guided_json": schema}, "guided_json"), ("/v1/generate", {"json_schema": schema}, "json_schema"),
                ("/v1/responses", {"text": {"format": {"type": "json_schema", **named}}}, "text.format.schema")):
            error = self.refusal(path, {**base[path], **fields})
            self.assertEqual(error["param"], param)
            self.assertIn("#/properties/a/minLenght", error["message"])
            self.assertIn("minLength", error["message"])
        for fields, param in (({"output_config": {"format": {"type": "json_schema", "schema": schema}}}, "output_config.format.schema"),
                              ({"output_format": {"type": "json_schema", "schema": schema}}, "output_format.schema")):
            error = self.refusal("/v1/messages", said(**fields))
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertTrue(error["message"].startswith(f"{param}: #/properties/a/minLenght"), error)

    def test_reasons(self):
        for outputs, param, words in (
                ({"regex": "(?<=a)b"}, "structured_outputs.regex", "look"), ({"regex": "("}, "structured_outputs.regex", "invalid"),
                ({"grammar": "root ::= x"}, "structured_outputs.grammar", "line 1"),
                ({"structural_tag": "{}"}, "structured_outputs.structural_tag", "invalid"),
                ({"json": "{"}, "structured_outputs.json", "invalid"),
                ({"json": {"$ref": "https://example.com/s.json"}}, "structured_outputs.json", "#/$ref"),
                ({"json": {"type": "array", "uniqueItems": True}}, "structured_outputs.json", "unsupported"),
                ({"json": SCHEMA, "whitespace_pattern": "("}, "structured_outputs.json", ""),
                ({"regex": "a", "grammar": 'root ::= "a"'}, "structured_outputs", "expected one of"), ({}, "structured_outputs", "got 0"),
                ({"json": 5}, "structured_outputs.json", "expected"), ({"regex": 5}, "structured_outputs.regex", "expected a string"),
                ({"xml": "a"}, "structured_outputs", "expected one of")):
            error = self.refusal("/v1/completions", {"prompt": PROMPT, "structured_outputs": outputs})
            self.assertEqual(error["param"], param, error)
            self.assertIn(words, error["message"])

    def test_one_form_at_a_time(self):
        for fields in ({"guided_regex": "a", "guided_choice": ["b"]}, {"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}):
            self.assertIn("cannot stand beside", self.refusal("/v1/completions", {"prompt": PROMPT, **fields})["message"])
        self.assertEqual(self.refusal("/v1/completions", {"prompt": PROMPT, "guided_whitespace_pattern": " "})["param"], "guided_whitespace_pattern")

    def test_a_stream_is_refused_before_it_starts(self):
        status, headers, _ = server.request("POST", "/v1/chat/completions", json.dumps(said(stream=True, guided_json=MISSPELT)))
        self.assertEqual((status, headers["content-type"]), (400, "application/json"))


def tools_of(parameters=SCHEMA, **fields):
    return [{"type": "function", "function": {"name": name, "parameters": parameters, **fields}} for name in ("keep", "find")]


def flat_tools(parameters=SCHEMA, **fields):
    return [{"type": "function", "name": name, "parameters": parameters, **fields} for name in ("keep", "find")]


def anthropic_tools(parameters=SCHEMA, **fields):
    return [{"name": name, "input_schema": parameters, **fields} for name in ("keep", "find")]


class Tools(unittest.TestCase):
    """Calls of a model that would never make one."""

    def fits(self, arguments):
        self.assertEqual(list(arguments), ["name", "age"])
        self.assertTrue(len(arguments["name"]) <= 8 and 1 <= arguments["age"] <= 9, arguments)

    def test_chats(self):
        named = {"type": "function", "function": {"name": "find"}}
        for choice, names, finish in (("required", {"keep", "find"}, "tool_calls"), (named, {"find"}, "stop"),
                                      ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}, {"find"}, "tool_calls")):
            for strict in ({"strict": True}, {}):
                body = said(tools=tools_of(**strict), tool_choice=choice, parallel_tool_calls=False)
                reply = server.post("/v1/chat/completions", body)["choices"][0]
                calls = reply["message"]["tool_calls"]
                self.assertEqual((len(calls), reply["finish_reason"], reply["message"]["content"]), (1, finish, None))
                self.assertIn(calls[0]["function"]["name"], names)
                self.fits(json.loads(calls[0]["function"]["arguments"]))
                streamed = [call for chunk in server.chunks("/v1/chat/completions", body) for choice in chunk["choices"]
                            for call in choice["delta"].get("tool_calls", [])]
                self.assertEqual(streamed[0]["function"]["name"], calls[0]["function"]["name"])
                self.assertEqual("".join(call["function"]["arguments"] for call in streamed), calls[0]["function"]["arguments"])

    def test_arguments_come_while_they_are_made(self):
        schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 120, "maxLength": 160}}, "required": ["text"],
                  "additionalProperties": False}
        body = said(tools=tools_of(schema, strict=True), tool_choice="required", parallel_tool_calls=False)
        usage = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        pieces = [(chunk["usage"]["completion_tokens"], call["function"]["arguments"])
                  for chunk in server.chunks("/v1/chat/completions", {**body, **usage}) for choice in chunk["choices"]
                  for call in choice["delta"].get("tool_calls", [])]
        [call] = server.post("/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"]
        self.assertEqual("".join(arguments for _, arguments in pieces), call["function"]["arguments"])
        self.assertGreater(len(pieces), 20)
        self.assertLess(pieces[0][0], pieces[-1][0] / 2)  # half of the tokens were not there yet

    def test_several_calls(self):
        reply = server.post("/v1/chat/completions", said(tools=tools_of(strict=True), tool_choice="required", n=4))
        for choice in reply["choices"]:
            if choice["finish_reason"] == "length":  # it went on calling
                continue
            for call in choice["message"]["tool_calls"]:
                self.fits(json.loads(call["function"]["arguments"]))

    def test_no_calls_and_the_form_of_the_answer(self):
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}
        for fields in ({"tools": tools_of(), "tool_choice": "none"}, {"tools": tools_of(strict=True), "tool_choice": "auto"}, {"tools": tools_of()}):
            for choice in server.post("/v1/chat/completions", said(**fields, **form, n=4))["choices"]:
                message = choice["message"]
                if choice["finish_reason"] == "stop":
                    self.fits(json.loads(message["content"]))
                    self.assertNotIn("tool_calls", message)
                elif choice["finish_reason"] == "tool_calls":
                    self.assertIsNone(message["content"])

    def test_responses(self):
        for choice in ("required", {"type": "function", "name": "find"},
                       {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "find"}]}):
            reply = server.post("/v1/responses", {"input": PROMPT, "max_output_tokens": 300, "tools": flat_tools(), "tool_choice": choice,
                                                  "parallel_tool_calls": False, **SAMPLING})
            self.assertEqual([item["type"] for item in reply["output"]], ["function_call"])
            self.assertIn(reply["output"][0]["name"], ("keep", "find") if choice == "required" else ("find",))
            self.fits(json.loads(reply["output"][0]["arguments"]))
            self.assertEqual(reply["tool_choice"], choice)

    def test_messages(self):
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "find"}):
            for strict in ({"strict": True}, {}):
                reply = server.post("/v1/messages", said(tools=anthropic_tools(**strict), tool_choice=choice))
                self.assertEqual(([block["type"] for block in reply["content"]], reply["stop_reason"]), (["tool_use"], "tool_use"))
                self.fits(reply["content"][0]["input"])

    def test_refusals(self):
        odd = {"type": "object", "properties": {"a": {"minLenght": 1}}}
        for path, body, param in (
                ("/v1/chat/completions", said(tools=tools_of(odd, strict=True)), "tools[0].function.parameters"),
                ("/v1/chat/completions", said(tools=[*tools_of(), tools_of(odd, strict=True)[0] | {}], tool_choice="required"), "tools[2].function.parameters"),
                ("/v1/responses", {"input": PROMPT, "tools": flat_tools(odd)}, "tools[0].parameters"),
                ("/v1/messages", said(tools=anthropic_tools(odd, strict=True)), "tools[0].input_schema"),
                ("/v1/chat/completions", said(tools=tools_of(strict=True), response_format={"type": "json_schema", "json_schema": {"schema": odd}}),
                 "response_format.json_schema.schema")):
            status, _, reply = server.request("POST", path, json.dumps(body))
            self.assertEqual(status, 400, reply)
            error = json.loads(reply)["error"]
            self.assertTrue(error["message"].startswith(f"{param}: #/properties/a/minLenght"), error)
            self.assertEqual(error.get("param", param), param)


class Notes(unittest.TestCase):
    SCHEMA = {"type": "string", "maxLength": 3, "format": "house-number", "x-order": "\u00e4\n"}

    def test_a_header_tells_what_is_not_enforced(self):
        for stream in (False, True):
            status, headers, _ = server.request("POST", "/v1/completions", json.dumps(
                {"prompt": PROMPT, "max_tokens": 30, "guided_json": self.SCHEMA, "stream": stream}))
            self.assertEqual(status, 200)
            notes = json.loads(headers["x-structured-outputs-notes"])
            self.assertEqual(sorted(note["where"] for note in notes), ["#/format", "#/x-order"])
        _, headers, _ = server.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "guided_json": SCHEMA}))
        self.assertNotIn("x-structured-outputs-notes", headers)
        many = {"type": "string", "maxLength": 3, **{f"x-{i}": 1 for i in range(1000)}}
        _, headers, _ = server.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 20, "guided_json": many}))
        self.assertGreater(len(json.loads(headers["x-structured-outputs-notes"])), 10)

    def test_check(self):
        good = server.post("/v1/grammar/check", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": self.SCHEMA}}})
        self.assertTrue(good["ok"])
        self.assertEqual(sorted(note["where"] for note in good["notes"]), ["#/format", "#/x-order"])
        self.assertGreater(good["compile_us"], 0)
        self.assertTrue(good["canonical"])
        for fields, param in (({"structured_outputs": {"json": MISSPELT}}, "structured_outputs.json"), ({"guided_json": MISSPELT}, "guided_json"),
                              ({"response_format": {"type": "json_schema", "json_schema": {"schema": MISSPELT}}}, "response_format.json_schema.schema")):
            bad = server.post("/v1/grammar/check", fields)
            self.assertFalse(bad["ok"])
            error = bad["error"]
            self.assertEqual((error["kind"], error["param"], error["where"]), ("invalid", param, "#/properties/a/minLenght"))
        for fields in ({}, {"response_format": {"type": "text"}}, {"grammar": "a", "guided_regex": "b"}, {"structured_outputs": {}}):
            server.post("/v1/grammar/check", fields, 400)


class CommandLine(unittest.TestCase):
    def run_program(self, *args, stdin=""):
        return subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, text=True)

    def generate(self, *flags, stdin=""):
        result = self.run_program("generate", "-m", SMALL_MODEL, "-p", PROMPT, "--temperature", 1, "--seed", 3, "--no-echo", "-q", *flags, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def test_generate_and_run(self):
        with tempfile.TemporaryDirectory() as folder:
            schema, tag, rules = (pathlib.Path(folder, name) for name in ("schema.json", "tag.json", "rules.gbnf"))
            schema.write_text(json.dumps(SCHEMA))
            tag.write_text(json.dumps(TAG))
            rules.write_text('root ::= "<" [a-z]{1,9} ">"')
            self.assertEqual(list(json.loads(self.generate("--json-schema", schema))), ["name", "age"])
            self.assertEqual(list(json.loads(self.generate("--json-schema", "-", stdin=json.dumps(SCHEMA)))), ["name", "age"])
            self.assertRegex(self.generate("--grammar", rules), "^<[a-z]{1,9}>$")
            self.assertRegex(self.generate("--structural-tag", tag), "(?s)^<a>.*</a>$")
            self.assertRegex(self.generate("--regex", "[0-9]{4}"), "^[0-9]{4}$")
            self.assertIn(self.generate("--choice", "red", "--choice", "green"), ("red", "green"))
            said = self.run_program("run", "-m", SMALL_MODEL, "-p", PROMPT, "--json-schema", schema)
            self.assertEqual(list(json.loads(said.stdout)), ["name", "age"], said)
            schema.write_text(json.dumps(MISSPELT))
            for command in ("generate", "run"):
                refused = self.run_program(command, "-m", SMALL_MODEL, "-p", PROMPT, "--json-schema", schema)
                self.assertIn("#/properties/a/minLenght", refused.stderr)
            self.assertNotEqual(self.run_program("generate", "-m", SMALL_MODEL, "--json-schema", folder + "/none").returncode, 0)
            self.assertNotEqual(self.run_program("generate", "-m", SMALL_MODEL, "--regex", "a", "--choice", "b").returncode, 0)

    def test_defaults_of_the_server(self):
        config = {"backend": "auto", "disable_any_whitespace": True, "disable_additional_properties": True, "disable_fallback": True}
        with Server(SMALL_MODEL, "--structured-outputs-config", json.dumps(config)) as strict:
            body = {"prompt": PROMPT, "max_tokens": 60, "guided_json": {"type": "object", "properties": {"a": {"const": "x"}}}}
            self.assertIn(strict.post("/v1/completions", body)["choices"][0]["text"], ("{}", '{"a":"x"}'))
        both = {"additional_properties": True, "disable_additional_properties": True}
        for wrong, words in (({"backend": "xgrammar"}, "backend"), ({"speed": 1}, "speed"), ({"disable_any_whitespace": 1}, "true or false"),
                             ({"enable_in_reasoning": True}, "enable_in_reasoning"), (both, "additional_properties"), ([], "JSON object")):
            refused = self.run_program("serve", "-m", SMALL_MODEL, "--port", 0, "--structured-outputs-config", json.dumps(wrong))
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(words, refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
