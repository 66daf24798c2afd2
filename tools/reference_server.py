"""Pages of the reference that come from a running server: its routes with examples, its metrics."""
import json
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path

import make_reference as make
import reference_words as words

ACCESS = {"kOpen": "open", "kKey": "key", "kMetrics": "metrics", "kAdmin": "admin"}
STORY, EMBED = "penstock-stories-15m-q8_0", "penstock-embed-2m-q8_0"
TEXT_ROUTES = {"G": "/v1/generate", "C": "/v1/completions", "H": "/v1/chat/completions", "R": "/v1/responses", "M": "/v1/messages"}
ELSEWHERE = "this route has no such field"
ROUTES = {"models": None, "routes": [{"name": "auto", "small": STORY, "large": STORY, "otherwise": "small"}]}


def serving(program, folder, *flags):
    """A server with a story model that can chat, a model for vectors, a route, and everything that is counted."""
    os.environ.update(PENSTOCK=str(program), PENSTOCK_SOURCE=str(make.ROOT))
    sys.path.insert(0, str(make.ROOT / "tests/e2e"))
    import web_server
    story = folder / f"{STORY}.gguf"
    web_server.with_chat_template(web_server.STORY_MODEL, story)
    config = {**ROUTES, "models": [{"name": STORY, "model": str(story)},
                                   {"name": EMBED, "model": str(make.ROOT / f"models/{EMBED}.gguf")}]}
    (folder / "models.json").write_text(json.dumps(config))
    return web_server.Serving("--models-config", folder / "models.json", "--data-dir", folder / "data", "--reply-cache", "16MiB",
                              "--enable-sleep-mode", "--kv-store", f"{folder}/store:1G", *flags)


def rows_of_endpoints():
    text = make.source("src/server/endpoints/endpoints.cc")
    rows = re.findall(r'\{\s*"([A-Z]+)",\s*"(/[^"]*)",\s*Access::(\w+),\s*\w+,\s*"((?:[^"\\]|\\.)*)"', text)
    assert len(rows) == text.count("Access::"), "a row of endpoints.cc was not understood"
    return rows


def upload(server):
    """POST /v1/files, as curl -F sends it: so many lines that a batch of them can be cancelled."""
    body = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True}
    lines = "".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n" for i in range(200))
    part = '--b\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
    body = part.format("purpose", "", "batch") + part.format("file", '; filename="in.jsonl"', lines) + "--b--\r\n"
    call = urllib.request.Request(server.url + "/v1/files", body.encode(), {"Content-Type": "multipart/form-data; boundary=b"})
    with urllib.request.urlopen(call, timeout=60) as reply:
        return reply.status, reply.headers, reply.read()


def send(server, example, ids):
    """Sends an example; remembers the ids in its reply."""
    method, path, body, *expected = example
    if expected == [0]:
        return
    fill = lambda text: re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], match[0]), text)
    path = fill(path)
    if body and body.startswith("-F"):
        status, _, reply = upload(server)
    else:
        status, _, reply = server.request(path, body=json.loads(fill(body)) if body else {} if method == "POST" else None, method=method)
    wanted = expected[0] if expected else 200
    if status != wanted:
        sys.exit(f"tools/reference_words.py: {method} {path}: expected {wanted}, got {status}: {reply[:300].decode(errors='replace')}")
    try:
        reply = json.loads(reply)
    except ValueError:
        return
    if isinstance(reply, dict):
        kind = {"resp": "response", "conv": "conversation", "file": "file", "batch": "batch"}.get(str(reply.get("id")).split("_")[0].split("-")[0])
        if kind:
            ids[kind] = reply["id"]
        if path.endswith("/items?limit=20"):
            ids["item"] = reply["data"][0]["id"]


def shown(example):
    """An example as a reader sees it, with the models' names and capital letters for ids."""
    method, path, body, *_ = example
    fill = lambda text: re.sub(r"\{(\w+)\}", lambda match: {"story": STORY, "embed": EMBED}.get(match[1], match[1].upper()), text)
    flag = "" if method == "GET" or (method == "POST" and body) else f"-X {method} "
    data = "" if not body else f" {body}" if body.startswith("-F") else f" --json '{fill(body)}'"
    return f"curl -s {flag}'$URL{fill(path)}'".replace("'", '"', 2) + data


