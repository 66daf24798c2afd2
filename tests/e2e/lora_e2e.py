#!/usr/bin/env python3
"""LoRA adapters of a server: by name, several at once, loaded and unloaded while it runs, more than there is place for, errors."""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from live_server import LARGER_MODEL, MODEL, PROGRAM, SOURCE, Server, in_threads
from lora_model import write_adapter
from server_ops_e2e import bearer, idle, keys

STORY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
BASE = MODEL.name
VECTORS = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.paths = [write_adapter(self.folder / f"lora{i}", MODEL, seed=i + 1) for i in range(3)]

    def flags(self, n):
        return ["--lora-modules", *(f"style{i}={self.paths[i]}" for i in range(n))]

    def reply(self, server, model, **fields):
        reply = server.post("/v1/completions", {**STORY, "model": model, **fields})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def text(self, server, model, **fields):
        return self.reply(server, model, **fields)["choices"][0]["text"]

    def names(self, server):
        return [one["id"] for one in server.get("/v1/models").json()["data"]]


class Adapters(Case):
    def test_chosen_by_name(self):
        with Server(*self.flags(2)) as server, Server() as plain:
            name = self.names(plain)[0]
            self.assertEqual(self.names(server), [name, "style0", "style1"])
            listed = server.get("/v1/models/style1").json()
            self.assertEqual((listed["parent"], listed["root"]), (name, str(self.paths[1])))
            texts = [self.text(server, one) for one in (name, "style0", "style1")]
            self.assertEqual(texts[0], self.text(plain, name))
            self.assertEqual(len(set(texts)), 3)
            self.assertEqual(self.reply(server, "style0")["model"], "style0")
            self.assertIn("expected", server.post("/v1/completions", {**STORY, "model": "style2"}).json()["error"]["message"])
            told = server.post("/api/generate", {"model": "style1:latest", "prompt": STORY["prompt"], "stream": False, "raw": True,
                                                 "options": {"temperature": 0, "num_predict": 24}})
            self.assertEqual(told.json()["response"], texts[2])
            stream = server.post("/v1/completions", {**STORY, "model": "style1", "stream": True})
            pieces = [json.loads(line[6:]) for line in stream.body.decode().splitlines() if line.startswith("data: {")]
            self.assertEqual("".join(one["choices"][0]["text"] for one in pieces if one["choices"]), texts[2])
            tokens = server.post("/tokenize", {"model": "style0", "prompt": "a cat"})
            self.assertEqual(tokens.status, 200)

    def test_the_same_as_merged(self):
        """The 16-bit checkpoint, whose merged weights are rounded: the log-probability of a text is about the same."""
        base = SOURCE / "models" / "penstock-stories-1m-bf16"
        merged = self.folder / "merged"
        subprocess.run([PROGRAM, "merge-lora", "-m", base, "--lora", self.paths[0], "-o", merged], check=True, capture_output=True)
        ask = {"prompt": "The dog saw a cat. It was a big cat.", "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        found = []
        for model, flags, name in ((base, self.flags(1), "style0"), (base, [], ""), (merged, [], "")):
            with Server(*flags, model=model) as server:
                rows = self.reply(server, name, **ask)["choices"][0]["prompt_logprobs"]
                found.append([next(iter(row.values()))["logprob"] for row in rows[1:]])
        difference = max(abs(a - b) for a, b in zip(found[0], found[2]))
        self.assertLess(difference, 0.15)
        self.assertGreater(max(abs(a - b) for a, b in zip(found[0], found[1])), 10 * difference)

    def test_many_at_once_in_few_places(self):
        with Server(*self.flags(3), "--max-loras", "2", "--batch-invariant") as server:
            names = [self.names(server)[0], "style0", "style1", "style2"]
            alone = {name: self.text(server, name) for name in names}
            got = []
            threads = [threading.Thread(target=lambda name=name: got.append((name, self.text(server, name)))) for name in names * 4]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(got), 16)
            for name, text in got:
                self.assertEqual(text, alone[name], name)


