#!/usr/bin/env python3
"""docs/serving.md against the program: its examples run, its lists are complete. `docs_e2e.py --update` rewrites the lists.

Blocks marked bash and python are run with 127.0.0.1:8000 replaced by a server of the test's own; a json block after one shows
the shape of its output. Blocks marked console are not run, but their flags must exist.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from web_server import PROGRAM, SOURCE, STORY_MODEL, Serving, with_chat_template

DOC = SOURCE / "docs" / "serving.md"
ADDRESS = "127.0.0.1:8000"
MEANING_AT = 34  # column of --help
ACCESS = {"kOpen": "open", "kKey": "key", "kMetrics": "key (metrics)", "kAdmin": "key (admin)"}


def blocks(document=DOC):
    """[(line number, language, text)]"""
    text = document.read_text()
    return [(text.count("\n", 0, match.start()) + 1, match[1], match[2])
            for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def endpoints():
    """[(method, path, access, summary)] as endpoints.cc lists them."""
    source = (SOURCE / "src" / "server" / "endpoints" / "endpoints.cc").read_text()
    rows = re.findall(r'\{\s*"([A-Z]+)",\s*"(/[^"]*)",\s*Access::(\w+),\s*\w+,\s*"((?:[^"\\]|\\.)*)"', source)
    assert len(rows) == source.count("Access::"), "a row of endpoints.cc was not understood"
    return rows


def flags(command="serve"):
    """[(names, default, meaning)] as --help lists them."""
    text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True, check=True).stdout
    text = text.split("\nWith no command")[0]
    rows, lines = [], text.splitlines()
    for line, behind in zip(lines, [*lines[1:], ""]):
        match = re.match(r"  ((?:-\w,)?--[^\s=\[]+)", line)
        if match:  # the meaning stands behind the name from a column on, or on the next line
            apart = behind.startswith(" " * MEANING_AT)
            default = re.search(r"=(?![A-Z]+\b)(\S+)", line if apart else line[:MEANING_AT])  # NAME=PATH is a kind of value
            meaning = behind if apart else line[MEANING_AT:]
            rows.append([re.sub(r"\{\w*\}", "", match[1]), default[1] if default else "", meaning.strip()])
    return rows


def with_lists(text):
    """The document with its generated lists made anew."""
    table = lambda head, rows: "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head),
                                          *(f"| {' | '.join(row)} |" for row in rows)])
    code = lambda names: ", ".join(f"`{name}`" for name in names.split(","))
    lists = {
        "endpoints": table(["", "path", "access", ""],
                           [[method, f"`{path}`", ACCESS[access], summary] for method, path, access, summary in endpoints()]),
        "flags": table(["flag", "default", ""],
                       [[code(names), f"`{default}`" if default else "", meaning.replace("|", "\\|")]
                        for names, default, meaning in flags() if "--help" not in names]),
    }
    for name, content in lists.items():
        text, n = re.subn(rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.S)
        assert n == 1, name
    return text


def shape(value):
    """Types and keys; a list has the shape of its first element."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def client_python():
    """A Python that has OpenAI's client: the environment of the client tests."""
    import server_clients_e2e
    return str(server_clients_e2e.environment())


