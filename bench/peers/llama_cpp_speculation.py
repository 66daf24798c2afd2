#!/usr/bin/env python3
"""One run of llama.cpp (the llama-cpp-python package) with speculative decoding; prints one JSON object.

The package has no draft-model mode of its own (it is a program of llama.cpp's, not of its library), so its loop is written here
over the C interface: a second context guesses a chain, by argmax, until a guess has a probability below --p-min; one llama_decode
checks it; what is wrong is cut out of both caches. Lookup guesses what LlamaPromptLookupDecoding of the package finds.

Only the processor time inside llama_decode and llama_synchronize counts: what Python does between them (choosing tokens, looking
up) is free for llama.cpp here. Greedy; one sequence; times begin after the prompt.
"""
import argparse
import ctypes
import json
import os
import sys
import time

import llama_cpp.llama_cpp as ll
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding


class Model:
    def __init__(self, path, threads, flash_attention):
        params = ll.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(os.fsencode(path), params)
        if not self.model:
            sys.exit(f"{path}: llama.cpp cannot load it")
        self.vocab = ll.llama_model_get_vocab(self.model)
        self.n_vocab = ll.llama_vocab_n_tokens(self.vocab)
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch = 512, 512
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash_attention else ll.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = ll.llama_init_from_model(self.model, params)
        self.batch = ll.llama_batch_init(512, 0, 1)
        self.seconds, self.length = 0.0, 0

    def tokenize(self, text):
        data = text.encode()
        out = (ll.llama_token * (len(data) + 8))()
        return list(out[:ll.llama_tokenize(self.vocab, data, len(data), out, len(out), True, True)])

    def cut(self, length):
        ll.llama_memory_seq_rm(ll.llama_get_memory(self.context), 0, length, -1)
        self.length = length

    def run(self, tokens, n_logits):
        """Appends tokens; the logits of the last n_logits of them."""
        batch, n = self.batch, len(tokens)
        batch.n_tokens = n
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self.length + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, i >= n - n_logits
        begin = time.process_time()
        failed = ll.llama_decode(self.context, batch)
        ll.llama_synchronize(self.context)
        self.seconds += time.process_time() - begin
        if failed:
            sys.exit("llama_decode failed")
        self.length += n
        return [np.ctypeslib.as_array(ctypes.cast(ll.llama_get_logits_ith(self.context, i), ctypes.POINTER(ctypes.c_float)),
                                      (self.n_vocab,)) for i in range(n - n_logits, n)]


def draft_chain(draft, tokens, length, p_min):
    """Guesses of the draft model after `tokens`, of which its cache holds some first part."""
    guesses, pending = [], tokens[draft.length:]
    while len(guesses) < length:
        row = draft.run(pending, 1)[0].astype(np.float64)
        guess = int(row.argmax())
        if p_min > 0 and 1 / np.exp(row - row.max()).sum() < p_min:
            break
        guesses.append(guess)
        pending = [guess]
    return guesses


def generate(target, draft, prompt, n_tokens, guess):
    """(tokens, processor seconds per token, guesses, kept, rounds); guess(tokens) -> list of guesses."""
    target.cut(0)
    if draft:
        draft.cut(0)
    tokens = list(prompt)
    tokens.append(int(target.run(tokens, 1)[0].argmax()))
    if draft:
        draft.run(prompt, 1)
    target.seconds = 0
    if draft:
        draft.seconds = 0
    guessed = kept = rounds = 0
    first = len(tokens)
    while len(tokens) < first + n_tokens:
        guesses = guess(tokens)[:first + n_tokens - len(tokens) - 1]
        rows = target.run([tokens[-1], *guesses], 1 + len(guesses))
        right = 0
        while right < len(guesses) and int(rows[right].argmax()) == guesses[right]:
            right += 1
        tokens += guesses[:right] + [int(rows[right].argmax())]
        target.cut(len(tokens) - 1)
        if draft:
            draft.cut(min(draft.length, len(tokens) - 1))
        guessed, kept, rounds = guessed + len(guesses), kept + right, rounds + 1
    seconds = target.seconds + (draft.seconds if draft else 0)
    return tokens[len(prompt):], seconds / (len(tokens) - first), guessed, kept, rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("draft")
    parser.add_argument("--prompts", required=True, help="a JSON list of texts")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--flash-attention", type=int, default=0)
    parser.add_argument("--draft-lengths", default="2,3,4,8,16")
    parser.add_argument("--p-min", default="0,0.75", help="of the draft model; 0.75 is the default of llama.cpp's own program")
    parser.add_argument("--lookup-lengths", default="3,7,10", help="10 is the package's default")
    args = parser.parse_args()
    silence = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silence, None)
    ll.llama_backend_init()
    target = Model(args.model, args.threads, args.flash_attention)
    draft = Model(args.draft, args.threads, args.flash_attention)
    prompts = [target.tokenize(text) for text in json.loads(args.prompts)]
    modes = {"plain": (None, lambda tokens: [])}
    for length in map(int, args.draft_lengths.split(",")):
        for p_min in map(float, args.p_min.split(",")):
            modes[f"draft {length}, p-min {p_min:g}"] = (
                draft, lambda tokens, n=length, p=p_min: draft_chain(draft, tokens, n, p))
    for length in map(int, args.lookup_lengths.split(",")):
        lookup = LlamaPromptLookupDecoding(2, length)
        modes[f"lookup {length}"] = (None, lambda tokens, f=lookup: [int(t) for t in f(np.array(tokens, dtype=np.intc))])
    generate(target, draft, prompts[0], 16, modes["plain"][1])  # what is only slow once
    results = {}
    for name, (second, guess) in modes.items():
        runs = [generate(target, second, prompt, args.tokens, guess) for prompt in prompts]
        results[name] = {"ms": [run[1] * 1e3 for run in runs], "tokens": [run[0] for run in runs],
                         "right": sum(run[3] for run in runs) / max(1, sum(run[2] for run in runs)),
                         "tokens_per_round": sum(len(run[0]) - 1 for run in runs) / sum(run[4] for run in runs)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
