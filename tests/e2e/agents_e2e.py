#!/usr/bin/env python3
"""Requests in the shapes that coding tools send them, with no flag: what is taken, what is left out with a warning, what is refused.

The shapes are written after the public documentation of the APIs and of the tools (Codex, Claude Code, Cline, OpenCode, Continue,
aider, OpenHands, Zed); a model that says what a script says answers.
"""
import base64
import json
import pathlib
import tempfile
import unittest

import script_model
from serving import Server

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
WARNING = "x-penstock-warning"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
PATCH = '*** Begin Patch\n*** Update File: a.py\n@@\n-x = "1"\n+x = "é"\n*** End Patch'
LARK = r'''start: "*** Begin Patch" LF line+ "*** End Patch"
line: /[^\n]+/ LF
LF: /\n/'''
# The model's words beside those of script_model: calls of the tools that agents have.
SCRIPTS = {
    "patching": ["<think>A patch", ".</think>", script_model.MARKER + '\n{"name": "apply_pa', 'tch", "arguments": {"in', 'put": "*** Begin Patch',
                 "\\n*** Update File: a.py\\", "n@@\\n-x = \\", '"1\\"\\n+x = \\"é', '\\"\\n*** End Patch"}}', "\n</too", "l_call>"],
    "saying": [script_model.MARKER + '\n{"name": "say", "arg', 'uments": {"input": "ab', 'zz"}}', "\n</", "tool_call>"],  # no text of the tool's format
    # Without a special token, which only one script could begin with: calls of strict tools begin with it where it is one.
    "weather": [script_model.MARKER + '\n{"name": "get_weather", "arg', 'uments": {"city": "Par', 'is"}}\n</tool_', "call>"],
    "issues": [script_model.MARKER + '\n{"name": "mcp__tracker__list', '_issues", "argu', 'ments": {"state": "open"}}', "\n</t", "ool_call>"],
}


def setUpModule():
    global server, strict, directory
    directory = tempfile.TemporaryDirectory()
    model = script_model.write(pathlib.Path(directory.name) / "script", {**script_model.SCRIPTS, **SCRIPTS}, context=16384)
    server = Server(model).__enter__()
    strict = Server(model, "--strict-fields").__enter__()


def tearDownModule():
    try:
        server.__exit__()
    finally:
        strict.__exit__()
        directory.cleanup()


def post(path, body, status=200, to=None):
    """(the reply, its warning)"""
    got, headers, reply = (to or server).request("POST", path, json.dumps(body))
    assert got == status, f"POST {path} {json.dumps(body)[:800]}: expected {status}, got {got}: {reply[:1000]}"
    return json.loads(reply), headers.get(WARNING, "")


def error(path, body, status=400, to=None):
    return post(path, body, status, to)[0]["error"]["message"]


