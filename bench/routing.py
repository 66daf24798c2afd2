#!/usr/bin/env python3
"""What routing by a learned score and by a cascade costs, and how often its answers are right, beside "always small", "always large" and
chance. The embedded story models of 1 M and 16 M parameters answer questions of two sets.

    bench/routing.py --penstock build/release/penstock --corpora ../shared/data/corpora --output bench/notes/images/routing.svg

reading: a held-out story up to the last word of a sentence, which is to be said; arithmetic: questions of GSM8K's test set. Both models are
asked everything, without sampling; stories (and questions) of even number train the score (`penstock route train`), the others are
reported. Costs are in bytes of weights for each token. What is drawn is computed from the answers of both models; three points of it are
then asked of the server's own route, and must be the same.
"""
import argparse
import base64
import concurrent.futures
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
SMALL, LARGE = ROOT / "models" / "penstock-stories-1m-q8_0.gguf", ROOT / "models" / "penstock-stories-15m-q8_0.gguf"
VECTORS = ROOT / "models" / "penstock-embed-2m-q8_0.gguf"
RULES = [{"if": {"mathematics": True}, "use": "small"}]
TOKENS = 4  # of an answer; the words that are asked for are shorter


def reading(text):
    """(story, prompt, answer)"""
    for number, story in enumerate(text.split("<|endoftext|>")):
        words = " ".join(story.split()).split(" ")
        for i, word in enumerate(words):
            answer = word.rstrip(".!?")
            if i >= 25 and word[-1:] in ".!?" and re.fullmatch("[a-z]{3,}", answer):
                yield number, " ".join(words[max(0, i - 60):i]), answer


def arithmetic(path, n):
    for number, line in enumerate(path.read_text().splitlines()[:n]):
        one = json.loads(line)
        yield number, " ".join(one["question"].split()) + " The answer is", one["answer"].split("####")[1].strip().replace(",", "")


def is_right(answer, text):
    said = re.match(r"[^A-Za-z0-9]*([A-Za-z]+|[\d,.]*\d)", text)
    return said is not None and said[1].lower().replace(",", "") == answer


def ask(server, model, question, n_tokens=TOKENS):
    body = {"model": model, "prompt": question["prompt"], "max_tokens": n_tokens, "temperature": 0, "logprobs": 0}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200, reply.body
    got = reply.json()
    choice, usage = got["choices"][0], got["usage"]
    values = choice["logprobs"]["token_logprobs"]
    return {"right": is_right(question["answer"], choice["text"]), "tokens": usage["total_tokens"], "logprob": sum(values) / len(values),
            "route": reply.headers.get("x-penstock-route", "")}


def vector(server, text):
    reply = server.post("/v1/embeddings", {"model": "vectors", "input": text, "encoding_format": "base64", "truncate_prompt_tokens": -1}).json()
    raw = base64.b64decode(reply["data"][0]["embedding"])
    values = struct.unpack(f"{len(raw) // 4}f", raw)
    length = sum(v * v for v in values) ** 0.5
    return [v / length for v in values]


def models(folder, routes):
    sizes = {"small": SMALL.stat().st_size / 1e6, "large": LARGE.stat().st_size / 1e6}
    path = folder / "models.json"
    path.write_text(json.dumps({"models": [
        {"name": "small", "model": str(SMALL), "price": {"input": sizes["small"], "output": sizes["small"]}},
        {"name": "large", "model": str(LARGE), "price": {"input": sizes["large"], "output": sizes["large"]}},
        {"name": "vectors", "model": str(VECTORS), "runner": "pooling"}], "routes": routes}))
    return path, sizes


def outcome(questions, to_large, sizes, cascade=False):
    """(cost, share that is right); the cost of "always large" is 1"""
    cost = right = whole = 0
    for q in questions:
        chosen = q["large" if to_large(q) else "small"]
        right += chosen["right"]
        cost += chosen["tokens"] * sizes["large" if to_large(q) else "small"]
        if cascade and to_large(q):
            cost += q["small"]["tokens"] * sizes["small"]
        whole += q["large"]["tokens"] * sizes["large"]
    return cost / whole, right / len(questions)


