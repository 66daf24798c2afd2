"""A model for each way to write calls, that answers the name of a reply with the reply's text to the letter."""
import json
import pathlib

import script_model
from serving import SOURCE

# Every template with a place for tools shows them somewhere; the prompt of these is one token, which decides the reply.
TEMPLATE = "{#- tools -#}{{- '<|go:' ~ messages[-1].content ~ '|>' -}}"
FILE = SOURCE / "tests" / "golden" / "call_replies.jsonl"


def replies():
    """{format: [{"case", "tools", "reasoning", "text", "reply", "ids"}]}: those of tests/frontend/call_matrix_test.cc."""
    found = {}
    for line in FILE.read_text().splitlines():
        one = json.loads(line)
        one["ids"] = [call.pop() for call in one["reply"]["calls"]]
        found.setdefault(one["format"], []).append(one)
    return found


def pieces(text, used, least=3):
    """Cuts a text into pieces that occur in no other reply, each as short as that allows and at least `least` characters."""
    cut, start = [], 0
    for end in range(1, len(text) + 1):
        piece = text[start:end]
        if len(piece) >= least and piece not in used and piece.strip():
            cut.append(piece)
            used.add(piece)
            start = end
    rest = text[start:]
    while rest and rest in used or (rest and not rest.strip()):  # too short: it goes with the piece in front of it
        used.discard(cut[-1])
        rest = cut.pop() + rest
    if rest:
        cut.append(rest)
        used.add(rest)
    return cut


def write(directory, texts):
    """texts: {name of the reply: text}. Returns {name: its pieces}."""
    used = set()
    scripts = {name: pieces(text, used) for name, text in texts.items()}
    script_model.write(pathlib.Path(directory), scripts, TEMPLATE, width=512)
    return scripts
