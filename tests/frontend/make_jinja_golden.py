#!/usr/bin/env python3
"""Writes tests/golden/jinja_cases.json: small templates with what real Jinja2 renders or raises.

usage: make_jinja_golden.py        (needs jinja2; the environment is the one transformers gives chat templates)
"""
import json
import pathlib
from datetime import datetime

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "a": 1, "b": 2.5, "s": "Hello World", "u": "Zürich 👋 straße", "empty": "", "none": None, "t": True, "f": False,
    "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "d": {"x": 1, "y": [1, 2], "z": {"k": "v"}},
    "users": [{"name": "Bob", "age": 30, "tags": ["x"]}, {"name": "ann", "age": 20, "tags": []}, {"name": "Cy", "age": 30}],
    "nested": [[1, [2, [3]]], [4]], "neg": -7, "big": 12345678901, "items": [1, 2], "html": "<a href=\"x\">1 & 'b'</a>",
    "multi": "one\n  two\n\nthree", "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
    "mixed": [1, "a", None, True, 2.0, [], {}], "q": "it's \"q\"",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
(1 + 2) * 3
7 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
1e3
1.5e-7
1e16
1e15
123456789012345680.0
0.1 + 0.2
1_000 + 0x1f + 0b101 + 0o17
1 / 0
1 // 0
1 % 0
1.0 / 0
"a" + "b"
"a" + 1
1 + "a"
[1] + [2]
[1] + (2,)
"ab" * 3
3 * [1, 2]
"a" ~ 1 ~ none ~ true ~ 1.0 ~ [1, "x"]
1 < 2 < 3
1 < 2 > 3
1 == 1.0
1 == true
"1" == 1
"a" < "b"
"a" < 1
[1, 2] < [1, 3]
none < 1
not 1
not missing
1 and 2
0 and 2
0 or "x"
missing or "x"
missing and "x"
1 if a else 2
1 if missing else 2
1 if missing
(1 if missing) is defined
missing
missing.attr
missing["x"]
missing + 1
1 + missing
"x" + missing
missing ~ "x"
-missing
missing()
missing == missing2
missing == none
missing is defined
missing is undefined
a is defined
d.missing
d.missing.more
d["missing"]
d.x
d["x"]
d["y"][1]
d.y.1
d.z.k
l[0]
l[-1]
l[5]
l[5].x
l["x"]
l[1.5]
l[true]
s[0]
s[-1]
s[100]
u[7]
u[-6:]
s.x
s[1:4]
s[:-3]
s[::-1]
s[::2]
s[10:2:-2]
u[2:9]
u[::-1]
l[1:]
l[:1]
l[::-1]
l[5:]
l[::0]
l["a":]
(1, 2, 3)[1:]
a[1:]
none.x
none.x.y
1.real
a.x.y
d[[1]]
{"a": 1, "b": [1, 2.0, none, true]}
{"a": 1, "a": 2}
{1: "x", 1.0: "y", true: "z"}
{[1]: 2}
[1, "a", 'it\'s', "q\"", "b\\s", "n\n", "t\t", "é", "\x00", "\u200b", "👋"]
("a",)
()
(1, 2)
[]
{}
[none, true, false]
[missing]
1.0
100.0
1.5
-0.0
1e100
1e-5
0.0001
3.0e8
5 in [1, 5]
5 not in [1, 5]
"x" in d
"k" in d.z
1 in "abc"
"b" in "abc"
"a" in missing
missing in [1]
1 in 5
[1] in d
"x" in none
a is odd
2 is even
6 is divisibleby 3
6 is divisibleby(4)
a is number
true is number
"a" is number
a is integer
true is integer
1.0 is float
s is string
l is string
l is sequence
d is sequence
s is sequence
a is sequence
missing is sequence
l is iterable
a is iterable
missing is iterable
d is mapping
l is mapping
none is none
missing is none
t is boolean
a is boolean
t is true
f is false
1 is true
"abc" is lower
"ABC" is upper
"Abc" is lower
"" is lower
a is eq 1
a is equalto(1)
a is ne 2
a is gt 0
a is lt(0)
a is ge 1
a is le 1
a is in [1, 2]
a is not in [1, 2]
a is not defined
a is sameas 1
none is sameas none
range is callable
a is callable
"upper" is filter
"nope" is filter
"odd" is test
a is nosuchtest
a | nosuchfilter
s | upper
s | lower
"hELLO wORLD" | capitalize
"hELLO wORLD-foo (bar)" | title
u | upper
u | title
"ß" | capitalize
"  x  " | trim
"xxaxx" | trim("x")
"a" | center(5)
s | replace("o", "0")
s | replace("o", "0", 1)
"aaa" | replace("", "-")
s | replace("l", "")
5 | replace("5", "6")
s | length
u | length
l | length
d | length
missing | length
5 | length
l | first
l | last
[] | first
[] | last
([] | first).x
s | first
s | last
d | first
l | sum
[1.5, 2] | sum
users | sum(attribute="age")
["a"] | sum
[[1], [2]] | sum(start=[])
l | sort
l | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
users | sort(attribute="age") | map(attribute="name") | list
users | sort(attribute="age,name") | map(attribute="name") | list
users | sort(attribute="age", reverse=true) | map(attribute="name") | join(",")
mixed | sort
words | unique | list
words | unique(true) | list
words | min
words | max
l | min
l | max
[] | max
users | max(attribute="age")
l | join
l | join(", ")
users | join(", ", attribute="name")
l | join(1)
s | list
d | list
d.items() | list
d.keys() | list
d.values() | list
d.items()
d.keys()
d.values()
d | items | list
l | items | list
missing | items | list
d | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort(true)
{"b": 1, "A": 2, "c": 0} | dictsort(by="value")
{"b": 1, "A": 2, "c": 0} | dictsort(reverse=true)
{"b": 1} | dictsort(by="nope")
l | reverse | list
s | reverse
d | reverse | list
5 | reverse
l | map("string") | list
words | map("upper") | join(" ")
words | map("replace", "p", "P") | list
users | map(attribute="tags.0") | list
users | map(attribute="tags", default=["none"]) | list
users | map(attribute="nope", default="-") | join
l | map | list
l | map("nosuch") | list
users | selectattr("tags") | map(attribute="name") | list
users | selectattr("age", "equalto", 30) | map(attribute="name") | list
users | selectattr("age", ">", 20) | list | length
users | rejectattr("age", "equalto", 30) | map(attribute="name") | list
users | selectattr("tags", "defined") | list | count
l | select("odd") | list
l | reject("odd") | list
mixed | select | list
mixed | select("none") | list
l | select("divisibleby", 2) | list
l | selectattr | list
[] | select("nosuch") | list
l | select("nosuch") | list
l | batch(2) | list
l | batch(2, "-") | list
l | slice(2) | list
l | slice(2, "-") | list
range(7) | slice(3) | list
users | groupby("age") | list
users | groupby("nope", default=0) | length
words | groupby(0) | map("first") | list
missing | default("x")
none | default("x")
"" | default("x", true)
missing | d
0 | default(5, boolean=true)
"42" | int
" 42 " | int
"42.9" | int
"x" | int
"x" | int(7)
"0x1f" | int(base=16)
"1f" | int(0, 16)
"1_000" | int
3.99 | int
-3.99 | int
true | int
none | int
missing | int
"1.5" | float
"x" | float
"inf" | float
"1e5" | float
" 2 " | float
"nan" | float
2.5 | round
3.5 | round
2.567 | round(2)
2.5 | round(method="floor")
2.1 | round(method="ceil")
2.567 | round(1, "floor")
42 | round
1234 | round(-2)
2.5 | round(method="x")
-5 | abs
-5.5 | abs
"x" | abs
"%s and %s" | format(1, "b")
"%(x)s" | format(x=3)
"%05.2f|%-5d|%+d|%x|%X|%o|%e|%g|%%" | format(3.14159, 42, 5, 255, 255, 8, 12345.678, 0.00001)
"%5s|%-5s|%.2s" | format("a", "b", "abc")
"%r %s" | format("a", none)
"%d" | format(3.7)
"%d" | format("x")
"%s" | format
"%s" % (1, 2)
"%s %s" % (1, 2)
"%s" % [1]
"%c" % "x"
"%10.3e|" % 12345.6789
"%#x" % 255
"{} {}".format(1, "a")
"{1} {0}".format(1, "a")
"{x} {y[0]} {d.x}".format(x=1, y=[2], d=d)
"{:>5}|{:<5}|{:^5}|{:*^7}".format("a", "b", "c", "d")
"{:05d}|{:+d}|{:,}|{:x}|{:#b}".format(42, 42, 1234567, 255, 5)
"{:.2f}|{:10.3f}|{:e}|{:g}|{:.1%}".format(3.14159, 3.14159, 12345.678, 0.1, 0.256)
"{!r} {!s}".format("a", "b")
"{{}} {}".format(1)
"{}".format()
"{x}".format()
"{:{}}|".format("a", 5)
"{0.__class__}".format(1)
s.upper()
s.lower().title()
s.split()
s.split("o")
s.split("o", 1)
"a,b,,c".split(",")
" a  b ".split(" ")
"  a b  c ".split(none, 1)
"  a b  c ".rsplit(none, 1)
"a.b.c".rsplit(".", 1)
"a.b.c".split(".", maxsplit=1)
"a".split("")
multi.splitlines()
"a\r\nb\x0bc\u2028d\n".splitlines()
"a\nb\n".splitlines(true)
"a-b-c".partition("-")
"a-b-c".rpartition("-")
"abc".partition("-")
"abc".startswith("ab")
"abc".startswith(("x", "a"))
"abc".startswith("b", 1)
"abc".endswith("bc")
"abc".endswith("bc", 0, 2)
"abc".startswith(1)
"abcabc".find("c")
"abcabc".rfind("c")
"abc".find("x")
"abc".index("x")
u.find("👋")
"abcabc".count("bc")
"aaaa".count("aa")
"abc".count("")
"abc".replace("b", "x")
"aaa".replace("a", "b", 2)
"xxabcxx".strip("x")
"xxabcxx".lstrip("x")
"xxabcxx".rstrip("x")
" \t\n a \u00a0 ".strip()
"abc".removeprefix("a")
"abc".removesuffix("c")
"a".ljust(3, ".") ~ "|"
"a".rjust(3) ~ "|"
"ab".center(5, "*")
"abc".center(6, "*")
"42".zfill(5)
"-42".zfill(5)
", ".join(["a", "b"])
", ".join([1])
"-".join("abc")
"".join([])
"abc".isalpha()
"abc1".isalnum()
"123".isdigit()
"²".isdigit()
"²".isdecimal()
"½".isnumeric()
"abc".islower()
"ABC".isupper()
"Abc Def".istitle()
"  ".isspace()
"".isspace()
"".isascii()
"a b".isidentifier()
"ab\tc".expandtabs(4)
"hELLO".swapcase()
"hello world's".title()
"HELLO".casefold()
"abc".nosuch()
"abc".nosuch
d.get("x")
d.get("nope")
d.get("nope", 5)
d.get()
d.get("x", default=1)
d.copy()
d.pop("x")
d.update({})
l.append(1)
l.append
l.index(2)
l.index(9)
l.count(1)
l.copy()
(1, 2, 1).count(1)
d.items is callable
items
d.__class__
"".__class__.__mro__
s._x
range(3)
range(3) | list
range(1, 10, 3) | list
range(5, 0, -2) | list
range(10)[2:5]
range(10)[-1]
range(3) | length
range(1000000)
range(1, 2, 0)
range("a")
dict(a=1, b=2)
dict({"x": 1}, y=2)
dict([["a", 1], ["b", 2]])
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace(a=1)["a"]
joiner()()
l | tojson
d | tojson
d | tojson(indent=2)
nested | tojson(indent=4)
{"b": 1, "a": {}} | tojson(sort_keys=true)
{"b": [], "a": {}} | tojson(indent=1)
d | tojson(separators=(",", ":"))
u | tojson
u | tojson(ensure_ascii=true)
html | tojson
"\x00\x1f\x7f\\/\"" | tojson
[1.0, 1e100, none, true, "x"] | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
missing | tojson
namespace(a=1) | tojson
(l | map("string")) | tojson
(1, 2) | tojson
{(1, 2): 3} | tojson
d | tojson(indent="--")
html | escape
html | e | upper
html | safe
html | safe | escape
("<b>" | safe) + "<i>"
"<i>" + ("<b>" | safe)
("<b>" | safe) ~ "<i>"
html | forceescape
html | striptags
"<p>a <!-- x --> b</p>  c" | striptags
multi | indent
multi | indent(2, true)
multi | indent(2, first=true, blank=true)
multi | indent("> ")
multi | indent(width=1) | length
5 | indent
missing | indent
"a b c d e f g" | truncate(5)
"a b c d e f g" | truncate(5, true)
"a b c d e f g" | truncate(7, false, "…", 0)
"short" | truncate(5)
s | wordcount
"a-b c_d é" | wordcount
"a b&c/d" | urlencode
{"a": "1 2", "b": "x/y"} | urlencode
1000 | filesizeformat
1500000 | filesizeformat
1536 | filesizeformat(true)
1 | filesizeformat
{"class": "a", "id": none, "x": 1} | xmlattr
5 | string | length
none | string
l | string
(s | attr("upper"))()
d | attr("x")
"a" "b" 'c'
'\u00e9\x41\101\n\q'
"\é"
1 if 0 else 2 if 0 else 3
(a, b) == (1, 2.5)
l == [3, 1, 2]
d == {"z": {"k": "v"}, "y": [1, 2], "x": 1}
[1, 2] == (1, 2)
not a == 2
a is not none and a > 0
a if a > 0 else -a
-a + +b
- - a
a | string ~ "x"
-1 | abs
-5 ** 2
2 * -3
foo(1, 2
[1, 2
{"a" 1}
1 +
a b
a..b
a.1x
"unterminated
@
1 === 2
a is is b
a[1:2, 3]
a.[0]
x = 1
""".strip("\n").split("\n")

STATEMENTS = [
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }}\n{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}-{{ x }}-{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}",
    "{% for x in none %}x{% endfor %}",
    "{% for x in 5 %}x{% endfor %}",
    "{% for x in u %}{{ x }}|{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [[1, 2], [3]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in range(10) if x is odd %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}",
    "{% for x in range(5) if x > 10 %}{{ x }}{% else %}nothing{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% break %}{% else %}else{% endfor %}",
    "{% for x in l %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}@{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    "{% for n in tree recursive %}{{ loop.depth0 }}{{ loop(n.c) }}{% else %}.{% endfor %}",
    "{% for n in l %}{{ loop([1]) }}{% endfor %}",
    "{% for x in l | map('string') %}{{ loop.length }}{{ loop.last }}{{ x }} {% endfor %}",
    "{{ loop }}", "{{ loop.index }}",
    "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}",
    "{% break %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if false %}{% set a = 9 %}{% endif %}{{ a }}",
    "{% if true %}{% set zz = 9 %}{% endif %}{{ zz }}",
    "{% for i in [1] %}{{ a }}{% set a = 5 %}{{ a }}{% endfor %}{{ a }}",
    "{% for i in [1] %}{{ a }}{% endfor %}{% set a = 5 %}{{ a }}",
    "{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% set a = 7 %}{{ m() }}",
    "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}",
    "{% for i in l %}{% if i == 1 %}{% set found = i %}{% endif %}{{ found }}|{% endfor %}{{ found }}",
    "{% set found = 0 %}{% for i in l %}{% if i == 1 %}{% set found = i %}{% endif %}{{ found }}|{% endfor %}{{ found }}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace(items=5) %}{{ ns.items }}{{ ns['items'] }}{{ ns.get }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set x = 1, 2 %}{{ x }}", "{% set x = (1) %}{{ x }}",
    "{% set x %}hello {{ s }}{% endset %}{{ x | upper }}{{ x is string }}",
    "{% set x | upper | replace('L', '1') %}hello{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% set 1 = 2 %}", "{% set x %}", "{% set true = 1 %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 5) }}{{ m(a=7, c='y') }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a is defined }}{{ a.x }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs | join('-') }}{{ kwargs | dictsort }}{% endmacro %}{{ m(1, 2, 3, z=1, y=2) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}",
    "{% macro m(a, b=2) %}{{ kwargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}",
    "{% macro m() %}{{ caller() }}{{ varargs }}{% endmacro %}{{ m.caller }}{{ m.catch_varargs }}{{ m.arguments | length }}{{ m.nothing is defined }}",
    "{% macro m(caller=none) %}{{ caller() }}{% endmacro %}{{ m.caller }}{{ m.explicit_caller }}{{ m.arguments }}",
    "{% macro m(caller=none) %}x{% endmacro %}{{ m.caller }}{{ m.explicit_caller }}",
    "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m.catch_kwargs }}{{ m.explicit_caller }}",
    "{% macro m() %}{{ caller.name }}{{ caller.arguments }}{{ caller() }}{% endmacro %}{% call(i) m() %}{{ i is defined }}{% endcall %}",
    "{% macro m(a=b, b=3) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ a }}{% endcall %}",
    "{% macro m() %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(i) m() %}[{{ i }}]{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}", "{% call m %}x{% endcall %}",
    "{% macro outer() %}{{ inner() }}{% endmacro %}{% macro inner() %}in{% endmacro %}{{ outer() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}  {{ x }}  {% endmacro %}[{{ m('a') | trim }}]", "{% macro m() %}{% endmacro %}{{ m() is string }}{{ m is callable }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ [1, 2] | map('string') | list }}{{ m(*[5]) }}{{ m(**{'x': 6}) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}", "{{ range(*[1, 4]) | list }}", "{{ range(x=1) }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | trim %} aaa {% endfilter %}",
    "{% with x = 1, y = a %}{{ x }}{{ y }}{% endwith %}{{ x }}", "{% with %}{% set q2 = 1 %}{{ q2 }}{% endwith %}{{ q2 }}",
    "{% with a = 5, c = a %}{{ a }}{{ c }}{% endwith %}", "{% with a, b = 1, 2 %}x{% endwith %}", "{% with (p, r) = (1, 2) %}{{ p }}{{ r }}{% endwith %}",
    "{% block one %}A{{ a }}{% endblock %}{% block two %}B{% endblock two %}", "{% block x %}{% endblock %}{% block x %}{% endblock %}",
    "{% set v = 1 %}{% block x %}{{ v }}{% endblock %}", "{% for i in l %}{% block x %}{{ i }}{% endblock %}{% endfor %}",
    "{% for i in l %}{% block x scoped %}{{ i }}{{ loop.index }}{% endblock %}{% endfor %}",
    "{% generation %}text {{ a }}{% endgeneration %}", "{% generation %}{% set gg = 1 %}{% endgeneration %}{{ gg }}",
    "{% print a, s %}", "{% do l.append(1) %}", "{% foo %}", "{% %}", "{% if %}{% endif %}", "{% if a %}", "{% endif %}",
    "{% if a %}{% endfor %}", "{% for %}{% endfor %}", "{% for x l %}{% endfor %}", "{% else %}", "{{ }}", "{{ a", "{% if a", "{# unclosed",
    "{% if a == 1 %}one{% elif a == 2 %}two{% else %}other{% endif %}", "{% if f %}1{% elif t %}2{% else %}3{% endif %}",
    "{% if f %}1{% elif none %}2{% else %}3{% endif %}", "{% if a, b %}tuple{% endif %}", "{% if a: %}x{% endif %}",
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a {% if t %} b {% endif %} c",
    "a\n  {{ a }}\n  b", "a  {{- a -}}  b", "a\n\n{%- if t -%}\n\nb\n\n{%- endif -%}\n\nc", "a\n  {%+ if t %}\n  b{% endif +%}\nc",
    "a {#- c -#} b", "a\n  {# c #}\nb", "a\n  {# c #} x\nb", "a{# c +#}\nb", "a\n{#+ c #}\nb", "x\n   {% raw %}\n {{ a }} {% if %}\n   {% endraw %}\ny",
    "{% raw -%}  {{ x }}  {%- endraw %}", "{%- raw %} a {% endraw -%}  b", "{% raw %}", "{% raw %}{% endraw %}\n\nx", "a\r\nb\rc\n",
    "trailing\n", "trailing\n\n", "{{ a }}\n", "{{ 'a\nb' }}", "{{ 'a\\\nb' }}", "{% set x = 1 -%}\n\n  y", "   {% set x = 1 %}   y",
    "{{ '{{' }}{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}}.a.b }}", "{{ [{'a': 1}][0]['a'] }}", "{{ {}}}", "{{ a }}}}", "{ {a} }", "{", "{{{ a }}}",
    "{{ a }}{{ b }}\n\n{{ s }}", "\t{% if t %}\n\tx{% endif %}", "é{% if t %}ü{% endif %}", "{{-a-}}", "{{ -a }}", "{{- -a }}", "{{+a}}",
    "{% if t %}{{ a | nosuch }}{% endif %}", "{% if f %}{{ a | nosuch }}{% endif %}ok", "{{ 1 if t else (a | nosuch) }}", "{% if f %}{% if a is nosuch %}{% endif %}{% endif %}ok",
    "{% for x in [] %}{{ a | nosuch }}{% endfor %}", "{% if f %}{% for x in l %}{{ x | nosuch }}{% endfor %}{% endif %}",
    "{{ raise_exception('no ' ~ s) }}", "{% if f %}{{ raise_exception('x') }}{% endif %}ok", "{{ raise_exception() }}", "{{ raise_exception(missing) }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{{ strftime_now('%d %b %Y, %A %B %j %% %p %I %y %a') }}", "{{ strftime_now('') }}|{{ strftime_now('%f%z%Z') }}", "{{ strftime_now(1) }}",
    "{% set strftime_now = 1 %}{{ strftime_now }}", "{{ range }}{{ dict is callable }}" if False else "{{ dict is callable }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}", "{{ cycler() }}",
    "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{% include 'x' %}", "{% if f %}{% include 'x' %}{% endif %}ok", "{% extends 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
    "{% set g = l | map('string') %}{{ g | list }}{{ g | list }}", "{% set g = l | select('odd') %}{{ g | first }}{{ g | list }}", "{{ (l | map('string'))[0] }}", "{{ l | map('string') | length }}", "{{ (l | select) is iterable }}{{ (l | select) is sequence }}{{ not (l | select('none')) }}",
    "{{ (l | map('upper')).x }}", "{% set x = d.items() %}{{ x | length }}{% for k, v in x %}{{ k }}{% endfor %}{% for k, v in x %}{{ k }}{% endfor %}", "{{ d.items()[0] }}", "{{ (d.items() | list)[0] }}", "{{ d.keys() | first }}{{ 'x' in d.keys() }}{{ ('x', 1) in d.items() }}",
    "{% set m = {'role': 'user'} %}{{ m['role'] }}{{ m.role }}{{ m.content is defined }}{{ m.content is none }}{{ m['content'] }}", "{% for m in users if m.age > 20 %}{{ m.name }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% set x = [] %}{% for i in l %}{% set x = x + [i * 2] %}{% endfor %}{{ x }}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{{ users | map(attribute='name') | map('lower') | sort | join('/') }}",
    "{{ users[0].tags is sequence and users[0].tags is not string }}", "{{ 'a' if users else 'b' }}{{ 'a' if [] else 'b' }}{{ 'a' if '' else 'b' }}{{ 'a' if 0.0 else 'b' }}{{ 'a' if {} else 'b' }}{{ 'a' if range(0) else 'b' }}", "{{ namespace() is mapping }}{{ 'T' if namespace() else 'F' }}",
    "{% set x = namespace(v=1) %}{% set y = x %}{% set y.v = 2 %}{{ x.v }}{{ x == y }}{{ x is sameas y }}", "{{ [1, 2, 3] is contains(2) }}", "{{ 5 is odd is even }}", "{{ [[1, 2], [3, 4]] | map('last') | list }}{{ [[1, 2], [3, 4]] | map('join', '-') | list }}{{ [[1, 2]] | map(attribute=1) | list }}", "{{ 1 is not odd }}{{ not 1 is odd }}",
    "{% autoescape false %}{{ html }}{% endautoescape %}", "{{ self }}" if False else "{{ super }}", "{{ caller }}{{ varargs }}{{ kwargs }}", "{{ a.b.c }}", "{{ a['b']['c'] }}", "{{ users.0.name }}{{ users[0]['name'] }}{{ users.0.nope }}", "{{ d | length > 2 and d.x == 1 or f }}",
    "{% set g = 5 | map('upper') %}lazy", "{% set g = 5 | map('upper') %}{{ g | list }}", "{{ (5 | select) is defined }}", "{{ 5 | slice(2) is defined }}",
    "{{ [3, 1] | sort('x') }}", "{{ [3, 1] | sort(1) }}", "{{ [1, 2] | truncate(5) }}", "{% filter length %}ab{% endfilter %}", "{{ namespace(missing) }}",
    "{{ '%lld' % 3 }}", "{{ '%ld' % 3 }}", "{{ strftime_now('%Y\\x00%d') }}", "{{ [1, 2, 3] | batch(2, '-') | list }}{{ words | unique | first }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call dict() %}x{% endcall %}",
    "{%- for x in l -%}\n  {{ x }}\n{%- endfor -%}\n", "{% for x in l %}\n  {{ x }}\n{% endfor %}\n", "{%- macro m(x) -%}\n  [{{ x }}]\n{%- endmacro -%}\n{{ m(1) }}\n{{ m(2) }}", "{{ '%s' | format(u) }}{{ '%-10s|' | format(u[:6]) }}", "{{ 'x' is string and 'x' is not mapping }}", "{{ {'a': missing} }}{{ [missing] | tojson }}",
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True), lineno=line)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime(2026, 1, 2, 3, 4, 5).strftime(fmt)
    return env


def main():
    env, cases = environment(), []
    for source in [f"{{{{ {e} }}}}" for e in EXPRESSIONS] + STATEMENTS:
        case = {"template": source}
        try:
            case["expected"] = env.from_string(source).render(**CONTEXT)
        except Exception as e:  # whatever jinja2 or Python raises is a refusal
            case["error"] = f"{type(e).__name__}: {e}"
        if " at 0x" in case.get("expected", ""):
            raise SystemExit(f"not reproducible: {source}")
        cases.append(case)
    out = pathlib.Path(__file__).parent.parent / "golden" / "jinja_cases.json"
    out.parent.mkdir(exist_ok=True)
    rows = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    out.write_text('{"context": ' + json.dumps(CONTEXT, ensure_ascii=False) + ',\n"cases": [\n' + rows + "\n]}\n", encoding="utf-8")
    print(f"{out}: {len(cases)} cases, {sum('error' in c for c in cases)} refused")


if __name__ == "__main__":
    main()