def type_of(schema):
    """What a field takes, in few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(filter(None, (one.get("title") or type_of(one) for one in schema["anyOf"]))))
    if "enum" in schema:
        return ", ".join(make.code(json.dumps(value)) for value in schema["enum"] if value is not None)
    types = schema.get("type", [])
    text = " or ".join(one for one in ([types] if isinstance(types, str) else types) if one != "null")
    text = {"array": schema.get("title", "list"), "array or object": "list or object"}.get(text, text)
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    above = "> " if "exclusiveMinimum" in schema else ""
    number = lambda value: f"{value:g}" if isinstance(value, float) else str(value)
    if high in (None, 2**31 - 1):
        return text + (f", {above or '>= '}{number(low)}" if low is not None and text != "list" else "")
    return f"{text}, {above}{number(low)} to {number(high)}" if low is not None else text


def refusals(schema):
    """(fields that are refused, fields that take their default only, fields without effect)."""
    refused, fixed, idle = [], [], []
    for name, field in schema["properties"].items():
        values = [value for value in field.get("enum", []) if value is not None]
        if field.get("type") == "null":
            if field.get("description") != ELSEWHERE:
                refused.append(make.code(name))
        elif len(values) == 1 and None in field["enum"]:
            fixed.append(f"`{name}` {make.code(json.dumps(values[0]))}")
        if field.get("description", "").startswith("no effect"):
            idle.append(make.code(name))
    return refused, fixed, idle


def fields_of_text(schemas):
    """One table of the fields of the routes that generate text."""
    rows = {}
    for letter, path in TEXT_ROUTES.items():
        for name, field in schemas["POST", path]["properties"].items():
            meaning = field.get("description", "")
            if field.get("type") != "null" and len([v for v in field.get("enum", [0, 0]) if v is not None]) > 1 and not meaning.startswith("no effect"):
                rows.setdefault(name, {}).setdefault((type_of(field), meaning), []).append(letter)
    return make.table(["field", "takes", "", "of"], [[make.code(name), kind, meaning, " ".join(letters)]
                                                     for name in sorted(rows) for (kind, meaning), letters in rows[name].items()])


def examples(program):
    """{(method, path of the list): [examples]} and the OpenAPI document, after every example was sent."""
    ids, of_route = {"story": STORY, "embed": EMBED}, {}
    routes = [(method, path, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) + r"(\?.*)?$")) for method, path, *_ in rows_of_endpoints()]
    with tempfile.TemporaryDirectory() as folder, serving(program, Path(folder)) as server:
        document = json.loads(server.get("/openapi.json")[2])
        for example in words.EXAMPLES:
            send(server, example, ids)
            matching = [(method, path) for method, path, pattern in routes if method == example[0] and pattern.match(example[1])]
            exact = [one for one in matching if one[1] == example[1].split("?")[0]]
            of_route.setdefault((exact or matching)[0], []).append(example)
    if missing := [f"{method} {path}" for method, path, _ in routes if (method, path) not in of_route]:
        sys.exit(f"tools/reference_words.py has no example of {', '.join(missing)}")
    return of_route, document


def query_of(of_one_route):
    """The query of a route's example, or an empty text."""
    return next((path[path.index("?"):] for _, path, *_ in of_one_route if "?" in path), "")