class Lists(unittest.TestCase):
    def test_every_flag_is_mentioned(self):
        text = DOC.read_text()
        rows = flags()
        self.assertGreater(len(rows), 30)
        missing = [name for names, _, _ in rows for name in names.split(",")
                   if name.startswith("--") and name != "--help" and f"`{name}`" not in text]
        self.assertEqual(missing, [], "docs/serving.md does not mention them; see docs_e2e.py --update")

    def test_flags_are_read_as_they_stand(self):
        rows = {names: (default, meaning) for names, default, meaning in flags()}
        self.assertEqual(rows["--port"], ("8000", "port to listen on; 0 is any free one"))
        self.assertEqual(rows["--lora-modules"][0], "")
        self.assertEqual(rows["--state-snapshot-interval"][0], "0")
        self.assertEqual([names for names, (_, meaning) in rows.items() if not meaning], [])

    def test_every_route_is_mentioned(self):
        text = DOC.read_text()
        self.assertEqual([path for _, path, _, _ in endpoints() if f"`{path}`" not in text], [])

    def test_nothing_is_made_up(self):
        """No flag and no route in the document that the program does not have."""
        text = DOC.read_text()
        generated = re.search(r"<!-- flags: .*? -->\n(.*?)<!-- end -->", text, re.S)[1]
        known = {name for names, _, _ in flags() for name in names.split(",")}
        self.assertEqual(set(re.findall(r"^\| .*?`(--[\w-]+)`", generated, re.M)) - known, set())
        listed = re.search(r"<!-- endpoints: .*? -->\n(.*?)<!-- end -->", text, re.S)[1]
        self.assertEqual(set(re.findall(r"`(/[^`]*)`", listed)), {path for _, path, _, _ in endpoints()})
        for line, language, block in blocks():
            if language != "console":
                continue
            for command in re.findall(r"^\$ (?:scripts/run|penstock) (.*?)(?:\s+#.*)?$", block, re.M):
                words = command.split()
                own = {name for names, _, _ in flags(words[0]) for name in names.split(",")}
                if words[0] in ("keys", "cache"):
                    own |= {name for names, _, _ in flags_of_subcommand(words[:2]) for name in names.split(",")}
                self.assertEqual({word for word in words[1:] if word.startswith("--")} - own, set(), f"line {line}: {command}")

    def test_links(self):
        for path in ("docs/serving.md", "README.md"):
            text = (SOURCE / path).read_text()
            for target in re.findall(r"\]\(([^)#:]+)\)", text):
                self.assertTrue(((SOURCE / path).parent / target).exists(), f"{path}: {target}")


def flags_of_subcommand(words):
    text = subprocess.run([PROGRAM, *words, "--help"], capture_output=True, text=True, check=True).stdout
    return [(match[1], "", "") for match in re.finditer(r"^  ((?:-\w,)?--[a-z-]+)", text, re.M)]


class Examples(unittest.TestCase):
    """Run in order against one server, whose model has a chat template so that every example makes sense."""

    def test_examples(self):
        ran = 0
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "penstock-stories-15m-q8_0.gguf"
            with_chat_template(STORY_MODEL, model)
            with Serving(model=model) as server:
                output = None
                for line, language, text in blocks():
                    with self.subTest(line=line):
                        if language in ("bash", "python"):
                            output = self.run_block(language, text.replace(ADDRESS, f"127.0.0.1:{server.port}"), folder)
                            ran += 1
                        elif language == "json":
                            self.assertEqual(shape(json.loads(output)), shape(json.loads(text)))
        self.assertGreater(ran, 8)

    def test_requests_of_the_readme(self):
        """With the built-in model, as a newcomer sends them; the last one's reply has the form that was asked for."""
        requests = [text for _, language, text in blocks(SOURCE / "README.md") if language == "bash"]
        with Serving(model=STORY_MODEL) as server:
            replies = [json.loads(self.run_block("bash", text.replace(ADDRESS, f"127.0.0.1:{server.port}"), None))
                       for text in requests]
        self.assertEqual(len(replies), 2)
        self.assertEqual(set(json.loads(replies[-1]["choices"][0]["text"])), {"name", "kind"})

    def run_block(self, language, text, folder):
        if language == "bash":
            command = ["bash", "-euo", "pipefail", "-c", re.sub(r"\bcurl ", "curl --fail-with-body ", text)]
        else:
            needs_client = re.search(r"^(from|import) (openai|anthropic)", text, re.M)
            command = [client_python() if needs_client else sys.executable, "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120,
                              env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout}\n{done.stderr}")
        self.assertNotEqual(done.stdout.strip(), "", text)
        return done.stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        DOC.write_text(with_lists(DOC.read_text()))
    else:
        unittest.main(verbosity=2)
