#!/usr/bin/env python3
"""Draws the pictures of docs/design/ that show a layout or a course of events: docs/images/design-*.svg.

Usage: draw_design.py [--check]      --check: writes nothing; exit code 1 if a picture differs from what this program draws.
"""
import sys

import picture
from picture import AMBER, BLUE, GREEN, GREY, RED, VIOLET, Picture


def panel():
    p = Picture(800, 350, "How 16 rows of a matrix lie in a panel")
    p.text(20, 24, "a matrix in the file: rows, one after the other", bold=True)
    for row in range(16):
        for j in range(8):
            p.box(20 + j * 26, 40 + row * 16, 24, 13, BLUE if j == 0 else AMBER if j == 1 else GREY)
    p.text(20, 316, "16 rows × 32 columns;")
    p.text(20, 332, "a box is 4 columns of a row")
    p.arrow([(238, 240), (290, 240)])
    p.text(262, 232, "pack", "middle")
    p.text(300, 24, "a step of a panel: lines of 64 bytes, a lane for each row", bold=True)
    for line in range(4):
        y = 44 + line * 42
        p.text(294, y + 17, f"line {line}", "end", 11)
        for lane in range(16):
            x = 300 + lane * 29
            low, high = (BLUE, AMBER) if line == 0 else (GREY, GREY)
            p.box(x, y + 14, 27, 13, low)
            p.box(x, y, 27, 13, high)
    for lane in (0, 1, 15):
        p.text(313.5 + lane * 29, 224, f"row {lane}", "middle", 10)
    p.text(300, 246, "4-bit codes: line 0 has columns 0 to 3 in the low halves of its bytes, 4 to 7 in the high ones,")
    p.text(300, 262, "line 1 columns 8 to 15, and so on: one load, one shift and one mask make two operands.")
    p.box(300, 280, 462, 20, GREEN, "scales of the group: 16 lanes, one for each row")
    p.text(300, 322, "A lane multiplies 4 codes of its row with the same 4 activations and adds them to its sum,")
    p.text(300, 338, "so 16 outputs grow side by side and nothing is added across lanes.")
    return p


def plans():
    p = Picture(780, 250, "Which strategy multiplies how many rows")
    p.text(20, 22, "Q4_K with AVX-512 VNNI, one stream from memory (Zen 5): rows of activations and strategy", bold=True)
    left, width = 20, 740
    steps = [(1, 17, BLUE, "streams", "1 to 16 rows in one block;\nfetched 9,216 bytes ahead"), (17, 49, GREEN, "panel", "blocks of 16 rows meet a panel;\ncodes are unpacked for each"),
             (49, 65, AMBER, "unpacked", "a slice is unpacked once,\nthen multiplied by all rows")]
    edges = {1: left, 17: left + 250, 49: left + 500, 65: left + width}
    for begin, end, colour, name, what in steps:
        x, w = edges[begin], edges[end] - edges[begin] - 6
        p.box(x, 40, w, 34, colour, name, solid=True, size=14)
        for i, line in enumerate(what.split("\n")):
            p.text(x + w / 2, 94 + 16 * i, line, "middle")
    for rows, x in (("1", left), ("17", edges[17]), ("49 rows and more", edges[49])):
        p.text(x, 134, rows)
    p.text(20, 172, "the same with AMX", bold=True)
    for x, w, colour, name in ((20, 190, BLUE, "streams (vectors), 1 to 8"), (216, 250, VIOLET, "few-tiles, 9 to 32"), (472, 282, RED, "tiles or tiles-between, 33 and more")):
        p.box(x, 184, w, 34, colour, name, solid=True, size=13)
    return p


def step():
    p = Picture(780, 330, "A step's timeline on a CPU and on a GPU")
    p.text(20, 22, "CPU: steps follow each other; every thread has a share of the panels", bold=True)
    stages = [(90, 60, GREY, "plan"), (154, 96, BLUE, "norm, q k v"), (254, 84, GREEN, "store, attend"), (342, 76, BLUE, "output"),
              (422, 104, BLUE, "gate, up"), (530, 76, BLUE, "down"), (610, 72, AMBER, "head"), (686, 70, VIOLET, "draw, send")]
    for thread in range(2):
        y = 40 + thread * 34
        p.text(82, y + 19, f"thread {thread}", "end")
        for x, w, colour, name in stages:
            if thread == 0 or name not in ("plan", "draw, send"):
                p.box(x, y, w, 28, colour, name, size=11)
    for x in (252, 340, 420, 528, 608, 684):
        p.line(x, 36, x, 110)
    p.text(154, 126, "a layer, for each layer; dotted: threads wait for each other", size=11)
    p.text(20, 164, "GPU that draws: step n + 1 is asked for while step n runs", bold=True)
    p.text(82, 199, "host", "end")
    p.text(82, 239, "GPU", "end")
    for x, w, colour, what in ((90, 60, GREY, "plan n"), (154, 54, BLUE, "submit"), (212, 66, GREY, "plan n+1"), (282, 54, BLUE, "submit"),
                               (398, 54, VIOLET, "send n"), (456, 66, GREY, "plan n+2"), (526, 54, BLUE, "submit"), (592, 66, VIOLET, "send n+1")):
        p.box(x, 180, w, 28, colour, what, size=11)
    for x, w, submitted, n in ((186, 204, 181, "n"), (394, 194, 309, "n+1"), (592, 168, 553, "n+2")):
        p.arrow([(submitted, 208), (max(submitted, x + 6), 221)])
        p.box(x, 222, w, 28, GREEN, f"copy, play step {n}, draw", size=11)
    p.text(90, 276, "The batch names a token that the host does not know yet by its draw; the embedding looks it up on the device.", size=11)
    p.text(90, 292, "Where a draw waits for the host (grammars, penalties, drafts), step n is waited for first.", size=11)
    return p


