#!/usr/bin/env python3
"""Writes the golden ids of tokenizer tests, from Hugging Face tokenizers, sentencepiece and tiktoken.

    make_tokenizer_golden.py tiny          trains the small vocabularies of tests/text/golden/ anew
    make_tokenizer_golden.py golden [DATA] golden ids of them and, with the data folder, of real vocabularies

The strings are made from a seed by the same steps here and in golden_cases.h; a golden holds the ids of the first strings
and one hash per 100 strings of the rest.
"""
import base64
import json
import os
import sys
import unicodedata

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
MASK = (1 << 64) - 1
CHUNK = 100
POOLS = json.load(open(os.path.join(HERE, "pools.json"), encoding="utf-8"))


class Rng:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        return (z >> 32) * n >> 32


def stable(c):
    """Whether every Unicode version since 14 gives this code point the same properties."""
    if c >= 0x40000:
        return c < 0x110000
    return not 0xD800 <= c < 0xE000 and c != 0x111C9 and unicodedata.category(chr(c)) != "Cn"


def code_point(rng, low, high):
    while True:
        c = low + rng.below(high - low + 1)
        if stable(c):
            return chr(c)


def pooled(rng):
    """A character of a random pool."""
    n = len(POOLS["ranges"])
    pool = rng.below(n + 1)
    return pool_char(rng, pool)


def pool_char(rng, pool):
    if pool == len(POOLS["ranges"]):
        return pick(rng, "chars")
    return code_point(rng, *POOLS["ranges"][pool])


def pick(rng, name):
    return POOLS[name][rng.below(len(POOLS[name]))]


def soup(rng):
    kind = rng.below(8)
    if kind < 3:
        return pick(rng, "words")
    if kind == 3:
        return pick(rng, "specials")
    if kind == 4:
        return str(rng.below(1000000))
    return " " if kind == 5 else pick(rng, "chars")


def capitals(rng):
    text = " ".join(pick(rng, "words") for _ in range(6))
    return "".join(c.upper() if rng.below(5) < 2 and "a" <= c <= "z" else c for c in text)


def make_case(rng, invalid):
    """One string, as bytes."""
    kind = rng.below(12 if invalid else 11)
    if kind == 0:
        text = "".join(code_point(rng, 0, 0x10FFFF) for _ in range(1 + rng.below(30)))
    elif kind == 1:
        pool = rng.below(len(POOLS["ranges"]) + 1)
        text = "".join(pool_char(rng, pool) for _ in range(1 + rng.below(40)))
    elif kind == 2:
        text = pooled(rng)
        text *= 1 + rng.below(200)
    elif kind == 3:
        text = "".join(pooled(rng) for _ in range(1 + rng.below(40)))
    elif kind == 4:
        text = " ".join(pick(rng, "words") for _ in range(1 + rng.below(20)))
    elif kind in (5, 6):
        text = "".join(soup(rng) for _ in range(1 + rng.below(25)))
    elif kind == 7:
        parts = []
        for _ in range(1 + rng.below(12)):
            c = pooled(rng)
            parts.append(c * (1 + rng.below(6)))
        text = "".join(parts)
    elif kind == 8:
        text = pick(rng, "emoji")
        text *= 1 + rng.below(4)
        text += pick(rng, "words")
    elif kind == 9:
        text = capitals(rng)
    elif kind == 10:
        text = "".join(code_point(rng, 0, 0x3000) for _ in range(1 + rng.below(30)))
    else:
        data = bytearray()
        for _ in range(1 + rng.below(20)):
            data += bytes([rng.below(256)]) if rng.below(3) == 0 else soup(rng).encode()
        return bytes(data)
    return text.encode()


def make_cases(seed, n, invalid):
    rng = Rng(seed)
    return [make_case(rng, invalid) for _ in range(n)]


def fnv(blobs):
    h = 0xCBF29CE484222325
    for blob in blobs:
        for byte in len(blob).to_bytes(4, "little") + blob:
            h = ((h ^ byte) * 0x100000001B3) & MASK
    return "%016x" % h


def pack(ids):
    return b"".join(i.to_bytes(4, "little") for i in ids)


def hashes(blobs):
    return [fnv(blobs[i:i + CHUNK]) for i in range(0, len(blobs), CHUNK)]


