#!/usr/bin/env python3
"""Models by name, as a user would. PENSTOCK is the program's path, PENSTOCK_SOURCE the source tree."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.path.abspath(os.environ["PENSTOCK"])
MODELS = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "models"
STORY, DRAFT = MODELS / "penstock-stories-15m-q8_0.gguf", MODELS / "penstock-stories-1m-q8_0.gguf"
COMMIT = "c" * 40


class Home:
    """A home folder of a test's own, where none of the machine's models and settings are seen."""

    def __init__(self, **variables):
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-hub-")
        self.path = pathlib.Path(self.folder.name)
        keep = {key: value for key, value in os.environ.items()
                if not key.startswith(("HF_", "HUGGING", "OLLAMA_", "LLAMA_", "XDG_", "TRANSFORMERS_"))}
        self.env = {**keep, "HOME": str(self.path), "HF_HUB_OFFLINE": "1", "PENSTOCK_MODELS": str(MODELS), **variables}
        self.cache = self.path / ".cache/huggingface/hub"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.folder.cleanup()

    def run(self, *args, timeout=120):
        """(exit code, stdout, stderr)"""
        done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, timeout=timeout, env=self.env)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def models(self):
        code, out, err = self.run("models", "--json")
        assert code == 0, err
        return {model["name"]: model for model in json.loads(out)["models"]}

    def copy(self, source, *below):
        target = self.path.joinpath(*below)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def snapshot(self, repo, name, source):
        folder = self.cache / ("models--" + repo.replace("/", "--"))
        self.copy(source, folder / "blobs" / name.replace("/", "-"))
        link = folder / "snapshots" / COMMIT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder / "blobs" / name.replace("/", "-"), link.parent))
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(COMMIT)


class OnDisk(unittest.TestCase):
    def test_generates_from_each_cache(self):
        with Home() as home:
            home.snapshot("org/name", "story-Q8_0.gguf", STORY)
            home.copy(STORY, ".lmstudio/models/pub/model/story.gguf")
            digest = "d" * 64
            home.copy(STORY, f".ollama/models/blobs/sha256-{digest}")
            manifest = home.path / ".ollama/models/manifests/registry.ollama.ai/library/story/1b"
            manifest.parent.mkdir(parents=True)
            manifest.write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                                        "digest": f"sha256:{digest}"}]}))
            texts = set()
            for name in (STORY, "org/name", "org/name:q8_0", "org/name:story-Q8_0.gguf", f"org/name@{COMMIT}",
                         "hf.co/org/name", "pub/model", "story:1b"):
                code, out, err = home.run("generate", "-m", name, "-p", "Once", "-n", 5, "--temperature", 0, "--json")
                self.assertEqual(code, 0, f"{name}: {err}")
                texts.add(json.loads(out)["text"])
            self.assertEqual(len(texts), 1)
            names = home.models()
            self.assertLessEqual({"org/name:story-Q8_0.gguf", "pub/model:story.gguf", "story:1b",
                                  "penstock-stories-15m-q8_0"}, set(names))
            story = names["story:1b"]
            self.assertEqual((story["architecture"], story["type"], story["context"], story["runs"], story["bytes"]),
                             ("llama", "q8_0", 512, True, STORY.stat().st_size))

    def test_a_draft_by_name(self):
        with Home() as home:
            home.snapshot("org/draft", "d.gguf", DRAFT)
            code, out, err = home.run("generate", "-m", STORY, "--draft-model", "org/draft", "-p", "Once", "-n", 5, "--json")
            self.assertEqual(code, 0, err)

    def test_table_says_what_does_not_run(self):
        with Home() as home:
            home.snapshot("org/name", "whole-Q8_0.gguf", STORY)
            cut = home.path / "cut.gguf"
            cut.write_bytes(STORY.read_bytes()[:100_000])
            home.snapshot("org/name", "cut-Q4_0.gguf", cut)
            code, out, err = home.run("models")
            self.assertEqual(code, 0, err)
            lines = {line.split()[0]: line for line in out.splitlines()}
            self.assertRegex(lines["org/name:whole-Q8_0.gguf"], r"llama +q8_0 +16\.6 MiB +512 +yes$")
            self.assertRegex(lines["org/name:cut-Q4_0.gguf"], r"no: .+ do not fit")

    def test_a_path_stays_a_path(self):
        with Home() as home:
            (home.path / "org" / "name").mkdir(parents=True)
            home.snapshot("org/name", "story.gguf", STORY)
            done = subprocess.run([PROGRAM, "inspect", "-m", "org/name"], capture_output=True, env=home.env, cwd=home.path)
            self.assertEqual(done.returncode, 3)
            self.assertIn(b"org/name: expected config.json", done.stderr)
            code, _, err = home.run("inspect", "-m", "org/name.gguf")
            self.assertEqual(code, 3)
            self.assertIn("org/name.gguf: no such file or directory", err)

    def test_error_names_the_places(self):
        with Home() as home:
            code, out, err = home.run("generate", "-m", "org/name:Q4_K_M")
            self.assertEqual((code, out), (3, ""))
            for place in (".cache/huggingface/hub has no models--org--name", ".lmstudio/models has no org/name",
                          ".ollama/models has no org/name:Q4_K_M"):
                self.assertIn(place, err)
            self.assertEqual(home.run("generate", "-m", "org/na me")[0], 2)


if __name__ == "__main__":
    unittest.main()
