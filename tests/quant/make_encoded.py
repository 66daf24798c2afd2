#!/usr/bin/env python3
"""Writes what others make of numbers; the output is committed.

encoded/input.bin (float32) and encoded/<type>.bin: the gguf package's encoding of it.
encoded/weights.bin: a matrix (float32) of ROWS rows, then the importance of its COLUMNS columns.
encoded/llama_cpp_errors.txt: how llama.cpp's encoders do on it. A line has the type, the error with that importance,
and the error without (nan where it wants importance): each the root of the weighted mean square, relative to that of
the weights. Needs gguf, numpy and llama-cpp-python.
"""
import pathlib

import gguf
import numpy as np

import llama_cpp_types

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 TQ1_0 TQ2_0 MXFP4 BF16 F16".split()
WEIGHED = ("Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4 Q1_0 Q2_0 IQ1_S IQ1_M IQ2_XXS IQ2_XS "
           "IQ2_S IQ3_XXS IQ3_S").split()
WANT_IMPORTANCE = {"IQ1_S", "IQ2_XXS", "IQ2_XS"}  # of whom the library ends the program without
ROWS, COLUMNS = 8, 1024


def weights_and_importance(rng):
    """Like those of a trained layer: heavy tails, rows and columns of unlike sizes, few inputs that matter most."""
    weights = 0.02 * rng.standard_t(5, (ROWS, COLUMNS))
    weights *= np.exp(0.5 * rng.standard_normal((ROWS, 1))) * np.exp(0.3 * rng.standard_normal(COLUMNS))
    return weights.astype(np.float32), np.exp(1.5 * rng.standard_normal(COLUMNS)).astype(np.float32)


def relative_error(name, weights, encode_with, measure_with):
    decoded = llama_cpp_types.dequantize(name, llama_cpp_types.quantize(name, weights, encode_with))
    error = measure_with * (decoded.reshape(weights.shape).astype(np.float64) - weights) ** 2
    return np.sqrt(error.sum() / (measure_with * weights.astype(np.float64) ** 2).sum())


def write_errors(out):
    weights, importance = weights_and_importance(np.random.default_rng(22))
    (out / "weights.bin").write_bytes(weights.tobytes() + importance.tobytes())
    lines = []
    for name in WEIGHED:
        weighted = relative_error(name, weights, importance, importance.astype(np.float64))
        plain = np.nan if name in WANT_IMPORTANCE else relative_error(name, weights, None, np.ones(COLUMNS))
        lines.append(f"{name.lower()} {weighted:.6f} {plain:.6f}\n")
    (out / "llama_cpp_errors.txt").write_text("".join(lines))


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
    write_errors(out)


if __name__ == "__main__":
    main()