def joined(deltas):
    """The message that the deltas of a chat's stream make."""
    message = {"content": "", "tool_calls": []}
    for delta in deltas:
        message["content"] += delta.get("content") or ""
        for piece in delta.get("tool_calls", []):
            if piece["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({key: value for key, value in piece.items() if key != "index"})
                continue
            call = message["tool_calls"][piece["index"]]
            for kind, field in (("function", "arguments"), ("custom", "input")):
                if kind in piece:
                    call[kind][field] += piece[kind][field]
    return message


def chat_prompt(**body):
    """What the model sees of a chat."""
    return server.post("/apply-template", body)["prompt"]


def function(name, **fields):
    return {"type": "function", "function": {"name": name, "description": f"Runs {name}.", "parameters": WEATHER, **fields}}


class Fields(unittest.TestCase):
    BODIES = {CHAT: {"messages": [{"role": "user", "content": "plain"}]}, RESPONSES: {"input": "plain"},
              MESSAGES: {"messages": [{"role": "user", "content": "plain"}], "max_tokens": 50}, "/v1/completions": {"prompt": "x", "max_tokens": 1}}

    def test_unknown_fields_are_left_out_and_named(self):
        for path, body in self.BODIES.items():
            reply, warning = post(path, {**body, "colour": {"deep": [1]}, "top_a": 0.1})
            self.assertIn("colour: this server knows no such field, it is left out; top_a: ", warning, path)
            plain, none = post(path, body)
            self.assertEqual(none, "", path)
            self.assertEqual([reply.get(key) for key in ("choices", "content")], [plain.get(key) for key in ("choices", "content")])
            self.assertIn("colour", error(path, {**body, "colour": 1}, to=strict))

    def test_of_a_stream_too(self):
        body = json.dumps({**self.BODIES[CHAT], "stream": True, "stream_options": {"include_usage": True, "colour": 1}})
        status, headers, _ = server.request("POST", CHAT, body)
        self.assertEqual((status, headers[WARNING].split(":")[0]), (200, "stream_options.colour"))

    def test_misspelt_fields_are_refused_with_what_was_meant(self):
        for path, body in self.BODIES.items():
            for name, meant in (("temprature", "temperature"), ("topP", "top_p"), ("presence_penality", "presence_penalty")):
                self.assertEqual(error(path, {**body, name: 0.5}), f"{name}: this server knows no such field; did you mean {meant}?", path)

    def test_fields_of_other_routes_that_change_the_answer_are_refused(self):
        for path, name, value in ((RESPONSES, "max_tokens", 5), (RESPONSES, "messages", []), (CHAT, "max_output_tokens", 5), (CHAT, "system", "x"),
                                  (MESSAGES, "stop", ["x"]), (MESSAGES, "n", 2), ("/v1/completions", "tools", []), (CHAT, "instructions", "x")):
            self.assertIn(f"{name}: this route has no such field", error(path, {**self.BODIES[path], name: value}))

    def test_the_warning_is_short_and_printable(self):
        unknown = {f"ключ\r\nSet-Cookie: a{i}" * 20: 1 for i in range(60)}
        _, warning = post(CHAT, {**self.BODIES[CHAT], **unknown})
        self.assertLessEqual(len(warning), 1000)
        self.assertTrue(warning.isprintable() and warning.isascii())
        self.assertIn("x100", error(CHAT, {**self.BODIES[CHAT], **{f"x{i}": 1 for i in range(200)}}))

    def test_request_ids_and_models_in_anthropics_form(self):
        for path in ("/v1/models", "/v1/models/" + server.model, "/nothing"):
            _, headers, _ = server.request("GET", path, headers={"x-request-id": "abc"})
            self.assertEqual((headers["request-id"], headers["x-request-id"]), ("abc", "abc"))
        models = server.get("/v1/models")
        self.assertEqual((models["has_more"], models["first_id"], models["last_id"]), (False, server.model, server.model))
        for model in (models["data"][0], server.get("/v1/models/" + server.model)):
            self.assertEqual((model["type"], model["display_name"], model["object"]), ("model", server.model, "model"))
            self.assertRegex(model["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*Z$")


class Codex(unittest.TestCase):
    TOOLS = [
        {"type": "function", "name": "shell", "description": "Runs a command.", "strict": False,
         "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": LARK}},
        {"type": "web_search", "external_web_access": True, "search_content_types": ["text"]},
        {"type": "namespace", "name": "mcp__tracker__", "description": "The tracker.",
         "tools": [{"type": "function", "name": "list_issues", "description": "Lists.", "strict": False, "defer_loading": True,
                    "parameters": {"type": "object", "properties": {"state": {"type": "string"}}}}]},
        {"type": "image_generation", "output_format": "png"}, {"type": "local_shell"}]

    def body(self, *items, **fields):
        return {"model": server.model, "instructions": "You are a coding agent.", "tools": self.TOOLS, "tool_choice": "auto", "parallel_tool_calls": False,
                "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: read-only."}]},
                          {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment>/src</environment>"}]}, *items],
                "reasoning": {"effort": "high", "summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": "0199", "client_metadata": {"x-installation-id": "1"}, "text": {"verbosity": "low"}, "truncation": "auto",
                "service_tier": "priority", "safety_identifier": "u", **fields}

    @staticmethod
    def said(text, **fields):
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **fields}

    def test_a_turn(self):
        reply, warning = post(RESPONSES, self.body(self.said("plain")))
        self.assertEqual(reply["output"][-1]["content"][0]["text"], "Hello there!")
        self.assertEqual((reply["status"], reply["store"], reply["tools"]), ("completed", False, self.TOOLS))
        for words in ("tools[2]: this server cannot run web_search", "tools[4]: this server cannot run image_generation", "tools[5]: this server cannot run local_shell",
                      "reasoning.summary", "text.verbosity", "truncation"):
            self.assertIn(words, warning)

    def test_a_call_of_a_custom_tool(self):
        reply, _ = post(RESPONSES, self.body(self.said("patching")))
        reasoning, call = reply["output"]
        self.assertEqual({key: call[key] for key in ("type", "name", "input", "status")},
                         {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH, "status": "completed"})
        self.assertTrue(call["id"].startswith("ctc_"))
        self.assertEqual(reasoning["content"][0]["text"], "A patch.")
        events = server.events(RESPONSES, self.body(self.said("patching")))
        names = [name for name, _ in events]
        deltas = [data["delta"] for name, data in events if name == "response.custom_tool_call_input.delta"]
        self.assertGreater(len(deltas), 3)
        self.assertEqual("".join(deltas), PATCH)
        [done] = [data for name, data in events if name == "response.custom_tool_call_input.done"]
        self.assertEqual(done["input"], PATCH)
        self.assertNotIn("response.function_call_arguments.delta", names)
        self.assertEqual([item["type"] for item in events[-1][1]["response"]["output"]], ["reasoning", "custom_tool_call"])
        [added] = [data["item"] for name, data in events if name == "response.output_item.added" and data["item"]["type"] == "custom_tool_call"]
        self.assertEqual((added["input"], added["name"]), ("", "apply_patch"))

    def test_a_call_of_a_custom_tool_that_is_cut(self):
        body = self.body(self.said("patching"), max_output_tokens=7)
        reply, _ = post(RESPONSES, body)
        call = reply["output"][-1]
        self.assertEqual((call["type"], call["status"], reply["status"]), ("custom_tool_call", "incomplete", "incomplete"))
        self.assertTrue(PATCH.startswith(call["input"]) and call["input"])
        streamed = server.events(RESPONSES, body)[-1][1]["response"]["output"][-1]
        self.assertEqual(streamed["input"], call["input"])

    def test_a_call_in_a_namespace(self):
        reply, _ = post(RESPONSES, self.body(self.said("issues")))
        [call] = reply["output"]
        self.assertEqual((call["type"], call["namespace"], call["name"], json.loads(call["arguments"])),
                         ("function_call", "mcp__tracker__", "list_issues", {"state": "open"}))

    def test_the_history_comes_back(self):
        first, _ = post(RESPONSES, self.body(self.said("patching")))
        reasoning, call = first["output"]
        # As the tool keeps it: reasoning without its text.
        kept = {"type": "reasoning", "id": reasoning["id"], "summary": [], "encrypted_content": reasoning["encrypted_content"]}
        items = [self.said("patching"), kept, {key: call[key] for key in ("type", "call_id", "name", "input", "status")},
                 {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": [{"type": "input_text", "text": "Success. "}]},
                 {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "penstock"}},
                 {"type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "Looking."}]},
                 {"type": "local_shell_call", "call_id": "ls_1", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
                 {"type": "local_shell_call_output", "call_id": "ls_1", "output": "a.py"},
                 {"type": "function_call", "call_id": "f1", "namespace": "mcp__tracker__", "name": "list_issues", "arguments": "{\"state\": \"closed\"}"},
                 {"type": "function_call_output", "call_id": "f1", "output": [{"type": "input_text", "text": "none"}]}]
        reply, warning = post(RESPONSES, self.body(*items, return_prompt_text=None))
        self.assertEqual(reply["output"][-1]["content"][0]["text"], "It is sunny in Paris.")
        self.assertNotIn("encrypted", warning)
        self.assertEqual(base64.b64decode(reasoning["encrypted_content"].split(".", 1)[1]).decode(), "A patch.")
        longer = reply["usage"]["input_tokens"]
        for i in (1, 2, 3, 4, 5, 6, 7, 8, 9):  # each of them is in the prompt
            shorter, _ = post(RESPONSES, self.body(*items[:i], *items[i + 1:]))
            self.assertLess(shorter["usage"]["input_tokens"], longer, items[i])
        foreign = {**kept, "encrypted_content": "gAAAAABo"}
        _, warning = post(RESPONSES, self.body(self.said("plain"), foreign))
        self.assertIn("input[3].encrypted_content: another server sealed it", warning)

    def test_what_it_needs_of_a_tool_it_cannot_run_is_refused(self):
        for choice in ({"type": "web_search_preview"}, {"type": "image_generation"}):
            self.assertIn("tool_choice: this server cannot run " + choice["type"], error(RESPONSES, self.body(self.said("x"), tool_choice=choice)))
        allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}
        self.assertIn("tool_choice: this server cannot run web_search", error(RESPONSES, self.body(self.said("x"), tool_choice=allowed)))
        allowed["mode"] = "auto"
        self.assertEqual(post(RESPONSES, self.body(self.said("weather"), tool_choice=allowed))[0]["output"][0]["type"], "message")
        self.assertIn("a call is required", error(RESPONSES, self.body(self.said("x"), tools=[{"type": "web_search"}], tool_choice="required")))
        for tool, words in (({"type": "fuction", "name": "f"}, 'tools[0].type: expected "function"'), ({"type": "function"}, "tools[0].name: missing"),
                            ({"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "yacc", "definition": "x"}}, "tools[0].format"),
                            ({"type": "namespace", "name": "a"}, "tools[0].tools: missing")):
            self.assertIn(words, error(RESPONSES, self.body(self.said("x"), tools=[tool])))

    def test_what_carries_history_that_cannot_be_shown_is_refused(self):
        self.assertIn("encrypted_content: expected", error(RESPONSES, self.body({"type": "compaction", "encrypted_content": "x"})))
        self.assertIn("not supported", error(RESPONSES, self.body({"type": "item_reference", "id": "msg_1"})))
        output = [{"type": "input_image", "image_url": "data:image/png;base64,"}]
        self.assertIn("output[0]: this model has no eyes",
                      error(RESPONSES, self.body({"type": "function_call_output", "call_id": "1", "output": output})))

    def test_a_custom_tool_that_is_forced(self):
        for syntax, definition in (("regex", '[ab]{3}"x'), ("lark", 'start: LETTERS "\\"x"\nLETTERS: /[ab]{3}/')):
            tool = {"type": "custom", "name": "say", "description": "Says it.", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
            reply, warning = post(RESPONSES, {"input": "saying", "tools": [tool], "tool_choice": {"type": "custom", "name": "say"}, "max_output_tokens": 200})
            call = reply["output"][-1]
            self.assertEqual((call["type"], call["name"], warning), ("custom_tool_call", "say", ""))
            self.assertRegex(call["input"], '^ab[ab]"x$')
        bad = {**tool, "format": {**tool["format"], "definition": "start: nothing"}}
        self.assertIn('the rule "nothing" is not defined', error(RESPONSES, {"input": "saying", "tools": [bad]}))

    def test_the_model_is_shown_a_grammar_once(self):
        custom = {"name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": LARK}}}
        prompt = chat_prompt(messages=[{"role": "user", "content": "x"}], tools=[{"type": "custom", "custom": custom}])
        self.assertEqual(prompt.count("line: "), 1)
        self.assertIn("Edits files.", prompt)

    def test_the_strict_server_takes_it_too(self):
        reply, _ = post(RESPONSES, self.body(self.said("plain")), to=strict)
        self.assertEqual(reply["status"], "completed")


class ClaudeCode(unittest.TestCase):
    TOOLS = [
        {"name": "get_weather", "description": "The weather.", "input_schema": WEATHER, "eager_input_streaming": True, "defer_loading": False,
         "cache_control": {"type": "ephemeral", "scope": "global", "ttl": "1h"}, "input_examples": [{"city": "Rome"}]},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": "code_execution_20250825", "name": "code_execution"}, {"type": "memory_20250818", "name": "memory"},
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, {"type": "mcp_toolset", "mcp_server_name": "tracker"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1}]

    def body(self, *messages, **fields):
        return {"model": server.model, "max_tokens": 100, "messages": list(messages), "tools": self.TOOLS,
                "system": [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "scope": "global"}}],
                "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "medium"}, "metadata": {"user_id": "u"},
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "safeguards": {"policy": "default"},
                "speed": "standard", "service_tier": "auto", "mcp_servers": [], **fields}

    @staticmethod
    def said(*blocks, role="user"):
        return {"role": role, "content": [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]}

    def test_a_turn(self):
        reply, warning = post(MESSAGES + "?beta=true", self.body(self.said("plain")))
        self.assertEqual([block["text"] for block in reply["content"]], ["Hello there!"])
        self.assertEqual(reply["context_management"], {"applied_edits": []})
        for tool in self.TOOLS[1:6]:  # of more the header does not tell
            self.assertIn(f"this server cannot run {tool['type']}, it is left out", warning)
        self.assertNotIn("context_management", warning)
        for tool in self.TOOLS[1:]:
            _, alone = post(MESSAGES, self.body(self.said("plain"), tools=[self.TOOLS[0], tool]))
            self.assertIn(f"this server cannot run {tool['type']}, it is left out", alone)
        events = dict(server.events(MESSAGES, self.body(self.said("plain"))))
        self.assertEqual(events["message_delta"]["context_management"], {"applied_edits": []})
        _, warning = post(MESSAGES, self.body(self.said("plain"), tools=[], context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
                                              mcp_servers=[{"type": "url", "url": "https://example.com", "name": "tracker"}], container={"skills": []}))
        for words in ("context_management.edits[0]", "mcp_servers", "container"):
            self.assertIn(words, warning)

    def test_a_conversation(self):
        messages = [
            self.said("<system-reminder>x</system-reminder>", {"type": "text", "text": "weather", "cache_control": {"type": "ephemeral", "ttl": "1h"}}),
            self.said({"type": "thinking", "thinking": "Look it up.", "signature": ""}, {"type": "redacted_thinking", "data": "abc"}, "I look.",
                      {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "weather Paris"}},
                      {"type": "web_search_tool_result", "tool_use_id": "srv_1",
                       "content": [{"type": "web_search_result", "title": "Weather", "url": "https://example.com", "encrypted_content": "SECRET"}]},
                      {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}, "caller": {"type": "direct"}}, role="assistant"),
            self.said({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False, "cache_control": {"type": "ephemeral"},
                       "content": [{"type": "text", "text": "22 degrees"}, {"type": "tool_reference", "tool_name": "get_time"}]},
                      {"type": "document", "title": "Notes", "source": {"type": "text", "media_type": "text/plain", "data": "DOCUMENT"}},
                      {"type": "search_result", "title": "Found", "source": "a.md", "content": [{"type": "text", "text": "SEARCHED"}]}),
            self.said("A note of the system.", role="system"),
            {"role": "user", "content": "plain"}]
        body = self.body(*messages)
        reply, warning = post(MESSAGES, body)
        self.assertEqual(reply["content"][-1]["text"], "Hello there!")
        self.assertIn("messages[1].content[1]: another server sealed this thinking", warning)
        counted, _ = post(MESSAGES + "/count_tokens", {key: body[key] for key in ("messages", "tools", "system", "thinking", "context_management", "speed")})
        self.assertEqual(counted["input_tokens"], reply["usage"]["input_tokens"] + reply["usage"]["cache_read_input_tokens"])
        for i, message in enumerate(messages):  # every block but the sealed one is in the prompt
            for j in range(len(message["content"]) if isinstance(message["content"], list) else 0):
                if (i, j) == (1, 1):
                    continue
                shorter = json.loads(json.dumps(messages))
                del shorter[i]["content"][j]
                fewer, _ = post(MESSAGES + "/count_tokens", {**{key: body[key] for key in ("tools", "system", "thinking")}, "messages": shorter})
                self.assertLess(fewer["input_tokens"], counted["input_tokens"], message["content"][j])

    def test_threads_are_refused_so_that_clients_go_on_without(self):
        for path in (MESSAGES, MESSAGES + "/count_tokens"):
            body = self.body(self.said("plain"), thread={"type": "create"})
            if path != MESSAGES:
                body = {key: body[key] for key in ("messages", "thread")}
            reply, _ = post(path, body, 400)
            self.assertEqual(reply["error"]["details"], {"error_code": "thread_unsupported_request", "unsupported": ["thread"]})
            self.assertEqual((reply["type"], reply["error"]["type"]), ("error", "invalid_request_error"))
        self.assertEqual(post(MESSAGES, self.body(self.said("plain"), thread=None))[0]["type"], "message")

    def test_what_cannot_be_honoured_is_refused(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
        pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}
        for block in (image, pdf, {"type": "container_upload", "file_id": "f"}, {"type": "tool_result", "tool_use_id": "1", "content": [image]}):
            self.assertIn("messages[0].content[0]", error(MESSAGES, self.body(self.said(block))))
        self.assertIn("compaction", error(MESSAGES, self.body(self.said("x"), compaction={"instructions": "x"})))
        self.assertIn("tool_choice: this server cannot run web_search",
                      error(MESSAGES, self.body(self.said("x"), tool_choice={"type": "tool", "name": "web_search"})))
        self.assertIn("a call is required", error(MESSAGES, self.body(self.said("x"), tools=self.TOOLS[1:], tool_choice={"type": "any"})))
        self.assertIn("tools[0].input_schema: missing", error(MESSAGES, self.body(self.said("x"), tools=[{"name": "f"}])))
        self.assertIn("tools[0].name: missing", error(MESSAGES, self.body(self.said("x"), tools=[{"type": "custom", "input_schema": {}}])))


