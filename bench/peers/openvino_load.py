#!/usr/bin/env python3
"""A load of many requests on OpenVINO GenAI's continuous batching (the openvino-genai package) over a GGUF file; prints
one JSON object with the names of `penstock bench --serve --json`.

Requests enter its queue when they are due, and this drives its steps; the default of its scheduler (prompts split to
256 tokens per step, mixed with decoding) but for the number of sequences. Greedy, without an end token.
"""
import json
import time

import numpy
import openvino
import openvino_genai

import loads


def load(args):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs = 4, args.slots
    if args.batched_tokens:
        scheduler.max_num_batched_tokens = args.batched_tokens
    scheduler.enable_prefix_caching = args.shared_prefix > 0
    pipeline = openvino_genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU",
                                                         {"INFERENCE_NUM_THREADS": args.threads})
    requests = loads.read_requests(args.trace, 1000, args.shared_prefix)  # ids of plain words

    def add(index, prompt, n_new):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = n_new, True, False
        ids = numpy.array([prompt], dtype=numpy.int64)
        return pipeline.add_request(index, openvino.Tensor(ids), config)

    warm = [add(len(requests) + i, [150 + i] * 40, 4) for i in range(4)]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    del warm
    waiting, running = list(enumerate(requests)), []
    start = time.perf_counter()
    while waiting or pipeline.has_non_finished_requests():
        now = time.perf_counter() - start
        while waiting and waiting[0][1]["arrival"] <= now:
            index, request = waiting.pop(0)
            running.append((request, add(index, request["prompt"], request["output"])))
        if not pipeline.has_non_finished_requests():
            time.sleep(max(0, waiting[0][1]["arrival"] - now))
            continue
        pipeline.step()
        now = time.perf_counter() - start
        for request, handle in running:
            while handle.can_read():
                for output in handle.read().values():
                    request["times"] += [now] * len(output.generated_ids)
        running = [(request, handle) for request, handle in running if len(request["times"]) < request["output"]]
    return loads.report(requests, time.perf_counter() - start)


def main():
    parser = loads.parser(__doc__)
    parser.add_argument("--batched-tokens", type=int, default=0, help="of a step; 0 is its default")
    print(json.dumps(load(parser.parse_args())))


if __name__ == "__main__":
    main()
