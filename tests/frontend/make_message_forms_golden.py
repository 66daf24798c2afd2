#!/usr/bin/env python3
"""Writes tests/golden/message_forms.json and message_forms_templates.json: conversations as clients send them, and what real Jinja2
makes of them once they are in a form that the template can use.

usage: make_message_forms_golden.py [FOLDER]        (needs jinja2)

The first file has templates of this script's own, with the whole renderings. The second is made with FOLDER, a folder of real chat
templates: it holds no more than the CRC-32 of each rendering, or null where every form is refused.

The oracle tries forms on the very conversation, in the order of how common they are, and takes the first that Jinja2 renders with
everything the conversation says in it. (Penstock finds a template's forms once, with small conversations of its own.)
"""
import copy
import itertools
import json
import pathlib
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_jinja_golden import environment  # noqa: E402

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}


def tool(name):
    parameters = {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": "Tells something.", "parameters": parameters}}


TOOLS = [tool("get_weather"), tool("get_time")]


def call(arguments, name="get_weather", call_id="call00001"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


def result(content, call_id="call00001"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "Weather in Zürich?"}
TEXT = json.dumps({"city": "Zürich", "days": 2, "deep": {"a": [1.5, None, True]}}, ensure_ascii=False)
CALLED = {"role": "assistant", "tool_calls": [call(TEXT)]}
SEVERAL = [call(TEXT), call('{"city": "Rome"}', "get_time", "call00002")]
END = [result("sunny"), {"role": "assistant", "content": "It is sunny."}, {"role": "user", "content": "Thanks!"}]
# What openai's library gives back for a reply, with all its fields.
DUMPED = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "name": None}

CONVERSATIONS = {
    "content_null": [USER, {**CALLED, "content": None}, *END],
    "content_missing": [USER, CALLED, *END],
    "content_empty": [USER, {**CALLED, "content": ""}, *END],
    "content_no_parts": [USER, {**CALLED, "content": []}, *END],
    "content_beside_call": [USER, {**CALLED, "content": "I look."}, *END],
    "content_parts_beside_call": [USER, {**CALLED, "content": parts("I look.", "Wait.")}, *END],
    "arguments_object": [USER, {"role": "assistant", "content": None, "tool_calls": [call(json.loads(TEXT))]}, *END],
    "arguments_none": [USER, {"role": "assistant", "content": None, "tool_calls": [call("")]}, *END],
    "arguments_null": [USER, {"role": "assistant", "content": None, "tool_calls": [call(None)]}, *END],
    "arguments_broken": [USER, {"role": "assistant", "content": None, "tool_calls": [call('{"city": "Zür')]}, *END],
    "several_calls": [USER, {"role": "assistant", "content": None, "tool_calls": SEVERAL}, result("sunny"), result("noon", "call00002"), *END[1:]],
    "result_parts": [USER, {**CALLED, "content": None}, result(parts("sunny", "and warm")), *END[1:]],
    "result_null": [USER, {**CALLED, "content": None}, result(None), *END[1:]],
    "call_last": [USER, {**CALLED, "content": None}, result("sunny")],
    "dumped_call": [USER, {**CALLED, "content": None, **DUMPED}, *END],
    "dumped_text": [USER, {"role": "assistant", "content": "Hello.", "tool_calls": None, **DUMPED}, {"role": "user", "content": "Thanks!"}],
    "no_calls": [USER, {"role": "assistant", "content": "Hello.", "tool_calls": []}, {"role": "user", "content": "Thanks!"}],
    "silent_reply": [USER, {"role": "assistant", "content": None}, {"role": "user", "content": "Hello?"}],
    "refusal": [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}, {"role": "user", "content": "Why?"}],
    "user_parts": [{"role": "user", "content": parts("First part.", "Second part.")}],
    "user_part": [{"role": "user", "content": parts("Only part.")}],
    "all_parts": [{"role": "system", "content": parts("Be brief.", "Be kind.")}, {"role": "user", "content": parts("Good morning", "to thee")},
                  {"role": "assistant", "content": parts("Hello!", "How are you?")}, {"role": "user", "content": parts("Quite well.", "And thine?")}],
    "mixed": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts("Good morning", "to thee")},
              {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "How are you?"}],
}

OWN = {
    "plain": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    "concatenates": "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
                    "{% for c in m.tool_calls %}{{ c.function.name + ' ' + c.function.arguments | tojson }}{% endfor %}{% endfor %}",
    "arguments_text": "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
                      "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}",
    "calls_instead_of_content": "{% for m in messages %}<{{ m.role }}>{% if m.content is not none %}{{ m.content }}{% else %}"
                                "{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endif %}{% endfor %}",
    "items": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}"
             "{% for k, v in c.function.arguments.items() %}[{{ k }}={{ v | tojson }}]{% endfor %}{{ c.function.name }}{% endfor %}{% endfor %}",
    "parts_only": "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
                  "{% for c in m.tool_calls %}{{ c.function }}{% endfor %}{% endfor %}",
    "parts_and_text": "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
                      "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}",
    "parts_of_users": "{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' and m.content is not string %}{{ m.content | map(attribute='text')"
                      " | join(' ') }}{% else %}{{ m.content | trim }}{% endif %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}"
                      "{{ c.function.name }}{% endfor %}{% endfor %}",
    "refuses_none": "{% for m in messages %}{% if m.content is none or m.content is undefined %}{{ raise_exception('no content') }}{% endif %}"
                    "<{{ m.role }}>{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}",
    "names": "{% for m in messages %}<{{ m.role }}{% if m.name is defined %} {{ m.name }}{% endif %}>{{ m.content }}"
             "{{ m.tool_calls | tojson if 'tool_calls' in m }}{{ m.refusal if 'refusal' in m }}{% endfor %}",
}


