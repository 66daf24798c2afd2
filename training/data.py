"""Corpora to token files: clean, split by story, deduplicate, tokenize; and the batches made from them.

    python data.py --corpora DIR --out DIR

writes tokenizer.model, heldout.txt, valid.txt, one <source>.npz per source and prepare.json (what was kept). Held-out and
validation stories are TinyStories only; they are set aside before anything else, and a story of any source that shares
more than a fifth of its eight-word shingles with them is dropped.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess

import numpy as np

import tokenizer

SEPARATOR = "<|endoftext|>"
HELDOUT = 110  # stories of the held-out text, and as many for validation
MOJIBAKE = [("â€œ", '"'), ("â€™", "'"), ("â€˜", "'"), ("â€”", " - "), ("â€“", "-"), ("â€¦", "..."), ("â€\x9d", '"'), ("â€", '"')]
TYPOGRAPHY = str.maketrans({"“": '"', "”": '"', "’": "'", "‘": "'", "—": "-", "–": "-", "…": "...", "\u00a0": " ",
                            "\ufeff": "", "\r": "", "\t": " "})


def clean(text):
    """Straight quotes, no mis-decoded quotes, single spaces, no trailing space, at most one empty line."""
    for wrong, right in MOJIBAKE:
        text = text.replace(wrong, right)
    text = re.sub(r" +", " ", text.translate(TYPOGRAPHY))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" *\n *", "\n", text)).strip()


def split_marked(text):
    return text.split(SEPARATOR)


def split_model_written(text):
    """Stories between dashed rules; some lack the rule, so a line's inner 'Once upon a time' also begins one."""
    text = text.replace("Compiling the model...\n", "")
    parts = re.split(r"\n-{5,}\n|(?<=[.!?\"]) (?=Once upon a time)", text)
    return [p for p in parts if len(p) > 200]


def unwrap(text):
    """Joins lines broken at a page's width; an empty line stays a paragraph's end."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text).replace("\n\n", "\n")


def split_book(text):
    return [unwrap(story) for story in text.split(SEPARATOR)]


def split_novels(text):
    """Pieces of about 1,900 characters at paragraph ends, one of every `12` kept: 77 MB is more than is used."""
    pieces, size, piece = [], 0, []
    for paragraph in text.replace(SEPARATOR, "\n").split("\n"):
        piece.append(paragraph)
        size += len(paragraph)
        if size > 1900:
            pieces.append("\n".join(piece))
            size, piece = 0, []
    return pieces[::12]


# name, file, splitter, licence, credit. Nothing that is not in this list is ever read.
SOURCES = [
    ("tinystories", "tinystories_real_merged.txt", split_marked, "CDLA-Sharing-1.0", "TinyStories, Eldan and Li"),
    ("modelwritten", "modelwritten_stories.txt.zst", split_model_written, "MIT", "stories written by a llama2.c model"),
    ("african", "african_storybook_en.txt.zst", split_marked, "CC-BY 3.0/4.0",
     "African Storybook (africanstorybook.org), its authors and illustrators, by way of the Global ASP project"),
    ("fairytales", "fairytaleqa_stories.txt.zst", split_book, "public domain", "Project Gutenberg, by FairytaleQA"),
    ("novels", "english_novels.txt.zst", split_novels, "public domain", "100 English Novels, Computational Stylistics"),
]


def read(path):
    path = pathlib.Path(path)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout.decode("utf-8", "replace")
    return path.read_text(encoding="utf-8", errors="replace")


def shingles(text, n=8):
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {hash_words(words[i:i + n]) for i in range(max(1, len(words) - n + 1))}


def hash_words(words):
    return int.from_bytes(hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest(), "little")


def rank(story):
    """A story's place in an order that depends on its text alone: the split is the same in every run."""
    return hashlib.sha256(story.encode()).digest()


def split_stories(corpora, reserve):
    """`reserve` stories each for heldout and valid. Returns ({source: stories}, heldout, valid, report)."""
    report, kept, seen = {}, {}, set()
    texts = {name: [clean(s) for s in splitter(read(pathlib.Path(corpora) / file))]
             for name, file, splitter, *_ in SOURCES if (pathlib.Path(corpora) / file).exists()}
    tiny = sorted({s for s in texts["tinystories"] if 200 < len(s) <= 1600 and s.isascii()}, key=rank)
    heldout, valid = tiny[:reserve], tiny[reserve:2 * reserve]
    reserved = set().union(*(shingles(s) for s in heldout + valid))
    for name, stories in texts.items():
        kept[name], dropped = [], {"short": 0, "like held-out": 0, "duplicate": 0}
        for story in stories:
            marks = shingles(story)
            if len(story) < 100:
                dropped["short"] += 1
            elif len(marks & reserved) > 0.2 * len(marks):
                dropped["like held-out"] += 1
            elif len(marks & seen) > 0.5 * len(marks):
                dropped["duplicate"] += 1
            else:
                seen |= marks
                kept[name].append(story)
        report[name] = {"stories": len(kept[name]), "bytes": sum(len(s.encode()) for s in kept[name]),
                        "dropped": dropped}
    return kept, heldout, valid, report