class HfOracle:
    def __init__(self, tokenizer, decode=True):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer, self.with_decode = tokenizer, decode

    def modes(self):
        return ["plain", "special"]

    def encode(self, data, mode):
        self.tokenizer.encode_special_tokens = mode == "plain"
        return self.tokenizer.encode(data.decode(), add_special_tokens=mode == "special").ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True) if self.with_decode else None


class UnigramOracle(HfOracle):
    """Hugging Face finds the names of special tokens in plain text; to never do so is a promise of this project."""

    def __init__(self, path):
        from tokenizers import Tokenizer
        super().__init__(Tokenizer.from_file(path))
        with open(path, encoding="utf-8") as f:
            root = json.load(f)
        root["added_tokens"], root["post_processor"] = [], None
        for i in range(3):
            root["model"]["vocab"][i][0] = chr(0x10FFFD) * (i + 1)
        self.plain = Tokenizer.from_str(json.dumps(root))

    def encode(self, data, mode):
        return self.plain.encode(data.decode()).ids if mode == "plain" else super().encode(data, mode)


class SpOracle:
    def __init__(self, path):
        import sentencepiece
        self.processor = sentencepiece.SentencePieceProcessor(model_file=path)

    def modes(self):
        return ["plain"]

    def encode(self, data, _mode):
        return self.processor.encode(data)

    def decode(self, _ids):
        return None


class TiktokenOracle:
    def __init__(self, path, pattern, nfc=False):
        import tiktoken
        lines = [line.split() for line in open(path, "rb") if line.strip()]
        ranks = {base64.b64decode(piece): int(rank) for piece, rank in lines}
        self.encoding = tiktoken.Encoding("golden", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        self.nfc = nfc

    def modes(self):
        return ["plain"]

    def encode(self, data, _mode):
        text = data.decode()
        if self.nfc:  # as tokenizer.json of the same model does it, by older tables than Python's
            from tokenizers import normalizers
            text = normalizers.NFC().normalize_str(text)
        return self.encoding.encode_ordinary(text)

    def decode(self, _ids):
        return None


def golden(oracle, seed, n, n_full, invalid=False):
    cases = make_cases(seed, n, invalid)
    result = {"seed": seed, "n": n, "invalid": invalid}
    for mode in oracle.modes():
        ids = [oracle.encode(case, mode) for case in cases]
        entry = {"first": ids[:n_full], "hashes": hashes([pack(i) for i in ids])}
        texts = [oracle.decode(i) for i in ids]
        if texts[0] is not None:
            entry["decoded"] = hashes([t.encode() for t in texts])
        result[mode] = entry
    return result


def write(name, value):
    path = os.path.join(HERE, name)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    print(path, os.path.getsize(path))


# ---- the small vocabularies -------------------------------------------------------------------------------------------

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def training_lines():
    """The project's own design document, and words of the pools."""
    rng = Rng(7)
    with open(os.path.join(HERE, "../../../docs/design.md"), encoding="utf-8") as f:
        lines = [line.rstrip() for line in f if line.strip()] * 3
    for _ in range(400):
        lines.append(" ".join(pick(rng, "words") for _ in range(3 + rng.below(12))))
        lines.append(capitals(rng))
    return lines


def train_byte_bpe():
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(training_lines(), trainer)
    t.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", rstrip=True, special=True)])
    t.add_tokens([AddedToken("<mid>", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True),
                  AddedToken("<wide>", lstrip=True, normalized=True), AddedToken("»«", normalized=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    write("tiny_byte_bpe.json", json.loads(t.to_str()))


def train_word_piece():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False)
    t.train_from_iterator(training_lines(), trainer)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    write("tiny_word_piece.json", json.loads(t.to_str()))


def train_sentence_piece(name, **options):
    import sentencepiece
    path = os.path.join(HERE, name)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()), model_prefix=path, num_threads=1, minloglevel=2, max_sentence_length=1000,
        **options)
    os.remove(path + ".vocab")
    print(path, os.path.getsize(path + ".model"))


def pieces_of(name):
    from sentencepiece import sentencepiece_model_pb2 as proto
    model = proto.ModelProto()
    model.ParseFromString(open(os.path.join(HERE, name), "rb").read())
    return model


def special(i, content):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def convert_bpe():
    """tokenizer.json of the BPE .model, as Hugging Face writes Llama 2's."""
    model = pieces_of("tiny_spm_bpe.model")
    vocab = {p.piece: i for i, p in enumerate(model.pieces)}
    merges = []
    for p in model.pieces:
        if p.type != 1:
            continue
        local = [(p.piece[:i], p.piece[i:]) for i in range(1, len(p.piece)) if p.piece[:i] in vocab and p.piece[i:] in vocab]
        merges += [(p.score, m) for m in sorted(local, key=lambda m: (vocab[m[0]], vocab[m[1]]))]
    merges.sort(key=lambda m: -m[0])
    write("tiny_spm_bpe.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [special(i, p.piece) for i, p in enumerate(model.pieces) if p.type in (2, 3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": [list(m) for _, m in merges]}})


