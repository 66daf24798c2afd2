#!/usr/bin/env python3
"""Writes src/quant/grid_points.inc: the points of the grids of IQ1, IQ2 and IQ3, which are numbers of the GGUF format.

They are taken from the gguf package (0.19.0); the output is committed. Levels of a point's columns are numbered from the
lowest and take 2 bits each where there are eight columns and 4 where there are four, first column lowest.
"""
import pathlib

import gguf
import numpy as np
from gguf import quants

# Encodings that share a grid are listed under the first one's name.
GRIDS = ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
PER_LINE = 14


def points(name):
    """Returns the points as level numbers [points, columns], and the levels."""
    quant = getattr(quants, name)
    quant.init_grid()
    levels = np.array(quant.grid_map, dtype=np.float32)
    grid = quant.grid.reshape(quant.grid_shape)
    return np.searchsorted(levels, grid).astype(np.uint32), quant.grid_map


def array(name):
    numbers, levels = points(name)
    columns = numbers.shape[1]
    bits = 16 // columns
    words = (numbers << (bits * np.arange(columns, dtype=np.uint32))).sum(axis=1)
    lines = [", ".join(f"0x{word:04x}" for word in words[i:i + PER_LINE]) for i in range(0, len(words), PER_LINE)]
    label = name.replace("_", "")
    return (f"// {columns} columns of levels {', '.join(map(str, levels))}.\n"
            f"constexpr uint16_t k{label}Points[{len(words)}] = {{\n  " + ",\n  ".join(lines) + "};\n")


def main():
    out = pathlib.Path(__file__).resolve().parent.parent / "src/quant/grid_points.inc"
    text = "// Written by tools/make_grid_points.py; see there. Do not edit.\n\n"
    out.write_text(text + "\n".join(array(name) for name in GRIDS))


if __name__ == "__main__":
    main()
