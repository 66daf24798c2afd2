#!/usr/bin/env python3
"""Writes the seeds of the tokenizer_json fuzz target: small files of every kind, cut from tests/text/golden/."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "../text/golden")
OUT = os.path.join(HERE, "corpus/tokenizer_json")


def load(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        return json.load(f)


def save(name, value):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def cut(root, n):
    """The first n pieces, and the merges among them."""
    model = root["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:n]
    else:
        model["vocab"] = {p: i for p, i in model["vocab"].items() if i < n}
        known = model["vocab"]
        model["merges"] = [m for m in model.get("merges", []) if m[0] in known and m[1] in known and m[0] + m[1] in known]
    return root


def main():
    os.makedirs(OUT, exist_ok=True)
    save("byte_bpe", cut(load("tiny_byte_bpe.json"), 290))
    word_piece = cut(load("tiny_word_piece.json"), 90)
    del word_piece["model"]["merges"]
    save("word_piece", word_piece)
    save("unigram", cut(load("tiny_unigram.json"), 60))
    spm = cut(load("tiny_spm_bpe.json"), 300)
    save("spm_bpe", spm)
    for i, entry in enumerate(load("variants.golden.json")):
        if i % 5 == 0:
            save("variant_%02d" % i, {**cut(load("tiny_spm_bpe.json"), 8), **entry["change"],
                                      "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3,
                                                                                              "▁": 4}, "merges": ["a b"]}})
    save("config", {"added_tokens_decoder": {"9": {"content": "<x>", "special": True}}, "eos_token": "ab",
                    "chat_template": [{"name": "default", "template": "x"}], "eos_token_id": [1, 2],
                    "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "ab": 1}}})
    tokens = ["<s>", "a", "b", "ab", "Ġ", "Ġa", "<x>"]
    for kind, pre in (("gpt2", "llama-bpe"), ("gpt2", "falcon"), ("gpt2", "deepseek-llm"), ("llama", "default"), ("t5", ""), ("bert", "")):
        save("gguf_%s_%s" % (kind, pre or "none"), {
            "tokenizer.ggml.model": kind, "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0, -1, -2, -3, -4, -5, 0], "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 4],
            "tokenizer.ggml.merges": ["a b", "Ġ a"], "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.precompiled_charsmap": [4, 0, 0, 0, 0, 0, 0, 0], "tokenizer.chat_template": "x"})
    for name in ("tiny_spm_bpe.model", "tiny_unigram.model"):
        with open(os.path.join(GOLDEN, name), "rb") as f:
            save(name, f.read())
    save("tiktoken", b"IQ== 0\nIg== 1\nISI= 2\n")


if __name__ == "__main__":
    main()