def svg(curves, points, path, title):
    w, h, left, top = 720, 420, 60, 40
    values = [p[1] for line in curves.values() for p in line] + [p[1] for p in points.values()]
    low, high = min(values) - 0.01, max(values) + 0.01
    x = lambda c: left + c / 1.15 * (w - left - 20)  # noqa: E731
    y = lambda v: top + (high - v) / (high - low) * (h - top - 50)  # noqa: E731
    styles = ['stroke="#1565c0" stroke-width="2"', 'stroke="#2e7d32" stroke-width="2"', 'stroke="#e65100" stroke-width="2"', 'stroke="#888" stroke-dasharray="5 4"']
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="12">',
           f'<rect width="{w}" height="{h}" fill="#fff"/><text x="{left}" y="22" font-size="14">{title}</text>']
    tick = low - low % 0.02 + 0.02
    while tick < high:
        out.append(f'<line x1="{left}" x2="{w - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{100 * tick:.0f} %</text>')
        tick += 0.02
    for c in (0, 0.2, 0.4, 0.6, 0.8, 1):
        out.append(f'<text x="{x(c):.1f}" y="{h - 30}" text-anchor="middle">{c:.1f}</text>')
    out.append(f'<text x="{(w + left) / 2}" y="{h - 10}" text-anchor="middle">cost, 1: always large; upwards: answers that are right</text>')
    for i, (label, line) in enumerate(curves.items()):
        out.append(f'<polyline fill="none" {styles[i]} points="' + " ".join(f"{x(c):.1f},{y(v):.1f}" for c, v in line) + '"/>')
        at = h - 138 + 18 * i
        out.append(f'<line x1="{w - 230}" x2="{w - 200}" y1="{at}" y2="{at}" {styles[i]}/><text x="{w - 194}" y="{at + 4}">{label}</text>')
    for label, (c, v) in points.items():
        out.append(f'<circle cx="{x(c):.1f}" cy="{y(v):.1f}" r="4"/><text x="{x(c) + 7:.1f}" y="{y(v) - 7:.1f}">{label}</text>')
    pathlib.Path(path).write_text("\n".join(out) + "\n</svg>\n")


def ask_both(args, folder):
    from live_server import Server
    questions = [{"set": "reading", "number": n, "prompt": p, "answer": a}
                 for n, p, a in reading((ROOT / "tests/golden/heldout_tinystories.txt").read_text())]
    questions += [{"set": "arithmetic", "number": n, "prompt": p, "answer": a}
                  for n, p, a in arithmetic(args.corpora / "gsm8k_test.jsonl", len(questions))]
    random.Random(3).shuffle(questions)
    config, sizes = models(folder, [{"name": "rules", "small": "small", "large": "large", "rules": RULES, "otherwise": "small"}])
    with Server("--models-config", config, "--no-log-requests", model=None) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name in ("small", "large"):
            for q, answer in zip(questions, pool.map(lambda q: ask(server, name, q), questions)):  # noqa: B023
                q[name] = answer
        for q, answer in zip(questions, pool.map(lambda q: ask(server, "rules", q, 1), questions)):
            q["by rule"] = "rule 1" in answer["route"]
        for q, numbers in zip(questions, pool.map(lambda q: vector(server, q["prompt"]), questions)):
            q["vector"] = numbers
    return questions, sizes


def train(args, folder, questions):
    data, file = folder / "examples.jsonl", folder / "router.json"
    data.write_text("".join(json.dumps({"prompt": q["prompt"], "small": float(q["small"]["right"]), "large": float(q["large"]["right"])}) + "\n"
                            for q in questions))
    print(subprocess.run([args.penstock, "route", "train", "-d", data, "-m", VECTORS, "-o", file], check=True, capture_output=True, text=True).stdout)
    return file


def score_of(file):
    import math
    score = json.loads(file.read_text())
    return lambda v: 1 / (1 + math.exp(-score["bias"] - sum(a * b for a, b in zip(score["weights"], v))))


