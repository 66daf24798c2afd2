#!/usr/bin/env python3
"""Writes tests/golden/pytorch/: what torch.save writes, and the same tensors in order as safetensors. Needs torch, safetensors.

  pytorch_model.bin    a zip archive; strided views, views of one storage, a parameter, every type of number that weights have
  older.bin            the same in the form of torch before 1.6
  zip64.bin            the first, its directory and sizes as archives of more than 4 GB have them
  sharded/             two files and their index
  expected.safetensors
"""
import collections
import io
import json
import struct
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file

OUT = Path(__file__).parent / "pytorch"


def tensors():
    torch.manual_seed(3)
    base = torch.randn(6, 8)
    module = torch.nn.Linear(3, 2)
    state = collections.OrderedDict(module.state_dict(prefix="linear."))  # with the versions that torch keeps there
    state._metadata = module.state_dict()._metadata
    return collections.OrderedDict(
        **state, whole=base, transposed=base.t(), part=base[2:4], steps=base[::2, 1::3], column=base[:, 5], scalar=torch.tensor(2.5),
        one_row=base[1:2, :], none=torch.zeros(0, 4), parameter=torch.nn.Parameter(torch.randn(2, 2)), half=torch.randn(3, 5).half(),
        brain=torch.randn(4, 4).bfloat16().t(), double=torch.randn(2).double(), long=torch.arange(-3, 4), int=torch.arange(3).int(),
        short=torch.arange(3).short(), char=torch.arange(-2, 2).to(torch.int8), byte=torch.arange(250, 255).to(torch.uint8),
        bool=torch.tensor([True, False, True]), permuted=torch.randn(2, 3, 4).permute(2, 0, 1))


def as_zip64(archive):
    """Every entry as it is, all numbers of the directory in zip64's fields."""
    out, directory, count = b"", b"", 0
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        for entry in old.infolist():
            data, name, place = old.read(entry), entry.filename.encode(), len(out)
            out += struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, entry.CRC, 0xFFFFFFFF, 0xFFFFFFFF, len(name), 20)
            out += name + struct.pack("<HHQQ", 1, 16, len(data), len(data)) + data
            extra = struct.pack("<HHI", 0x5855, 4, 7) + struct.pack("<HHQQQ", 1, 24, len(data), len(data), place)
            directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, entry.CRC, 0xFFFFFFFF, 0xFFFFFFFF, len(name),
                                     len(extra), 0, 0, 0, 0, 0xFFFFFFFF) + name + extra
            count += 1
    at = len(out)
    out += directory + struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, len(directory), at)
    out += struct.pack("<IIQI", 0x07064B50, 0, at + len(directory), 1)
    return out + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 3) + b"end"


def main():
    (OUT / "sharded").mkdir(parents=True, exist_ok=True)
    state = tensors()
    torch.save(state, OUT / "pytorch_model.bin")
    torch.save(state, OUT / "older.bin", _use_new_zipfile_serialization=False)
    (OUT / "zip64.bin").write_bytes(as_zip64((OUT / "pytorch_model.bin").read_bytes()))
    save_file({name: value.detach().clone().contiguous() for name, value in state.items()}, OUT / "expected.safetensors")
    names = list(state)
    places = {name: f"pytorch_model-0000{1 + (i >= 8)}-of-00002.bin" for i, name in enumerate(names)}
    for file in sorted(set(places.values())):
        torch.save({name: state[name].clone() for name in names if places[name] == file}, OUT / "sharded" / file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (OUT / "sharded" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    for folder in (OUT, OUT / "sharded"):
        (folder / "config.json").write_text('{"model_type": "llama"}')
    for file in OUT.rglob("*.bin"):
        if file.name != "older.bin":
            torch.load(file, weights_only=True)


if __name__ == "__main__":
    main()
