"""Drawn scenes and questions about them: what penstock-scenes is trained on and measured with.

A scene is a picture of one to four coloured shapes, each in one of nine places, and in some a sign with a word. It is
data first (Scene), so that it can be drawn at any size, and every answer is known. Everything follows from a seed.

    python scenes.py --seed 7 --count 4 --side 288 --out DIR    # PNG files and questions.jsonl of held-out scenes

No training scene has a shape of a colour in a place of HELD_OUT (27 of the 270 triples); every held-out scene has one.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import struct
import zlib

import numpy as np

SIDE = 72  # pixels of the model's picture, and the unit of all lengths here
CELL = SIDE / 3
SHAPES = ("circle", "square", "triangle", "star", "cross")
COLORS = {"red": (214, 40, 40), "green": (44, 150, 62), "blue": (38, 84, 200), "yellow": (240, 205, 40),
          "purple": (128, 50, 160), "orange": (242, 130, 30)}
COLOR_NAMES = tuple(COLORS)
PLACES = ("in the top left corner", "at the top", "in the top right corner", "on the left", "in the middle", "on the right",
          "in the bottom left corner", "at the bottom", "in the bottom right corner")
WORDS = ("stop", "go", "open", "shop", "park", "zoo", "tea", "milk", "cake", "book", "bus", "cat", "dog", "home", "toys",
         "fish", "help", "farm", "food", "boat")
NUMBERS = ("None.", "One.", "Two.", "Three.", "Four.")
KINDS = ("shape", "color", "count", "where", "what", "is", "sign", "describe")
GLYPHS = {  # five columns, seven rows
    "a": " ### |#   #|#   #|#####|#   #|#   #|#   #", "b": "#### |#   #|#   #|#### |#   #|#   #|#### ",
    "c": " ### |#   #|#    |#    |#    |#   #| ### ", "d": "#### |#   #|#   #|#   #|#   #|#   #|#### ",
    "e": "#####|#    |#    |#### |#    |#    |#####", "f": "#####|#    |#    |#### |#    |#    |#    ",
    "g": " ### |#   #|#    |# ###|#   #|#   #| ### ", "h": "#   #|#   #|#   #|#####|#   #|#   #|#   #",
    "i": " ### |  #  |  #  |  #  |  #  |  #  | ### ", "k": "#   #|#  # |# #  |##   |# #  |#  # |#   #",
    "l": "#    |#    |#    |#    |#    |#    |#####", "m": "#   #|## ##|# # #|# # #|#   #|#   #|#   #",
    "n": "#   #|##  #|##  #|# # #|#  ##|#  ##|#   #", "o": " ### |#   #|#   #|#   #|#   #|#   #| ### ",
    "p": "#### |#   #|#   #|#### |#    |#    |#    ", "r": "#### |#   #|#   #|#### |# #  |#  # |#   #",
    "s": " ####|#    |#    | ### |    #|    #|#### ", "t": "#####|  #  |  #  |  #  |  #  |  #  |  #  ",
    "u": "#   #|#   #|#   #|#   #|#   #|#   #| ### ", "y": "#   #|#   #| # # |  #  |  #  |  #  |  #  ",
    "z": "#####|    #|   # |  #  | #   |#    |#####"}


def held_out(shape, color, place):
    return (shape + color + place) % 10 == 3


@dataclasses.dataclass(frozen=True)
class Thing:
    shape: int
    color: int
    place: int
    x: float  # the centre
    y: float
    radius: float
    angle: float
    rgb: tuple


@dataclasses.dataclass(frozen=True)
class Sign:
    word: int
    row: int
    x: float
    y: float
    ink: tuple


@dataclasses.dataclass(frozen=True)
class Scene:
    things: tuple  # in order of their places
    sign: Sign | None
    paper: tuple  # the background's colour at the top and at the bottom
    noise: int  # a seed


def jittered(rng, rgb, amount):
    return tuple(float(v) for v in np.clip(np.asarray(rgb) + rng.uniform(-amount, amount, 3), 0, 255))


def make_thing(rng, shape, color, place):
    row, column = divmod(place, 3)
    return Thing(shape, color, place, CELL * (column + 0.5) + rng.uniform(-3, 3), CELL * (row + 0.5) + rng.uniform(-3, 3),
                 rng.uniform(6.5, 9), rng.uniform(-0.2, 0.2), jittered(rng, COLORS[COLOR_NAMES[color]], 14))


def make_scene(rng, held):
    """A random scene; with `held` one that has a held-out triple, else one without any."""
    while True:
        sign = None
        if rng.random() < 0.4:
            row = int(rng.integers(3))
            ink = jittered(rng, (40, 40, 40), 30)
            sign = Sign(int(rng.integers(len(WORDS))), row, SIDE / 2 + rng.uniform(-12, 12), CELL * (row + 0.5) + rng.uniform(-4, 4), ink)
        free = [p for p in range(9) if sign is None or p // 3 != sign.row]
        places = sorted(rng.permutation(free)[:rng.integers(1, 5)])
        shapes = rng.permutation(5)[:2 if rng.random() < 0.4 else 5]  # few kinds in a scene make larger counts
        colors = rng.permutation(6)[:2 if rng.random() < 0.4 else 6]
        triples = [(int(rng.choice(shapes)), int(rng.choice(colors)), int(p)) for p in places]
        if any(held_out(*t) for t in triples) == held:
            paper = jittered(rng, (232, 232, 232), 20), jittered(rng, (232, 232, 232), 20)
            return Scene(tuple(make_thing(rng, *t) for t in triples), sign, paper, int(rng.integers(1 << 30)))


# Drawing: coverage of pixels by signed distances, so that any size is smooth.

def distance(thing, x, y):
    """Distances of points to a thing's edge, below 0 inside."""
    dx, dy, r = x - thing.x, y - thing.y, thing.radius
    c, s = math.cos(thing.angle), math.sin(thing.angle)
    dx, dy = c * dx + s * dy, c * dy - s * dx
    name = SHAPES[thing.shape]
    if name == "circle":
        return np.hypot(dx, dy) - 0.9 * r
    if name == "square":
        return np.maximum(abs(dx), abs(dy)) - 0.8 * r
    if name == "cross":
        w = 0.32 * r
        return np.minimum(np.maximum(abs(dx) - r, abs(dy) - w), np.maximum(abs(dx) - w, abs(dy) - r))
    tips, outer, inner = (3, 1.15 * r, 0.575 * r) if name == "triangle" else (5, 1.12 * r, 0.45 * r)
    half = math.pi / tips  # all sectors folded to one between a tip and the next inner corner
    turn, away = np.arctan2(dx, -dy), np.hypot(dx, dy)
    turn = abs((turn + half) % (2 * half) - half)
    px, py = away * np.cos(turn), away * np.sin(turn)
    ex, ey = inner * math.cos(half) - outer, inner * math.sin(half)
    return (ey * (px - outer) - ex * py) / math.hypot(ex, ey)


