#!/usr/bin/env python3
"""Writes tests/golden/grammar/larks.jsonl: which texts grammars in Lark's notation allow, by Lark and by llguidance.

usage: tests/golden/make_lark_cases.py    (pip install lark llguidance numpy)
A line is {"grammar", "texts", "verdicts"}: a letter for each text, 1 = valid. Lark judges with its Earley parser and
lexer="dynamic_complete", which tries every length of a terminal; %ignore is allowed at both ends there, but not here, so
texts that begin or end with what is ignored are not among these. Grammars of llguidance's additions are judged by
llguidance. Where both know a grammar and differ, a line says so: llguidance takes the longest terminal only.
"""
import json, pathlib
import lark, llguidance, llguidance.numpy

OUT = pathlib.Path(__file__).parent / "grammar/larks.jsonl"

ARITHMETIC = """\
?start: sum
?sum: product
    | sum "+" product   -> add
    | sum "-" product   -> sub
?product: atom
    | product "*" atom  -> mul
    | product "/" atom  -> div
?atom: NUMBER           -> number
     | "-" atom         -> neg
     | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""
JSON = r"""
?start: value
?value: object | array | string | SIGNED_NUMBER -> number | "true" -> true | "false" -> false | "null" -> null
array  : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : string ":" value
string : ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""
SQL = """\
start: select
select: "SELECT"i _list{column} "FROM"i NAME [where]
where: "WHERE"i condition ("AND"i condition)~0..2
condition: column OP (NUMBER | /'[^']*'/)
column: NAME
_list{item}: item ("," item)*
OP: "=" | "<" | ">" | "<="
NAME: /[a-z_]+/
NUMBER: ("0".."9")+
%ignore " "
"""
WORDS = ["", "a", "b", "ab", "ba", "aa", "aaa", "aaaa", "abab", "abc", "A", "AB", "c", "1", "12", "a1", "a,a", "a,b", "a b", "a  b", "a\nb", "x", "xx", "é", "\\", '"', "#", "/", "//"]
LARK = [
    (ARITHMETIC, ["1", "1+2", "1 + 2", "(1 +2)* -3", "1+", "()", "1  2", "--1", "1.5e3/.5", "(1", "1+\n2", "((1))", "1.e"]),
    (JSON, ["{}", "[]", '{"a": [1, 2.5e3, null]}', "[1 ,\n2]", '"a\\"b"', '"a"b"', "[1,]", "{1:2}", "truefalse", "-1", "+1", '["\\\\"]', '{"a":{"b":[true,false]}}', '"a\nb"']),
    (SQL, ["SELECT a FROM b", "select a, b from c where a = 1", "select a from b where a<='x y' and b>2", "selectafromb", "SELECT a FROM b WHERE a = 1 AND b = 2 AND c = 3", "SELECT a FROM b WHERE a = 1 AND b = 2 AND c = 3 AND d = 4", "SELECT FROM b", "SELECT a, FROM b"]),
    ('start: "a" | "ab" "c"?', WORDS),
    ('start: A B\nA: /a+/\nB: "ab"', WORDS + ["aab", "aaab"]),
    ('start: ("a" | "b")+ ["c"]', WORDS),
    ('start: "a" ~ 2..3', WORDS), ('start: ("a" "b"?) ~ 2', WORDS), ('start: A\nA: "a" ~ 2 | "b"', WORDS),
    ('start: "ab"i | /x+/i', WORDS + ["aB", "Xx"]),
    ('start: "a".."c" | "0".."9" ~ 2', WORDS),
    ('start: x\n | y -> z\nx: "a"\n// a comment\n | "b" # another\n!y: "c"\n', WORDS),
    ('start: | "a"', WORDS), ('start:\n | "a"\n | "b"\n', WORDS),
    ('start: a\na.2: B\nB.-1: "x" | "a"\n', WORDS),
    ('start: start "a" | "b"', WORDS + ["baa"]), ('start: "a" start "b" |', WORDS + ["aabb", "aab"]),
    ('start: _sep{A, ","}\n_sep{x, s}: x (s x)*\nA: "a" | "b"', WORDS + ["a,b,a", ",a"]),
    ('start: list{"a"} | list{B}\nlist{x}: x | list{x} "," x\nB: "b"', WORDS + ["b,b"]),
    ('start: pair{pair{"a", "b"}, "c"}\npair{x, y}: x y', WORDS),
    (r'start: "\"" | "\\" | "\x41" | "\u00e9" | "\t" | "#" | "//"', WORDS + ["\t"]),
    ("start: /a b # c\n  +/x", WORDS + ["abb"]), (r"start: /a.b/", WORDS + ["a\rb", "a\u2028b"]), (r"start: /a.b/s", WORDS), (r"start: /\//", WORDS),
    (r"start: /\d\w\s/", ["1a ", "٣é\u00a0", "a1 ", "1! ", "11\n", "1_\u2003"]), (r"start: /[^\W\d]+/", WORDS + ["ж"]), (r"start: /(?i:a)b|(?P<n>x){2}/", WORDS + ["Ab"]),
    ('start: A? B* "c"\nA: "a"\nB: "b"\n%ignore " "\n%ignore /\\n/', WORDS + ["c", "a b c", "abb c", "b\n\nc", "a c", "b  b c", "bc"]),
    ('start: a? a? b? "x"?\na: "a"\nb: "b" | \n%ignore " "', WORDS + ["a a", "a a b x", "b x", "a x", "a  a  x", "b a"]),
    ('start: (x ","?)+\nx: "a" | "b" x\n%ignore "_"', WORDS + ["a_a", "b_a", "a_,_b_a", "b_b"]),
    ('start: WORD "." CNAME\n%import common (WORD, CNAME)\n', ["a.b", "a.b1", "a1.b", "a._", ".a"]),
    ("start: N\n%import common.NEWLINE -> N", ["\n", "\r\n\n", "\r", ""]),
]
LLGUIDANCE = [
    ('start: "a"{2,3} | B{2} | C{,1} "x"\nB: "b"\nC: "c"{1,}', WORDS + ["bb", "cx", "ccx"]),
    ('start: my-rule\nmy-rule: "a"', WORDS),
    ('%llguidance {}\nstart: "f(" %json {"type": "object", "properties": {"}": {"type": "integer"}}, "additionalProperties": false} ")"', ["f({})", 'f({"}": 12})', 'f({"a": 1})', "f()", "f(1)"]),
]
COMMON = {
    "CNAME": WORDS + ["_", "a_1", "1a"], "CPP_COMMENT": ["//", "// a", "//\n", "/"], "CR": ["\r", "\n"], "C_COMMENT": ["/**/", "/* a */", "/* * **/", "/*/", "/* */ */", "/*\n*/", "/* a"],
    "DECIMAL": ["1.", ".1", "1.5", "1", "."], "DIGIT": ["1", "12", "a", "٣"], "ESCAPED_STRING": ['""', '"a"', '"\\""', '"\\"', '"a"b"', '"\\\\"', '"a\nb"', '"\\\n"', '"\\\\\\""'],
    "FLOAT": ["1.0", "1", "1e5", ".5e-3", "1.e+2", "e5", "1e", "-1.0"], "HEXDIGIT": ["a", "F", "0", "g", "aa"], "INT": ["0", "12", "-1", "", "1.0"],
    "LCASE_LETTER": ["a", "A"], "LETTER": ["a", "A", "é", "1"], "LF": ["\n", "\r"], "NEWLINE": ["\n", "\r\n", "\r", "\n\n", "\n "], "NUMBER": ["1", "1.5", "1e5", ".5", "-1", ".", "1.e5"],
    "SH_COMMENT": ["#", "# a", "#\n"], "SIGNED_FLOAT": ["-1.0", "+1e5", "1", ".5", "--1."], "SIGNED_INT": ["-1", "+1", "1", "+", "1.0"], "SIGNED_NUMBER": ["-1", "+.5", "1e-5", "+-1"],
    "SQL_COMMENT": ["--", "-- a", "-", "--\n"], "UCASE_LETTER": ["A", "a"], "WORD": WORDS, "WS": [" ", "\t\n\r\f", "", "\v", "\u00a0"], "WS_INLINE": [" \t", "\n", ""],
}