def convert_unigram():
    model = pieces_of("tiny_unigram.model")
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    eos = next(i for i, p in enumerate(model.pieces) if p.piece == "</s>")
    write("tiny_unigram.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [special(i, p.piece) for i, p in enumerate(model.pieces) if p.type in (2, 3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {"</s>": {"id": "</s>", "ids": [eos], "tokens": ["</s>"]}}},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                  "vocab": [[p.piece, p.score] for p in model.pieces]}})


def train_tiny():
    train_byte_bpe()
    train_word_piece()
    train_sentence_piece("tiny_spm_bpe", model_type="bpe", vocab_size=700, byte_fallback=True, character_coverage=0.98,
                         normalization_rule_name="identity", remove_extra_whitespaces=False,
                         user_defined_symbols=["<mid>", "»«"])
    rules = os.path.join(HERE, "rules.tsv")
    with open(rules, "w") as f:  # hexadecimal code points: from, to
        for source, target in [("ﬁ", "fi"), ("…", "..."), ("Ⅷ", "VIII"), ("\u212b", "\u00c5"), ("e\u0301", "\u00e9"), ("①", "1"), ("½", "1/2"),
                               ("\u3000", " "), ("\u00a0", " "), ("\t", " "), ("\n", " "), ("\u200b", ""), ("ß", "ss"), ("İ", "i̇")]:
            f.write(" ".join("%X" % ord(c) for c in source) + "\t" + " ".join("%X" % ord(c) for c in target) + "\n")
    train_sentence_piece("tiny_unigram", model_type="unigram", vocab_size=400, character_coverage=0.98,
                         normalization_rule_tsv=rules, user_defined_symbols=[])
    os.remove(rules)
    convert_bpe()
    convert_unigram()


# ---- variants: one section of tiny_chars exchanged at a time ----------------------------------------------------------

# What Oniguruma reads otherwise than PCRE2 does.
PATTERNS = [
    r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]+", r"[\p{L}&&[^\p{Han}&&[^\u4e00]]]+", r"[a[b-d[^\S]]]+", r"[x[^\p{L}\s]]+",
    r"[\p{Lu}\p{Lt}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{M}&&[^\p{Han}]]+", r"\p{Han}+", r"\p{^Han}+", r"\p{Letter}+", r"\p{Uppercase_Letter}",
    r"\p{Nd}{2}+", r"\w{2}?x", r"\w{,3}y", r"\bw", r"e\b", r"\Be\B", r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))", r"(a|b){2}+c?",
    r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)", r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"[[:alpha:]&&[^a-f]]+",
    r"(?i:'s|'t|ß|straße)", r"[^\r\n\p{L}\p{N}]?+\p{L}+", r" ?[^(\s|[.,!?…。])]+", r"\s+$", r"^ ", r"[[:punct:]]+|[[:upper:]]", r"[[:alnum:][:space:]]+", r"[[:^alpha:]&&[:^space:]]+", r"[[:word:]]+$"]


