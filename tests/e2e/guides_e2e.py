#!/usr/bin/env python3
"""The examples of docs/guide run as they stand: bash blocks, in their order, in one folder for each page.

In that folder lie small models under the names that the pages use; a page that asks 127.0.0.1:8000 has a server of its own. The guides
of the server are run by docs_e2e.py, which also knows whether commands of all guides exist, those of docs/guide/python.md by pytest.
"""
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest
import zlib

from lora_model import write_adapter
from web_server import PROGRAM, SOURCE, STORY_MODEL, Serving, blocks, with_chat_template

GUIDES = SOURCE / "docs" / "guide"
GOLDEN = SOURCE / "tests" / "golden"
# Pages whose bash blocks are run, and the model of their server.
PAGES = {"run": None, "quantize": None, "gpus-and-ranks": None, "large-mixtures": None, "speculation": None,
         "embeddings": GOLDEN / "sentences" / "mean_normalized", "images-and-audio": GOLDEN / "seeing" / "qwen2_vl"}
ADDRESS = "127.0.0.1:8000"


def furnish(folder):
    """Puts what the pages name into a folder."""
    links = {"model.gguf": STORY_MODEL, "checkpoint": SOURCE / "models" / "penstock-stories-1m-bf16", "decoder": STORY_MODEL,
             "encoder": GOLDEN / "sentences" / "mean_normalized"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    with_chat_template(STORY_MODEL, folder / "chat.gguf")
    write_adapter(folder / "formal-lora", folder / "checkpoint")
    stories = (GOLDEN / "heldout_tinystories.txt").read_text()
    (folder / "text.txt").write_text(stories[:60_000])
    (folder / "held-out.txt").write_text(stories[60_000:80_000])
    (folder / "lines.txt").write_text("a text\nanother one\n")
    (folder / "ids.txt").write_text("1 403 407\n1 403\n")
    (folder / "photo.png").write_bytes(png(64, 64))


def png(width, height):
    """A picture of one colour."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([40, 120, 200]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def run(text, folder):
    binaries = folder / "bin"
    if not binaries.exists():
        binaries.mkdir()
        (binaries / "penstock").symlink_to(PROGRAM)
    env = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(["bash", "-euo", "pipefail", "-c", re.sub(r"\bcurl ", "curl --fail-with-body -sS ", text)], cwd=folder, env=env,
                          capture_output=True, text=True, timeout=300)


class Guides(unittest.TestCase):
    def test_examples(self):
        for name, model in PAGES.items():
            with self.subTest(page=name), tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch)
                furnish(folder)
                examples = [(line, text) for line, language, text in blocks(GUIDES / f"{name}.md") if language == "bash"]
                self.assertGreater(len(examples), 0)
                if model is None:
                    self.run_all(examples, folder, None)
                else:
                    with Serving(model=model) as server:
                        self.run_all(examples, folder, server.port)

    def run_all(self, examples, folder, port):
        for line, text in examples:
            with self.subTest(line=line):
                done = run(text.replace(ADDRESS, f"127.0.0.1:{port}"), folder)
                self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout}\n{done.stderr}")
                self.assertNotEqual((done.stdout + done.stderr).strip(), "", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
