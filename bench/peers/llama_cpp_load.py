#!/usr/bin/env python3
"""A load of many requests on llama.cpp (the llama-cpp-python package); prints one JSON object with the names of
`penstock bench --serve --json`.

The package brings no server that decodes several requests together, so this drives llama.cpp's C interface the way its
own server does: slots with a prompt cache each, a new request goes to the idle slot that has most of its prompt; every
step takes one token of each decoding slot and fills up to 2,048 tokens with prompts; greedy sampling by its sampler.
No sockets and no text on either side.
"""
import json
import os
import sys
import time

import llama_cpp.llama_cpp as ll

import loads

N_BATCH = 2048


def common_prefix(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Slot:
    def __init__(self, index):
        self.index, self.cached, self.request, self.next = index, [], None, None

    def start(self, request, memory):
        """Number of prompt tokens found in the slot's cache."""
        # The last token of a prompt is always computed: its logits are wanted.
        common = common_prefix(self.cached, request["prompt"][:-1])
        ll.llama_memory_seq_rm(memory, self.index, common, -1)
        self.cached, self.request, self.next = self.cached[:common], request, None
        return common


def load(args, model):
    n_vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    requests = loads.read_requests(args.trace, min(n_vocab, 30000), args.shared_prefix)
    longest = max(len(r["prompt"]) + r["output"] for r in requests)
    params = ll.llama_context_default_params()
    params.n_ctx = -(-longest // 256) * 256 * args.slots
    params.n_seq_max = args.slots
    params.n_batch, params.n_ubatch = N_BATCH, 512
    params.n_threads = params.n_threads_batch = args.threads
    params.flash_attn_type = (ll.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.flash_attention
                              else ll.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    context = ll.llama_init_from_model(model, params)
    if not context:
        sys.exit(f"no context of {params.n_ctx} tokens")
    memory = ll.llama_get_memory(context)
    batch = ll.llama_batch_init(N_BATCH, 0, 1)
    sampler = ll.llama_sampler_init_greedy()
    slots = [Slot(i) for i in range(args.slots)]
    waiting, computed, cached = list(requests), 0, 0
    start = time.perf_counter()
    while waiting or any(slot.request for slot in slots):
        now = time.perf_counter() - start
        for slot in slots:
            if slot.request is None and waiting and waiting[0]["arrival"] <= now:
                request = waiting.pop(0)
                idle = [other for other in slots if other.request is None]
                best = max(idle, key=lambda other: common_prefix(other.cached, request["prompt"]))
                cached += best.start(request, memory)
        entries = [(slot, slot.next) for slot in slots if slot.request and slot.next is not None]
        for slot in slots:
            if slot.request is None or slot.next is not None:
                continue
            done = len(slot.cached)
            take = slot.request["prompt"][done:done + N_BATCH - len(entries)]
            entries += [(slot, token) for token in take]
        if not entries:
            time.sleep(max(0, waiting[0]["arrival"] - (time.perf_counter() - start)))
            continue
        batch.n_tokens = len(entries)
        wanted = []
        for i, (slot, token) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, len(slot.cached), 1
            batch.seq_id[i][0] = slot.index
            slot.cached.append(token)
            last = len(slot.cached) >= len(slot.request["prompt"])
            batch.logits[i] = last
            if last:
                wanted.append((i, slot))
        if ll.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        computed += len(entries)
        for i, slot in wanted:
            slot.next = ll.llama_sampler_sample(sampler, context, i)
        now = time.perf_counter() - start
        for _, slot in wanted:
            slot.request["times"].append(now)
            if len(slot.request["times"]) == slot.request["output"]:
                slot.request = None
    seconds = time.perf_counter() - start
    return {**loads.report(requests, seconds), "computed_tokens": computed, "cached_tokens": cached}


def main():
    parser = loads.parser(__doc__)
    parser.add_argument("--flash-attention", type=int, default=0)
    args = parser.parse_args()
    silence = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silence, None)
    ll.llama_backend_init()
    params = ll.llama_model_default_params()
    params.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(os.fsencode(args.model), params)
    if not model:
        sys.exit(f"{args.model}: llama.cpp cannot load it")
    print(json.dumps(load(args, model)))


if __name__ == "__main__":
    main()