def check(args, folder, questions, sizes, file, threshold, doubt):
    """The same of the server's own routes."""
    from live_server import Server
    routes = [{"name": "by-score", "small": "small", "large": "large", "score": {"file": str(file), "model": "vectors", "threshold": threshold},
               "otherwise": "small"},
              {"name": "by-doubt", "small": "small", "large": "large", "cascade": {"min_mean_logprob": doubt}, "otherwise": "small"},
              {"name": "by-rule-and-doubt", "small": "small", "large": "large", "rules": RULES, "cascade": {"min_mean_logprob": doubt},
               "otherwise": "small"}]
    config, _ = models(folder, routes)
    with Server("--models-config", config, "--no-log-requests", model=None) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name in (route["name"] for route in routes):
            answers = list(pool.map(lambda q: ask(server, name, q), questions))  # noqa: B023
            n_large = sum("model=large" in a["route"] or "answered-by=large" in a["route"] for a in answers)
            print(f"  {name}: {100 * n_large / len(answers):.1f} % to the large model, {100 * sum(a['right'] for a in answers) / len(answers):.1f} % right")
        metrics = server.metrics()
        for name in (route["name"] for route in routes):
            cost, saved = (metrics.get(f'penstock:route_cost_{what}{{route="{name}"}}', 0) for what in ("total", "saved"))
            print(f"  {name}: cost {cost / (cost + saved):.3f} by the server's own count")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--corpora", required=True, type=pathlib.Path)
    parser.add_argument("--output", default="routing.svg")
    args = parser.parse_args()
    os.environ["PENSTOCK"] = args.penstock
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        questions, sizes = ask_both(args, folder)
        trained, reported = ([q for q in questions if q["number"] % 2 == side] for side in (0, 1))
        file = train(args, folder, trained)
        score = score_of(file)
        for q in questions:
            q["score"] = score(q["vector"])
        for name in ("reading", "arithmetic"):
            of = [q for q in reported if q["set"] == name]
            print(f"{name}: {len(of)} questions; right: small {100 * sum(q['small']['right'] for q in of) / len(of):.1f} %, "
                  f"large {100 * sum(q['large']['right'] for q in of) / len(of):.1f} %; {sum(q['by rule'] for q in of)} mathematics by the rule")
        cuts = lambda key: sorted(key(q) for q in reported)  # noqa: E731
        ends = {"always small": outcome(reported, lambda q: False, sizes), "always large": outcome(reported, lambda q: True, sizes)}
        curves = {"learned score": [outcome(reported, lambda q: q["score"] >= t, sizes) for t in cuts(lambda q: q["score"])[::20]],  # noqa: B023
                  "cascade by log-probability": [outcome(reported, lambda q: q["small"]["logprob"] < t, sizes, cascade=True)  # noqa: B023
                                                 for t in cuts(lambda q: q["small"]["logprob"])[::20]],
                  "rule, then cascade": [outcome(reported, lambda q: q["small"]["logprob"] < t and not q["by rule"], sizes, cascade=True)  # noqa: B023
                                         for t in [*cuts(lambda q: q["small"]["logprob"])[::20], 1]],
                  "chance": list(ends.values())}
        svg(curves, ends, args.output, "Stories models of 1 M and 16 M parameters: the last word of a sentence, and arithmetic")
        (cheap, low), (dear, high) = ends.values()
        print(f"\nalways small: cost {cheap:.3f}, {100 * low:.1f} % right; always large: {dear:.3f}, {100 * high:.1f} %; {len(reported)} questions\n")
        print("   cost    chance     score   cascade  rule and cascade    % right")
        for cost in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
            best = [max((v for c, v in curves[label] if c <= cost), default=low) for label in list(curves)[:3]]
            print(f"  {cost:5.1f}  {100 * (low + (high - low) * (cost - cheap) / (dear - cheap)):8.1f}  {100 * best[0]:8.1f}  {100 * best[1]:8.1f}  {100 * best[2]:16.1f}")
        threshold, doubt = cuts(lambda q: q["score"])[len(reported) // 2], cuts(lambda q: q["small"]["logprob"])[len(reported) // 2]
        for label, point in (("by-score", outcome(reported, lambda q: q["score"] >= threshold, sizes)),
                             ("by-doubt", outcome(reported, lambda q: q["small"]["logprob"] < doubt, sizes, cascade=True)),
                             ("by-rule-and-doubt", outcome(reported, lambda q: q["small"]["logprob"] < doubt and not q["by rule"], sizes, cascade=True))):
            print(f"{label}: cost {point[0]:.3f}, {100 * point[1]:.1f} % right")
        print("asked of the server itself:")
        check(args, folder, reported, sizes, file, threshold, doubt)


if __name__ == "__main__":
    main()
