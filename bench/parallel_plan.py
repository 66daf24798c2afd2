#!/usr/bin/env python3
"""What `penstock plan` says of large models on many hosts, as the table in bench/notes/2026-11-parallel.md: the fastest way to use all ranks.

    bench/parallel_plan.py build/release/penstock [bench/notes/images/parallel-plan.svg] > table.md

A host is two sockets, a rank each: 300 GB/s and 4 TFLOP/s of a rank, 1.5 TiB of a host. Weights in Q4_K, 2,048 tokens of a sequence.
"""
import json
import math
import pathlib
import subprocess
import sys

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "deepseek-v3")
HOSTS = (1, 2, 4, 8, 16, 32, 64)
LINKS = ((10, 20), (100, 5), (400, 3))  # Gb/s, microseconds
BATCHES = (1, 64)


def best(program, model, hosts, link, batch):
    gbps, us = link
    words = [program, "plan", "--shape", model, "--type", "q4_k", "--ranks", 2 * hosts, "--hosts", hosts, "--link-gbps", gbps, "--link-us", us, "--batch", batch,
             "--memory-gbps", 300, "--rank-tflops", 4, "--memory", "1536GiB", "--tokens", 2048, "--json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["ranks"][0]


def link_name(link):
    return f"{link[0]} Gb/s, {link[1]} us"


def cell(row):
    ways = "x".join(str(row[f"{kind}_parallel_size"]) for kind in ("tensor", "pipeline", "data"))
    return f"{row['tokens_per_second']:,.0f} ({ways})"


def print_table(rows):
    print("| model | sequences | link |" + "".join(f" {n} host{'s' if n > 1 else ''} |" for n in HOSTS))
    print("|---|---|---|" + "---|" * len(HOSTS))
    for (model, batch, link), cells in rows.items():
        print(f"| {model} | {batch} | {link_name(link)} | " + " | ".join(map(cell, cells)) + " |")


# A panel for each model and number of sequences: tokens per second over hosts, both by powers of two, a line for each link. The grey line
# is what as many machines that have nothing to tell each other would give.
PANEL = {"width": 210, "height": 170, "left": 46, "top": 44, "gap_x": 22, "gap_y": 52}
COLORS = ("#c0392b", "#2471a3", "#1e8449")


def panel(x, y, title, lines):
    width, height = PANEL["width"], PANEL["height"]
    ideal = [lines[0][1][0] * n for n in HOSTS]
    values = [value for _, line in lines for value in line]
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))

    def at(i, value):
        return f"{x + width * i / (len(HOSTS) - 1):.1f},{y + height * (high - math.log2(value)) / (high - low):.1f}"

    out = [f'<text x="{x}" y="{y - 8}" font-size="12">{title}</text>',
           f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']
    step = math.ceil((high - low) / 6)
    for power in range(low, high + 1, step):
        label, line_y = f"{2 ** power:,}" if power >= 0 else f"1/{2 ** -power}", y + height * (high - power) / (high - low)
        out += [f'<line x1="{x}" x2="{x + width}" y1="{line_y:.1f}" y2="{line_y:.1f}" stroke="#eee"/>',
                f'<text x="{x - 5}" y="{line_y + 4:.1f}" text-anchor="end">{label}</text>']
    out += [f'<text x="{x + width * i / (len(HOSTS) - 1):.1f}" y="{y + height + 14}" text-anchor="middle">{n}</text>' for i, n in enumerate(HOSTS)]
    shown = [at(i, value) for i, value in enumerate(ideal) if value <= 2 ** high]
    out.append(f'<polyline fill="none" stroke="#999" stroke-dasharray="3 3" points="{" ".join(shown)}"/>')
    for color, (_, line) in zip(COLORS, lines):
        points = [at(i, value) for i, value in enumerate(line)]
        out.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{" ".join(points)}"/>')
        out += [f'<circle r="2.5" fill="{color}" cx="{point.split(",")[0]}" cy="{point.split(",")[1]}"/>' for point in points]
    return out


def draw(rows, path):
    step_x, step_y = PANEL["width"] + PANEL["left"] + PANEL["gap_x"], PANEL["height"] + PANEL["gap_y"]
    width, height = PANEL["left"] + len(MODELS) * step_x - PANEL["gap_x"] - PANEL["left"] + 8, PANEL["top"] + len(BATCHES) * step_y + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for row, batch in enumerate(BATCHES):
        for column, model in enumerate(MODELS):
            lines = [(link, [one["tokens_per_second"] for one in rows[model, batch, link]]) for link in LINKS]
            title = f"{model}, {batch} sequence{'s' if batch > 1 else ''}"
            out += panel(PANEL["left"] + column * step_x, PANEL["top"] + row * step_y, title, lines)
    legend = [*((color, "", link_name(link)) for color, link in zip(COLORS, LINKS)), ("#999", ' stroke-dasharray="3 3"', "as many times one host")]
    for i, (color, dash, name) in enumerate(legend):
        x, y = PANEL["left"] + 180 * i, height - 12
        out += [f'<line x1="{x}" x2="{x + 24}" y1="{y - 4}" y2="{y - 4}" stroke="{color}" stroke-width="2"{dash}/>', f'<text x="{x + 30}" y="{y}">{name}</text>']
    out.append(f'<text x="{width - 4}" y="{height - 12}" text-anchor="end">tokens per second over hosts</text>')
    pathlib.Path(path).write_text("\n".join(out) + "\n</svg>\n")


def main(program, picture=None):
    rows = {(model, batch, link): [best(program, model, hosts, link, batch) for hosts in HOSTS] for model in MODELS for batch in BATCHES for link in LINKS}
    print_table(rows)
    if picture:
        draw(rows, picture)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