def blend(picture, rows, columns, cover, rgb):
    part = picture[rows, columns]
    part += cover[..., None] * (np.asarray(rgb, np.float32) - part)


def window(x, y, reach_x, reach_y, side):
    """The slices of pixels around a point, and their centres' coordinates."""
    scale = side / SIDE
    rows, columns = (slice(max(0, math.floor((v - reach) * scale)), min(side, math.ceil((v + reach) * scale)))
                     for v, reach in ((y, reach_y), (x, reach_x)))
    return (rows, columns, (np.arange(columns.start, columns.stop, dtype=np.float32)[None] + 0.5) / scale,
            (np.arange(rows.start, rows.stop, dtype=np.float32)[:, None] + 0.5) / scale)


def marks_of(word):
    """(7, 6 n) of 0 and 1: the letters side by side."""
    letters = [GLYPHS[letter].split("|") for letter in word]
    return np.array([[mark == "#" for letter in letters for mark in letter[row] + " "] for row in range(7)], np.float32)


def draw_sign(picture, sign, side):
    word = WORDS[sign.word]
    reach = 3 * len(word) + 2
    rows, columns, x, y = window(sign.x, sign.y, reach + 2, 8, side)
    board = np.maximum(abs(x - sign.x) - reach, abs(y - sign.y) - 6)
    unit = side / SIDE
    blend(picture, rows, columns, np.clip(0.5 - (board - 1) * unit, 0, 1), sign.ink)
    blend(picture, rows, columns, np.clip(0.5 - board * unit, 0, 1), (252, 252, 252))
    left, top = sign.x - 3 * len(word) + 0.5, sign.y - 3.5
    across = np.clip(0.5 + (0.5 - abs(x.ravel() - left - np.arange(6 * len(word))[:, None] - 0.5)) * unit, 0, 1)
    down = np.clip(0.5 + (0.5 - abs(y.ravel() - top - np.arange(7)[:, None] - 0.5)) * unit, 0, 1)
    blend(picture, rows, columns, down.T @ marks_of(word) @ across, sign.ink)


def draw(scene, side=SIDE):
    """The picture, (side, side, 3) bytes."""
    at = np.linspace(0, 1, side, dtype=np.float32)[:, None, None]
    top, bottom = (np.asarray(p, np.float32) for p in scene.paper)
    picture = np.broadcast_to(top + (bottom - top) * at, (side, side, 3)).copy()
    for thing in scene.things:
        rows, columns, x, y = window(thing.x, thing.y, 1.2 * thing.radius, 1.2 * thing.radius, side)
        blend(picture, rows, columns, np.clip(0.5 - distance(thing, x, y) * side / SIDE, 0, 1), thing.rgb)
    if scene.sign:
        draw_sign(picture, scene.sign, side)
    picture += np.random.Generator(np.random.SFC64(scene.noise)).integers(-3, 4, picture.shape, dtype=np.int8)
    return np.clip(picture + 0.5, 0, 255).astype(np.uint8)


