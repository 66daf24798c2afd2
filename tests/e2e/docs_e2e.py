#!/usr/bin/env python3
"""The guides of the server against the program: their examples run, and commands that they show have these flags.

Blocks marked bash and python are run with 127.0.0.1:8000 replaced by a server of the test's own; a json block after one shows
the shape of its output. Blocks marked console are not run, but their commands and flags must exist.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from web_server import PROGRAM, SOURCE, STORY_MODEL, Serving, blocks, with_chat_template

GUIDES = SOURCE / "docs" / "guide"
RUN = [GUIDES / name for name in ("serve.md", "apis.md", "structured-output.md", "operate.md")]
ADDRESS = "127.0.0.1:8000"


@functools.cache
def flags(command):
    """Every flag that --help of a command names, and its subcommands."""
    text = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=True).stdout.split("\nWith no command")[0]
    names = {name for line in re.findall(r"^ {2,4}(-\S+)", text, re.M) for name in re.sub(r"\{\w*\}", "", line).split(",")}
    section = re.search(r"^Subcommands:\n((?:  .*\n?)*)", text, re.M)
    return names, set(re.findall(r"^  (\S+)", section[1], re.M)) if section else set()


def unknown_flags(line):
    """What a command line of the program has that the program does not know: flags, or its command."""
    words = line.split()
    while words[:1] == ["--config"]:
        words = words[2:]
    command = (words[0],) if words and not words[0].startswith("-") else ()
    if command and command[0] not in flags(())[1]:
        return set(command)
    known = flags(command)
    if words[1:2] and words[1] in known[1]:
        command = tuple(words[:2])
        known = flags(command)
    return {word.split("=")[0] for word in words[len(command):] if re.match(r"--?[a-zA-Z]", word)} - known[0]


def client_python():
    """A Python that has OpenAI's client: the environment of the client tests."""
    import server_clients_e2e
    return str(server_clients_e2e.environment())


def shape(value):
    """Types and keys; a list has the shape of its first element."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


class Commands(unittest.TestCase):
    def test_commands_have_these_flags(self):
        """Of every guide, whoever else runs its examples."""
        n = 0
        for page in [SOURCE / "README.md", *sorted(GUIDES.glob("*.md"))]:
            for line, language, block in blocks(page):
                if language != "console":
                    continue
                for command in re.findall(r"^\$ (?:scripts/run|penstock)(?: (.*?))?(?:\s+#.*)?$", re.sub(r"\\\n\s*", " ", block), re.M):
                    n += 1
                    with self.subTest(page=page.name, line=line):
                        self.assertEqual(unknown_flags(re.split(r"\s[|>&]", command)[0]), set(), command)
        self.assertGreater(n, 30)

    def test_a_flag_that_is_none_is_noticed(self):
        self.assertEqual(unknown_flags("serve -m a --hots b"), {"--hots"})
        self.assertEqual(unknown_flags("keys add --file a --nome b"), {"--nome"})
        self.assertEqual(unknown_flags("sevre -m a"), {"sevre"})
        self.assertEqual(unknown_flags("--config penstock.toml serve -m a --port 1"), set())


class Examples(unittest.TestCase):
    """Run in order against one server, whose model has a chat template so that every example makes sense."""

    def test_examples(self):
        ran = 0
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "penstock-stories-15m-q8_0.gguf"
            with_chat_template(STORY_MODEL, model)
            with Serving(model=model) as server:
                output = None
                for page, (line, language, text) in [(page, block) for page in RUN for block in blocks(page)]:
                    with self.subTest(page=page.name, line=line):
                        if language in ("bash", "python"):
                            output = self.run_block(language, text.replace(ADDRESS, f"127.0.0.1:{server.port}"), folder)
                            ran += 1
                        elif language == "json":
                            self.assertEqual(shape(json.loads(output)), shape(json.loads(text)))
        self.assertGreater(ran, 14)

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
    unittest.main(verbosity=2)
