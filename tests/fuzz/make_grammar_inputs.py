#!/usr/bin/env python3
"""Writes every schema, regular expression, grammar and structural tag below a folder as an input of fuzz_grammar.

usage: make_grammar_inputs.py FOLDER OUT

Reads *.jsonl and *.jsonl.gz (lines with "schema", "regex", "grammar" or "structural_tag"), *.gbnf, and archives *.tar.gz and *.tar.xz of JSON files: each
a schema, or a list of {"schema": ...}.
"""
import gzip
import json
import pathlib
import sys
import tarfile

# The first byte of an input, modulo 5, is the kind: see grammar_fuzz.cc.
KINDS = {"schema": "2", "regex": "3", "grammar": "4", "structural_tag": "5"}


def inputs(path):
    """(kind, text) of each specification in a file"""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "surrogatepass")
        for line in filter(None, text.split("\n")):
            case = json.loads(line)
            for kind in KINDS.keys() & case.keys():
                yield kind, case[kind] if isinstance(case[kind], str) else json.dumps(case[kind])
    elif path.suffix == ".gbnf":
        yield "grammar", path.read_text()
    elif path.name.endswith((".tar.gz", ".tar.xz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if not member.name.endswith(".json"):
                    continue
                document = json.load(archive.extractfile(member))
                for part in document if isinstance(document, list) else [{"schema": document}]:
                    if isinstance(part, dict) and "schema" in part:
                        yield "schema", json.dumps(part["schema"])


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    n = 0
    for path in sorted(folder.rglob("*")):
        for kind, text in inputs(path) if path.is_file() else ():
            (out / f"{n:06}").write_bytes((KINDS[kind] + text).encode("utf-8", "surrogatepass"))
            n += 1
    print(f"{n} inputs")
    return 0 if n else 1


if __name__ == "__main__":
    sys.exit(main())
