#!/usr/bin/env python3
"""What Ray costs and gives: a request through Ray Serve beside the bare server, two replicas beside one, a batch job beside
LLM.generate. Each replica and each actor has one thread.

Usage: ray_serve.py [--model FILE] [--rounds 5] [--load-tokens 64] [--requests 64] [--rows 2000]
       (in an environment with the wheel and ray[serve,data]; nothing else running)
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import statistics
import time

import ray
from ray import serve

import penstock
from penstock._openai_server import _free_port
from penstock.ray.data import ProcessorConfig, build_processor
from penstock.ray.serve import LLMConfig, build_app

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW_TOKENS = 32


def post(port, prompt, max_tokens, connection=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/completions", json.dumps(
        {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    return json.load(reply)


def latency(port, n=100):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    for i in range(n):
        start = time.perf_counter()
        post(port, f"Story {i}: the", 1, connection)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def load(port, round_number, n_tokens, n_requests):
    """Tokens a second, many requests at once."""
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda i: post(port, f"Story {round_number} {i}: the", n_tokens), range(n_requests)))
    return n_requests * n_tokens / (time.perf_counter() - start)


def run_app(config, port):
    serve.run(build_app(config), name="penstock")
    load(port, "warm", 16, 64)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=str(ROOT / "models/penstock-stories-15m-q8_0.gguf"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load-tokens", type=int, default=64, help="of a request, where replicas are compared")
    parser.add_argument("--requests", type=int, default=64, help="where replicas are compared")
    parser.add_argument("--rows", type=int, default=2000, help="of the batch job; 0: none")
    args = parser.parse_args()
    median = statistics.median
    ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR", object_store_memory=200 << 20)
    port = _free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})

    with penstock.openai_server(args.model, threads=1) as bare:
        bare_port = int(bare.base_url.split(":")[2].split("/")[0])
        run_app(LLMConfig(model=args.model, num_replicas=1), port)
        pairs = [(latency(bare_port), latency(port)) for _ in range(args.rounds)]
    print(f"a request of one token: {1e3 * median(a for a, _ in pairs):.2f} ms from the bare server, "
          f"{1e3 * median(b for _, b in pairs):.2f} through Ray Serve")
    one, two = [], []
    for round_number in range(args.rounds):
        run_app(LLMConfig(model=args.model, num_replicas=1), port)
        one.append(load(port, f"{round_number} one", args.load_tokens, args.requests))
        run_app(LLMConfig(model=args.model, num_replicas=2), port)
        two.append(load(port, f"{round_number} two", args.load_tokens, args.requests))
    print(f"{args.requests} requests of {args.load_tokens} tokens, 32 at once: {median(one):,.0f} tokens/s with one replica, {median(two):,.0f} "
          f"with two: {median([b / a for a, b in zip(one, two)]):.2f}")
    serve.shutdown()
    if args.rows == 0:
        return

    rows = [{"id": i, "prompt": f"Number {i} is", "sampling_params": {"max_tokens": ROW_TOKENS, "temperature": 0, "ignore_eos": True}}
            for i in range(args.rows)]
    params = penstock.SamplingParams(max_tokens=ROW_TOKENS, temperature=0, ignore_eos=True)
    direct, job = [], []
    with penstock.LLM(args.model, threads=1) as llm:
        for _ in range(args.rounds):
            llm.reset_prefix_cache()
            start = time.perf_counter()
            llm.generate([row["prompt"] for row in rows], params, use_tqdm=False)
            direct.append(time.perf_counter() - start)
            processor = build_processor(ProcessorConfig(model=args.model, batch_size=512))
            start = time.perf_counter()
            processor(ray.data.from_items(rows, override_num_blocks=4)).materialize()
            job.append(time.perf_counter() - start)
    print(f"{args.rows} rows of {ROW_TOKENS} tokens: {median(direct):.2f} s by LLM.generate, {median(job):.2f} s as a job "
          f"(its start included)")
    print(f"ray {ray.__version__}, penstock {penstock.__version__}")


if __name__ == "__main__":
    main()
