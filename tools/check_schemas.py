#!/usr/bin/env python3
"""Compares the results of `penstock grammar check` with Python's jsonschema.

usage: tools/check_schemas.py PENSTOCK -m TOKENIZER [--cases FILE.jsonl[.gz] ...] [--random N] [--seed S] [--show K] [--every N]

  --cases   lines {"schema": ..., "valid": [text, ...], "invalid": [text, ...]}: the lists say what is right
  --random  so many schemas about members, drawn with instances that jsonschema judges; needs `pip install jsonschema`

Prints how many texts were judged, and of each kind of difference the first K:
  refused   a valid text is not allowed, or the schema is called invalid though it has a value
  let in    an invalid text is allowed
Schemas that are refused as unsupported or too_large are counted by their messages. Exit code 1 where there is a difference.
"""
import argparse
import collections
import gzip
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

KEYS = ["a", "b", "c", "ab", "x1"]
VALUES = [True, None, 1, 0, -1, 503, 2.5, "", "a", "ab", "503", [], [1], {}, {"a": 1}]
PATTERNS = ["^a", "b$", "^x", "^[ab]$", "1", "^(a|x1)$"]


class Draw:
    """Schemas about the members of an object."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def some(self, items, most):
        return self.rng.sample(items, self.rng.randint(0, most))

    def value_schema(self, depth):
        kind = self.rng.randrange(9)
        if kind == 0:
            return self.rng.choice([True, False])
        if kind == 1:
            return {"enum": self.rng.sample(VALUES, self.rng.randint(1, 4))}
        if kind == 2:
            return {"const": self.rng.choice(VALUES)}
        if kind == 3 and depth > 0:
            return self.object_schema(depth - 1)
        if kind == 4:
            return {"minimum": self.rng.choice([-1, 0, 1, 2]), "maximum": self.rng.choice([1, 2, 503])}
        if kind == 5:
            return {"anyOf": [{"enum": self.rng.sample(VALUES, 2)}, {"type": "integer"}]}
        return {"type": self.rng.choice(["integer", "string", "null", "boolean", "object", "array", "number"])}

    def object_schema(self, depth):
        rng, schema = self.rng, {}
        if rng.random() < 0.3:
            schema["type"] = "object"
        for _ in range(rng.randint(1, 4)):
            self.add_keyword(schema, depth)
        return schema

    def add_keyword(self, schema, depth):
        rng = self.rng
        kind = rng.randrange(15)
        if kind in (0, 1):
            schema["properties"] = {key: self.value_schema(depth) for key in self.some(KEYS, 3)}
        elif kind == 2:
            schema["patternProperties"] = {p: self.value_schema(depth) for p in self.some(PATTERNS, 2)}
        elif kind == 3:
            schema["additionalProperties"] = self.value_schema(depth)
        elif kind == 4:
            schema["required"] = self.some(KEYS, 2)
        elif kind == 5:
            schema["minProperties"] = rng.randint(0, 3)
        elif kind == 6:
            schema["maxProperties"] = rng.randint(0, 3)
        elif kind == 7:
            schema["dependentRequired"] = {key: self.some(KEYS, 2) for key in self.some(KEYS, 2)}
        elif kind == 8:
            schema["dependentSchemas"] = {key: self.sub_schema(depth) for key in self.some(KEYS, 2)}
        elif kind == 9:
            schema["propertyNames"] = rng.choice(
                [{"pattern": rng.choice(PATTERNS)}, {"enum": self.some(KEYS, 3) + ["a"]}, {"maxLength": 1}])
        elif kind == 10:
            schema["unevaluatedProperties"] = self.value_schema(depth)
        elif kind == 11 and depth > 0:
            schema[rng.choice(["anyOf", "oneOf", "allOf"])] = [self.sub_schema(depth) for _ in range(rng.randint(1, 3))]
        elif kind == 12 and depth > 0:
            schema["not"] = self.sub_schema(depth)
        elif kind == 13 and depth > 0:
            schema["if"] = self.sub_schema(depth)
            for branch in self.some(["then", "else"], 2):
                schema[branch] = self.sub_schema(depth)
        else:
            schema["properties"] = {key: self.value_schema(depth) for key in self.some(KEYS, 2)}

    def sub_schema(self, depth):
        return self.object_schema(depth - 1) if depth > 0 else self.value_schema(0)

    def instances(self):
        rng = self.rng
        for n in range(len(KEYS) + 1):
            for keys in itertools.combinations(KEYS, n):
                for _ in range(2):
                    order = list(keys)
                    rng.shuffle(order)
                    plain = rng.random() < 0.5
                    yield {key: (True if plain else rng.choice(VALUES)) for key in order}
        yield from VALUES


def random_cases(n, seed):
    import jsonschema
    validator_class = jsonschema.Draft202012Validator
    for i in range(n):
        draw = Draw(seed + i)
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **draw.object_schema(2)}
        judge, valid, invalid = validator_class(schema), [], []
        for instance in draw.instances():
            (valid if judge.is_valid(instance) else invalid).append(json.dumps(instance))
        yield {"id": f"seed {seed + i}", "schema": schema, "valid": valid, "invalid": invalid}


def file_cases(path, every):
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "surrogatepass")
    for i, line in enumerate(line for line in text.split("\n") if line):
        case = json.loads(line)
        if "schema" in case and i % every == 0:
            yield {"id": case.get("id", f"{path.name}:{i}"), "schema": case["schema"],
                   "valid": case["valid"], "invalid": case["invalid"]}


def answers(command, cases):
    """Returns the program's answer to each case; None for the remaining ones if it ends early."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8", errors="surrogatepass") as file:
        for i, case in enumerate(cases):
            line = {"id": i, "schema": case["schema"], "texts": case["valid"] + case["invalid"]}
            file.write(json.dumps(line) + "\n")
        file.flush()
        run = subprocess.run(command + ["--json", "--cases", file.name], capture_output=True)
    lines = [json.loads(line) for line in run.stdout.decode().splitlines() if line.startswith("{")]
    if len(lines) < len(cases):
        print(f"ended with {run.returncode} at {cases[len(lines)]['id']}: {run.stderr[-500:].decode(errors='replace')}")
    return lines + [None] * (len(cases) - len(lines))


