#!/usr/bin/env python3
"""Writes golden/*.bin: random blocks of every encoding and what the gguf package decodes them to.

A file is blocks, then as many float32. Run it with the gguf, numpy and torch packages; the output is committed.
"""
import pathlib

import gguf
import numpy as np
import torch

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4".split()
# Byte offsets of the 16-bit floats in a block.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
          "MXFP4": []}


def main():
    out = pathlib.Path(__file__).parent / "golden"
    out.mkdir(exist_ok=True)
    rng = np.random.default_rng(20)
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
        n_blocks = 4 if block_size == 256 else 12
        blocks = rng.integers(0, 256, (n_blocks, block_bytes), dtype=np.uint8)
        for at in HALVES[name]:
            halves = rng.standard_normal(n_blocks).astype(np.float16)
            halves[0] = 6e-8  # subnormal
            blocks[:, at:at + 2] = halves.view(np.uint8).reshape(n_blocks, 2)
        if name == "MXFP4":
            blocks[:6, 0] = [0, 1, 2, 3, 127, 250]  # the subnormal scales and others
            blocks[6:, 0] = rng.integers(100, 140, n_blocks - 6)
        if name == "TQ2_0":  # the code 3 is never written
            codes = rng.integers(0, 3, (n_blocks, 64, 4), dtype=np.uint8)
            blocks[:, :64] = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
        values = gguf.dequantize(blocks, qtype).astype(np.float32)
        (out / f"{name.lower()}.bin").write_bytes(blocks.tobytes() + values.tobytes())
    every = torch.arange(256, dtype=torch.uint8)
    for name, dtype in (("f8_e4m3", torch.float8_e4m3fn), ("f8_e5m2", torch.float8_e5m2)):
        values = every.view(dtype).to(torch.float32)
        (out / f"{name}.bin").write_bytes(every.numpy().tobytes() + values.numpy().tobytes())


if __name__ == "__main__":
    main()
