"""A model that leads sessions of several turns: what a user or a tool says holds the name of the reply that comes next.

So a reply comes only where the client gave the tool's result, or the user's words, behind the reply in front of it; the model says NOBODY
where none of these messages names a reply. The tools `look` and `note` say the name that their argument `then` holds.
"""
import json
import pathlib

import script_model
import scripted_replies

NOBODY = "No message names a reply."
TEMPLATE = """{#- hermes calls: <tool_call> </tool_call>; reasoning: <think> </think> -#}
{%- set ns = namespace(go='nobody') -%}
{%- if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif -%}
{%- for m in messages -%}
<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for call in m.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor -%}<|end|>
{%- if m.role == 'assistant' %}{% set ns.go = 'nobody' %}{% elif '(then ' in (m.content or '') %}{% set ns.go = m.content.split('(then ')[-1].split(')')[0] %}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{{ '<|go:' ~ ns.go ~ '|>' }}{% endif -%}"""


def then(name):
    """The words that ask for a reply."""
    return f"(then {name})"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


def note(text, then, times=1):
    return call("note", text=text, then=then, times=times)


def look(place, then):
    return call("look", place=place, then=then)


# One session: a turn is what the user says and the replies that follow, each after the results of the calls of the one in front of it.
# (the user's words, [(name, the reply as the model writes it, its text, its calls)])
NOTES = ["a quote \" and a backslash \\", "line one\nline two\n\ttabbed", "naïve – Größe, 日本語, 🚀", "<b>&amp;</b> {\"json\": [1, 2.5, null]}"]
TURNS = [
    ("Look at the cellar.", [look("cellar", "a2"), "The cellar holds two barrels."]),
    ("Note this down.", [note(NOTES[0], "b2"), "Noted: \"a quote\"."]),
    ("Think, then look.", ["<think>\nThe attic may be dusty.\n</think>\n\n" + look("attic", "c2"), "<think>Dust, as I thought.</think>The attic is dusty."]),
    ("Say what you do.", ["I write it down first.\n" + note(NOTES[1], "d2"), "Written:\n\n```python\nprint(\"done\")\n```\nThat is all."]),
    ("Look at two places.", [look("garden", "e2") + "\n" + look("street", "e2"), "A garden and a street."]),
    ("Look where nothing is.", [look("nowhere", "f2"), "There is no such place."]),
    ("Just answer.", ["An answer without tools: naïve – 日本語 🚀."]),
    ("Look, then note what you saw.", [look("river", "h2"), note(NOTES[2], "h3"), "The river is wide."]),
    ("Note it thrice.", [note(NOTES[3], "i2", times=3), "Noted three times."]),
    ("Look at the end.", [look("end", "j2"), "The end."])]


def session():
    """[(what the user says, its reply's name, ...)] and {name: reply}"""
    said, replies = [], {}
    for letter, (words, texts) in zip("abcdefghij", TURNS):
        said.append((f"{words} {then(letter + '1')}", texts[-1].split("</think>")[-1]))
        replies.update({f"{letter}{i + 1}": text for i, text in enumerate(texts)})
    return said, replies


def calls_of(text):
    """[(name, arguments)] of a reply as the model writes it."""
    found = [json.loads(piece.split("</tool_call>")[0]) for piece in text.split("<tool_call>")[1:]]
    return [(one["name"], one["arguments"]) for one in found]


def write(directory, replies, context=32768):
    """replies: {name: what the model writes}. Returns the model's directory."""
    directory = pathlib.Path(directory)
    used = {script_model.MARKER}  # it would be a special token, with which one reply only could call strict tools
    scripts = {name: scripted_replies.pieces(text, used, 4) for name, text in {"nobody": NOBODY, **replies}.items()}
    return script_model.write(directory, scripts, TEMPLATE, width=512, context=context)
