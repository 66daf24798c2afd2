#!/usr/bin/env python3
"""Writes tests/golden/grammar/: which texts JSON schemas and regular expressions allow, by jsonschema and Python's re.

usage: tests/golden/make_grammar_cases.py    (pip install 'jsonschema[format]' )
schemas.jsonl   the first line is a list of texts; each other one {"schema", "verdicts"}: a letter for each text, 1 = valid
regexes.jsonl   {"pattern", "texts", "whole", "found"}: by fullmatch and search
Keys of objects are in alphabetical order in schemas and texts, because `properties` gives members an order;
keys that are only required stand before keys that no keyword names.
"""
import json, pathlib, re
import jsonschema

HERE = pathlib.Path(__file__).parent / "grammar"

VALUES = [None, True, False, 0, 1, 2, 3, 5, 6, 10, 12, 100, -1, -7, 1000000, 0.5, 1.25, 2.5, -0.25, 99.9, "", "a", "b", "ab", "abc", "abcd", "é", "😀", "a b", "A1",
          "2024-02-29", "2023-02-29", "2024-01-01T10:20:30Z", "10.0.0.1", "1.2.3.4.5", "::1", "a@b.co", "not mail", "https://x.org/a?b#c", "no uri",
          "123e4567-e89b-12d3-a456-426614174000", [], [1], [1, 2], [2, 1], [1, 1], [1, 2, 3], ["a"], ["a", "b"], ["a", "a"], [1, "a"], ["a", 1], [True], [None, None], [[1], [2]],
          [{"a": 1}], {}, {"a": 1}, {"a": "x"}, {"a": 1, "b": 2}, {"a": 1, "b": "x"}, {"b": 2}, {"b": "x"}, {"c": True}, {"a": 1, "c": True}, {"a": 1, "b": 2, "c": 3},
          {"a": {"a": {"a": 1}}}, {"a": {"b": []}}, {"x1": 1}, {"x1": "a"}, {"x1": 1, "x2": 2}, {"a": None}, {"kind": "cat", "lives": 9}, {"kind": "dog", "lives": 9},
          {"kind": "dog", "tail": True}, {"next": {"next": {}}}, {"next": 1}, {"a": [1, 2, 3], "b": [{"a": 1}]}]