def variants():
    split = lambda behavior, invert: {"type": "Split", "pattern": {"Regex": r"\s+|\w\d"}, "behavior": behavior, "invert": invert}
    metaspace = lambda scheme, cut: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
    pre = [split(b, i) for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
           for i in (False, True)]
    pre += [{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}]
    pre += [{"type": "Digits", "individual_digits": d} for d in (False, True)]
    pre += [{"type": "Punctuation", "behavior": b} for b in ("Removed", "Isolated", "Contiguous")]
    pre += [{"type": t} for t in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")]
    pre += [metaspace(s, c) for s in ("always", "first", "never") for c in (True, False)]
    pre += [{"type": "CharDelimiterSplit", "delimiter": "e"}]
    pre += [{"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"},
                                                   {"type": "Digits", "individual_digits": True}]}]
    pre += [{"type": "ByteLevel", "add_prefix_space": p, "trim_offsets": True, "use_regex": r} for p in (False, True)
            for r in (False, True)]
    norm = [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")]
    norm += [{"type": "Strip", "strip_left": l, "strip_right": r} for l, r in ((True, False), (False, True), (True, True))]
    norm += [{"type": "BertNormalizer", "clean_text": c, "handle_chinese_chars": h, "strip_accents": a, "lowercase": l}
             for c, h, a, l in ((True, True, None, True), (False, True, True, False), (True, False, False, True))]
    norm += [{"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}]
    norm += [{"type": "Replace", "pattern": {"Regex": "[0-9]+|\\s"}, "content": "#"}]
    norm += [{"type": "Prepend", "prepend": "▁"}]
    model = [{"byte_fallback": True}, {"fuse_unk": False}, {"unk_token": None}, {"ignore_merges": True}]
    return ([{"pre_tokenizer": p} for p in pre] + [{"normalizer": n} for n in norm] +
            [{"model": dict(m), "pre_tokenizer": {"type": "Whitespace"}} for m in model] +
            [{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}}
             for r in PATTERNS])


def variant_json(change):
    """tiny_spm_bpe.json without normalizer and with a visible unknown token, changed."""
    root = json.load(open(os.path.join(HERE, "tiny_spm_bpe.json"), encoding="utf-8"))
    root["normalizer"] = root["post_processor"] = None
    root["model"]["byte_fallback"] = False
    for key, value in change.items():
        if key == "model":
            root[key].update(value)
        else:
            root[key] = value
    return root


def write_variants():
    from tokenizers import Tokenizer
    result = []
    for i, change in enumerate(variants()):
        oracle = HfOracle(Tokenizer.from_str(json.dumps(variant_json(change))), decode=False)
        entry = golden(oracle, 1000 + i, 500, 0)
        del entry["plain"]["first"], entry["special"]
        result.append({"change": change, **entry})
    write("variants.golden.json", result)


# ---- presets: how GGUF's families split text --------------------------------------------------------------------------

def preset_json(family):
    """A small vocabulary without its added tokens, with the family's way to split text."""
    characters = family.get("characters", False)
    root = json.load(open(os.path.join(HERE, "tiny_spm_bpe.json" if characters else "tiny_byte_bpe.json"), encoding="utf-8"))
    size = len(root["model"]["vocab"])
    root["added_tokens"] = [token for token in root["added_tokens"] if token["id"] < size]
    root["post_processor"] = None
    root["normalizer"], root["pre_tokenizer"] = family["normalizer"], family["pre_tokenizer"]
    root["model"]["ignore_merges"] = family["ignore_merges"]
    return root


def write_presets():
    """presets.json says of every family what its tokenizer.json or llama.cpp has, and where that was seen."""
    from tokenizers import Tokenizer
    result = []
    for i, family in enumerate(json.load(open(os.path.join(HERE, "presets.json"), encoding="utf-8"))["families"]):
        entry = golden(HfOracle(Tokenizer.from_str(json.dumps(preset_json(family))), decode=False), 2000 + i, 1000, 0)
        del entry["plain"]["first"], entry["special"]
        result.append({"names": family["names"], **entry})
    write("presets.golden.json", result)


# ---- goldens ----------------------------------------------------------------------------------------------------------

CL100K = LLAMA3
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def gguf_oracle(path, pre, normalizer=None):
    """Hugging Face's pipeline of the family around the vocabulary of a GGUF file."""
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE({p: i for i, p in enumerate(tokens)}, merges))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.add_special_tokens([AddedToken(p, normalized=False, special=True) for p, kind in zip(tokens, types) if kind in (2, 3)])
    t.add_tokens([AddedToken(p, normalized=True) for p, kind in zip(tokens, types) if kind == 4])
    oracle = HfOracle(t)
    oracle.modes = lambda: ["plain"]
    return oracle


def bert_oracle(path):
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    fields = gguf.GGUFReader(path).fields
    types = fields["tokenizer.ggml.token_type"].contents()
    tokens = [p if kind != 1 else p[1:] if p.startswith("▁") else "##" + p
              for p, kind in zip(fields["tokenizer.ggml.tokens"].contents(), types)]
    t = Tokenizer(models.WordPiece({p: i for i, p in enumerate(tokens)}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.add_special_tokens([AddedToken(p, normalized=False, special=True) for p, kind in zip(tokens, types) if kind in (2, 3)])
    t.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    return HfOracle(t)


def write_data_goldens(data):
    from tokenizers import Regex, Tokenizer, pre_tokenizers as pt
    base = os.path.join(data, "tokenizers")
    at = lambda name: os.path.join(base, name)
    vocab = lambda name: at("ggml-vocab/ggml-vocab-%s.gguf" % name)
    level = lambda regex: pt.ByteLevel(add_prefix_space=False, use_regex=regex)
    cut = lambda regex: pt.Split(Regex(regex), "isolated")
    # Texts of llama2_tokenizer_newfmt.json are left out: its special tokens are "normalized", so the reference spells <s> as
    # "▁<s>" and no longer knows it as special.
    jobs = {name: (lambda n=name: HfOracle(Tokenizer.from_file(at(n)), decode="newfmt" not in n)) for name in (
        "gpt2_tokenizer.json", "llama2_tokenizer_newfmt.json", "neox_20B_tokenizer.json", "simplestories-4096.json",
        "smollm2_tokenizer.json")}
    for name in ("llama2_tokenizer.model", "storyllamas_4096.model", "mistral/tokenizer.model.v1",
                 "mistral/mistral_instruct_tokenizer_240323.model.v3"):
        jobs[name] = lambda n=name: SpOracle(at(n))
    jobs["llama3_tokenizer.model"] = lambda: TiktokenOracle(at("llama3_tokenizer.model"), LLAMA3)
    jobs["qwen.tiktoken"] = lambda: TiktokenOracle(at("qwen.tiktoken"), LLAMA3.replace("{1,3}", ""), nfc=True)
    jobs["tiktoken/cl100k_base.tiktoken"] = lambda: TiktokenOracle(at("tiktoken/cl100k_base.tiktoken"), CL100K)
    jobs["tiktoken/o200k_base.tiktoken"] = lambda: TiktokenOracle(at("tiktoken/o200k_base.tiktoken"), O200K)
    jobs["ggml-vocab/ggml-vocab-gpt-2.gguf"] = lambda: gguf_oracle(vocab("gpt-2"), level(True))
    jobs["ggml-vocab/ggml-vocab-starcoder.gguf"] = lambda: gguf_oracle(
        vocab("starcoder"), pt.Sequence([pt.Digits(True), level(True)]))
    jobs["ggml-vocab/ggml-vocab-falcon.gguf"] = lambda: gguf_oracle(vocab("falcon"), pt.Sequence(
        [pt.Punctuation("contiguous"), level(True), pt.Digits(False), cut("[0-9][0-9][0-9]")]))
    jobs["ggml-vocab/ggml-vocab-deepseek-coder.gguf"] = lambda: gguf_oracle(vocab("deepseek-coder"), pt.Sequence(
        [cut("[\r\n]"), cut("\\s?\\p{L}+"), cut("\\s?\\p{P}+"), cut("[一-龥ࠀ-一가-\ud7ff]+"), pt.Digits(True), level(False)]))
    jobs["ggml-vocab/ggml-vocab-bert-bge.gguf"] = lambda: bert_oracle(vocab("bert-bge"))
    jobs["ggml-vocab/ggml-vocab-llama-spm.gguf"] = lambda: SpOracle(at("llama2_tokenizer.model"))
    result = {}
    for i, (name, make) in enumerate(jobs.items()):
        oracle = make()
        result[name] = golden(oracle, 100 + i, 10000, 10, isinstance(oracle, SpOracle))
        print(name, flush=True)
    write("data.golden.json", result)


def write_tiny_goldens():
    from tokenizers import Tokenizer
    result = {}
    for i, name in enumerate(("tiny_byte_bpe.json", "tiny_word_piece.json", "tiny_spm_bpe.json", "tiny_unigram.json")):
        path = os.path.join(HERE, name)
        oracle = UnigramOracle(path) if "unigram" in name else HfOracle(Tokenizer.from_file(path))
        result[name] = golden(oracle, 10 + i, 10000, 20)
    for i, name in enumerate(("tiny_spm_bpe.model", "tiny_unigram.model")):
        result[name] = golden(SpOracle(os.path.join(HERE, name)), 20 + i, 10000, 20, True)
    write("tiny.golden.json", result)


def main():
    assert unicodedata.unidata_version == "14.0.0", "the strings are made with the tables of Unicode 14"
    if sys.argv[1] == "tiny":
        train_tiny()
    else:
        write_tiny_goldens()
        write_variants()
        write_presets()
        if len(sys.argv) > 2:
            write_data_goldens(sys.argv[2])


if __name__ == "__main__":
    main()
