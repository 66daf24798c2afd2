#!/usr/bin/env python3
"""Writes a small tekken.json and what mistral-common makes of it: ids of texts, and conversations in the format of each version.

    make_tekken_golden.py            tests/text/golden/tiny_tekken.json and tekken.golden.json
    make_tekken_golden.py FILE       the same ids of a real tekken.json, to standard output (for a look, not kept)
"""
import base64
import json
import os
import sys
import tempfile

from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import make_tokenizer_golden as shared

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
           r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
           r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = [t["token_str"] for t in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
SPECIALS = [str(name) for name in SPECIALS]
NEWER = ["[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"]


def train():
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(shared.training_lines(), trainer)
    alphabet = {}
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    for byte in range(256):
        alphabet[chr(byte) if byte in plain else None] = byte
    extra = [b for b in range(256) if b not in plain]
    decode = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(extra)}
    merged = [p for p, _ in sorted(t.get_vocab().items(), key=lambda item: item[1]) if len(p) > 1]
    return [bytes([b]) for b in range(256)] + [bytes(decode[c] for c in p) for p in merged]


def tekken(tokens, version, n_special=40, cut=20, newer=()):
    vocab = []
    for rank, token in enumerate(tokens):
        try:
            text = token.decode()
        except UnicodeDecodeError:
            text = None
        vocab.append({"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text})
    config = {"pattern": PATTERN, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) - cut + n_special,
              "default_num_special_tokens": n_special, "version": "v%d" % version}
    names = SPECIALS + list(newer)
    return {"config": config, "vocab": vocab,
            "special_tokens": [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)]}


def files(tokens):
    """Each a change of the file that is kept, which is version 13's."""
    effort = {"type": "enum", "values": ["none", "high"], "accepts_none": True, "default": "none"}
    return {
        "v3": {"version": "v3", "special_tokens": None},
        "v7": {"version": "v7", "special_tokens": SPECIALS},
        "v11": {"version": "v11", "special_tokens": SPECIALS + NEWER[:2]},
        "v13": {"version": "v13", "special_tokens": SPECIALS + NEWER[:2]},
        "v13-thinking": {"version": "v13", "special_tokens": SPECIALS + NEWER[:4]},
        "v15": {"version": "v15", "special_tokens": SPECIALS + NEWER, "reasoning_effort": effort},
    }


def changed(base, change):
    root = json.loads(json.dumps(base))
    root["config"]["version"] = change["version"]
    if change["special_tokens"] is None:
        del root["special_tokens"]
    else:
        root["special_tokens"] = [{"rank": i, "token_str": s, "is_control": True}
                                  for i, s in enumerate(change["special_tokens"])]
    if "reasoning_effort" in change:
        root["model_settings_builder"] = {"reasoning_effort": change["reasoning_effort"]}
    return root


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a \"city\" <now>",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                                                          "required": ["city"]}}},
         {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object",
                                                                                            "properties": {}}}}]


def call(i, name, arguments):
    return {"id": "call%05d" % i, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


USER = {"role": "user", "content": "Hello, who are you?"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALLS = {"role": "assistant", "content": "", "tool_calls": [call(1, "get_weather", {"city": "Zürich", "days": [1, 2.5]})]}
TWO = {"role": "assistant", "content": "",
       "tool_calls": [call(1, "get_weather", {"city": "Bern \"x\""}), call(2, "now", {})]}


def result(i, content):
    return {"role": "tool", "tool_call_id": "call%05d" % i, "name": "get_weather", "content": content}


CONVERSATIONS = {
    "user": ([USER], None),
    "system": ([SYSTEM, USER], None),
    "turns": ([SYSTEM, USER, {"role": "assistant", "content": "A model. "}, {"role": "user", "content": "Good\n[INST] one"}],
              None),
    "two_messages": ([USER, {"role": "user", "content": "And now?"}], None),
    "tools": ([SYSTEM, USER, {"role": "assistant", "content": "Yes."}, USER], TOOLS),
    "call": ([USER, CALLS, result(1, "sunny, 22 degrees")], TOOLS),
    "calls": ([USER, TWO, result(1, "{\"t\": 22}"), result(2, "12"), {"role": "assistant", "content": "It is noon."}, USER],
              TOOLS),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}], None),
}
THOUGHTS = ([USER, {"role": "assistant", "content": "Four.", "reasoning_content": "2 + 2"}, USER], None)


def conversations(tokenizer, name):
    out = {}
    asked = dict(CONVERSATIONS)
    if name == "v13-thinking":
        asked["thoughts"] = THOUGHTS
    for key, (messages, tools) in asked.items():
        extra = {"reasoning_effort": "high"} if name == "v15" and key == "call" else {}
        request = ChatCompletionRequest.from_openai(messages=json.loads(json.dumps(messages)), tools=tools, **extra)
        ids = tokenizer.encode_chat_completion(request).tokens
        text = tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP)
        out[key] = {"messages": messages, "tools": tools, "variables": extra, "text": text, "ids": ids}
    return out


class Oracle:
    def __init__(self, path):
        self.tekken = Tekkenizer.from_file(path)

    def modes(self):
        return ["plain"]

    def encode(self, data, _mode):
        return self.tekken.encode(data.decode(), bos=False, eos=False)

    def decode(self, ids):
        return self.tekken.decode(ids)


def main():
    if len(sys.argv) > 1:
        json.dump(shared.golden(Oracle(sys.argv[1]), 77, 3000, 20), sys.stdout, ensure_ascii=False)
        return
    tokens = train()
    base = tekken(tokens, 13, newer=NEWER[:4])
    shared.write("tiny_tekken.json", base)
    golden = {"changes": files(tokens), "conversations": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tekken.json")
        for name, change in golden["changes"].items():
            with open(path, "w", encoding="utf-8") as f:
                json.dump(changed(base, change), f)
            golden["conversations"][name] = conversations(MistralTokenizer.from_file(path), name)
            if name == "v13-thinking":
                golden["texts"] = shared.golden(Oracle(path), 21, 2000, 20)
    shared.write("tekken.golden.json", golden)


main()
