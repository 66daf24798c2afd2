"""Encodings as llama.cpp reads and writes them: its shared library, as llama-cpp-python ships it, called by ctypes."""
import ctypes
import pathlib

import llama_cpp
import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12,
         "Q5_K": 13, "Q6_K": 14, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ4_NL": 20, "IQ3_S": 21,
         "IQ2_S": 22, "IQ4_XS": 23, "IQ1_M": 29, "BF16": 30, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40, "Q1_0": 41,
         "Q2_0": 42}


class _Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block_size", ctypes.c_int64), ("interleaved", ctypes.c_int64),
                ("block_bytes", ctypes.c_size_t), ("quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p),
                ("from_float", ctypes.c_void_p)]


_library = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib/libggml-base.so"))
_library.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
_library.ggml_quantize_chunk.restype = ctypes.c_size_t
_library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                         ctypes.c_int64, ctypes.c_void_p]


def _traits(name):
    traits = _library.ggml_get_type_traits(TYPES[name]).contents
    assert traits.name.decode().lower() == name.lower(), (name, traits.name)
    return traits


def sizes(name):
    """Elements and bytes of a block."""
    traits = _traits(name)
    return traits.block_size, traits.block_bytes


def dequantize(name, blocks):
    """Float32 values of whole blocks."""
    traits = _traits(name)
    blocks = np.ascontiguousarray(blocks)
    values = np.empty(blocks.nbytes // traits.block_bytes * traits.block_size, np.float32)
    to_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(traits.to_float)
    to_float(blocks.ctypes.data, values.ctypes.data, values.size)
    return values


def quantize(name, values, importance=None):
    """Bytes of a matrix [rows, columns]; importance: [columns] or None."""
    traits = _traits(name)
    values = np.ascontiguousarray(values, np.float32)
    rows, columns = values.shape
    if importance is not None:
        importance = np.ascontiguousarray(importance, np.float32)
        assert importance.shape == (columns,)
    out = np.zeros(values.size // traits.block_size * traits.block_bytes, np.uint8)
    written = _library.ggml_quantize_chunk(TYPES[name], values.ctypes.data, out.ctypes.data, 0, rows, columns,
                                           None if importance is None else importance.ctypes.data)
    assert written == out.size
    return out
