#!/usr/bin/env python3
"""`penstock grammar` as a user drives it: texts, refusals, notes; with the data, a sample of MaskBench's cases."""
import gzip
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from web_server import PROGRAM, SOURCE, STORY_MODEL

DATA = pathlib.Path(os.environ.get("PENSTOCK_TEST_DATA", SOURCE.parent / "shared" / "data"))
KINDS = ("schema", "regex", "grammar", "structural_tag")


def run(*args):
    return subprocess.run([PROGRAM, "grammar", *map(str, args)], capture_output=True, text=True)


def check(cases, model):
    """Answers in order, of {kind: ..., "texts": [...]}"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cases.jsonl")
        path.write_text("".join(json.dumps({"id": i, **case}) + "\n" for i, case in enumerate(cases)))
        result = run("check", "-m", model, "--cases", path, "--json")
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]


def valid(answer):
    return [r["valid"] for r in answer["results"]]


class GrammarCommand(unittest.TestCase):
    def test_texts(self):
        cases = [({"schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}, ['{"a": 1}', "{}", '{"a": "1"}', '{"a": 1'], [1, 0, 0, 0]),
                 ({"regex": "a+b?"}, ["aab", "b", "aabb"], [1, 0, 0]),
                 ({"grammar": 'root ::= "(" root ")" | "x"'}, ["((x))", "((x)", "x"], [1, 0, 1]),
                 ({"structural_tag": {"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}}}, ["<a>b</a>", "<a>b"], [1, 0])]
        answers = check([{**spec, "texts": texts} for spec, texts, _ in cases], STORY_MODEL)
        for answer, (spec, _, expected) in zip(answers, cases):
            self.assertEqual(valid(answer), [bool(v) for v in expected], spec)

    def test_objects(self):
        with tempfile.TemporaryDirectory() as folder:
            schema, texts = pathlib.Path(folder, "schema.json"), pathlib.Path(folder, "texts.jsonl")
            schema.write_text('{"type": "object", "properties": {"a": {}}}')
            texts.write_text('{"text": "{\\"a\\": 1, \\"b\\": 2}"}\n')
            for flags, expected in (([], True), (["--objects", "open"], True), (["--objects", "closed"], False)):
                result = run("check", "-m", STORY_MODEL, "--schema", schema, "--instances", texts, "--json", *flags)
                self.assertEqual(valid(json.loads(result.stdout)), [expected], result)

    def test_refusals_and_notes(self):
        misspelt, note = check([{"schema": {"minLenght": 1}, "texts": []}, {"schema": {"x-y": 1}, "texts": []}], STORY_MODEL)
        self.assertEqual(misspelt["error"]["where"], "#/minLenght")
        self.assertEqual(misspelt["error"]["kind"], "invalid")
        self.assertEqual(note["notes"][0]["where"], "#/x-y")

    def test_nested_cases(self):
        """Nested as deep as a line may be long."""
        with tempfile.TemporaryDirectory() as folder:
            deep, regex = pathlib.Path(folder, "deep"), pathlib.Path(folder, "regex")
            regex.write_text("a")
            for nested in ("[" * 300_000, '{"a":' * 100_000):
                deep.write_text(nested)
                for arguments in (["--cases", deep], ["--regex", regex, "--instances", deep]):
                    refused = run("check", "-m", STORY_MODEL, *arguments)
                    self.assertGreater(refused.returncode, 0, refused)
                    self.assertIn("expected" if "--regex" in arguments else "nested deeper than", refused.stderr)

    def test_show(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "schema.json")
            path.write_text('{"type": "string", "format": "mine"}')
            shown = run("show", "--schema", path)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("note: #/format", shown.stdout)
            path.write_text('{"type": "strin"}')
            refused = run("show", "--schema", path)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("#/type", refused.stderr)

    def test_maskbench(self):
        folder, model = DATA / "maskbench", DATA / "tokenizers" / "llama3_tokenizer.model"
        if not folder.exists() or not model.exists():
            self.skipTest(f"no test data: {folder}")
        cases = []
        for path in sorted(folder.glob("*.jsonl.gz")):
            if path.name.startswith("Suite_"):
                continue
            family = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8", "surrogatepass").split("\n") if line]
            cases += family[:: max(1, len(family) // 12)]
        answers = check([{next(k for k in KINDS if k in c): c[next(k for k in KINDS if k in c)], "texts": c["valid"] + c["invalid"]} for c in cases], model)
        let_through, right = [], 0
        for case, answer in zip(cases, answers):
            if "error" in answer:
                continue
            got, n = valid(answer), len(case["valid"])
            if any(got[n:]):
                let_through.append(case["id"])
            right += all(got[:n]) and not any(got[n:])
        self.assertEqual(let_through, [])
        self.assertGreater(right, 0.9 * len(cases))


if __name__ == "__main__":
    unittest.main(verbosity=2)