class Bytes:
    """A tokenizer of single bytes."""
    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
    tokens = [bytes([i]) for i in range(256)] + [b"<eos>"]

    def __call__(self, text):
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))


def by_lark(grammar, texts):
    parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")
    verdicts = ""
    for text in texts:
        try:
            parser.parse(text)
            verdicts += "1"
        except lark.exceptions.UnexpectedInput:
            verdicts += "0"
    return verdicts


def by_llguidance(grammar, texts):
    compiled = llguidance.LLMatcher.grammar_from_lark(grammar)
    error = llguidance.LLMatcher.validate_grammar(compiled, TOKENIZER)
    if error:
        raise ValueError(error)
    verdicts = ""
    for text in texts:
        matcher = llguidance.LLMatcher(TOKENIZER, compiled, log_level=0)
        taken = all(matcher.validate_tokens([byte]) == 1 and matcher.consume_token(byte) for byte in text.encode())
        verdicts += str(int(taken and matcher.is_accepting()))
    return verdicts


def main():
    cases = [(grammar, texts, by_lark(grammar, texts)) for grammar, texts in LARK]
    cases += [(g, texts, by_lark(g, texts)) for name, texts in COMMON.items() for g in [f"start: {name}\n%import common.{name}"]]
    for grammar, texts, verdicts in cases:
        try:
            other = by_llguidance(grammar, texts)
        except ValueError as error:
            print(f"llguidance refuses {grammar!r}: {str(error).splitlines()[0]}")
            continue
        for text, a, b in zip(texts, verdicts, other):
            if a != b:
                print(f"{grammar!r}: {text!r} Lark {a} llguidance {b}")
    cases += [(grammar, texts, by_llguidance(grammar, texts)) for grammar, texts in LLGUIDANCE]
    with open(OUT, "w", encoding="utf-8") as out:
        for grammar, texts, verdicts in cases:
            out.write(json.dumps({"grammar": grammar, "texts": texts, "verdicts": verdicts}, ensure_ascii=False) + "\n")


main()
