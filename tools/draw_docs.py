#!/usr/bin/env python3
"""Draws the pictures of docs/ that are boxes and arrows.

    tools/draw_docs.py           writes docs/images/way-of-a-request.svg, layers-of-the-code.svg, a-layer.svg
    tools/draw_docs.py --check   exit code 1 if a picture differs from what would be written
"""
import sys

import picture
from picture import Picture


def way_of_a_request():
    p = Picture(860, 300, "The way of a request: server or program, frontend, engine, model, operations, kernels, and back")
    names = [
        ("server, cli", ["HTTP, terminal,", "Python, C++"], "text"),
        ("frontend", ["chat template,", "tokenizer, grammar"], "text"),
        ("engine", ["who runs now,", "paged KV cache"], "engine"),
        ("model", ["what to compute:", "a page of code"], "model"),
        ("ops", ["on which device:", "CPU, CUDA"], "machine"),
        ("kernels", ["with which", "instructions"], "machine"),
    ]
    for i, (name, lines, kind) in enumerate(names):
        p.block((10 + 143 * i, 40, 125, 80), name, lines, kind)
        if i:
            p.arrow([(10 + 143 * i - 18, 80), (10 + 143 * i - 2, 80)])
    p.note((72, 25), "a request")
    p.note((286, 140), "tokens")
    p.note((512, 140), "a batch of all sequences")
    p.block((10 + 286, 190, 125, 70), "sampler", ["logits to a token"], "engine")
    p.block((10 + 143, 190, 125, 70), "text stream", ["UTF-8, stop strings,", "calls, reasoning"], "text")
    p.block((10, 190, 125, 70), "reply", ["JSON, events, text"], "text")
    p.arrow([(788, 122), (788, 225), (424, 225)], "logits of the rows that are asked for", (610, 215))
    p.arrow([(294, 225), (281, 225)])
    p.arrow([(151, 225), (138, 225)])
    p.arrow([(358, 188), (358, 123)])
    p.text(370, 170, "the token goes on")
    p.note((430, 290), "One path: the command line, the server, Python, C++ and the tests go through the same engine.")
    return p


def layers_of_the_code():
    p = Picture(760, 430, "The layers of the code: each uses those below it")
    rows = [
        [("cli", "commands", "text"), ("server", "HTTP, APIs, gateway", "text"), ("python", "native half", "text")],
        [("frontend", "chats, sessions, tool calls, transcripts", "text")],
        [("engine", "scheduler, cache, store, steps, ranks", "engine")],
        [("draft", "guesses", "engine"), ("sampling", "logits to tokens", "engine"), ("quantize", "smaller weights", "model")],
        [("model", "blocks, architectures, loading, towers", "model")],
        [("ops", "operations on a device", "machine"), ("kernels", "instruction sets", "machine")],
        [("formats", "files", "store"), ("text, grammar", "and jinja", "store"), ("images, sounds", "senses", "store"),
         ("quant", "encodings", "store"), ("base", "and parallel, hub", "store")],
    ]
    for i, row in enumerate(rows):
        width = (740 - 10 * (len(row) - 1)) / len(row)
        for j, (name, what, kind) in enumerate(row):
            p.block((10 + j * (width + 10), 10 + 59 * i, round(width, 1), 49), name, [what], kind)
    return p


def a_layer():
    p = Picture(760, 210, "A decoder layer: two blocks that add to the residual stream")
    p.arrow([(10, 40), (750, 40)], "residual stream x, one row for each token of the step", (380, 25))
    stages = [("norm", ["rounded once"], "model"), ("q, k, v", ["one product"], "machine"), ("attend", ["to the cache"], "engine"),
              ("o", ["added to x"], "machine"), ("norm", [""], "model"), ("gate, up", ["activation"], "machine"), ("down", ["added to x"], "machine")]
    for i, (name, lines, kind) in enumerate(stages):
        x = 22 + 104 * i
        p.block((x, 110, 88, 60), name, [line for line in lines if line], kind)
        if i not in (0, 4):
            p.arrow([(x - 16, 140), (x - 1, 140)])
    for i in (0, 4):
        p.arrow([(66 + 104 * i, 42), (66 + 104 * i, 108)])
    for i in (3, 6):
        p.arrow([(66 + 104 * i, 108), (66 + 104 * i, 43)])
    p.note((232, 195), "attention, or a mixer with a state")
    p.note((588, 195), "feed-forward, or experts")
    return p


PICTURES = {"way-of-a-request": way_of_a_request, "layers-of-the-code": layers_of_the_code, "a-layer": a_layer}


if __name__ == "__main__":
    sys.exit(picture.main(PICTURES, __file__))