def endpoints(program):
    of_route, document = examples(program)
    schemas = {(method.upper(), path): operation["requestBody"]["content"]["application/json"]["schema"]
               for path, operations in document["paths"].items() for method, operation in operations.items() if "requestBody" in operation}
    parts = [
        make.paragraph("`penstock serve` gives the same list with every field, type and range as OpenAPI 3.1 at `/openapi.json`. The examples "
                       f"are sent to a server by CI; `URL` is its address, `{STORY}` a model of text and `{EMBED}` one of vectors; capital letters stand "
                       "for ids of earlier replies. `/v1` may be left out of a path."),
        make.paragraph("Access: *open* routes ask for no key; *key*, *metrics* and *admin* are the scopes of `penstock keys add`, and ask for "
                       "one as soon as there is a key. Errors: [errors.md](errors.md)."),
        "## Routes",
        make.paragraph('A route without a body is asked as `curl -s "$URL/v1/models"`, `curl -s -X POST "$URL/sleep"` or `curl -s -X DELETE …`; '
                       "the third column is an example of its query."),
        make.table(["", "path", "query", "access", ""],
                   [[method, make.code(path), make.code(query_of(of_route[method, path])), ACCESS[access], summary]
                    for method, path, access, summary in rows_of_endpoints()]),
        "## Fields of requests that generate text",
        make.paragraph("Of " + ", ".join(f"{letter} `{path}`" for letter, path in TEXT_ROUTES.items())
                       + ". Every optional field may be `null`, which is the same as leaving it out."),
        fields_of_text(schemas), "## Examples, and what is refused",
        make.paragraph("*Needed*: fields without which a request is refused. *Refused*: fields that are known and not supported. *Only*: fields that take this "
                       "value alone. *No effect*: fields that are taken and change nothing."),
    ]
    for method, path, *_ in rows_of_endpoints():
        if not any(body for _, _, body, *_ in of_route[method, path]):
            continue
        parts.append(f"### {method} {path}\n\n```sh\n" + "\n".join(shown(one) for one in of_route[method, path]) + "\n```")
        schema = schemas.get((method, path))
        if schema:
            refused, fixed, idle = refusals(schema)
            needed = [make.code(name) for name in schema.get("required", [])]
            said = [f"{title}: {', '.join(names)}." for title, names in
                    (("Needed", needed), ("Refused", refused), ("Only", fixed), ("No effect", idle)) if names]
            parts += [make.paragraph(" ".join(said))] if said else []
    return make.page("Endpoints", "the server's list of routes and its OpenAPI document", *parts)


def families(text):
    """{name: (type, help, labels)} of Prometheus' text format."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"# HELP (\S+) (.*)", line):
            found[match[1]] = ["", match[2], ()]
        elif match := re.match(r"# TYPE (\S+) (\w+)", line):
            found[match[1]][0] = match[2]
        elif match := re.match(r"(\w[\w:]*?)(?:_bucket|_sum|_count)?\{(.*?)\} ", line):
            name = next((one for one in (line.split("{")[0], match[1]) if one in found), None)
            if name:
                labels = re.findall(r'(\w+)="', match[2])
                found[name][2] = tuple(dict.fromkeys([*found[name][2], *(label for label in labels if label not in ("model_name", "engine", "le"))]))
    return found


def metrics(program):
    with tempfile.TemporaryDirectory() as folder, serving(program, Path(folder)) as server:
        chat = {"messages": [{"role": "user", "content": "One day Tom"}], "max_tokens": 4, "temperature": 0}
        for model in (STORY, "auto"):
            server.request("/v1/chat/completions", {"model": model, **chat})
        server.request("/v1/embeddings", {"model": EMBED, "input": "a text"})
        found = families(server.get("/metrics")[2].decode())
    ours = {name: row for name, row in found.items() if not name.startswith("vllm:")}
    vllm = {name.removeprefix("vllm:") for name in found if name.startswith("vllm:")}
    rows = [[make.code(name), kind, meaning, ", ".join(map(make.code, labels)), "yes" if name.removeprefix("penstock:") in vllm else ""]
            for name, (kind, meaning, labels) in ours.items()]
    rows += [[make.code(f"vllm:{name}"), *found[f"vllm:{name}"][:2], ", ".join(map(make.code, found[f"vllm:{name}"][2])), "alone"]
             for name in sorted(vllm) if f"penstock:{name}" not in ours]
    return make.page(
        "Metrics", "`/metrics` of a server with a data directory, a cache of replies, a store of blocks and a route",
        make.paragraph("A column *vLLM* with `yes`: the metric also has the name `vllm:…`, with vLLM's labels and buckets (`--no-vllm-metrics` leaves them out). "
                       "Metrics of models have the label `model_name`, those of the engine `engine` too."),
        make.table(["name", "type", "", "further labels", "vLLM"], rows))
