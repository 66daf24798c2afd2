#!/usr/bin/env python3
"""Reports lines per folder, and fails if a file, function or class exceeds its size limit.

Files: 600 lines (kernels 900). Functions, from the line of their name to their last brace: 80 lines (kernels, and visit(), which is
a list of fields: 140), and 19 of 20 have at most 40. Classes, their body and the members defined outside of it together: 700 lines. Functions and classes are those
that universal-ctags finds in src/, include/ and bench/. Two classes of one name are a failure as well: a program that links both
takes the members of one for the other's.
"""
import collections
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LIMIT, KERNEL_FILE_LIMIT = 600, 900
FUNCTION_LIMIT, KERNEL_FUNCTION_LIMIT, FUNCTION_P95 = 80, 140, 40
CLASS_LIMIT = 700
SOURCES = {".h", ".cc", ".inl", ".cu", ".cuh"}
# Exceptions, with their limits, which may only be lowered.
ALLOWED = {
}


def is_kernel(path):
    return "kernels" in pathlib.Path(path).parts


def tags(paths):
    """Yields the definitions in the files: dictionaries with path, name, kind, line, end and enclosing scope."""
    command = ["ctags", "--languages=C++", "--langmap=C++:+.inl.cu.cuh", "--kinds-C++=fcs", "--fields=+neKs", "--output-format=json",
               "-o", "-", "-L", "-"]
    found = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, cwd=ROOT, check=True)
    for line in found.stdout.splitlines():
        tag = json.loads(line)
        if "end" in tag:
            tag["full_name"] = "::".join(part for part in (tag.get("scope"), tag["name"]) if part)
            yield tag


def length(tag):
    return tag["end"] - tag["line"] + 1


def class_lengths(found):
    """Returns {class: [lines, location, tag]}; lines: of the body and of member functions defined outside of it."""
    classes = {}
    for tag in found:
        if tag["kind"] in ("class", "struct"):
            classes[tag["full_name"]] = [length(tag), f"{tag['path']}:{tag['line']}", tag]
    for tag in found:
        around = classes.get(tag.get("scope"))
        if tag["kind"] != "function" or around is None:
            continue
        body = around[2]
        if tag["path"] != body["path"] or not body["line"] <= tag["line"] <= body["end"]:
            around[0] += length(tag)
    return {name: (lines, where) for name, (lines, where, _) in classes.items()}


def too_long(name, lines, limit):
    return lines > ALLOWED.get(name, limit)


def function_failures(functions):
    for tag in functions:
        is_long_kind = is_kernel(tag["path"]) or tag["name"] == "visit"
        limit = KERNEL_FUNCTION_LIMIT if is_long_kind else FUNCTION_LIMIT
        if too_long(tag["full_name"], length(tag), limit):
            yield f"{tag['path']}:{tag['line']}: {tag['name']} has {length(tag)} lines (limit {limit})"
    lengths = sorted(length(tag) for tag in functions if not is_kernel(tag["path"]))
    median, p95 = lengths[len(lengths) // 2], lengths[len(lengths) * 95 // 100]
    print(f"{len(functions)} functions; outside of kernels: median {median}, p95 {p95}, longest {lengths[-1]} lines")
    if p95 > FUNCTION_P95:
        yield f"the longest 5 % of the functions have more than {FUNCTION_P95} lines: from {p95} on"


def class_failures(found):
    classes = class_lengths(found)
    longest = max(classes, key=lambda name: classes[name][0])
    print(f"{len(classes)} classes; the longest is {longest} with {classes[longest][0]} lines")
    for name, (lines, where) in classes.items():
        if too_long(name, lines, CLASS_LIMIT):
            yield f"{where}: {name} has {lines} lines in all its files (limit {CLASS_LIMIT})"


def same_name_failures(found):
    places = collections.defaultdict(set)
    for tag in found:
        if tag["kind"] in ("class", "struct") and "__anon" not in tag["full_name"]:
            places[tag["full_name"]].add(f"{tag['path']}:{tag['line']}")
    for name, where in places.items():
        if len(where) > 1:
            yield f"{name} is defined more than once: {', '.join(sorted(where))}"


def file_failures():
    totals = collections.Counter()
    for base in ("src", "include", "tests", "tools", "bench", "training"):
        for path in sorted((ROOT / base).rglob("*")):
            if path.suffix not in SOURCES | {".py", ".sh"} or not path.is_file():
                continue
            count = len(path.read_text(errors="replace").splitlines())
            relative = path.relative_to(ROOT)
            totals["/".join(relative.parts[: 2 if base == "src" else 1])] += count
            limit = KERNEL_FILE_LIMIT if is_kernel(relative) else FILE_LIMIT
            if base in ("src", "include") and count > limit:
                yield f"{relative}: {count} lines (limit {limit})"
    for folder, count in sorted(totals.items()):
        print(f"{count:7d}  {folder}")
    print(f"{sum(totals.values()):7d}  in all")


def main():
    if shutil.which("ctags") is None:
        sys.exit("check_size.py: no ctags; scripts/install_packages check installs universal-ctags")
    failures = list(file_failures())
    sources = [str(path.relative_to(ROOT)) for base in ("src", "include", "bench") for path in sorted((ROOT / base).rglob("*"))
               if path.suffix in SOURCES]
    found = list(tags(sources))
    failures += function_failures([tag for tag in found if tag["kind"] == "function"])
    failures += class_failures(found)
    failures += same_name_failures(found)
    print("\n".join(failures) if failures else "sizes: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
