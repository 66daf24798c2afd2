#!/usr/bin/env python3
"""Requests of coding tools that are not Python, turn by turn as they send them, with no flag and under --strict-fields.

Their shapes are those of the tools' public sources: OpenCode (AI SDK's openai-compatible provider), Continue (openai-adapters), Zed
(crates/open_ai), Cline (src/core/api/providers/openai.ts), OpenHands (LiteLLM, native and in text). Each test builds the history from the
reply's deltas, as the tool does, and ends when the model says what the last result asks for.
"""
import json
import pathlib
import tempfile
import unittest

import session_model
from serving import Server

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
WARNING = "x-penstock-warning"
READ, RESULT, END = {"path": "src/ä b.py", "then": "x"}, "1 | print(\"naïve\")\r\n2 | \t<b>&amp;</b> 🚀", "All read: \"naïve\"."
XML = "I look.\n\n<read_file>\n<path>src/a.py</path>\n</read_file>"  # a call in Cline's own writing: text
IN_TEXT = "I run it.\n<function=execute_bash>\n<parameter=command>ls -l</parameter>\n"  # OpenHands' own writing, up to its stop word
REPLIES = {"call": "<think>\nWhich file?\n</think>\n\nI read it.\n" + session_model.call("read_file", **READ), "end": END, "title": "Reading a file",
           "xml": XML, "text": IN_TEXT + "</function>", "two": session_model.call("read_file", path="a", then="x") + "\n" + session_model.call("read_file", path="b", then="x")}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "A file."}, "then": {"type": "string"}}, "required": ["path"]}
SYSTEM = "You are a coding agent.\n\n# Rules\n- Be brief.\n"


def setUpModule():
    global server, strict, directory
    directory = tempfile.TemporaryDirectory()
    model = session_model.write(pathlib.Path(directory.name) / "model", REPLIES)
    server = Server(model).__enter__()
    strict = Server(model, "--strict-fields").__enter__()


def tearDownModule():
    try:
        server.__exit__()
    finally:
        strict.__exit__()
        directory.cleanup()


def asks(words, name):
    return f"{words} {session_model.then(name)}"


def send(path, body, headers=None):
    """The data of the stream's events or the reply; no field may be left out, and a strict server says the same."""
    replies = []
    for to in (server, strict):
        status, got, reply = to.request("POST", path, json.dumps({"model": to.model, **body}), {"content-type": "application/json", **(headers or {})})
        assert status == 200, f"{path} {json.dumps(body)[:500]}: {status} {reply[:1000]}"
        assert WARNING not in got, got[WARNING]
        if body.get("stream"):
            blocks = [block for block in reply.decode().split("\n\n") if block and not block.startswith(":")]
            data = [block.split("data: ", 1)[1] for block in blocks]
            if path != RESPONSES:
                assert data.pop() == "[DONE]"
            replies.append([json.loads(one) for one in data])
        else:
            replies.append(json.loads(reply))
    return replies[0]


def message_of(chunks):
    """What a client puts together from a chat's chunks: (message, reason, usage). The first piece of each call has all that clients need."""
    text, thoughts, calls, reason, usage = "", "", [], None, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            thoughts += delta.get("reasoning_content") or ""
            reason = choice.get("finish_reason") or reason
            for piece in delta.get("tool_calls") or []:
                if piece["index"] == len(calls):
                    assert piece["id"] and piece["type"] == "function" and piece["function"]["name"], piece
                    calls.append({"id": piece["id"], "type": "function", "function": {"name": piece["function"]["name"], "arguments": ""}})
                calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments") or ""
    return {"content": text, "reasoning_content": thoughts, "tool_calls": calls}, reason, usage


class Chats(unittest.TestCase):
    def lead(self, first, next_messages, shape, headers=None, thoughts=True):
        """Two turns. first: messages; next_messages: what the tool adds for (message, result); shape: the other fields."""
        message, reason, usage = message_of(send(CHAT, {"messages": first, **shape}, headers))
        self.assertEqual((message["content"], message["reasoning_content"], reason), ("I read it.", "Which file?", "tool_calls"))
        [call] = message["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("read_file", READ))
        prompt = usage["prompt_tokens"]
        messages = first + next_messages(message, call, asks(RESULT, "end"))
        message, reason, usage = message_of(send(CHAT, {"messages": messages, **shape}, headers))
        self.assertEqual((message["content"], message["tool_calls"], reason), (END, [], "stop"))
        self.assertGreater(usage["prompt_tokens"], prompt)
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0.7 * prompt, "the second prompt begins with the first one")
        shown = server.post("/apply-template", {"messages": messages, "tools": shape.get("tools", [])})["prompt"]
        for words in (SYSTEM, "src/ä b.py", RESULT, *(["Which file?"] if thoughts else [])):
            self.assertIn(words, shown)


