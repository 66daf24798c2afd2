#!/usr/bin/env python3
"""Draws docs/images/grammar.svg, cache-tiers.svg and gateway.svg.

    tools/draw_server_docs.py [--check]       --check: exit code 1 if a picture differs from what would be written
"""
import sys

import picture
from picture import Picture


def across(p, row, x, width, gap):
    """Boxes from left to right at row (top, height), each with an arrow from the one in front of it."""

    def add(boxes):
        for i, (name, lines, kind) in enumerate(boxes):
            left = x + i * (width + gap)
            p.block((left, row[0], width, row[1]), name, lines, kind)
            if i:
                p.arrow([(left - gap + 2, row[0] + row[1] // 2), (left - 2, row[0] + row[1] // 2)])
    return add


def grammar():
    p = Picture(860, 300, "From four notations to one mask: specifications are compiled to a program, which a matcher follows beside the vocabulary")
    notations = [("JSON Schema", ["drafts 4 to 2020-12"]), ("regular expression", ["ECMAScript"]), ("rules", ["GBNF, EBNF, Lark"]), ("structural tag", ["calls of tools"])]
    for i, (name, lines) in enumerate(notations):
        p.block((10, 10 + 62 * i, 170, 52), name, lines, "text")
        p.arrow([(182, 36 + 62 * i), (212, 36 + 62 * i), (212, 133), (233, 133)])
    p.block((235, 93, 150, 80), "program", ["automata, graphs,", "rules; compiled once"], "store")
    p.arrow([(387, 133), (433, 133)])
    p.block((435, 93, 150, 80), "matcher", ["the places where", "the text may stand"], "engine")
    p.arrow([(587, 133), (633, 133)])
    p.block((635, 93, 150, 80), "mask", ["tokens that may", "come next"], "machine")
    p.block((435, 210, 150, 60), "vocabulary", ["a trie of tokens"], "store")
    p.arrow([(587, 240), (690, 240), (690, 175)])
    p.block((635, 10, 150, 50), "sampler", ["draws a token"], "engine")
    p.arrow([(710, 91), (710, 62)])
    p.arrow([(633, 35), (510, 35), (510, 91)], "the token moves the places on", (520, 25))
    p.note((310, 290), "kept for other requests that ask for the same")
    p.arrow([(310, 275), (310, 175)])
    return p


def cache_tiers():
    p = Picture(860, 250, "Where a prompt's blocks are looked for: KV cache, host memory, disk, Redis; what none has is computed")
    across(p, (60, 80), 10, 185, 33)([
        ("KV cache", ["blocks of 16 tokens,", "by their chained hash"], "engine"), ("host's memory", ["memory:8G"], "store"),
        ("local disk", ["PATH:100G", "outlives restarts"], "store"), ("Redis", ["redis://HOST", "shared by machines"], "store")])
    p.note((102, 35), "a prompt")
    p.arrow([(102, 40), (102, 58)])
    p.note((540, 35), "the store: looked up from near to far, while others compute")
    p.block((10, 180, 185, 60), "computed", ["what none of them has"], "machine")
    p.arrow([(60, 142), (60, 178)])
    p.arrow([(197, 210), (755, 210), (755, 142)], "every full block is written to all of them, by a thread of its own", (480, 230))
    p.arrow([(320, 210), (320, 142)])
    p.arrow([(538, 210), (538, 142)])
    p.arrow([(145, 178), (145, 142)])
    return p


def gateway():
    p = Picture(860, 280, "The way of a request through the server: HTTP, keys, API, route, kept replies, engine, and back")
    across(p, (60, 80), 10, 118, 26)([
        ("http", ["limits, deadlines,", "origins"], "text"), ("keys", ["scopes, quotas,", "budgets"], "store"),
        ("api", ["one form of all", "conversations"], "text"), ("routes", ["which model;", "loads it"], "model"),
        ("replies", ["kept ones, equal", "or near"], "store"), ("engine", ["turns of tenants,", "the batch"], "engine")])
    p.note((69, 35), "a request")
    p.arrow([(69, 40), (69, 58)])
    p.arrow([(789, 142), (789, 210), (69, 210), (69, 142)], "text, as it comes", (430, 200))
    p.arrow([(645, 142), (645, 208)])
    p.block((160, 226, 540, 46), "data directory", ["files, batches, responses, use, audit, kept replies (SQLite)"], "store")
    return p


PICTURES = {"grammar": grammar, "cache-tiers": cache_tiers, "gateway": gateway}


if __name__ == "__main__":
    sys.exit(picture.main(PICTURES, __file__))
