"""Requests of a load on a peer, and the report of its run, with the names of `penstock bench --serve --json`."""
import argparse
import json
import random
import statistics


def parser(description):
    """The options that every peer's load has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("model")
    options.add_argument("--trace", required=True, help="JSON lines: timestamp (ms), input_length, output_length")
    options.add_argument("--shared-prefix", type=int, default=0)
    options.add_argument("--slots", type=int, default=16)
    options.add_argument("--threads", type=int, default=2)
    return options


def read_requests(trace, n_vocab, shared_prefix=0):
    """Of JSON lines with timestamp (ms), input_length and output_length; random tokens from 100 to n_vocab."""
    rng = random.Random(1)
    shared = [rng.randrange(100, n_vocab) for _ in range(shared_prefix)]
    requests = []
    for line in open(trace):
        row = json.loads(line)
        n = max(row["input_length"], shared_prefix + 1)
        own = [rng.randrange(100, n_vocab) for _ in range(n - len(shared))]
        requests.append({"arrival": row["timestamp"] / 1000, "prompt": shared + own, "output": row["output_length"],
                         "times": []})
    return requests


def percentiles(values):
    if not values:
        return {"p50": 0, "p90": 0, "p99": 0, "mean": 0}
    values = sorted(values)

    def at(share):
        place = share * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (place - low) * (values[high] - values[low])

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "mean": statistics.fmean(values)}


def report(requests, seconds):
    """times of each request: of its tokens, seconds since the load's begin."""
    tokens = sum(len(r["times"]) for r in requests)
    gaps = [b - a for r in requests for a, b in zip(r["times"], r["times"][1:])]
    return {"requests": len(requests), "seconds": seconds, "output_tokens": tokens,
            "prompt_tokens": sum(len(r["prompt"]) for r in requests), "output_tokens_per_second": tokens / seconds,
            "inter_token_latency": percentiles(gaps),
            "time_to_first_token": percentiles([r["times"][0] - r["arrival"] for r in requests])}
