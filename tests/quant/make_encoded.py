#!/usr/bin/env python3
"""Writes encoded/input.bin (float32) and encoded/<type>.bin: the gguf package's encoding of it. Output is committed."""
import pathlib

import gguf
import numpy as np

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 TQ1_0 TQ2_0 MXFP4 BF16 F16".split()


def main():
    out = pathlib.Path(__file__).parent / "encoded"
    out.mkdir(exist_ok=True)
    rng = np.random.default_rng(21)
    blocks = rng.standard_normal((8, 256)).astype(np.float32)
    blocks[1] *= 1e-3
    blocks[2] = 0
    blocks[3, 7] = 50  # one huge value
    blocks[4] = 0.75  # all equal
    blocks[5] = np.round(blocks[5])  # ties
    blocks[6] = np.clip(np.round(blocks[6]), -1, 1) * 0.5  # ternary
    blocks[7] += 3  # one sign
    values = blocks.reshape(1, -1)
    (out / "input.bin").write_bytes(values.tobytes())
    for name in TYPES:
        encoded = gguf.quantize(values, gguf.GGMLQuantizationType[name])
        (out / f"{name.lower()}.bin").write_bytes(encoded.tobytes())


if __name__ == "__main__":
    main()