def kept_parts(message):
    """Which of a message's contents may stay a list."""
    return isinstance(message.get("content"), list) and message["content"] and message["role"] != "tool"


def texts(content):
    if content is None:
        return []
    return [content] if isinstance(content, str) else [part.get("text", part.get("refusal")) for part in content]


def normalized(messages, as_parts, all_parts, arguments_text, null_beside_calls):
    out = []
    for i, message in enumerate(messages):
        message = {key: value for key, value in copy.deepcopy(message).items() if value is not None}
        said = texts(message.get("content"))
        message["content"] = [{"type": "text", "text": text} for text in said] if i in as_parts or all_parts else "\n".join(said)
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
        for one in message.get("tool_calls", []):
            arguments = one["function"]["arguments"]
            if isinstance(arguments, str):
                try:
                    arguments = json.loads(arguments)
                except json.JSONDecodeError:
                    arguments = {}
            one["function"]["arguments"] = arguments = arguments or {}
            if arguments_text:
                one["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        if "tool_calls" in message and not any(said) and null_beside_calls:
            message["content"] = None
        out.append(message)
    return out


def all_said(messages, text):
    """Whether calls and parts are in a rendering; what else a template leaves out is its own affair."""
    for message in messages:
        for one in message.get("tool_calls") or []:
            values = [one["function"]["name"]] + (["Rome"] if one["function"]["name"] == "get_time" else [])
            if any(value not in text.replace("\\u00fc", "ü") for value in values):
                return False
    return True


def shows_parts(message, text):
    said = texts(message["content"])
    return all(one in text for one in said) and "'text'" not in text and '"text"' not in text


def oracle(template, messages, tools):
    """What the template makes of the conversation, or None."""
    def render(*form):
        try:
            return template.render(messages=normalized(messages, *form), tools=copy.deepcopy(tools), documents=None,
                                   add_generation_prompt=True, **SPECIALS)
        except Exception:  # whatever jinja2 or Python raises is a refusal
            return None

    calls = [form for null, text in itertools.product((False, True), repeat=2) for form in [(text, null)]]

    def first(as_parts, all_parts=False):
        rendered = [text for text in (render(as_parts, all_parts, *form) for form in calls) if text is not None]
        complete = [text for text in rendered if all_said(messages, text)]
        return (complete or rendered or [None])[0]

    as_parts = set()
    for i, message in enumerate(messages):
        if kept_parts(message):
            text = first({*as_parts, i})
            if text is not None and shows_parts(message, text):
                as_parts.add(i)
    text = first(as_parts)
    said = [one for message in messages if message["role"] == "user" for one in texts(message.get("content"))]
    if text is None or not all(one in text for one in said):
        forced = first(set(), True)
        if forced is not None and all(one in forced for one in said) and "'text'" not in forced:
            return forced
    return text


def rows(env, sources):
    for name, source in sources.items():
        template = env.from_string(source)
        for case, messages in CONVERSATIONS.items():
            for tools in (TOOLS, None):
                yield name, case + ("" if tools else "_without_tools"), messages, tools, oracle(template, messages, tools)


def write_own(env):
    cases = [json.dumps({"template": name, "case": case, "expected": text}, ensure_ascii=False)
             for name, case, _, tools, text in rows(env, OWN) if tools]
    conversations = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in CONVERSATIONS.items())
    (GOLDEN / "message_forms.json").write_text(
        '{"tools": %s,\n"templates": %s,\n"conversations": {\n%s},\n"cases": [\n%s\n]}\n'
        % (json.dumps(TOOLS), json.dumps(OWN, indent=1), conversations, ",\n".join(cases)), encoding="utf-8")
    print(len(cases), "cases of own templates,", sum('"expected": null' in case for case in cases), "refused")


def write_real(env, folder):
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}
    table = {}
    for name, case, _, _, text in rows(env, sources):
        table.setdefault(name, {})[case] = None if text is None else zlib.crc32(text.encode())
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(cases)}" for name, cases in table.items())
    (GOLDEN / "message_forms_templates.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    values = [value for cases in table.values() for value in cases.values()]
    print(len(table), "templates,", len(values), "cases,", values.count(None), "refused")


if __name__ == "__main__":
    write_own(environment())
    if len(sys.argv) > 1:
        write_real(environment(), pathlib.Path(sys.argv[1]))
