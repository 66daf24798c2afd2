#!/usr/bin/env python3
"""Checks that every folder of src/ includes only the folders its row of docs/design.md section 2 lists.

Also: the rooms of a layer in the direction that the line "inside …" there gives; CUDA headers only in ops/cuda, intrinsics only in kernels/<isa>, one backend's headers and the memory of tensors
only in ops/ and in quantize/, which computes on the CPU; files are opened for reading by base/regular_file.h alone; texts are hashed by base/text_hash.h alone; nothing but base/ calls functions of C that depend on the locale.
Exit code 1 and one line per violation.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DESIGN = ROOT / "docs" / "design.md"
HOST_TENSOR_LAYERS = {"ops", "quantize"}  # the quantizers compute on the CPU and look into its tensors
# Files that read the system's files, or standard input by its other names.
OPENS_FILES = {"cli/console/input.cc", "cli/planning/machine_check.cc", "parallel/host_cpus.cc"}
ISA_FOLDERS = {tables.parent.name for tables in (ROOT / "src/kernels").glob("*/tables.h")}

JSON_READERS = {"base/json_text.h", "base/ordered_json.cc", "formats/safetensors.cc"}  # the first calls the second


def allowed_layers():
    """Returns {folder: set of folders it may include}, read from the table in the design."""
    text = DESIGN.read_text()
    table = re.search(r"Dependency rule.*?```\n(.*?)```", text, re.S).group(1)
    rows = re.findall(r"(\w+): ((?:\w+ ?)+|-)(?=\s|$)", table)
    return {name: set(deps.split()) - {"-"} for name, deps in rows}


def room_orders():
    """Returns {layer: its rooms in order}; a room may include only earlier ones. The layer's own name denotes its files outside of rooms."""
    rows = re.findall(r"^inside (\w+): ([\w/]+(?: < [\w/]+)+)", DESIGN.read_text(), re.M)
    return {layer: rooms.split(" < ") for layer, rooms in rows}


def room_of(parts, order):
    """Returns the room of a path below src/ as a list: the innermost of its folders that the order names, or the layer's name."""
    inner = "/".join(parts[1:3])
    if len(parts) > 3 and inner in order:
        return inner
    return parts[1] if len(parts) > 2 else parts[0]


def violations():
    allowed = allowed_layers()
    orders = room_orders()
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".inl", ".cu", ".cuh"}:
            continue
        parts = path.relative_to(ROOT / "src").parts
        layer = parts[0]
        if layer not in allowed:
            yield f"src/{layer}: no row in the dependency table of {DESIGN.relative_to(ROOT)}"
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}"
            own = re.match(r'\s*#\s*include\s+"([^"/]+)/', line)
            if own and own.group(1) in allowed and own.group(1) != layer and own.group(1) not in allowed[layer]:
                yield f"{where}: {layer} may not include {own.group(1)} (allowed: {' '.join(sorted(allowed[layer])) or '-'})"
            order = orders.get(layer, [])
            included = re.match(rf'\s*#\s*include\s+"({layer}/[^"]+)"', line)
            if included:
                mine, theirs = room_of(parts, order), room_of(included.group(1).split("/"), order)
                if mine in order and theirs in order[order.index(mine) + 1:]:
                    name = {room: f"{layer}/{room}" for room in order} | {layer: layer}
                    yield f"{where}: {name[mine]} may not include {name[theirs]} (inside {layer}: {' < '.join(order)})"
            if "ops" in allowed[layer] and layer not in HOST_TENSOR_LAYERS:
                if re.match(r'\s*#\s*include\s+"ops/\w+/', line):
                    yield f"{where}: the header of one backend (above ops/ all look alike)"
                code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
                if re.search(r"(\.|->)data\b(?!\s*\()|\bf32\s*\(", code):
                    yield f"{where}: the memory of a tensor (Ops::read_rows and write_rows are the ways in and out)"
            if re.search(r"[jJ]son::(parse|sax_parse|accept)\(", line) and path.relative_to(ROOT / "src").as_posix() not in JSON_READERS:
                yield f"{where}: JSON is read by base/json_text.h, which bounds how deep it nests"
            opens = re.search(r"\bifstream\b|\bfopen\(|\bO_RDONLY\b", line.split("//")[0])
            if opens and layer != "base" and "/".join(parts) not in OPENS_FILES and not re.search(r'O_DIRECTORY|"/dev/null"', line):
                yield f"{where}: opens a file that may be none (base/regular_file.h never waits for a FIFO or a device)"
            localized = re.search(r"\bstd::(to(lower|upper)|is(al|print|digit|xdigit|space|upper|lower|punct)\w*)\(|\b(strto(d|f|ld)|sto(d|f|ld)|atof|strftime)\(", re.sub(r'"(\\.|[^"\\])*"', "", line.split("//")[0]))
            if localized and layer != "base":
                yield f"{where}: {localized.group(0)} depends on the process's locale (base/ascii.h and base/locale_free.h do not)"
            if re.search(r"\b(hash|unordered_\w+)<std::string", line) and "/".join(parts) != "base/text_hash.h":
                yield f"{where}: a hash of texts whose collisions anybody can make (base/text_hash.h has a key)"
            system = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
            if not system:
                continue
            header = system.group(1)
            if re.match(r"(cuda|cublas|nccl|cub/|cute/)", header) and parts[:2] != ("ops", "cuda"):
                yield f"{where}: CUDA header outside ops/cuda"
            if re.search(r"(immintrin|arm_neon|x86intrin)", header) and not (layer == "kernels" and set(parts) & ISA_FOLDERS):
                yield f"{where}: intrinsics outside kernels/<isa>"


def main():
    found = list(violations())
    print("\n".join(found) if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