def png(picture):
    """The bytes of a PNG file."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    height, width, _ = picture.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], 1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + chunk(b"IEND", b""))


# Questions: (question, answer), or None where a scene has none of the kind.

def one_of(rng, options):
    return options[rng.integers(len(options))]


def plural(shape):
    return SHAPES[shape] + ("es" if SHAPES[shape] == "cross" else "s")


def name_of(thing):
    color = COLOR_NAMES[thing.color]
    return f"{'an' if color[0] == 'o' else 'a'} {color} {SHAPES[thing.shape]}"


def capital(text):
    return text[0].upper() + text[1:]


def alone(things, key):
    """The things whose key no other has."""
    keys = [key(t) for t in things]
    return [t for t, k in zip(things, keys) if keys.count(k) == 1]


def ask_shape(rng, scene):
    if found := alone(scene.things, lambda t: t.color):
        thing = one_of(rng, found)
        color = COLOR_NAMES[thing.color]
        return one_of(rng, (f"What shape is {color}?", f"What is the {color} shape?")), f"A {SHAPES[thing.shape]}."


def ask_color(rng, scene):
    if found := alone(scene.things, lambda t: t.shape):
        thing = one_of(rng, found)
        return f"What {one_of(rng, ('color', 'colour'))} is the {SHAPES[thing.shape]}?", capital(COLOR_NAMES[thing.color]) + "."


def ask_count(rng, scene):
    of, near = rng.integers(3), one_of(rng, scene.things)
    if of == 0:
        return "How many shapes are there?", NUMBERS[len(scene.things)]
    if of == 1:
        shape = near.shape if rng.random() < 0.7 else int(rng.integers(5))
        return f"How many {plural(shape)} are there?", NUMBERS[sum(t.shape == shape for t in scene.things)]
    color = near.color if rng.random() < 0.7 else int(rng.integers(6))
    return f"How many {COLOR_NAMES[color]} shapes are there?", NUMBERS[sum(t.color == color for t in scene.things)]


def ask_where(rng, scene):
    if found := alone(scene.things, lambda t: (t.shape, t.color)):
        thing = one_of(rng, found)
        name = f"the {COLOR_NAMES[thing.color]} {SHAPES[thing.shape]}"
        return f"Where is {name}?", f"{capital(name)} is {PLACES[thing.place]}."


def ask_what(rng, scene):
    if rng.random() < 0.75:
        thing = one_of(rng, scene.things)
        return f"What is {PLACES[thing.place]}?", capital(name_of(thing)) + "."
    taken = {t.place for t in scene.things}
    free = [p for p in range(9) if p not in taken and (scene.sign is None or p // 3 != scene.sign.row)]
    return f"What is {PLACES[one_of(rng, free)]}?", "Nothing."


def ask_is(rng, scene):
    near = one_of(rng, scene.things)
    shape, color = near.shape, near.color
    kind = rng.integers(4)  # two of four: it is there; else one of both differs
    if kind == 2:
        shape = int(rng.integers(5))
    elif kind == 3:
        color = int(rng.integers(6))
    there = any((t.shape, t.color) == (shape, color) for t in scene.things)
    color = COLOR_NAMES[color]
    return f"Is there {'an' if color[0] == 'o' else 'a'} {color} {SHAPES[shape]}?", "Yes." if there else "No."


def ask_sign(rng, scene):
    if scene.sign is None and rng.random() < 0.8:
        return None
    return "What does the sign say?", f"It says {WORDS[scene.sign.word]}." if scene.sign else "There is no sign."


def ask_describe(rng, scene):
    parts = [f"{name_of(t)} {PLACES[t.place]}" for t in scene.things]
    if scene.sign:
        parts.append(f"a sign that says {WORDS[scene.sign.word]}")
    text = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return one_of(rng, ("Describe the picture.", "What is in this picture?", "What do you see?")), capital(text) + "."


ASK = dict(zip(KINDS, (ask_shape, ask_color, ask_count, ask_where, ask_what, ask_is, ask_sign, ask_describe)))


def questions(rng, scene, kinds=KINDS):
    """(kind, question, answer) of every kind that the scene has."""
    asked = ((kind, ASK[kind](rng, scene)) for kind in kinds)
    return [(kind, *pair) for kind, pair in asked if pair]


def held_out_set(seed, count):
    """(scene, questions) of `count` held-out scenes."""
    for i in range(count):
        rng = np.random.default_rng((seed, i, 1))
        scene = make_scene(rng, held=True)
        yield scene, questions(rng, scene)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "questions.jsonl", "w") as lines:
        for number, (drawn, asked_of) in enumerate(held_out_set(args.seed, args.count)):
            (out / f"{number}.png").write_bytes(png(draw(drawn, args.side)))
            for asked_kind, question, answer in asked_of:
                lines.write(json.dumps({"file": f"{number}.png", "kind": asked_kind, "question": question, "answer": answer}) + "\n")
