#!/usr/bin/env python3
"""Writes golden/*.bin: random blocks of every encoding and what others decode them to.

A file is blocks, then as many float32. What the gguf package cannot decode (Q1_0, Q2_0) is decoded by llama.cpp, as
llama-cpp-python ships it; where both can, they must agree. Run it with gguf, llama-cpp-python, numpy and torch; the
output is committed.
"""
import pathlib

import gguf
import numpy as np
import torch

import llama_cpp_types

TYPES = ("Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0 Q2_0 "
         "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S").split()
# Byte offsets of the 16-bit floats in a block.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
          "MXFP4": [], "NVFP4": [], "Q1_0": [0], "Q2_0": [0], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0],
          "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0]}
# Points of the grids: every one occurs.
POINTS = {"IQ1_S": 2048, "IQ2_XXS": 256, "IQ2_XS": 512, "IQ2_S": 1024, "IQ3_XXS": 256, "IQ3_S": 512}


def put_bits(values, bits, per_word):
    """The lowest `bits` bits of values [blocks, n], per_word of them in each word of the result, first lowest."""
    parts = (values & ((1 << bits) - 1)).reshape(values.shape[0], -1, per_word)
    return (parts << (bits * np.arange(per_word))).sum(axis=2)


def put_points(name, blocks, rng):
    """Every point of the type's grid once, in any order."""
    points = rng.permutation(POINTS[name]).reshape(len(blocks), -1)
    low, high = (points & 255).astype(np.uint8), points >> 8
    if name == "IQ2_XXS":
        blocks[:, 2:].reshape(len(blocks), 8, 8)[:, :, :4] = low.reshape(len(blocks), 8, 4)
    elif name == "IQ2_XS":
        words = blocks[:, 2:66].copy().view(np.uint16) & 0xfe00 | points.astype(np.uint16)
        blocks[:, 2:66] = words.view(np.uint8)
    else:
        blocks[:, 2:2 + low.shape[1]] = low
    if name == "IQ2_S":
        blocks[:, 66:74] = put_bits(high, 2, 4)
    if name == "IQ3_S":
        blocks[:, 66:74] = put_bits(high, 1, 8)
    if name == "IQ1_S":
        words = blocks[:, 34:].copy().view(np.uint16) & 0xf000 | put_bits(high, 3, 4).astype(np.uint16)
        blocks[:, 34:] = words.view(np.uint8)


def random_blocks(name, rng):
    block_size, block_bytes = llama_cpp_types.sizes(name)
    n_blocks = POINTS[name] // (64 if name[:3] == "IQ3" else 32) if name in POINTS else 4 if block_size == 256 else 12
    blocks = rng.integers(0, 256, (n_blocks, block_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        halves = rng.standard_normal(n_blocks).astype(np.float16)
        halves[0] = 6e-8  # subnormal
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(n_blocks, 2)
    if name == "MXFP4":
        blocks[:6, 0] = [0, 1, 2, 3, 127, 250]  # the subnormal scales and others
        blocks[6:, 0] = rng.integers(100, 140, n_blocks - 6)
    if name == "NVFP4":
        blocks[:2, :4] = [[0, 1, 7, 8], [0x7e, 0x7f, 0x80, 0xff]]
    if name == "TQ2_0":  # the code 3 is never written
        codes = rng.integers(0, 3, (n_blocks, 64, 4), dtype=np.uint8)
        blocks[:, :64] = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
    if name == "IQ1_M":  # the FP16 scale lies in the upper four bits of four words
        words = blocks[:, 48:].copy().view(np.uint16)
        halves = rng.standard_normal(n_blocks).astype(np.float16).view(np.uint16)
        halves[0] = 1
        for k in range(4):
            words[:, k] = (words[:, k] & 0x0fff) | ((halves >> (4 * k)) & 15) << 12
        blocks[:, 48:] = words.view(np.uint8)
    if name in POINTS:
        put_points(name, blocks, rng)
    return blocks


def decode(name, blocks):
    theirs = llama_cpp_types.dequantize(name, blocks)
    if name in ("Q1_0", "Q2_0"):
        return theirs
    values = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float32)
    np.testing.assert_array_equal(values.ravel(), theirs.ravel(), name)
    return values


def main():
    out = pathlib.Path(__file__).parent / "golden"
    out.mkdir(exist_ok=True)
    rng = np.random.default_rng(20)
    for name in TYPES:
        blocks = random_blocks(name, rng)
        (out / f"{name.lower()}.bin").write_bytes(blocks.tobytes() + decode(name, blocks).tobytes())
    every = torch.arange(256, dtype=torch.uint8)
    for name, dtype in (("f8_e4m3", torch.float8_e4m3fn), ("f8_e5m2", torch.float8_e5m2)):
        values = every.view(dtype).to(torch.float32)
        (out / f"{name}.bin").write_bytes(every.numpy().tobytes() + values.numpy().tobytes())


if __name__ == "__main__":
    main()
