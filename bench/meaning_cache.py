#!/usr/bin/env python3
"""How often the cache by meaning is right: precision and recall over thresholds, by asking a server pairs of questions.

    bench/meaning_cache.py --penstock build/release/penstock --corpora ../shared/data/corpora --output bench/notes/images/meaning-cache.svg
        [--embedder models/penstock-embed-2m-q8_0.gguf] [--pairs 3000] [--skip 0]

No paraphrase set is at hand that may be shipped, so pairs are made by rules of questions of MMLU's and GSM8K's test sets (the folder
of corpora has mmlu.tar.zst and gsm8k_test.jsonl): pairs that mean the same (other words, other frames, other spelling), and pairs
that do not (another number, name, quotation or negation, an opposite, two names exchanged, or simply the question of the same
subject with most words in common, unless it is the same but for articles and signs). Half of the pairs choose the threshold, the other
half is reported. --skip 3000 takes other questions: the particulars that are compared were made with the first 3,000 in view.
"""
import argparse
import collections
import concurrent.futures
import csv
import http.client
import io
import json
import pathlib
import random
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))

SYNONYMS = {"main": "principal", "often": "frequently", "usually": "normally", "kind": "type", "happen": "occur", "happens": "occurs",
            "people": "persons", "begin": "start", "begins": "starts", "reason": "cause", "use": "employ", "used": "employed",
            "called": "named", "important": "significant", "needs": "requires", "need": "require", "about": "regarding",
            "because": "since", "also": "too", "likely": "probable", "show": "demonstrate", "shows": "demonstrates", "get": "obtain",
            "buy": "purchase", "buys": "purchases", "gives": "hands", "total": "overall", "correct": "right", "following": "below",
            "describes": "characterizes", "statement": "claim", "large": "big", "make": "produce", "makes": "produces", "help": "assist"}
OPPOSITES = {"more": "less", "most": "least", "increase": "decrease", "increases": "decreases", "high": "low", "higher": "lower", "first": "last",
             "before": "after", "true": "false", "largest": "smallest", "positive": "negative", "always": "never", "with": "without"}
NAMES = ["France", "Spain", "Brazil", "Newton", "Darwin", "Maria", "Peter", "Chicago", "Toyota", "Einstein", "Kant", "Nigeria"]


