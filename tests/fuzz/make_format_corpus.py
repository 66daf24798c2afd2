#!/usr/bin/env python3
"""Writes corpus/gguf/, corpus/safetensors/ and corpus/packed_file/: small files with every value and tensor type. Standard library only."""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "corpus"
# GGUF number: (elements, bytes) of a block.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136), 24: (1, 1),
          25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17)}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def text(value):
    return struct.pack("<Q", len(value)) + value


def gguf(pairs, tensors, version=3, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, value in pairs:
        out += text(key) + struct.pack("<I", kind) + value
    data = b""
    for name, kind, rows in tensors:
        size, n_bytes = BLOCKS[kind]
        out += text(name) + struct.pack("<IQQIQ", 2, size, rows, kind, len(data))
        data += bytes((i * 37 + kind) % 256 for i in range(n_bytes * rows))
        data += b"\0" * (-len(data) % alignment)
    return out + b"\0" * (-len(out) % alignment) + data


def make_gguf(folder):
    scalars = [(b"s%d" % kind, kind, struct.pack("<" + code, 1)) for kind, code in SCALARS.items()]
    arrays = [(b"a%d" % kind, 9, struct.pack("<IQ" + code * 2, kind, 2, 1, 0)) for kind, code in SCALARS.items()]
    strings = [(b"general.architecture", 8, text(b"llama")),
               (b"tokens", 9, struct.pack("<IQ", 8, 2) + text(b"a") + text("é".encode())),
               (b"nested", 9, struct.pack("<IQIQB", 9, 1, 0, 1, 5)), (b"general.alignment", 4, struct.pack("<I", 64))]
    files = {"empty": gguf([], []), "scalars": gguf(scalars, []), "arrays": gguf(arrays, []),
             "strings": gguf(strings, [(b"x", 0, 2)], alignment=64),
             "shard": gguf([(b"split.no", 2, b"\0\0"), (b"split.count", 2, b"\2\0")], [], version=2)}
    for kind in BLOCKS:
        files["tensor%d" % kind] = gguf([], [(b"w", kind, 1), (b"v", kind, 2)])
    for name, content in files.items():
        (folder / (name + ".gguf")).write_bytes(content)


def make_safetensors(folder):
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
             "F8_E4M3": 1, "F8_E5M2": 1}
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for dtype, size in sizes.items():
        header["w." + dtype] = {"dtype": dtype, "shape": [2, 3], "data_offsets": [offset, offset + 6 * size]}
        offset += 6 * size
    headers = {"all": (header, offset), "empty": ({}, 0),
               "scalar": ({"x": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}, 4),
               "zero": ({"x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}, 0)}
    for name, (content, n_bytes) in headers.items():
        encoded = json.dumps(content).encode()
        data = bytes(i * 31 % 256 for i in range(n_bytes))
        (folder / (name + ".safetensors")).write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def make_packed(folder):
    # Without checksums: the fuzz target makes the head's right, and wrong ones of the rest are as good as others.
    for name, sizes in {"none": [], "one": [100], "three": [0, 64, 5000]}.items():
        texts = text(b"/models/a.gguf\n") + text(b"cpu panels 1\n")
        n_data = sum(size + -size % 4096 for size in sizes)
        n_sums = 1  # for every 4 MiB of the file
        n_head = 48 + len(texts) + sum(32 + len("part%d" % i) + 3 for i in range(len(sizes))) + 8 * n_sums
        offset = begin = n_head + -n_head % 4096
        for i, size in enumerate(sizes):
            texts += text(b"part%d" % i) + text(b"abc") + struct.pack("<QQ", offset, size)
            offset += size + -size % 4096
        head = b"PENPACK\n" + struct.pack("<QIIQQQ", 0, 2, 0, len(sizes), begin + n_data, n_head)
        (folder / (name + ".packed")).write_bytes((head + texts + bytes(8 * n_sums)).ljust(begin + n_data, b"\1"))


if __name__ == "__main__":
    for kind, make in (("gguf", make_gguf), ("safetensors", make_safetensors), ("packed_file", make_packed)):
        (HERE / kind).mkdir(parents=True, exist_ok=True)
        make(HERE / kind)
