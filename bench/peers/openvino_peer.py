#!/usr/bin/env python3
"""One run of OpenVINO GenAI (the openvino-genai package) over a GGUF file; prints one JSON object.

{"load_seconds": s, "results": {"prefill 512": tokens/s, "decode 128": ..., "decode 128 @ 4096": ...}}, with the names
that `penstock bench` uses. It reads the file itself and stores the weights as its own plugin likes them. Token ids are
random, decoding is greedy; prefill is the time to the first token, decoding the mean time of the others; "decode 128 x 8"
is its continuous batching, the time of 8 requests less that of the same requests for one token. Each test runs once
before it is measured.
"""
import json
import random
import time

import numpy
import openvino
import openvino_genai

import options


def plain_ids(rng, n):
    # Ids of plain words: the vocabularies of the files end with special tokens.
    return numpy.array([[rng.randrange(100, 1000) for _ in range(n)]], dtype=numpy.int64)


def greedy(n_new):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = n_new, True, False
    return config


def decode_together(args, rng):
    batches = [n for n in args.batches if n > 1]
    if not batches:
        return {}
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs = 4, max(batches)
    pipeline = openvino_genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU",
                                                         {"INFERENCE_NUM_THREADS": args.threads})
    results = {}
    for depth in args.depths:
        for n_seqs in batches:
            prompts = [openvino.Tensor(plain_ids(rng, max(depth, 1))) for _ in range(n_seqs)]
            seconds = {}
            for n_new in (8, 1, args.decode + 1):
                start = time.perf_counter()
                pipeline.generate(prompts, [greedy(n_new)] * n_seqs)
                seconds[n_new] = time.perf_counter() - start
            name = f"decode {args.decode}" + (f" @ {depth}" if depth else "") + f" x {n_seqs}"
            results[name] = args.decode * n_seqs / (seconds[args.decode + 1] - seconds[1])
    return results


def main():
    args = options.parser(__doc__).parse_args()

    start = time.monotonic()
    pipeline = openvino_genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.threads,
                                          PERFORMANCE_HINT="LATENCY")
    load_seconds = time.monotonic() - start
    rng = random.Random(1)

    def generate(n_prompt, n_new):
        """Milliseconds to the first token and per further token."""
        ids = plain_ids(rng, n_prompt)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        metrics = pipeline.generate(inputs, greedy(n_new)).perf_metrics
        return metrics.get_ttft().mean, metrics.get_tpot().mean

    results = {}
    for n in args.prefill:
        if n:
            generate(n, 1)
            results[f"prefill {n}"] = n * 1000 / generate(n, 1)[0]
    for depth in args.depths:
        generate(max(depth, 1), 8)
        name = f"decode {args.decode}" + (f" @ {depth}" if depth else "")
        results[name] = 1000 / generate(max(depth, 1), args.decode + 1)[1]
    del pipeline
    results |= decode_together(args, rng)
    print(json.dumps({"load_seconds": load_seconds, "results": results}))


if __name__ == "__main__":
    main()