class Tally:
    def __init__(self):
        self.texts, self.refusals, self.differences = 0, collections.Counter(), collections.defaultdict(list)

    def judge(self, case, answer):
        if answer is None:
            return self.differences["not answered"].append((case["id"], case["schema"], ""))
        if "error" in answer:
            error = answer["error"]
            if error["kind"] != "invalid":
                self.refusals[f"{error['kind']}: {error['message'][:70]}"] += 1
            elif case["valid"]:
                self.differences["refused"].append((case["id"], case["schema"], error["message"]))
            return None
        for i, result in enumerate(answer["results"]):
            self.texts += 1
            should = i < len(case["valid"])
            if result["valid"] != should:
                text = (case["valid"] + case["invalid"])[i]
                self.differences["refused" if should else "let in"].append((case["id"], case["schema"], text))
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock")
    parser.add_argument("-m", "--tokenizer-model", required=True)
    parser.add_argument("--cases", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--every", type=int, default=1, help="of the lines of the files")
    asked = parser.parse_args()
    cases = [case for path in asked.cases for case in file_cases(path, asked.every)]
    cases += random_cases(asked.random, asked.seed)
    command = [asked.penstock, "grammar", "check", "-m", asked.tokenizer_model]
    tally = Tally()
    for case, answer in zip(cases, answers(command, cases)):
        tally.judge(case, answer)
    print(f"{len(cases)} schemas, {sum(tally.refusals.values())} refused, {tally.texts} texts judged")
    for message, n in tally.refusals.most_common(asked.show):
        print(f"  {n} x {message}")
    for kind, found in tally.differences.items():
        print(f"{kind}: {len(found)} of {len({case for case, _, _ in found})} schemas")
        for name, schema, text in found[:asked.show]:
            print(f"  {name}: {json.dumps(schema)}\n    {text}")
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
