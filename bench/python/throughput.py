#!/usr/bin/env python3
"""What Python costs: LLM.generate beside the same work in C++ (bench_generate), streams beside whole outputs, logits processors.

Usage: throughput.py BENCH_GENERATE [--model FILE] [--rounds 7]      (in an environment with the wheel; nothing else running)
Alternating rounds, medians.
"""
import argparse
import asyncio
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import penstock
from penstock import AsyncLLM, LLM, RequestOutputKind, SamplingParams

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = "cat dog bird tree car boy girl house ball park moon star fish boat king queen".split()
N_PROMPTS, N_TOKENS, N_SEQS, N_STREAMS, STREAM_TOKENS = 1000, 32, 64, 16, 400


def prompts():
    return [f"The {WORDS[i % 16]} and the {WORDS[i // 16 % 16]} met {WORDS[i % 7]} number {i} and" for i in range(N_PROMPTS)]


def in_python(llm):
    params = SamplingParams(max_tokens=N_TOKENS, temperature=0, ignore_eos=True)
    llm.reset_prefix_cache()
    start = time.perf_counter()
    llm.generate(prompts(), params, use_tqdm=False)
    return time.perf_counter() - start


def in_cpp(program, model, file):
    return float(subprocess.run([program, model, file, str(N_TOKENS), str(N_SEQS)], capture_output=True, text=True, check=True).stdout)


async def streams(engine, kind):
    params = SamplingParams(max_tokens=STREAM_TOKENS, temperature=0, ignore_eos=True, output_kind=kind)

    async def one(number):
        async for _ in engine.generate(f"Story number {number}:", params):
            pass

    start = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(N_STREAMS)))
    return time.perf_counter() - start


def with_processor(llm, processors):
    params = SamplingParams(max_tokens=400, temperature=0, ignore_eos=True, logits_processors=processors)
    start = time.perf_counter()
    llm.generate("Once upon a time", params, use_tqdm=False)
    return (time.perf_counter() - start) / 400


def first_text():
    code = "import penstock; penstock.LLM().generate('Once', penstock.SamplingParams(max_tokens=1), use_tqdm=False)"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--model", default=str(ROOT / "models/penstock-stories-15m-q8_0.gguf"))
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    median = statistics.median
    with LLM(args.model, max_num_seqs=N_SEQS) as llm, tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(prompts()) + "\n")
        file.flush()
        in_python(llm)
        pairs = [(in_python(llm), in_cpp(args.program, args.model, file.name)) for _ in range(args.rounds)]
        python, cpp = (median(column) for column in zip(*pairs))
        print(f"{N_PROMPTS} prompts, {N_TOKENS} tokens each: {N_PROMPTS * N_TOKENS / python:,.0f} tokens/s in Python, "
              f"{N_PROMPTS * N_TOKENS / cpp:,.0f} in C++: {median([c / p for p, c in pairs]):.3f}")
        with_processor(llm, None)
        rows = [(with_processor(llm, None), with_processor(llm, [lambda ids, logits: None])) for _ in range(args.rounds)]
        print(f"a logits processor that does nothing: {1e6 * median([b - a for a, b in rows]):.0f} us a token "
              f"(vocabulary {llm.info['vocab_size']}, a token without it {1e6 * median([a for a, _ in rows]):.0f} us)")
    engine = AsyncLLM(args.model, max_num_seqs=N_SEQS)
    asyncio.run(streams(engine, RequestOutputKind.DELTA))
    rows = [(asyncio.run(streams(engine, RequestOutputKind.FINAL_ONLY)), asyncio.run(streams(engine, RequestOutputKind.DELTA)),
             asyncio.run(streams(engine, RequestOutputKind.CUMULATIVE))) for _ in range(args.rounds)]
    tokens = N_STREAMS * STREAM_TOKENS
    print(f"streams, {N_STREAMS} at once: {1e6 * median([d - f for f, d, _ in rows]) / tokens:.1f} us a token as deltas, "
          f"{1e6 * median([c - f for f, _, c in rows]) / tokens:.1f} cumulative "
          f"(a token without streams: {1e6 * median([f for f, _, _ in rows]) / tokens:.0f} us)")
    engine.shutdown()
    print(f"import, open and first token, in a new process: {median([first_text() for _ in range(args.rounds)]):.2f} s")
    print(f"penstock {penstock.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