def encode_all(sp, stories, context):
    """Items of at most context + 1 ids: <s> story </s>. A story cut off in mid-sentence gets no </s>."""
    items = []
    for story, ids in zip(stories, sp.encode(stories)):
        ended = story[-1] in ".!?\"')"
        ids = [tokenizer.BOS] + ids + ([tokenizer.EOS] if ended else [])
        cuts = [ids[i:i + context + 1] for i in range(0, len(ids) - 1, context)]
        items += [np.array(c, np.uint16) for c in cuts if len(c) > 32]
    return items


def save_items(path, items):
    np.savez(path, tokens=np.concatenate(items), lengths=np.array([len(i) for i in items], np.int32))


def load_items(path):
    data = np.load(path)
    return np.split(data["tokens"], np.cumsum(data["lengths"])[:-1])


def prepare(corpora, out, vocab=4096, context=512, reserve=HELDOUT):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    kept, heldout, valid, report = split_stories(corpora, reserve)
    for name, stories in (("heldout", heldout), ("valid", valid)):
        (out / f"{name}.txt").write_text(f"\n{SEPARATOR}\n".join(stories) + "\n")
    if not (out / "tokenizer.model").exists():
        tokenizer.train((s for n in kept if n != "novels" for s in kept[n]), out / "tokenizer.model", vocab)
    sp = tokenizer.load(out / "tokenizer.model")
    for name, stories in kept.items():
        items = encode_all(sp, stories, context)
        save_items(out / f"{name}.npz", items)
        report[name]["tokens"] = int(sum(map(len, items)))
    for name, stories in (("heldout", heldout), ("valid", valid)):
        report[name] = {"stories": len(stories), "bytes": sum(len(s.encode()) for s in stories),
                        "tokens": sum(map(len, sp.encode(stories)))}
    (out / "prepare.json").write_text(json.dumps(report, indent=1) + "\n")
    return report


def load_stories(path):
    """The stories of a text file that separates them with lines of <|endoftext|>."""
    return [s.strip("\n") for s in pathlib.Path(path).read_text().split(SEPARATOR)]


LENGTHS = (128, 192, 256, 320, 384, 512)  # few shapes, so that compiled code is reused


class Batches:
    """An endless, seeded stream of (inputs, targets): int64 (rows, T), T in LENGTHS, rows * T about `tokens`.

    Each story is a row of its own (no story sees another); targets are -1 where a row is padded. Sources are drawn by
    `mix` {name: weight}; within a source every item comes once per epoch, in an order that depends on the seed.
    """

    def __init__(self, folder, mix, tokens, seed):
        self.items = {name: load_items(pathlib.Path(folder) / f"{name}.npz") for name in mix}
        self.tokens, self.seed = tokens, seed
        self.epoch = {name: 0 for name in mix}
        self.order = {name: [] for name in mix}
        self.queues = {t: [] for t in LENGTHS}
        self.random = np.random.default_rng([seed, 0])
        self.set_mix(mix)

    def set_mix(self, mix):
        """Weights are shares of tokens: a source of short items is drawn more often."""
        self.names = list(self.items)
        mean = [np.mean([len(i) for i in self.items[n]]) for n in self.names]
        rate = np.array([mix.get(n, 0) / m for n, m in zip(self.names, mean)])
        self.rate = rate / rate.sum()

    def next_item(self):
        name = self.names[self.random.choice(len(self.names), p=self.rate)]
        if not self.order[name]:
            rng = np.random.default_rng([self.seed, 1, self.names.index(name), self.epoch[name]])
            self.order[name] = list(rng.permutation(len(self.items[name])))
            self.epoch[name] += 1
        return self.items[name][self.order[name].pop()]

    def next_rows(self):
        """The items of the next batch and their common length; cheap, so a resumed run replays them."""
        while True:
            item = self.next_item()
            t = next(t for t in LENGTHS if t >= len(item) - 1)
            self.queues[t].append(item)
            if len(self.queues[t]) * t > self.tokens - t:
                rows, self.queues[t] = self.queues[t], []
                return rows, t

    def next(self):
        rows, t = self.next_rows()
        inputs = np.zeros((len(rows), t), np.int64)
        targets = np.full((len(rows), t), -1, np.int64)
        for i, row in enumerate(rows):
            inputs[i, :len(row) - 1] = row[:-1]
            targets[i, :len(row) - 1] = row[1:]
        return inputs, targets


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--vocab", type=int, default=4096)
    args = parser.parse_args()
    print(json.dumps(prepare(args.corpora, args.out, args.vocab), indent=1))
