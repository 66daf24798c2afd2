"""Text that a model itself writes, as token ids: what heads trained by medusa.py --own have to guess.

    penstock serve -m MODEL --port 8377 --max-num-seqs 32
    python distill.py --port 8377 --model MODEL_NAME --data DIR --out own.jsonl [--seconds 400]

Prompts are two beginnings, 4 to 120 tokens, of each of the stories of data.py's tinystories.npz and modelwritten.npz, no two of them
the same; four fifths are continued greedily, the rest at temperature 0.6, past the end of the story as well. A line:
{"prompt": tokens of it, "ids": [...]}.
"""

import argparse
import http.client
import json
import pathlib
import random
import threading
import time

import numpy as np

import data
import tokenizer

CUTS, SEED, LENGTH, TOGETHER = (4, 8, 12, 16, 20, 24, 28, 32, 38, 45, 60, 80, 100, 120), 7, 176, 32


def held_out(folder, text):
    """[(ids, 0)]: the first 30 tokens of each story of a text that nothing was trained on."""
    sp = tokenizer.load(pathlib.Path(folder) / "tokenizer.model")
    return [([tokenizer.BOS] + sp.encode(story)[:29], 0.0) for story in data.load_stories(text)]


def prompts(folder):
    """[(ids, temperature)], seeded."""
    rng, result = random.Random(SEED), {}
    for name in ("tinystories", "modelwritten"):
        corpus = np.load(pathlib.Path(folder) / f"{name}.npz")
        for row in np.split(corpus["tokens"], np.cumsum(corpus["lengths"])[:-1]):
            ids = [tokenizer.BOS] + [int(x) for x in row if x > tokenizer.EOS]
            for cut in rng.sample(CUTS, 2):
                result.setdefault(tuple(ids[:cut]), 0.0 if rng.random() < 0.8 else 0.6)
    result = [(list(ids), temperature) for ids, temperature in result.items()]
    rng.shuffle(result)
    return result


def ask(connection, model, ids, temperature):
    body = {"model": model, "prompt": ids, "max_tokens": LENGTH, "temperature": temperature, "ignore_eos": True,
            "return_token_ids": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    if "choices" not in reply:
        raise SystemExit(f"the server refused: {reply}")
    return {"prompt": len(ids), "ids": ids + reply["choices"][0]["token_ids"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--held", help="go on from the stories of this text instead, to measure heads on (medusa.py --held)")
    p.add_argument("--skip", type=int, default=0, help="prompts that an earlier run has taken")
    p.add_argument("--seconds", type=float, default=1e9)
    args = p.parse_args()
    asked = held_out(args.data, args.held) if args.held else prompts(args.data)
    end, jobs, lock = time.time() + args.seconds, iter(asked[args.skip:]), threading.Lock()

    def work(out):
        connection = http.client.HTTPConnection("127.0.0.1", args.port)
        while time.time() < end:
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            line = json.dumps(ask(connection, args.model, *job))
            with lock:
                out.write(line + "\n")

    with open(args.out, "w") as out:
        threads = [threading.Thread(target=work, args=(out,)) for _ in range(TOGETHER)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
