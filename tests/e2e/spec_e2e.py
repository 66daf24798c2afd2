#!/usr/bin/env python3
"""Speculation as a user sees it: flags, statistics, metrics, refusals. PENSTOCK is the program, PENSTOCK_SOURCE the source tree."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["PENSTOCK"]
MODELS = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "models"
TARGET, DRAFT = MODELS / "penstock-stories-15m-q8_0.gguf", MODELS / "penstock-stories-1m-q8_0.gguf"
STORY = "Tom had a red ball. Tom threw the red ball to Sue. Tom had a red ball. Tom"


def generate(*flags, prompt=STORY):
    """(exit code, report or None, stderr)"""
    done = subprocess.run([PROGRAM, "generate", "-m", str(TARGET), "-t", "1", "-p", prompt, "--temperature", "0", "-n", "60",
                           "--ignore-eos", "--batch-invariant", "--json", "--quiet", *map(str, flags)],
                          capture_output=True, text=True, timeout=300)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr


class Speculation(unittest.TestCase):
    def test_same_tokens_fewer_rounds(self):
        _, plain, _ = generate()
        self.assertNotIn("speculation", plain)
        for flags in (["--spec", "draft", "--draft-model", DRAFT], ["--draft-model", DRAFT, "--spec-length", "3"],
                      ["--spec", "ngram", "--spec-length", "4"]):
            code, report, err = generate(*flags)
            self.assertEqual(code, 0, err)
            self.assertEqual(report["tokens"], plain["tokens"], flags)
            counts = report["speculation"]
            self.assertGreater(counts["accepted_tokens"], 0, flags)
            self.assertLessEqual(counts["accepted_tokens"], counts["draft_tokens"])
            self.assertAlmostEqual(counts["tokens_per_round"], 1 + counts["accepted_tokens"] / counts["drafts"])

    def test_corpus_is_searched(self):
        _, plain, _ = generate(prompt="One day, a small cat")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as corpus:
            corpus.write("One day, a small cat" + plain["text"])
            corpus.flush()
            code, report, err = generate("--spec", "ngram", "--spec-length", "8", "--spec-corpus", corpus.name,
                                         prompt="One day, a small cat")
        self.assertEqual(code, 0, err)
        self.assertEqual(report["tokens"], plain["tokens"])
        self.assertGreater(report["speculation"]["acceptance"], 0.6)

    def test_another_tokenizer_is_refused(self):
        """A draft of which one token is spelled otherwise."""
        word = "\u2581little".encode()
        length = len(word).to_bytes(8, "little")
        content = DRAFT.read_bytes()
        self.assertEqual(content.count(length + word), 1)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(content.replace(length + word, length + "\u2581lettle".encode()))
            file.flush()
            code, _, err = generate("--draft-model", file.name)
        self.assertEqual(code, 2)
        self.assertIn(file.name, err)
        self.assertIn("lettle", err)
        self.assertIn("tokenizer", err)

    def test_refusals_say_what_is_wrong(self):
        for flags, exit_code, words in ((["--spec", "tarot"], 2, "ngram"), (["--spec-length", "many"], 2, "spec_length"),
                                        (["--spec", "draft"], 2, "draft_model"),
                                        (["--draft-model", "no-such-model"], 3, "no-such-model"),
                                        (["--spec", "ngram", "--spec-corpus", "/no/such/file"], 3, "/no/such/file"),
                                        (["--spec-corpus", "x"], 2, "spec_corpus")):
            code, _, err = generate(*flags)
            self.assertEqual(code, exit_code, f"{flags}: {err}")
            self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