class ChatTools(unittest.TestCase):
    HISTORY = [
        {"role": "system", "content": [{"type": "text", "text": "You are a coder.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "developer", "content": "Rules."}, {"role": "system", "content": "More rules."},
        {"role": "user", "name": "me", "content": [{"type": "text", "text": "weather"}, {"type": "text", "text": "<environment_details/>"}]},
        {"role": "assistant", "content": None, "refusal": None, "audio": None, "reasoning_content": "Hm.", "reasoning": "Hm.", "annotations": [],
         "tool_calls": [{"id": "toolu_01", "type": "function", "index": 0, "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]},
        {"role": "tool", "tool_call_id": "toolu_01", "name": "get_weather", "content": [{"type": "text", "text": "22 degrees"}]},
        {"role": "assistant", "content": "", "tool_calls": []}, {"role": "assistant", "refusal": "I will not.", "content": None},
        {"role": "user", "content": "plain"}]

    def test_a_turn_of_each(self):
        shapes = {
            "cline": {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "max_tokens": 8192, "tools": [function("get_weather", strict=False)],
                      "tool_choice": "auto", "parallel_tool_calls": False, "reasoning_effort": "medium"},
            "opencode": {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 32000, "top_p": 1, "tools": [function("get_weather")], "tool_choice": "auto",
                         "reasoning_effort": "high", "verbosity": "medium"},
            "continue": {"stream": True, "max_completion_tokens": 4096, "stop": ["<|user|>"], "prediction": {"type": "content", "content": "x"}, "tools": [], "n": 1},
            "aider": {"temperature": 0, "stream": True, "max_tokens": None, "extra_headers": {"X-Title": "Aider"}, "user": None},
            "openhands": {"tools": [function("get_weather", strict=True)], "temperature": 0.0, "top_p": 1.0, "max_completion_tokens": 4096, "seed": None, "metadata": {"tags": "x"},
                          "extra_body": {"metadata": {}}, "reasoning_effort": None},
            "zed": {"stream": True, "stop": [], "parallel_tool_calls": False, "prompt_cache_key": "k", "reasoning_effort": None, "tools": [function("get_weather")],
                    "max_completion_tokens": 8192, "temperature": 1.0, "tool_choice": "auto"},
            "llm": {"stream": True, "stream_options": {"include_usage": True}, "store": True, "service_tier": "flex", "modalities": ["text"], "logit_bias": None},
            "openrouter": {"reasoning": {"effort": "high", "exclude": False}, "usage": {"include": True}, "provider": {"order": ["x"]}, "transforms": ["middle-out"],
                           "thinking": {"type": "enabled"}, "web_search_options": {}}}
        for name, shape in shapes.items():
            body = {"model": server.model, "messages": self.HISTORY, **shape}
            if shape.get("stream"):
                text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in server.chunks(CHAT, body) if chunk["choices"])
            else:
                reply, warning = post(CHAT, body)
                text = reply["choices"][0]["message"]["content"]
            self.assertEqual(text, "Hello there!", name)
        for field in ("usage", "provider", "transforms", "web_search_options"):
            self.assertIn(field, warning)

    def test_nothing_of_the_history_is_lost(self):
        prompt = chat_prompt(messages=self.HISTORY)
        for words in ("You are a coder.", "Rules.", "More rules.", "<environment_details/>", "Hm.", "[get_weather", "Paris", "22 degrees", "I will not."):
            self.assertIn(words, prompt)
        older = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},
                 {"role": "function", "name": "f", "content": "RESULT"}]
        prompt = chat_prompt(messages=older)
        for words in ("[f", "RESULT", "<|tool|>"):
            self.assertIn(words, prompt)

    def test_tools_that_the_server_cannot_run(self):
        tools = [{"type": "web_search", "web_search": {"enable": True}}, function("get_weather"), {"type": "builtin_function", "function": {"name": "$web_search"}}]
        reply, warning = post(CHAT, {"messages": [{"role": "user", "content": "weather"}], "tools": tools})
        self.assertEqual(reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "get_weather")
        self.assertEqual(warning, "tools[0]: this server cannot run web_search, it is left out; tools[2]: this server cannot run builtin_function, it is left out")
        self.assertNotIn("web_search", chat_prompt(messages=[{"role": "user", "content": "x"}], tools=tools))

    def test_custom_tools(self):
        tool = {"type": "custom", "custom": {"name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}}}
        body = {"messages": [{"role": "user", "content": "patching"}], "tools": [tool, function("get_weather")]}
        reply, warning = post(CHAT, body)
        self.assertEqual(warning, "")
        choice = reply["choices"][0]
        [call] = choice["message"]["tool_calls"]
        self.assertEqual((call["type"], call["custom"], choice["finish_reason"]), ("custom", {"name": "apply_patch", "input": PATCH}, "tool_calls"))
        for fields in ({}, {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}):
            chunks = server.chunks(CHAT, {**body, **fields})
            [streamed] = joined(chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"])["tool_calls"]
            self.assertEqual({**streamed, "id": ""}, {**call, "id": ""})
            self.assertGreater(sum("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]), 3)
        history = [*body["messages"], choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "Done!"}]
        prompt = chat_prompt(messages=history, tools=body["tools"])
        self.assertIn("[apply_patch", prompt)
        self.assertIn("Begin Patch", prompt.split("[apply_patch")[1])
        self.assertEqual(post(CHAT, {**body, "messages": history})[0]["choices"][0]["message"]["content"], "It is sunny in Paris.")
        forced = {**body, "tool_choice": {"type": "custom", "custom": {"name": "apply_patch"}}}
        choice = post(CHAT, forced)[0]["choices"][0]
        self.assertEqual((choice["message"]["tool_calls"][0]["custom"]["input"], choice["finish_reason"]), (PATCH, "stop"))
        self.assertIn("there is no tool 'other'", error(CHAT, {**forced, "tool_choice": {"type": "custom", "custom": {"name": "other"}}}))
        self.assertIn("messages[0].tool_calls[0].function: missing", error(CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}))
        twice = {**body, "tools": [tool, function("apply_patch")]}
        self.assertIn("two tools are shown to the model as apply_patch", error(CHAT, twice))


if __name__ == "__main__":
    unittest.main(verbosity=2)