class OpenCode(Chats):
    TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {
        "$schema": "http://json-schema.org/draft-07/schema#", **PARAMETERS, "additionalProperties": False}}}]

    def test_turns(self):
        self.lead([{"role": "system", "content": SYSTEM}, {"role": "user", "content": asks("Read it.", "call")}],
                  lambda message, call, result: [
                      {"role": "assistant", "content": message["content"], "reasoning_content": message["reasoning_content"], "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": call["id"], "content": result}],
                  {"max_tokens": 16000, "temperature": 0.55, "top_p": 1, "tools": self.TOOLS, "tool_choice": "auto", "reasoning_effort": "medium", "stream": True,
                   "stream_options": {"include_usage": True}},
                  {"user-agent": "opencode/1.0.0", "x-session-affinity": "ses_1"})

    def test_a_title(self):
        chunks = send(CHAT, {"max_tokens": 16000, "messages": [{"role": "system", "content": "You make titles."}, {"role": "user", "content": "Generate a title for this conversation:\n"},
                                                               {"role": "user", "content": asks("Read it.", "title")}], "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(message_of(chunks)[0]["content"], "Reading a file")

    def test_two_calls_at_once(self):
        shape = {"max_tokens": 16000, "tools": self.TOOLS, "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}}
        first = [{"role": "system", "content": SYSTEM, "cache_control": {"type": "ephemeral"}}, {"role": "user", "content": asks("Read both.", "two")}]
        calls = message_of(send(CHAT, {"messages": first, **shape}))[0]["tool_calls"]
        self.assertEqual([json.loads(call["function"]["arguments"])["path"] for call in calls], ["a", "b"])
        results = [{"role": "tool", "tool_call_id": call["id"], "content": asks("seen", "end")} for call in calls]
        messages = [*first, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
        self.assertEqual(message_of(send(CHAT, {"messages": messages, **shape}))[0]["content"], END)


class Continue(Chats):
    TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": PARAMETERS}}]

    def test_turns(self):
        self.lead([{"role": "system", "content": SYSTEM}, {"role": "user", "content": [{"type": "text", "text": asks("Read it.", "call")}]}],
                  lambda message, call, result: [{"role": "assistant", "content": message["content"], "tool_calls": [call]},
                                                 {"role": "tool", "content": result, "tool_call_id": call["id"]}],
                  {"max_tokens": 2048, "stream": True, "stream_options": {"include_usage": True}, "tools": self.TOOLS, "parallel_tool_calls": False, "temperature": 0.5},
                  {"authorization": "Bearer none", "api-key": "none", "x-api-key": "none"}, thoughts=False)

    def test_edits_with_a_prediction(self):
        body = {"messages": [{"role": "user", "content": asks("Rewrite it.", "end")}, {"role": "assistant", "content": "Sure! Here's the code:\n```python\n"}],
                "max_tokens": 2048, "stop": ["```"], "prediction": {"type": "content", "content": "print(1)\n"}, "stream": True, "stream_options": {"include_usage": True}}
        self.assertEqual(message_of(send(CHAT, body))[1], "stop")

    def test_completions_in_the_editor(self):
        body = {"prompt": "<|fim_prefix|>def f(xs):\n<|fim_suffix|>\n<|fim_middle|>", "max_tokens": 8, "temperature": 0.01, "stop": ["<|endoftext|>", "\n\n"], "stream": True}
        self.assertEqual(send("/v1/completions", body)[-1]["object"], "text_completion")


class Zed(Chats):
    def test_turns(self):
        tools = [{"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {"$schema": "http://json-schema.org/draft-07/schema#", **PARAMETERS}}}]
        self.lead([{"role": "system", "content": SYSTEM}, {"role": "user", "content": [{"type": "text", "text": "<context>\n</context>"}, {"type": "text", "text": asks("Read it.", "call")}]}],
                  lambda message, call, result: [{"role": "assistant", "content": message["content"], "tool_calls": [call], "reasoning_content": message["reasoning_content"]},
                                                 {"role": "tool", "content": result, "tool_call_id": call["id"]}],
                  {"stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 8192, "temperature": 1.0, "tool_choice": "auto", "parallel_tool_calls": True,
                   "tools": tools, "prompt_cache_key": "5b9a3c1e-0000-4000-8000-000000000000"})

    def test_thoughts_and_calls_without_text(self):
        messages = [{"role": "user", "content": asks("Read it.", "call")},
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}]},
                    {"role": "tool", "content": [], "tool_call_id": "1"}, {"role": "user", "content": asks("Go on.", "end")}]
        chunks = send(CHAT, {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, "temperature": 1.0})
        self.assertEqual(message_of(chunks)[0]["content"], END)

    def test_responses(self):
        shape = {"stream": True, "store": False, "include": ["reasoning.encrypted_content"], "max_output_tokens": 8192, "temperature": 1.0, "tool_choice": "auto",
                 "parallel_tool_calls": False, "tools": [{"type": "function", "name": "read_file", "description": "Reads.", "parameters": PARAMETERS}], "prompt_cache_key": "k"}
        items = [{"type": "message", "role": "system", "content": [{"type": "input_text", "text": SYSTEM}]},
                 {"type": "message", "role": "user", "content": [{"type": "input_text", "text": asks("Read it.", "call")}]}]
        events = send(RESPONSES, {"input": items, **shape})
        reasoning, said, call = events[-1]["response"]["output"]
        self.assertEqual((json.loads(call["arguments"]), said["content"][0]["text"]), (READ, "I read it."))
        items += [{"type": "reasoning", "id": reasoning["id"], "summary": [], "encrypted_content": reasoning["encrypted_content"]},
                  {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
                   "content": [{"type": "output_text", "text": said["content"][0]["text"], "annotations": []}]},
                  {"type": "function_call", "call_id": call["call_id"], "name": "read_file", "arguments": call["arguments"]},
                  {"type": "function_call_output", "call_id": call["call_id"], "output": asks(RESULT, "end")}]
        last = send(RESPONSES, {"input": items, **shape})[-1]
        self.assertEqual((last["type"], last["response"]["output"][-1]["content"][0]["text"]), ("response.completed", END))
        self.assertGreater(last["response"]["usage"]["input_tokens_details"]["cached_tokens"], 0.7 * events[-1]["response"]["usage"]["input_tokens"])


class Cline(Chats):
    USER = [{"type": "text", "text": "<task>\nRead it.\n</task>"}, {"type": "text", "text": "<environment_details>\n# Visible Files\n</environment_details>"}]

    def test_turns(self):
        tools = [{"type": "function", "function": {"name": "read_file", "description": "Reads.", "strict": False, "parameters": {**PARAMETERS, "additionalProperties": False}}}]
        self.lead([{"role": "system", "content": SYSTEM}, {"role": "user", "content": [*self.USER, {"type": "text", "text": session_model.then("call")}]}],
                  lambda message, call, result: [{"role": "assistant", "content": message["content"], "tool_calls": [call]},
                                                 {"role": "tool", "tool_call_id": call["id"], "content": result}],
                  {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": False}, thoughts=False)

    def test_calls_in_its_own_writing_stay_text(self):
        first = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": [*self.USER, {"type": "text", "text": session_model.then("xml")}]}]
        shape = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        message, reason, usage = message_of(send(CHAT, {"messages": first, **shape}))
        self.assertEqual((message["content"], message["tool_calls"], reason), (XML, [], "stop"))
        self.assertGreater(usage["completion_tokens"], 0)
        messages = [*first, {"role": "assistant", "content": XML},
                    {"role": "user", "content": [{"type": "text", "text": "[read_file for 'src/a.py'] Result:"}, {"type": "text", "text": asks(RESULT, "end")}, *self.USER[1:]]}]
        self.assertEqual(message_of(send(CHAT, {"messages": messages, **shape}))[0]["content"], END)


class OpenHands(unittest.TestCase):
    """Its replies come at once."""
    HEADERS = {"authorization": "Bearer none", "user-agent": "OpenAI/Python 1.99.9", "x-stainless-lang": "python", "x-stainless-async": "false"}

    @staticmethod
    def said(role, text, **fields):
        return {"content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}], "role": role, **fields}

    def test_turns(self):
        tools = [{"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {
            "type": "object", "required": ["path", "security_risk"], "properties": {**PARAMETERS["properties"], "security_risk": {"type": "string", "enum": ["LOW", "MEDIUM", "HIGH"]}}}}},
                 {"type": "function", "function": {"name": "finish", "description": "Ends.", "parameters": {"type": "object", "properties": {}}}}]
        shape = {"temperature": 0.0, "top_p": 1.0, "tools": tools, "max_completion_tokens": 4096, "reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": True},
                 "metadata": {"session_id": "s", "tags": "app:openhands"}}
        messages = [self.said("system", SYSTEM), self.said("user", asks("Read it.", "call"))]
        message = send(CHAT, {"messages": messages, **shape}, self.HEADERS)["choices"][0]["message"]
        [call] = message["tool_calls"]
        self.assertEqual((json.loads(call["function"]["arguments"]), message["reasoning_content"]), (READ, "Which file?"))
        messages += [self.said("assistant", message["content"], tool_calls=[call], reasoning_content=message["reasoning_content"]),
                     self.said("tool", asks(RESULT, "end"), tool_call_id=call["id"], name="read_file")]
        reply = send(CHAT, {"messages": messages, **shape}, self.HEADERS)
        self.assertEqual(reply["choices"][0]["message"]["content"], END)
        self.assertEqual(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"])

    def test_calls_in_its_own_writing_stay_text(self):
        messages = [self.said("system", SYSTEM + "Write <function=NAME> …"), self.said("user", asks("List it.", "text"))]
        shape = {"temperature": 0.0, "top_p": 1.0, "stop": ["</function"]}
        choice = send(CHAT, {"messages": messages, **shape}, self.HEADERS)["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["message"].get("tool_calls") or [], choice["finish_reason"]), (IN_TEXT, [], "stop"))
        messages += [self.said("assistant", IN_TEXT + "</function>"), self.said("user", asks("EXECUTION RESULT of [execute_bash]:\n" + RESULT, "end"))]
        self.assertEqual(send(CHAT, {"messages": messages, **shape}, self.HEADERS)["choices"][0]["message"]["content"], END)


if __name__ == "__main__":
    unittest.main(verbosity=2)
