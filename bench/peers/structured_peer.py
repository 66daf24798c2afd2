#!/usr/bin/env python3
"""llguidance or XGrammar behind the command line of `penstock grammar check --cases`, for bench/structured.py.

    bench/peers/structured_peer.py llguidance|xgrammar TIKTOKEN_FILE CASES.jsonl

In a virtual environment with llguidance, xgrammar, tiktoken and numpy. One thread, nothing kept between cases but what
the library itself keeps. TIKTOKEN_FILE: Llama 3's tokenizer.model, to which its 256 special tokens are added.
"""
import base64
import importlib.machinery
import json
import sys
import time
import types

import numpy
import tiktoken

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
END_OF_TURN = 9  # among the special tokens


def encoding(path):
    with open(path, "rb") as file:
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file if line.strip())}
    special = {f"<|special_{i}|>": len(ranks) + i for i in range(256)}
    return tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens=special), len(ranks) + END_OF_TURN


class Llguidance:
    def __init__(self, tokens, end):
        import llguidance
        import llguidance.numpy
        import llguidance.tiktoken
        self.matcher_type = llguidance.LLMatcher
        self.fill_bits = llguidance.numpy.fill_next_token_bitmask
        self.tokenizer = llguidance.tiktoken.lltokenizer_from_encoding(tokens, eos_token=end)

    def compile(self, case):
        if "schema" in case:
            grammar = self.matcher_type.grammar_from_json_schema(json.dumps(case["schema"]))
        elif "regex" in case:
            grammar = self.matcher_type.grammar_from_regex(case["regex"])
        else:
            raise ValueError("another notation")
        self.fresh = self.matcher_type(self.tokenizer, grammar, log_level=0)
        if self.fresh.is_error():
            raise ValueError(self.fresh.get_error())

    def begin(self):
        self.matcher = self.fresh.deep_copy()

    def mask(self, bits):
        self.fill_bits(self.matcher, bits)

    def take(self, token):
        return self.matcher.consume_token(token)


def without_torch():
    """XGrammar imports large libraries that masks in numpy do not need; empty modules stand in for them."""
    import tvm_ffi  # noqa: F401  before, since it would use what it finds

    class Empty(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    for name in ("torch", "transformers", "triton", "triton.language"):
        module = Empty(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.tensor = module.full = lambda *args, **options: None
        sys.modules[name] = module


class Xgrammar:
    def __init__(self, tokens, end):
        without_torch()
        import xgrammar
        self.library = xgrammar
        vocabulary = [tokens.decode_single_token_bytes(token) for token in range(tokens.n_vocab)]
        info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, case):
        if "schema" in case:
            self.grammar = self.compiler.compile_json_schema(json.dumps(case["schema"]), strict_mode=False)
        elif "regex" in case:
            self.grammar = self.compiler.compile_regex(case["regex"])
        elif "grammar" in case:
            self.grammar = self.compiler.compile_grammar(case["grammar"])
        else:
            self.grammar = self.compiler.compile_structural_tag(case["structural_tag"])
        self.begin()

    def begin(self):
        self.matcher = self.library.GrammarMatcher(self.grammar)

    def mask(self, bits):
        if not self.matcher.fill_next_token_bitmask(bits):  # everything is allowed
            bits.fill(-1)

    def take(self, token):
        return self.matcher.accept_token(token)


def allowed(bits, token):
    return bool(bits[0, token // 32] >> (token % 32) & 1)


def walk(peer, tokens, end, bits, times):
    """A text's verdict; every mask's time in microseconds goes to `times`."""
    peer.begin()
    for token in [*tokens, end]:
        begun = time.perf_counter()
        peer.mask(bits)
        times.append(round((time.perf_counter() - begun) * 1e6, 1))
        if not allowed(bits, token):
            return False
        if token != end and not peer.take(token):
            return False
    return True


def answer(peer, case, tokens, end):
    bits = numpy.zeros((1, (tokens.n_vocab + 31) // 32), dtype=numpy.int32)
    begun = time.perf_counter()
    try:
        peer.compile(case)
        peer.begin()
        peer.mask(bits)
    except Exception as error:  # whatever the library raises is a refusal
        return {"id": case["id"], "error": {"kind": "unsupported", "where": "", "message": str(error)[:200]}}
    compile_us = (time.perf_counter() - begun) * 1e6
    times = []
    results = [{"valid": walk(peer, tokens.encode(text, disallowed_special=()), end, bits, times)} for text in case["texts"]]
    return {"id": case["id"], "compile_us": round(compile_us, 1), "results": results, "all_mask_us": times}


def main():
    name, model, cases = sys.argv[1:4]
    tokens, end = encoding(model)
    peer = {"llguidance": Llguidance, "xgrammar": Xgrammar}[name](tokens, end)
    with open(cases, encoding="utf-8", errors="surrogatepass") as lines:
        for line in lines:
            print(json.dumps(answer(peer, json.loads(line), tokens, end)), flush=True)


if __name__ == "__main__":
    main()