class Running(Case):
    def load(self, server, name, path, **fields):
        return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **fields})

    def test_loaded_and_unloaded(self):
        with Server("--lora-dir", self.folder) as server:
            base = self.names(server)[0]
            loaded = self.load(server, "mine", self.paths[0])
            self.assertEqual(loaded.status, 200, loaded.body)
            self.assertEqual(loaded.body.decode(), "Success: LoRA adapter 'mine' added successfully.")
            first = self.text(server, "mine")
            self.assertNotEqual(first, self.text(server, base))
            self.assertEqual(self.load(server, "mine", self.paths[1]).status, 400)
            self.assertEqual(self.load(server, base, self.paths[1]).status, 400)
            self.assertEqual(self.load(server, "mine", self.paths[1], load_inplace=True).status, 200)
            self.assertNotEqual(self.text(server, "mine"), first)
            reloaded = server.post("/v1/models/reload", {"model": base})
            self.assertEqual(reloaded.status, 200, reloaded.body)
            self.assertEqual(self.names(server), [base, "mine"])
            self.text(server, "mine")
            self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "mine"}).status, 200)
            self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "mine"}).status, 404)
            self.assertEqual(server.post("/v1/completions", {**STORY, "model": "mine"}).status, 404)

    def test_names_are_bounded(self):
        """Each is looked through for every request, and listed."""
        with Server("--lora-dir", self.folder) as server:
            self.assertEqual(self.load(server, "x" * 257, self.paths[0]).status, 400)
            self.assertEqual(self.load(server, "x" * 256, self.paths[0]).status, 200)
            statuses = [self.load(server, f"n{i}", self.paths[0]).status for i in range(1000)]
            self.assertEqual((statuses.count(200), statuses[-1]), (999, 429))
            self.assertEqual(self.load(server, "n5", self.paths[0], load_inplace=True).status, 200)
            self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "n5"}).status, 200)
            self.assertEqual(self.load(server, "another", self.paths[0]).status, 200)

    def test_unloaded_while_it_runs(self):
        with Server(*self.flags(1)) as server:
            whole = self.text(server, "style0", max_tokens=200, ignore_eos=True)
            got = []
            thread = threading.Thread(target=lambda: got.append(self.text(server, "style0", max_tokens=200, ignore_eos=True)))
            thread.start()
            while not got and idle(server):
                pass
            server.post("/v1/unload_lora_adapter", {"lora_name": "style0"})
            thread.join()
            self.assertEqual(got, [whole])

    def test_bad_ones(self):
        with Server("--lora-dir", self.folder) as server:
            config = json.loads((self.paths[0] / "adapter_config.json").read_text())
            for number, (change, part) in enumerate((({"r": 0}, "rank from 1"), ({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"),
                                                     ({"r": 5}, "expected rank 5"))):
                bad = self.folder / f"bad{number}"
                bad.mkdir()
                (bad / "adapter_model.safetensors").write_bytes((self.paths[0] / "adapter_model.safetensors").read_bytes())
                (bad / "adapter_config.json").write_text(json.dumps({**config, **change}))
                reply = self.load(server, "bad", bad)
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(part, reply.json()["error"]["message"])
            for number, damaged in enumerate((b"", b"\x10" * 100, (self.paths[0] / "adapter_model.safetensors").read_bytes()[:200])):
                bad = self.folder / f"damaged{number}"
                bad.mkdir()
                (bad / "adapter_model.safetensors").write_bytes(damaged)
                (bad / "adapter_config.json").write_text(json.dumps(config))
                reply = self.load(server, "bad", bad)
                self.assertEqual(reply.status, 400, reply.body)
            self.assertIn("another model", self.load(server, "bad", write_adapter(self.folder / "large", LARGER_MODEL)).json()["error"]["message"])
            self.assertEqual(self.load(server, "bad", self.folder / "none").status, 404)
            self.assertEqual(self.load(server, "", self.paths[0]).status, 400)
            self.assertEqual(self.load(server, "bad", self.paths[0], base_model_name="other").status, 404)
            self.assertEqual(len(self.names(server)), 1)
        for flags, part in ((["--lora-modules", "nothing"], "expected NAME=PATH"), (["--lora-modules", f"a={self.folder / 'none'}"], "adapter a"),
                            ([*self.flags(1), "--max-lora-rank", "3"], "max_lora_rank")):
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(part, done.stdout + done.stderr)

    def renamed(self, name, old, new):
        """The first adapter, with another name (as long as the old one) in its tensors."""
        folder = self.folder / name
        folder.mkdir()
        for file in self.paths[0].iterdir():
            data = file.read_bytes()
            self.assertTrue(len(old) == len(new) and (file.suffix == ".json" or old in data))
            (folder / file.name).write_bytes(data.replace(old, new))
        return folder

    def test_parts_without_adapters(self):
        """Embeddings have none, and a model that gives vectors none of a model of text: each is refused by its name."""
        bad = self.renamed("embedding", b"self_attn.q_proj.lora_A.weight", b"self_attn.q.lora_embedding_A.x")
        with Server("--lora-dir", self.folder) as server:
            reply = self.load(server, "bad", bad)
            self.assertIn(reply.status, (400, 501), reply.body)
            self.assertIn("lora_embedding_A", reply.json()["error"]["message"])
        models = self.folder / "vectors.json"
        entry = {"name": "vectors", "model": str(VECTORS), "runner": "pooling"}
        models.write_text(json.dumps({"models": [{"name": "text", "model": str(MODEL)}, entry]}))
        with Server("--models-config", models, "--lora-dir", self.folder, model=None) as server:
            reply = self.load(server, "bad", self.paths[0], base_model_name="vectors")
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn("another model", reply.json()["error"]["message"])
            self.assertEqual(server.post("/v1/embeddings", {"model": "vectors", "input": "a cat"}).status, 200)

    def test_only_admins_load(self):
        file = self.folder / "keys.json"
        made = {name: keys("add", "-f", file, "--name", name, "--scope", scope)
                for name, scope in (("user", "inference"), ("admin", "admin"))}
        with Server("--api-key-file", file, "--lora-dir", self.folder) as server:
            body = {"lora_name": "mine", "lora_path": str(self.paths[0])}
            self.assertEqual(server.post("/v1/load_lora_adapter", body).status, 401)
            self.assertEqual(server.post("/v1/load_lora_adapter", body, bearer(made["user"])).status, 403)
            self.assertEqual(server.post("/v1/load_lora_adapter", body, bearer(made["admin"])).status, 200)

    def test_in_a_file(self):
        path = self.folder / "models.json"
        path.write_text(json.dumps({"models": [{"name": "small", "model": str(MODEL), "lora_modules": {"style": str(self.paths[0])}},
                                               {"name": "large", "model": str(LARGER_MODEL)}]}))
        with Server("--models-config", path, "--lora-dir", self.folder, model=None) as server:
            self.assertEqual(self.names(server), ["small", "style", "large"])
            self.assertNotEqual(self.text(server, "style"), self.text(server, "small"))
            large = write_adapter(self.folder / "large", LARGER_MODEL)
            self.assertEqual(self.load(server, "other", large, base_model_name="large").status, 200)
            self.assertEqual(self.names(server), ["small", "style", "large", "other"])
            self.text(server, "other")

    def test_a_name_is_one_models(self):
        """Whoever asks at the same time, and whatever else has names: who is told of success is served by that name."""
        path = self.folder / "models.json"
        path.write_text(json.dumps({"models": [{"name": name, "model": str(MODEL), "kv_cache_memory": "8M"} for name in ("one", "two")],
                                    "routes": [{"name": "auto", "small": "one", "large": "two"}]}))
        with Server("--models-config", path, "--lora-dir", self.folder, "--io-threads", "4", model=None) as server:
            self.assertEqual(self.load(server, "auto", self.paths[0]).status, 400)
            for _ in range(20):
                statuses = in_threads(6, lambda i: self.load(server, "mine", self.paths[0], base_model_name=("one", "two")[i % 2]).status)
                self.assertEqual(sorted(statuses), [200] + [400] * 5)
                self.assertEqual(self.names(server).count("mine"), 1)
                self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "mine"}).status, 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
