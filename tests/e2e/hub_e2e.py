#!/usr/bin/env python3
"""Models by name, as a user would. PENSTOCK is the program's path, PENSTOCK_SOURCE the source tree."""
import hashlib
import json
import os
import pathlib
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from hub_server import Hub, Repo

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


def checkpoint_files():
    """A tiny checkpoint in two shards, with what a model needs and what it does not."""
    def safetensors(tensors):
        header, data = {}, b""
        for name, content in tensors.items():
            header[name] = {"dtype": "F32", "shape": [len(content) // 4], "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + data

    shards = {f"model-0000{n}-of-00002.safetensors": safetensors({f"t{n}": bytes(range(64))}) for n in (1, 2)}
    index = {"weight_map": {f"t{n}": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}}
    return {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(), "tokenizer.json": b"{}",
            "README.md": b"hello", "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"x", **shards}


class Pulled(unittest.TestCase):
    """A hub and a home for each test."""

    FILES = {"story-Q8_0.gguf": STORY.read_bytes(), "draft-Q4_K_M.gguf": DRAFT.read_bytes(), "README.md": b"a story\n"}

    def setUp(self):
        self.hub = Hub({"org/name": Repo(self.FILES)}, page=2).__enter__()
        self.addCleanup(self.hub.__exit__)
        self.home = Home(HF_HUB_OFFLINE="0", HF_ENDPOINT=self.hub.endpoint, HF_HUB_DOWNLOAD_TIMEOUT="2", NO_PROXY="*")
        self.addCleanup(self.home.folder.cleanup)
        self.repo = self.home.cache / "models--org--name"

    def pull(self, name, code=0, **kwargs):
        """stdout, stripped; stderr is kept for a look"""
        got, out, self.err = self.home.run("pull", name, **kwargs)
        self.assertEqual(got, code, f"{name}: {out}{self.err}")
        return out.strip()

    def fails(self, name, code, *texts):
        self.pull(name, code)
        for text in texts:
            self.assertIn(text, self.err)
        self.assertNotIn("signature=", self.err)
        self.assertFalse([path for path in self.repo.glob("snapshots/*/*") if not path.exists()], "a link to nothing")

    def unfinished(self):
        return sorted(path.name for path in self.repo.glob("blobs/*incomplete"))


class Pull(Pulled):
    def test_layout_of_the_cache(self):
        path = pathlib.Path(self.pull("org/name"))
        commit = self.hub.repos["org/name"].commit
        content = self.FILES["draft-Q4_K_M.gguf"]
        sha256 = hashlib.sha256(content).hexdigest()
        self.assertEqual(path, self.repo / "snapshots" / commit / "draft-Q4_K_M.gguf")
        self.assertEqual(os.readlink(path), f"../../blobs/{sha256}")
        self.assertEqual(path.read_bytes(), content)
        found = sorted(str(p.relative_to(self.home.cache)) for p in self.home.cache.rglob("*") if not p.is_dir())
        self.assertEqual(found, sorted([".locks/models--org--name/" + sha256 + ".lock", "CACHEDIR.TAG",
                                        f"models--org--name/blobs/{sha256}", "models--org--name/refs/main",
                                        f"models--org--name/snapshots/{commit}/draft-Q4_K_M.gguf",
                                        f"models--org--name/trees/{commit}.json"]))
        self.assertEqual((self.repo / "refs/main").read_text(), commit)

    def test_what_is_there_is_not_asked_for_again(self):
        self.pull("org/name")
        before = len(self.hub.requests)
        self.pull("org/name")
        self.assertEqual([r.split("?")[0].strip() for r in self.hub.requests[before:]], ["hub GET /api/models/org/name/revision/main"])
        code, out, err = self.home.run("inspect", "-m", "org/name:Q4_K_M", "--json")
        self.assertEqual((code, len(self.hub.requests)), (0, before + 1), err)

    def test_a_model_is_downloaded_when_it_is_used(self):
        code, out, err = self.home.run("generate", "-m", "org/name:q8_0", "-p", "Once", "-n", 5, "--json")
        self.assertEqual(code, 0, err)
        self.assertIn("org/name:story-Q8_0.gguf", err)
        self.home.env["HF_HUB_OFFLINE"] = "1"
        requests = len(self.hub.requests)
        code, out, err = self.home.run("generate", "-m", "org/name:q8_0", "-p", "Once", "-n", 5, "--json")
        self.assertEqual((code, len(self.hub.requests)), (0, requests), err)
        self.fails("org/name:Q4_K_M", 3, "HF_HUB_OFFLINE")

    def test_a_new_commit_is_taken_by_pull_and_the_old_one_kept(self):
        old = self.pull("org/name")
        self.hub.repos["org/name"] = Repo({**self.FILES, "draft-Q4_K_M.gguf": STORY.read_bytes()})
        code, out, err = self.home.run("inspect", "-m", "org/name", "--json")
        self.assertEqual(json.loads(out)["path"], old)
        new = self.pull("org/name")
        self.assertNotEqual(new, old)
        self.assertEqual((pathlib.Path(old).read_bytes(), pathlib.Path(new).read_bytes()), (DRAFT.read_bytes(), STORY.read_bytes()))
        self.assertEqual((self.repo / "refs/main").read_text(), self.hub.repos["org/name"].commit)

    def test_revisions(self):
        repo = self.hub.repos["org/name"]
        repo.refs.update({"v1": repo.commit, "refs/pr/1": repo.commit})
        for revision in ("v1", "refs/pr/1"):
            self.assertIn(repo.commit, self.pull(f"org/name@{revision}:Q4_K_M"))
            self.assertEqual((self.repo / "refs" / revision).read_text(), repo.commit)
        self.assertIn(repo.commit, self.pull(f"org/name@{repo.commit}:Q8_0"))
        self.fails("org/name@v2", 3, "has no revision v2")

    def test_checkpoint_in_shards(self):
        self.hub.repos["org/name"] = Repo(checkpoint_files())
        folder = pathlib.Path(self.pull("org/name"))
        self.assertEqual(sorted(path.name for path in folder.iterdir()),
                         ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "tokenizer.json"])
        for path in folder.iterdir():
            self.assertEqual(path.read_bytes(), self.hub.repos["org/name"].files[path.name])

    def test_gguf_in_shards(self):
        files = {f"Q4_K_M/m-Q4_K_M-0000{n}-of-00003.gguf": b"GGUF" + bytes([n]) * 1000 for n in (1, 2, 3)}
        self.hub.repos["org/name"] = Repo({**files, "m-Q8_0.gguf": b"x"})
        first = pathlib.Path(self.pull("org/name"))
        self.assertEqual(first.name, "m-Q4_K_M-00001-of-00003.gguf")
        self.assertEqual(len(list(first.parent.iterdir())), 3)
        self.assertEqual(os.readlink(first)[:12], "../../../blo")

    def test_many_ranges_of_a_large_file(self):
        content = random.Random(1).randbytes(80 << 20)
        self.hub.repos["org/name"] = Repo({"big-Q4_0.gguf": content})
        self.hub.fault("cdn GET", times=2, cut=5_000_000)
        self.assertEqual(pathlib.Path(self.pull("org/name")).read_bytes(), content)
        self.assertGreaterEqual(self.hub.count("cdn GET .* bytes="), 3)

    def test_empty_file(self):
        self.hub.repos["org/name"] = Repo({"empty-Q4_0.gguf": b""})
        self.assertEqual(pathlib.Path(self.pull("org/name")).read_bytes(), b"")

    def test_several_names_and_a_wrong_one(self):
        code, out, err = self.home.run("pull", "org/name:Q8_0", "org/name:Q4_K_M")
        self.assertEqual((code, len(out.splitlines())), (0, 2), err)
        for name, code in (("org/none", 3), ("org/name:Q2_K", 3), ("org/na me", 2), ("name", 2), ("/a/path.gguf", 2)):
            self.fails(name, code)

    def test_progress_on_a_terminal(self):
        self.hub.fault("cdn GET", rate=20_000_000)
        leader, follower = pty.openpty()
        process = subprocess.Popen([PROGRAM, "pull", "org/name:Q8_0"], stderr=follower, stdout=subprocess.DEVNULL, env=self.home.env)
        os.close(follower)
        seen = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:
                break
            if not more:
                break
            seen += more
        os.close(leader)
        self.assertEqual(process.wait(), 0)
        self.assertRegex(seen.decode(), r"org/name:Q8_0 \[#+ *\] +\d+ % .*MiB/s")


class Removed(Pulled):
    def rm(self, name, code=0):
        got, out, err = self.home.run("rm", name)
        self.assertEqual(got, code, err)
        return out + err

    def test_one_model_of_two_then_the_rest(self):
        for what in ("Q8_0", "Q4_K_M"):
            self.pull(f"org/name:{what}")
        self.assertIn("org/name:q8_0: 16.6 MiB freed", self.rm("org/name:q8_0"))
        self.assertEqual(len(list(self.repo.glob("blobs/*"))), 1)
        self.assertTrue(pathlib.Path(self.pull("org/name")).exists())
        self.rm("org/name:Q4_K_M")
        self.assertFalse(self.repo.exists())
        self.assertIn("has no models--org--name", self.rm("org/name:Q4_K_M", 3))

    def test_what_two_revisions_share_goes_with_the_last(self):
        first = self.hub.repos["org/name"]
        self.pull("org/name:Q8_0")
        self.hub.repos["org/name"] = Repo({**self.FILES, "README.md": b"new"})
        self.pull("org/name:Q8_0")
        self.assertIn(" 0 B freed", self.rm(f"org/name@{first.commit}"))
        self.assertEqual(len(list(self.repo.glob("snapshots/*"))), 1)
        self.assertIn("16.6 MiB freed", self.rm("org/name"))

    def test_unfinished_downloads_go_too(self):
        self.hub.fault("cdn GET", status=404)
        self.hub.fault("cdn GET", times=99, status=404)
        self.pull("org/name", 3)
        self.assertEqual(len(self.unfinished()), 1)
        self.rm("org/name")
        self.assertFalse(self.repo.exists())

    def test_not_while_it_is_downloaded(self):
        self.hub.fault("cdn GET", rate=2_000_000)
        process = subprocess.Popen([PROGRAM, "pull", "org/name:Q8_0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.home.env)
        while not self.unfinished():
            time.sleep(0.05)
        self.assertIn("another process is downloading it", self.rm("org/name", 1))
        process.kill()
        process.wait()

    def test_links_are_removed_and_not_what_they_lead_to(self):
        precious = self.home.path / "precious"
        precious.mkdir()
        (precious / "file").write_text("keep")
        self.pull("org/name")
        (self.repo / "blobs" / "link").symlink_to(precious / "file")
        (self.repo / "snapshots" / "link").symlink_to(precious)
        (next(self.repo.glob("snapshots/*/")) / "link").symlink_to(precious)
        self.rm("org/name")
        self.assertFalse(self.repo.exists())
        self.assertEqual((precious / "file").read_text(), "keep")

    def test_content_that_repositories_share(self):
        xet = "e" * 64
        store = self.home.cache / "blobs" / "ee"
        store.mkdir(parents=True)
        (self.home.cache / "blobs/.huggingface-shared-blobs").write_text("1\n")
        (store / xet).write_bytes(b"x" * 1000)
        lines = []
        for repo in ("org/a", "org/b"):
            self.home.snapshot(repo, "m-Q4_0.gguf", DRAFT)
            blob = self.home.cache / ("models--" + repo.replace("/", "--")) / "blobs" / "m-Q4_0.gguf"
            blob.unlink()
            blob.symlink_to(f"../../blobs/ee/{xet}")
            lines.append(str(blob.relative_to(self.home.cache)))
        (store / f"{xet}.refs").write_text("\n".join(lines) + "\n../../evil\n")
        self.assertIn(": 0 B freed", self.rm("org/a:Q4_0"))
        self.assertTrue((store / xet).exists())
        self.assertIn(": 1000 B freed", self.rm("org/b"))
        self.assertFalse((store / xet).exists())

    def test_other_tools_keep_theirs(self):
        self.home.copy(STORY, ".lmstudio/models/pub/model/story.gguf")
        self.assertIn("in LM Studio: remove it there", self.rm("pub/model", 4))
        self.assertTrue((self.home.path / ".lmstudio/models/pub/model/story.gguf").exists())


class Refused(Pulled):
    def test_token_goes_to_the_hub_only(self):
        self.home.env["HF_TOKEN"] = "hf_secret"
        self.hub.repos["org/name"].token = "hf_secret"
        self.pull("org/name")
        self.assertGreater(self.hub.count("^hub .* with a token"), 2)
        self.assertEqual(self.hub.count("^cdn .* with a token"), 0)
        self.assertGreater(self.hub.count("^cdn"), 0)

    def test_token_from_its_file(self):
        self.hub.repos["org/name"].token = "hf_secret"
        self.home.copy(MODELS / "../LICENSE", "unused")
        (self.home.path / ".cache/huggingface").mkdir(parents=True)
        (self.home.path / ".cache/huggingface/token").write_text("hf_secret\n")
        self.pull("org/name")

    def test_private_gated_unknown(self):
        self.hub.repos["org/name"].token = "hf_secret"
        self.fails("org/name", 3, "has no repository org/name; if org/name is private, set HF_TOKEN")
        self.home.env["HF_TOKEN"] = "hf_other"
        self.fails("org/name", 3, "the token that is set may not read it")
        self.assertNotIn("hf_other", self.err)
        self.home.env["HF_TOKEN"] = "expired"
        self.fails("org/name", 1, "refuses the token that is set")
        self.hub.repos["org/gated"] = Repo(self.FILES, gated=True)
        self.home.env["HF_TOKEN"] = "hf_any"
        self.fails("org/gated", 1, "org/gated is gated: accept its terms at " + self.hub.endpoint + "/org/gated")
        self.fails("org/none", 3, "has no repository org/none")

    def test_a_redirect_to_a_third_server_gets_no_token(self):
        self.home.env["HF_TOKEN"] = "hf_secret"
        self.hub.fault("hub GET /api", status=302, headers={"Location": self.hub.cdn_address + "/api/elsewhere"})
        self.pull("org/name", 1)
        self.assertEqual(self.hub.count("cdn GET /api/elsewhere *$"), 1)

    def test_no_server(self):
        self.home.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
        self.fails("org/name", 1, "http://127.0.0.1:9")
        self.home.env["HF_ENDPOINT"] = "http://no-such-host.invalid"
        self.fails("org/name", 1, "no-such-host.invalid")

    def test_hostile_answers(self):
        tree = lambda path: json.dumps([{"type": "file", "path": path, "size": 1, "oid": "0" * 40}]).encode()
        for match, body in (("/tree/", tree("../../evil.gguf")), ("/tree/", tree("/etc/evil.gguf")), ("/tree/", tree("a/../../evil.gguf")),
                            ("/tree/", tree("a\\..\\evil.gguf")), ("/tree/", tree("a\0b.gguf")), ("/tree/", b"[" * 200_000),
                            ("/tree/", b"{}"), ("/tree/", b"not json"), ("/tree/", b'[{"type": "file", "path": 3}]'), ("/revision/", b"[]"),
                            ("/revision/", b'{"sha": "../../../x"}'), ("/revision/", b'{"sha": 3}'), ("/revision/", b'{"sha": ""}')):
            self.hub.faults.clear()
            self.hub.fault(match, times=9, status=200, body=body)
            self.fails("org/name", 4)
        self.assertFalse([path for path in self.home.path.rglob("*evil*")])

    def test_endless_answers(self):
        self.hub.fault("/tree/", times=9, status=200, body=b" " * (40 << 20))
        self.fails("org/name", 4, "bytes, got more")
        self.hub.faults.clear()
        self.hub.fault("/tree/", times=5000, status=200, body=b"[]",
                       headers={"Link": f'<{self.hub.endpoint}/api/models/org/name/tree/x>; rel="next"'})
        self.fails("org/name", 4, "files, got more")
        self.hub.faults.clear()
        self.hub.fault("/tree/", status=200, body=b"[]", headers={"Link": f'<{self.hub.cdn_address}/x>; rel="next"'})
        self.fails("org/name", 4, "next page is at another server")
        self.hub.faults.clear()
        self.hub.fault("/revision/", times=99, status=302, headers={"Location": "/api/models/org/name/revision/main"})
        self.fails("org/name", 1, "redirected too often")

    def test_hostile_descriptions(self):
        for headers in ({}, {"ETag": '"../../../evil"'}, {"ETag": '".hidden"'}, {"ETag": '"a/b"'}, {"X-Linked-Etag": '""'}):
            self.hub.faults.clear()
            self.hub.fault("HEAD", times=9, status=200, headers={**headers, "Content-Length": str(DRAFT.stat().st_size)})
            self.fails("org/name", 4, "expected an etag")
        self.hub.faults.clear()
        self.hub.fault("HEAD", times=9, status=200, headers={"ETag": '"abc"', "Content-Length": "5"})
        self.fails("org/name", 4, f"expected {DRAFT.stat().st_size} bytes by the list of files, got 5")
        for location in ("file:///etc/passwd", "gopher://127.0.0.1/", "http://"):
            self.hub.faults.clear()
            self.hub.fault("HEAD", times=9, status=302, headers={"X-Linked-Etag": '"' + "0" * 64 + '"', "Location": location})
            self.pull("org/name", 1 if location != "http://" else 4)

    def test_an_encrypted_hub_leads_to_nothing_else(self):
        tls = pathlib.Path(__file__).parent / "tls"
        with Hub({"org/name": Repo(self.FILES)}, certificate=tls) as hub:  # its files are at a server without encryption
            self.home.env |= {"HF_ENDPOINT": hub.endpoint, "CURL_CA_BUNDLE": str(tls / "cert.pem")}
            self.fails("org/name", 1, "redirected from https to http://127.0.0.2")
            self.assertEqual(hub.count("^hub HEAD"), 1)
            self.assertEqual(hub.count("^cdn"), 0)

    def test_links_in_the_cache_are_not_followed(self):
        outside = self.home.path / "outside"
        outside.mkdir()
        (self.repo / "snapshots").mkdir(parents=True)
        (self.repo / "snapshots" / self.hub.repos["org/name"].commit).symlink_to(outside)
        self.fails("org/name", 1, "expected a folder, got a link")
        self.assertEqual(list(outside.iterdir()), [])


class Broken(Pulled):
    def test_cut_connections_go_on_where_they_were(self):
        self.hub.fault("cdn GET", times=3, cut=300_000)
        self.assertEqual(pathlib.Path(self.pull("org/name")).read_bytes(), DRAFT.read_bytes())
        ranges = [request.split(" ")[3] for request in self.hub.requests if request.startswith("cdn")]
        self.assertEqual(ranges, ["", "bytes=300000-" + str(DRAFT.stat().st_size - 1), "bytes=600000-" + str(DRAFT.stat().st_size - 1),
                                  "bytes=900000-" + str(DRAFT.stat().st_size - 1)])

    def test_small_files_are_cut_too(self):
        self.hub.repos["org/name"] = Repo({**checkpoint_files(), "tokenizer.json": b"x" * 100_000})
        self.hub.fault("GET .*tokenizer", cut=50_000)
        self.assertEqual((pathlib.Path(self.pull("org/name")) / "tokenizer.json").stat().st_size, 100_000)

    def test_a_server_without_ranges(self):
        self.hub.fault("cdn GET", times=2, cut=300_000, no_ranges=True)
        self.hub.fault("cdn GET", times=99, no_ranges=True)
        self.assertEqual(pathlib.Path(self.pull("org/name")).read_bytes(), DRAFT.read_bytes())

    def test_too_many_requests(self):
        self.hub.fault("/revision/", status=429, headers={"Retry-After": "1"})
        self.hub.fault("HEAD", status=429, headers={"RateLimit": '"resolvers";r=0;t=1'})
        self.hub.fault("cdn GET", status=429, headers={"Retry-After": "1"})
        begin = time.monotonic()
        self.pull("org/name")
        self.assertGreater(time.monotonic() - begin, 2.9)
        self.hub.fault("/revision/", times=99, status=429, headers={"Retry-After": "86400"})
        self.fails("org/name", 1, "too many requests; it asks to wait 86400 s")

    def test_a_server_that_is_busy(self):
        for match in ("/revision/", "/tree/", "HEAD", "cdn GET"):
            self.hub.fault(match, status=503)
        self.pull("org/name")

    def test_a_server_that_stays_broken_is_given_up(self):
        faults = {"org/cut": {"cut": 0}, "org/whole": {"cut": 300_000, "no_ranges": True}, "org/busy": {"status": 500}}
        for name, what in faults.items():
            self.hub.repos[name] = Repo({"m-Q4_0.gguf": DRAFT.read_bytes() + name.encode()})
            blob = hashlib.sha256(self.hub.repos[name].files["m-Q4_0.gguf"]).hexdigest()
            self.hub.fault("cdn GET /blobs/" + blob, times=99, **what)
        start = lambda name: subprocess.Popen([PROGRAM, "pull", name], env=self.home.env, stderr=subprocess.PIPE, text=True)
        for process in [start(name) for name in faults]:
            err = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 1, err)
            self.assertRegex(err, "127.0.0.2:.*/blobs/[0-9a-f]+: ")
        self.assertLess(self.hub.count("cdn GET"), 30)

    def test_signed_addresses_expire(self):
        self.hub.fault("cdn GET", times=1, cut=300_000)
        self.hub.fault("cdn GET", times=1, status=403)
        self.assertEqual(pathlib.Path(self.pull("org/name")).read_bytes(), DRAFT.read_bytes())
        self.assertEqual(self.hub.count("HEAD"), 2)
        self.hub.fault("cdn GET", times=99, status=403)
        self.fails("org/name:Q8_0", 1, "access is denied")

    def test_wrong_content(self):
        self.hub.fault("cdn GET", times=99, alter=lambda content: content[:-1] + bytes([content[-1] ^ 1]))
        self.fails("org/name", 4, "wrong content: expected SHA-256")
        self.assertEqual(list(self.repo.glob("blobs/*")), [])
        self.hub.faults.clear()
        # A content of its own: tokenizer.json's is the same blob as "{}", and may come first.
        self.hub.repos["org/name"] = Repo({**checkpoint_files(), "config.json": b"42"})
        self.hub.fault("GET .*config.json", times=99, alter=lambda content: b"[]")
        self.fails("org/name", 4, "config.json: wrong content: expected git's SHA-1")

    def test_wrong_length(self):
        size = DRAFT.stat().st_size
        self.hub.fault("cdn GET", times=99, alter=lambda content: content[:-1])
        self.fails("org/name", 4, f"expected {size} bytes, got {size - 1}")
        self.hub.faults.clear()
        self.hub.fault("cdn GET", times=99, alter=lambda content: content + b"x")
        self.fails("org/name", 4, f"expected {size} bytes, got {size + 1}")
        self.hub.faults.clear()
        self.hub.fault("cdn GET", times=99, alter=lambda content: content + b"x" * 10_000, length=size)
        self.pull("org/name")  # what comes after the end is not the file's

    def test_a_range_that_was_not_asked_for(self):
        for text in ("bytes 0-9/10", f"bytes 0-9/{DRAFT.stat().st_size}", "bytes 300000-300009/7", "", "bytes", "pages 1-2/3"):
            self.hub.faults.clear()
            self.hub.fault("cdn GET", cut=300_000)
            self.hub.fault("cdn GET", status=206, headers={"Content-Range": text}, body=b"0123456789")
            self.fails("org/name", 4, f"got {text}")
            shutil.rmtree(self.repo)

    def test_a_range_that_cannot_be_had(self):
        self.hub.fault("cdn GET", cut=300_000)
        self.hub.fault("cdn GET", status=416)
        self.assertEqual(pathlib.Path(self.pull("org/name")).read_bytes(), DRAFT.read_bytes())
        self.hub.fault("cdn GET", times=99, status=416)
        self.fails("org/name:Q8_0", 1, "status 416")

    def test_a_slow_server_is_fast_enough(self):
        self.hub.repos["org/name"] = Repo({"m-Q4_0.gguf": DRAFT.read_bytes()[:60_000]})
        self.hub.fault("cdn GET", rate=20_000)
        self.pull("org/name")

    def test_a_server_that_falls_silent(self):
        self.hub.fault("cdn GET", hang=8)
        begin = time.monotonic()
        self.pull("org/name")
        self.assertLess(time.monotonic() - begin, 7)
        self.assertEqual(self.hub.count("cdn GET"), 2)

    def test_a_full_disk(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        done = subprocess.run([PROGRAM, "pull", "org/name"], capture_output=True, text=True, env=self.home.env, preexec_fn=limit)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(f"{DRAFT.stat().st_size} bytes", done.stderr)
        self.pull("org/name")


class Interrupted(Pulled):
    def start(self, signal_number, name="org/name:Q8_0"):
        """Starts a slow download and ends it by the signal when some of it is there."""
        self.hub.fault("cdn GET", rate=2_000_000)
        process = subprocess.Popen([PROGRAM, "pull", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.home.env, text=True)
        end = time.monotonic() + 30
        while not list(self.repo.glob("blobs/*.ranges")) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.2)
        process.send_signal(signal_number)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    def resumes(self):
        before = len(self.hub.requests)
        self.assertEqual(pathlib.Path(self.pull("org/name:Q8_0")).read_bytes(), STORY.read_bytes())
        ranges = [request for request in self.hub.requests[before:] if request.startswith("cdn")]
        self.assertEqual(len(ranges), 1, ranges)
        self.assertGreater(int(re.search(r"bytes=(\d+)-", ranges[0])[1]), 100_000)
        self.assertEqual(self.unfinished(), [])

    def test_ctrl_c_keeps_what_came(self):
        code, out, err = self.start(signal.SIGINT)
        self.assertEqual((code, out), (130, ""), err)
        self.assertEqual(len(self.unfinished()), 1)
        self.resumes()

    def test_a_kill_keeps_what_came(self):
        self.assertEqual(self.start(signal.SIGKILL)[0], -signal.SIGKILL)
        self.resumes()

    def test_what_was_kept_and_spoilt_is_received_again(self):
        self.start(signal.SIGKILL)
        with open(next(self.repo.glob("blobs/*incomplete")), "r+b") as file:
            file.seek(1000)
            file.write(b"spoilt")
        self.assertEqual(pathlib.Path(self.pull("org/name:Q8_0")).read_bytes(), STORY.read_bytes())

    def test_nonsense_about_what_was_kept(self):
        self.start(signal.SIGKILL)
        partial = next(self.repo.glob("blobs/*incomplete"))
        ranges, content = next(self.repo.glob("blobs/*.ranges")), partial.read_bytes()
        for text in ("", "x", "17391680\n-5 9\n", "17391680\n0 99999999999999\n", "17391680\n9 5\n", "1 1 1", "\0" * 100):
            partial.write_bytes(content)
            ranges.write_text(text)
            self.assertEqual(pathlib.Path(self.pull("org/name:Q8_0")).read_bytes(), STORY.read_bytes())
            shutil.rmtree(self.repo)
            partial.parent.mkdir(parents=True)

    def test_what_an_older_tool_left_is_taken_up(self):
        self.repo.joinpath("blobs").mkdir(parents=True)
        sha256 = hashlib.sha256(STORY.read_bytes()).hexdigest()
        (self.repo / "blobs" / f"{sha256}.incomplete").write_bytes(STORY.read_bytes()[:1_000_000])
        self.resumes()

    def test_two_at_once(self):
        self.hub.fault("cdn GET", rate=30_000_000)
        processes = [subprocess.Popen([PROGRAM, "pull", "org/name:Q8_0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.home.env)
                     for _ in range(3)]
        outs = {process.communicate(timeout=60)[0] for process in processes}
        self.assertEqual([process.returncode for process in processes], [0, 0, 0])
        self.assertEqual(len(outs), 1)
        self.assertEqual(self.hub.count("cdn GET"), 1)
        self.assertEqual(pathlib.Path(outs.pop().decode().strip()).read_bytes(), STORY.read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
