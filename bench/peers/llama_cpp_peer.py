#!/usr/bin/env python3
"""One run of llama.cpp (the llama-cpp-python package) over a GGUF file; prints one JSON object.

{"load_seconds": s, "results": {"prefill 512": tokens/s, "decode 128": ..., "decode 128 @ 4096": ...,
"decode 128 x 8": ...}}, with the names that `penstock bench` uses. Token ids are random and nothing is sampled, so
the figures are those of the forward pass alone; each test runs once before it is measured.
"""
import json
import os
import random
import sys
import time

import llama_cpp.llama_cpp as ll

import options


class Session:
    """A context and one batch; n_ctx tokens for each sequence."""

    def __init__(self, model, args, n_ctx, n_seqs):
        params = ll.llama_context_default_params()
        params.n_ctx = -(-n_ctx // 256) * 256 * n_seqs
        params.n_seq_max = n_seqs
        params.n_batch, params.n_ubatch = 2048, 512
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = (ll.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.flash_attention
                                  else ll.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        self.context = ll.llama_init_from_model(model, params)
        if not self.context:
            sys.exit(f"no context of {n_ctx} tokens x {n_seqs}")
        self.batch = ll.llama_batch_init(2048, 0, 1)

    def run(self, entries):
        """entries: (token, position, sequence, wants logits)."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, logits) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, logits
            batch.seq_id[i][0] = sequence
        if ll.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed")
        ll.llama_synchronize(self.context)

    def prefill(self, tokens, sequence=0):
        for first in range(0, len(tokens), 2048):
            part = tokens[first:first + 2048]
            self.run([(t, first + i, sequence, first + i + 1 == len(tokens)) for i, t in enumerate(part)])

    def cut(self, sequence, length):
        ll.llama_memory_seq_rm(ll.llama_get_memory(self.context), sequence, length, -1)

    def close(self):
        ll.llama_batch_free(self.batch)
        ll.llama_free(self.context)


def main():
    parser = options.parser(__doc__)
    parser.add_argument("--flash-attention", type=int, default=1)
    args = parser.parse_args()

    silence = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silence, None)
    ll.llama_backend_init()
    start = time.monotonic()
    params = ll.llama_model_default_params()
    params.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(os.fsencode(args.model), params)
    if not model:
        sys.exit(f"{args.model}: llama.cpp cannot load it")
    load_seconds = time.monotonic() - start
    n_vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    rng = random.Random(1)
    results = {}

    for n in args.prefill:
        if n == 0:
            continue
        session = Session(model, args, n, 1)
        for measured in (False, True):
            session.cut(0, 0)
            tokens = [rng.randrange(n_vocab) for _ in range(n)]
            start = time.perf_counter()
            session.prefill(tokens)
            if measured:
                results[f"prefill {n}"] = n / (time.perf_counter() - start)
        session.close()

    for depth in args.depths:
        for n_seqs in args.batches:
            session = Session(model, args, depth + 8 + args.decode + 1, n_seqs)
            at = max(depth, 1)
            for s in range(n_seqs):
                session.prefill([rng.randrange(n_vocab) for _ in range(at)], s)
            for steps in (min(8, args.decode), args.decode):  # one behind the other: recurrent states cannot be cut
                start = time.perf_counter()
                for i in range(steps):
                    session.run([(rng.randrange(n_vocab), at + i, s, True) for s in range(n_seqs)])
                seconds = time.perf_counter() - start
                at += steps
            name = f"decode {args.decode}" + (f" @ {depth}" if depth else "") + (f" x {n_seqs}" if n_seqs > 1 else "")
            results[name] = args.decode * n_seqs / seconds
            session.close()
    print(json.dumps({"load_seconds": load_seconds, "results": results}))


if __name__ == "__main__":
    main()