INT, STR, BOOL = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
SCHEMAS = [
    True, {}, {"type": "object"}, {"type": "array"}, {"type": "number"}, INT, STR, BOOL, {"type": "null"}, {"type": ["string", "null", "integer"]},
    {"const": 1}, {"const": "ab"}, {"const": {"a": 1}}, {"const": [1, 2]}, {"enum": [1, "a", None, True]}, {"enum": [{"a": 1}, [1], 2.5]}, {"enum": ["abc", "abcd", "b"], "type": "string"},
    {"minimum": 2}, {"maximum": 2.5}, {"exclusiveMinimum": 1, "exclusiveMaximum": 10}, {"minimum": -1, "maximum": 1, "type": "integer"}, {"multipleOf": 5}, {"multipleOf": 0.25}, {"multipleOf": 2, "minimum": 3, "maximum": 20},
    {"minLength": 2}, {"maxLength": 1}, {"minLength": 1, "maxLength": 3, "type": "string"}, {"pattern": "b"}, {"pattern": "^a"}, {"pattern": "^[a-c]+$", "maxLength": 2}, {"pattern": "^\\w\\d$"}, {"pattern": "^a", "minLength": 3},
    {"format": "date"}, {"format": "date-time"}, {"format": "ipv4"}, {"format": "ipv6"}, {"format": "email", "type": "string"}, {"format": "uuid"}, {"format": "uri", "type": "string"},
    {"items": INT}, {"items": INT, "minItems": 2}, {"maxItems": 1}, {"minItems": 1, "maxItems": 2, "type": "array"}, {"prefixItems": [INT, STR]}, {"prefixItems": [INT], "items": False}, {"prefixItems": [INT], "items": STR},
    {"contains": STR}, {"contains": {"const": 1}, "minContains": 2}, {"contains": INT, "maxContains": 1}, {"contains": STR, "minContains": 0}, {"items": {"type": ["integer", "string"]}, "uniqueItems": True}, {"items": STR, "uniqueItems": True, "minItems": 2},
    {"items": {"items": INT}}, {"unevaluatedItems": False, "prefixItems": [INT]}, {"allOf": [{"prefixItems": [INT]}], "unevaluatedItems": STR},
    {"properties": {"a": INT}}, {"properties": {"a": INT, "b": STR}, "required": ["a"]}, {"properties": {"a": INT}, "additionalProperties": False}, {"properties": {"a": INT}, "additionalProperties": STR}, {"required": ["a"]},
    {"properties": {"a": False}}, {"patternProperties": {"^x": INT}}, {"patternProperties": {"^x": INT}, "additionalProperties": False}, {"patternProperties": {"^x": INT, "1$": {"maximum": 0}}}, {"propertyNames": {"pattern": "^[ab]$"}}, {"propertyNames": {"maxLength": 1}},
    {"minProperties": 2}, {"maxProperties": 1}, {"minProperties": 1, "maxProperties": 2, "type": "object"}, {"dependentRequired": {"a": ["b"]}}, {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"properties": {"a": INT}, "unevaluatedProperties": False}, {"allOf": [{"properties": {"a": INT}}], "unevaluatedProperties": False}, {"anyOf": [{"properties": {"a": INT}, "required": ["a"]}, {"properties": {"b": STR}, "required": ["b"]}], "unevaluatedProperties": False},
    {"anyOf": [INT, STR]}, {"anyOf": [{"minimum": 5}, {"type": "object", "required": ["a"]}]}, {"allOf": [{"minimum": 1}, {"maximum": 5}]}, {"allOf": [{"properties": {"a": INT}}, {"required": ["a"]}, {"maxProperties": 2}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"oneOf": [{"properties": {"kind": {"const": "cat"}, "lives": INT}, "required": ["kind"]}, {"properties": {"kind": {"const": "dog"}, "tail": BOOL}, "required": ["kind"]}], "type": "object"},
    {"not": STR}, {"not": {"type": ["object", "array", "string"]}}, {"not": {"required": ["a"]}}, {"not": {"minimum": 2}}, {"not": {"pattern": "a"}}, {"not": {"enum": [1, "a", [1]]}}, {"not": {"items": INT}}, {"not": {"properties": {"a": INT}}}, {"not": {"minItems": 2}},
    {"if": {"type": "string"}, "then": {"maxLength": 2}, "else": {"not": {"type": "array"}}}, {"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}}, {"if": {"required": ["a"]}, "else": {"required": ["c"]}, "type": "object"},
    {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}}}, {"$defs": {"i": INT}, "items": {"$ref": "#/$defs/i"}, "maxItems": 2}, {"type": "object", "properties": {"a": {"$ref": "#"}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [INT, STR], "additionalItems": False}, {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}, {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 2, "exclusiveMinimum": True},
]

REGEXES = ["a|bc", "(ab)*c?", "[^a-c]x{2,3}", r"\d+\.\d\d?", r"^ab", r"b$", r"^$", r"(?:a|b){3}", r"[\w-]+@\w+", "a.c", r"\s?x\s*", "[a-z]{2,}?z", r"(?=ab)a.*", r"(?!a)\w+", "x*", r"\.\*", "(a(b(c)?)?)?d", r"[\]a]|b", r"^(a|ab)(c|bcd)$", r"\x41\u0042"]
TEXTS = ["", "a", "b", "c", "d", "ab", "abc", "abcd", "bc", "ababc", "xx", "dxx", "dxxx", "dxxxx", "3.1", "3.14", "3.141", "aba", "abab", "me@here", "a-b@c", "a\nc", "axc", " x ", "azz", "zz", "x", ".*", "ad", "abcbcd", "AB", "]"]

def main():
    HERE.mkdir(exist_ok=True)
    texts = [json.dumps(v, ensure_ascii=False) for v in VALUES]
    with open(HERE / "schemas.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps(texts, ensure_ascii=False) + "\n")
        for schema in SCHEMAS:
            cls = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            validator = cls(schema, format_checker=jsonschema.FormatChecker())
            out.write(json.dumps({"schema": schema, "verdicts": "".join(str(int(validator.is_valid(v))) for v in VALUES)}) + "\n")
    with open(HERE / "regexes.jsonl", "w", encoding="utf-8") as out:
        for pattern in REGEXES:
            compiled = re.compile(pattern, re.ASCII)
            bits = lambda f: "".join(str(int(bool(f(t)))) for t in TEXTS)
            out.write(json.dumps({"pattern": pattern, "texts": TEXTS, "whole": bits(compiled.fullmatch), "found": bits(compiled.search)}) + "\n")

main()