def placement():
    p = Picture(780, 300, "A mixture on a GPU and a CPU")
    p.box(20, 34, 330, 240, GREEN)
    p.text(32, 26, "GPU", bold=True, colour=GREEN)
    p.box(430, 34, 330, 240, BLUE)
    p.text(442, 26, "CPU and its memory", bold=True, colour=BLUE)
    for y, text in ((46, "embedding, head, draws"), (84, "attention and KV cache of every layer"), (122, "routers, norms, shared experts"),
                    (160, "experts of the layers that fit")):
        p.box(34, y, 302, 30, GREEN, text)
    p.box(444, 84, 302, 30, BLUE, "experts of the other layers")
    p.box(444, 122, 302, 30, BLUE, "of these, with --experts-offload:\npages of a mapped file", size=11)
    p.box(444, 160, 302, 30, AMBER, "the disk: experts nobody chose lately")
    p.arrow([(595, 160), (595, 153)])
    p.arrow([(336, 94), (442, 94)])
    p.text(389, 88, "inputs, logits", "middle", 10)
    p.arrow([(444, 108), (338, 108)])
    p.text(389, 122, "weighted sums", "middle", 10)
    p.text(34, 216, "While the CPU multiplies the experts of a layer,")
    p.text(34, 232, "the GPU computes the shared experts of that layer.")
    p.text(34, 248, "A recorded step is cut there into pieces.")
    p.text(444, 216, "Rows and sums go through pinned memory:")
    p.text(444, 232, "a few KB a token and layer, no weights.")
    return p


def ranks():
    p = Picture(780, 250, "Three ways to use two processes")
    for i, (title, colour) in enumerate((("tensor parallel: --tensor-parallel-size 2", BLUE), ("pipeline: --pipeline-parallel-size 2", GREEN),
                                         ("data parallel: --data-parallel-size 2", AMBER))):
        x = 20 + i * 256
        p.text(x, 22, title, bold=True, size=11)
        for layer in range(4):
            y = 36 + layer * 34
            if i == 0:
                p.box(x, y, 110, 26, colour, "rank 0: half", size=11)
                p.box(x + 116, y, 110, 26, colour, "rank 1: half", size=11)
            elif i == 1:
                p.box(x + (0 if layer < 2 else 116), y, 110, 26, colour, f"layer {layer}", size=11)
            else:
                p.box(x, y, 110, 26, colour, f"layer {layer}", size=11)
                p.box(x + 116, y, 110, 26, colour, f"layer {layer}", size=11)
    p.arrow([(332, 98), (390, 116)])
    for x, lines in ((20, ("a part of every layer each;", "two sums a layer over the link;", "one sequence is faster")),
                     (276, ("some of the layers each;", "one message a token and stage;", "many sequences, slow links")),
                     (532, ("the whole model each;", "no messages at all;", "many sequences, enough memory"))):
        for j, line in enumerate(lines):
            p.text(x, 194 + j * 17, line)
    return p


def speculation():
    p = Picture(780, 240, "A round of speculative decoding")
    p.text(20, 24, "plain decoding: a step reads all weights for one token", bold=True)
    for i, word in enumerate(("Once", "upon", "a", "time")):
        p.box(20 + i * 150, 36, 140, 28, BLUE, f"step {i + 1}: {word}", solid=True)
    p.text(20, 100, "a round: a cheap drafter guesses, one step checks all guesses", bold=True)
    for i, word in enumerate(("upon", "a", "hill")):
        p.box(20 + i * 50, 112, 46, 24, AMBER, word, size=11)
    p.text(20, 152, "three guesses", size=11)
    p.arrow([(172, 124), (196, 124)])
    p.box(200, 112, 200, 28, BLUE, "one step, four rows", solid=True)
    p.arrow([(402, 124), (426, 124)])
    for i, (word, colour) in enumerate((("upon", GREEN), ("a", GREEN), ("hill", RED), ("time", BLUE))):
        p.box(430 + i * 60, 112, 56, 24, colour, word, size=11)
    p.text(430, 152, "two are what the target would have written, the third is not:", size=11)
    p.text(430, 168, "the target's own token takes its place. Three tokens for one step.", size=11)
    p.text(20, 200, "The text is the target's own in either way: a guess that differs from it is thrown away.")
    return p


PICTURES = {"design-panel": panel, "design-plans": plans, "design-step": step, "design-placement": placement,
            "design-ranks": ranks, "design-speculation": speculation}


if __name__ == "__main__":
    sys.exit(picture.main(PICTURES, __file__))
