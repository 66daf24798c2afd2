#!/usr/bin/env python3
"""Writes what the reference tokenizers' expressions say of characters, by Oniguruma as the package `tokenizers` has it.

    make_unicode_golden.py table  src/text/unicode/newer_characters.inc: characters that are newer than Unicode 14, which PCRE2 has
    make_unicode_golden.py golden tests/text/golden/unicode.golden.json: classes over all characters, and split texts

The table needs a Python whose unicodedata is Unicode 14's (3.11) and the package `regex` (names of scripts).
"""
import json
import os
import sys
import unicodedata

import regex
from tokenizers import Regex, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "../../src/text/newer_characters.inc")
GOLDEN = os.path.join(HERE, "golden/unicode.golden.json")
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split())
FLAGS = ["Alphabetic", "Lowercase", "Uppercase", "Ideographic", "Emoji", "Emoji_Presentation"]
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, ALL))


def accepted(expression, text=EVERYTHING):
    """The characters of text that the expression, which matches one character, accepts."""
    splitter = pre_tokenizers.Split(Regex("(?:%s)+" % expression), "removed", invert=True)
    return {ord(c) for _, (a, b) in splitter.pre_tokenize_str(text) for c in text[a:b]}


def ranges(characters):
    out = []
    for c in sorted(characters):
        if out and out[-1][1] == c - 1 or out and out[-1][1] == 0xD7FF and c == 0xE000:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def script_of(c):
    for name in regex_scripts():
        if regex.match(r"\p{Script=%s}" % name, chr(c)):
            return name
    return "Common"


def regex_scripts():
    return ["Common", "Inherited", "Han", "Egyptian_Hieroglyphs", "Latin", "Cyrillic", "Arabic", "Devanagari", "Telugu",
            "Kannada", "Lao", "Balinese", "Khojki", "Kawi", "Nag_Mundari", "Garay", "Tulu_Tigalari", "Myanmar", "Ahom",
            "Sunuwar", "Gurung_Khema", "Kirat_Rai", "Ol_Onal", "Todhri", "Hiragana", "Katakana", "Syriac", "Braille"]


SHORT = {"Common": "Zyyy", "Inherited": "Zinh", "Han": "Hani", "Egyptian_Hieroglyphs": "Egyp", "Latin": "Latn",
         "Cyrillic": "Cyrl", "Arabic": "Arab", "Devanagari": "Deva", "Telugu": "Telu", "Kannada": "Knda", "Lao": "Laoo",
         "Balinese": "Bali", "Khojki": "Khoj", "Kawi": "Kawi", "Nag_Mundari": "Nagm", "Garay": "Gara",
         "Tulu_Tigalari": "Tutg", "Myanmar": "Mymr", "Ahom": "Ahom", "Sunuwar": "Sunu", "Gurung_Khema": "Gukh",
         "Kirat_Rai": "Krai", "Ol_Onal": "Onao", "Todhri": "Todr", "Hiragana": "Hira", "Katakana": "Kana",
         "Syriac": "Syrc", "Braille": "Brai"}


def table():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    category = {}
    for name in CATEGORIES:
        for c in accepted(r"\p{%s}" % name):
            category[c] = name
    differ = [c for c in ALL if category.get(c, "Cn") != unicodedata.category(chr(c)) and c in category]
    text = "".join(map(chr, differ))
    flags = {flag: accepted(r"\p{%s}" % flag, text) for flag in FLAGS}
    rows = []
    for c in differ:
        script = script_of(c)
        row = (category[c], unicodedata.category(chr(c)), script.lower().replace("_", ""), SHORT[script].lower(),
               tuple(flag for flag in FLAGS if c in flags[flag]))
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == row:
            rows[-1][1] = c
        else:
            rows.append([c, c, row])
    with open(TABLE, "w", encoding="utf-8") as out:
        out.write("// Written by tests/text/make_unicode_golden.py.\n")
        for first, last, (now, before, script, short, set_flags) in rows:
            bits = " | ".join("k" + flag.replace("_", "") for flag in set_flags) or "0"
            out.write('{0x%X, 0x%X, "%s", "%s", "%s", "%s", %s},\n' % (first, last, now, before, script, short, bits))


CLASSES = ["\\p{%s}" % name for name in CATEGORIES + ["Cn", "L", "M", "N", "P", "S", "Z", "C"]] + [
    r"\P{L}", r"\P{Cn}", r"\p{^N}", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{P}\p{S}]", r"[\P{L}a]", r"[^\P{L}]", r"[\P{Mn}]",
    r"\w", r"\W", r"[\W_]", r"\d", r"\D", r"[\D1]", r"\s", r"\S", r"\p{Alphabetic}", r"\p{Lowercase}", r"\p{Uppercase}",
    r"\p{Han}", r"\p{Latin}", r"\P{Han}", r"[\p{L}&&[^\p{Han}]]", r"\p{Kawi}", r"\P{Garay}", r"\p{Emoji}", r"[[:alpha:]]",
    r"[[:alnum:]]", r"[[:digit:]]", r"[[:punct:]]", r"[[:graph:]]", r"[[:print:]]", r"[[:lower:]]", r"[[:upper:]]",
    r"[[:word:]]", r"[[:^alpha:]]", r"[[:space:]]", r"[[:cntrl:]]", r"\p{Letter}", r"\p{Other}", r"\p{Unassigned}"]
TEXTS = ["thanks \U0001FA77!", "\U0001FA77\U0001FAE8 a", "no\U0001FA77pe \U0001F6DC\U0001F6DC", "x\U00031350y\U00031350",
         "漢\U0002EBF0字 \U0002EBF0", "1\U00010D40\U00010D41\U00011DE02", "\U00010D50\U00010D70 \U00010D70\U00010D50s",
         "a\U00010D69b c", "e\u0897\u0ECE\u0CF3", "\u1C89\u1C8A Щ", "\U00013460\U000143FA", "«\u1B4E\u1B7F»",
         "\U0001171E\U00011700", "\U0001CC00-\U0001FBFA", "\U0001FAC6 \U0001FADF\n\U0001FAE9", "word\u0897 \u0897word",
         "\uFDFF\U000E0FFF\U0003FFFD", "\U00010EC2\U0001E5D0\U00016D40'll", "\U00016D70\U00016D71 3", "\u2427\u2429 \u2FFC\u31E4"]
PATTERNS = {
    "deepseek-v3": ["\\p{N}{1,3}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
                    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"],
    "llama3": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               r"\s+(?!\S)|\s+"],
    "gpt2": [r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "o200k": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "kimi": [r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "words": [r"\b\w+\b|\W"],
}


def golden():
    classes = {one: [x for r in ranges(accepted(one)) for x in r] for one in CLASSES}
    splits = {}
    for name, patterns in PATTERNS.items():
        splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
        pieces = [[text[a:b] for _, (a, b) in splitter.pre_tokenize_str(text)] for text in TEXTS]
        splits[name] = {"patterns": patterns, "pieces": pieces}
    with open(GOLDEN, "w", encoding="utf-8") as out:
        json.dump({"classes": classes, "splits": splits}, out, ensure_ascii=True, separators=(",", ":"))
        out.write("\n")


{"table": table, "golden": golden}[sys.argv[1]]()