def questions(corpora):
    """(subject, question)"""
    raw = subprocess.run(["zstd", "-dc", corpora / "mmlu.tar.zst"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for member in tar.getmembers():
            if member.name.endswith("_test.csv"):
                rows = csv.DictReader(io.TextIOWrapper(tar.extractfile(member), "utf8"))
                for row in rows:
                    text = " ".join(row["question"].split())
                    if text.endswith("?") and 30 <= len(text) <= 220 and "_" not in text:
                        yield member.name, text
    for line in (corpora / "gsm8k_test.jsonl").read_text().splitlines():
        text = " ".join(json.loads(line)["question"].split())
        if len(text) <= 220:
            yield "gsm8k", text


def lower_first(text):
    return text if text.split()[0].isupper() or text.startswith("I ") else text[0].lower() + text[1:]


def frame(text, rng):
    found = re.match(r"^(What|Who) (is|are|was|were) (.*)\?$", text)
    if found and rng.random() < 0.6:
        w, verb, rest = found.groups()
        if len(rest.split()) <= 9 and "," not in rest:
            return rng.choice([f"Tell me {w.lower()} {rest} {verb}.", f"I would like to know {w.lower()} {rest} {verb}.",
                               f"Do you know {w.lower()} {rest} {verb}?"])
    return rng.choice(["Can you tell me: {}", "Please answer this: {}", "{} Please explain.", "I have a question. {}", "Hi, {}"]).format(
        text if rng.random() < 0.5 else lower_first(text))


def synonyms(text, rng):
    words, changed = text.split(" "), 0
    for i, word in enumerate(words):
        bare = word.strip(".,?")
        if bare in SYNONYMS and changed < 3:
            words[i] = word.replace(bare, SYNONYMS[bare])
            changed += 1
    return " ".join(words) if changed else None


def spelling(text, rng):
    short = text.replace("What is", "What's").replace("do not", "don't").replace("does not", "doesn't").replace("is not", "isn't")
    return rng.choice([short.rstrip("?."), short.replace("?", " ?"), text + "??", text.replace(", ", " , "), short + " Thanks!"])


def same(text, rng):
    ways = [frame, synonyms, spelling, lambda t, r: frame(synonyms(t, r) or t, r), lambda t, r: spelling(frame(t, r), r)]
    rng.shuffle(ways)
    for way in ways:
        other = way(text, rng)
        if other and other != text:
            return other
    return frame(text, rng)


def number(text, rng):
    found = list(re.finditer(r"\d+", text))
    if not found:
        return None
    at = rng.choice(found)
    return text[:at.start()] + str(int(at[0]) + rng.choice([1, 2, 10])) + text[at.end():]


def names_in(text):
    return [m for m in re.finditer(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", text)]


def name(text, rng):
    found = names_in(text)
    if not found:
        return None
    at = rng.choice(found)
    return text[:at.start()] + rng.choice([n for n in NAMES if n != at[0]]) + text[at.end():]


def exchanged(text, rng):
    found = names_in(text)
    if len(found) < 2 or found[0][0] == found[-1][0]:
        return None
    a, b = found[0], found[-1]
    return text[:a.start()] + b[0] + text[a.end():b.start()] + a[0] + text[b.end():]


def negation(text, rng):
    for verb in (" is ", " are ", " was ", " were ", " does ", " can ", " would "):
        if verb in text and verb + "not" not in text:
            return text.replace(verb, verb + "not ", 1)
    return None


def opposite(text, rng):
    words = text.split(" ")
    found = [i for i, w in enumerate(words) if w.strip(".,?") in OPPOSITES]
    if not found:
        return None
    i = rng.choice(found)
    bare = words[i].strip(".,?")
    words[i] = words[i].replace(bare, OPPOSITES[bare])
    return " ".join(words)


CHANGES = {"number": number, "name": name, "names exchanged": exchanged, "negation": negation, "opposite": opposite}


def plain(text):
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in ("a", "an", "the")]


def make_pairs(corpora, n, skip, rng):
    """(kind, a, b): kind "same", or how b differs"""
    everything = sorted(set(questions(corpora)))
    rng.shuffle(everything)
    by_subject = collections.defaultdict(list)
    for subject, text in everything:
        by_subject[subject].append(text)
    pairs = []
    for subject, text in everything[skip:skip + n]:
        pairs.append(("same", text, same(text, rng)))
        kinds = list(CHANGES.items())
        rng.shuffle(kinds)
        for kind, change in kinds:
            other = change(text, rng)
            if other and other != text:
                pairs.append((kind, text, other if rng.random() < 0.5 else spelling(other, rng)))
                break
        own = set(text.lower().split())
        nearest = max((t for t in by_subject[subject] if t != text), default=None,
                      key=lambda t: len(own & set(t.lower().split())) / len(own | set(t.lower().split())))
        if nearest and plain(nearest) != plain(text):  # the sets have some questions twice
            pairs.append(("another question", text, nearest))
    return pairs


def ask(port, text, salt):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = {"model": "small", "messages": [{"role": "user", "content": text}], "max_tokens": 1, "temperature": 0, "cache_salt": salt}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.headers.get("Cache-Status", "")


def measure(port, index, pair):
    kind, a, b = pair
    ask(port, a, str(index))
    said = ask(port, b, str(index))
    found = re.search(r"penstock-meaning; .*detail=([\d.]+)(-other-particulars)?", said)
    if not found:
        return None if "bypass" in said else (kind, 1.0, True)  # an exact hit: spelled the same in the end
    return kind, float(found[1]), "; hit" in said.split("penstock-meaning")[1]


def curve(rows, guarded):
    n_same = sum(kind == "same" for kind, _, _ in rows)
    points = []
    for threshold in [i / 200 for i in range(80, 201)]:
        hits = [kind for kind, similarity, allowed in rows if similarity >= threshold and (allowed or not guarded)]
        right = sum(kind == "same" for kind in hits)
        points.append((threshold, right / len(hits) if hits else 1.0, right / n_same))
    return points


def svg(with_guard, without, chosen, path, title):
    w, h, left, top = 720, 420, 60, 40
    x = lambda t: left + (t - 0.4) / 0.6 * (w - left - 20)  # noqa: E731
    y = lambda v: top + (1 - v) * (h - top - 50)  # noqa: E731
    line = lambda points, i, style: f'<polyline fill="none" {style} points="' + " ".join(  # noqa: E731
        f"{x(p[0]):.1f},{y(p[i]):.1f}" for p in points) + '"/>'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="12">',
           f'<rect width="{w}" height="{h}" fill="#fff"/><text x="{left}" y="22" font-size="14">{title}</text>']
    for v in (0, 0.2, 0.4, 0.6, 0.8, 1):
        out.append(f'<line x1="{left}" x2="{w - 20}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#ddd"/><text x="{left - 8}" y="{y(v) + 4:.1f}" '
                   f'text-anchor="end">{v:.1f}</text>')
    for t in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1):
        out.append(f'<text x="{x(t):.1f}" y="{h - 30}" text-anchor="middle">{t:.1f}</text>')
    out.append(f'<text x="{(w + left) / 2}" y="{h - 10}" text-anchor="middle">threshold (cosine)</text>')
    out.append(f'<line x1="{x(chosen):.1f}" x2="{x(chosen):.1f}" y1="{top}" y2="{h - 50}" stroke="#888" stroke-dasharray="3 3"/>')
    rows = [(with_guard, 1, 'stroke="#1565c0" stroke-width="2"', "precision"), (with_guard, 2, 'stroke="#2e7d32" stroke-width="2"', "recall"),
            (without, 1, 'stroke="#1565c0" stroke-dasharray="6 4"', "precision without particulars"),
            (without, 2, 'stroke="#2e7d32" stroke-dasharray="6 4"', "recall without particulars")]
    for i, (points, column, style, label) in enumerate(rows):
        out.append(line(points, column, style))
        out.append(f'<line x1="{left + 10}" x2="{left + 40}" y1="{h - 130 + 18 * i}" y2="{h - 130 + 18 * i}" {style}/>'
                   f'<text x="{left + 46}" y="{h - 126 + 18 * i}">{label}</text>')
    pathlib.Path(path).write_text("\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--corpora", required=True, type=pathlib.Path)
    parser.add_argument("--embedder", default=None)
    parser.add_argument("--pairs", type=int, default=3000, help="questions, each of which makes some three pairs")
    parser.add_argument("--skip", type=int, default=0, help="so many questions first")
    parser.add_argument("--output", default="meaning-cache.svg")
    args = parser.parse_args()
    import os
    import tempfile
    os.environ["PENSTOCK"] = args.penstock
    from live_server import MODEL, SOURCE, Server
    embedder = args.embedder or SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"
    rng = random.Random(5)
    pairs = make_pairs(args.corpora, args.pairs, args.skip, rng)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "models.json"
        config.write_text(json.dumps({"models": [
            {"name": "small", "model": str(MODEL), "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"},
            {"name": "vectors", "model": str(embedder), "runner": "pooling"}]}))
        with Server("--models-config", config, "--reply-cache", "1G", "--reply-cache-entries", 1000000, "--reply-cache-by-meaning", "vectors",
                    "--reply-cache-threshold", "0", "--no-log-requests", model=None) as server:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                rows = list(pool.map(lambda one: measure(server.port, *one), enumerate(pairs)))
    n_none = sum(row is None for row in rows)
    rows = [row for row in rows if row is not None]
    tune, rest = rows[::2], rows[1::2]
    chosen = next((t for t, precision, _ in curve(tune, True) if precision >= 0.99), 1.0)
    guarded, bare = curve(rest, True), curve(rest, False)
    at = lambda points: next(p for p in points if p[0] == chosen)  # noqa: E731
    print(f"{len(rows)} pairs ({n_none} left out), {sum(k == 'same' for k, _, _ in rows)} of them mean the same")
    print(f"threshold {chosen:.3f}, chosen on half of them; on the other half:")
    print(f"  precision {at(guarded)[1]:.4f}, recall {at(guarded)[2]:.3f}; without particulars {at(bare)[1]:.4f}, {at(bare)[2]:.3f}")
    for kind in sorted({k for k, _, _ in rest}):
        of = [r for r in rest if r[0] == kind]
        hits = sum(s >= chosen and allowed for _, s, allowed in of)
        print(f"  {kind:18} {len(of):6} pairs, {hits:5} hits ({100 * hits / len(of):.2f} %), {sum(not a for _, _, a in of):5} with other particulars,"
              f" mean cosine {sum(s for _, s, _ in of) / len(of):.3f}")
    print("threshold precision recall   (without particulars)")
    for with_, without in list(zip(guarded, bare))[::10]:
        print(f"  {with_[0]:.3f}     {with_[1]:.4f}    {with_[2]:.3f}    {without[1]:.4f}    {without[2]:.3f}")
    svg(guarded, bare, chosen, args.output, f"{pathlib.Path(str(embedder)).stem}: questions of MMLU and GSM8K, changed by rules")


if __name__ == "__main__":
    main()
