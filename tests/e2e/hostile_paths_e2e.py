#!/usr/bin/env python3
"""Paths that lead to no file, or out of where they may lead: nothing waits for them, nothing of them is told, the process always ends."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SLOW_KERNELS, Server, in_threads, wait_for
from lora_model import write_adapter
from server_ops_e2e import TLS, bearer, keys

LOAD = "/v1/load_lora_adapter"
SECRET = "root:x:0:0:hunter2"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.fifo = self.folder / "fifo"
        os.mkfifo(self.fifo)

    def run_program(self, *args):
        """(exit code, what it said); it must not wait."""
        done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=60 * SLOW, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr


class NoFiles(Case):
    """A FIFO without a writer wherever a path is read."""

    def checkpoint(self, missing):
        """A checkpoint's folder in which one file is a FIFO."""
        folder = self.folder / f"checkpoint-{missing}"
        folder.mkdir()
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / name).write_text("{}")
        (folder / missing).unlink(missing_ok=True)
        os.mkfifo(folder / missing)
        return folder

    def test_at_the_start(self):
        serve = ["serve", "--port", "0", "--kv-cache-memory", "64M"]
        story = [*serve, "-m", MODEL]
        good = self.folder / "keys.json"
        keys("add", "-f", good)
        cases = [
            [*serve, "-m", self.fifo], [*serve, "-m", self.checkpoint("config.json")], [*serve, "-m", self.checkpoint("model.safetensors")],
            [*serve, "-m", self.checkpoint("model.safetensors.index.json")],
            [*serve, "--models-config", self.fifo], [*story, "--api-key-file", self.fifo], [*story, "--chat-template", self.fifo],
            [*story, "--lora-modules", f"a={self.fifo}"], [*story, "--ssl-certfile", self.fifo, "--ssl-keyfile", TLS / "key.pem"],
            [*story, "--ssl-certfile", TLS / "cert.pem", "--ssl-keyfile", self.fifo], ["--config", self.fifo, *story],
            [*story, "--spec", "ngram", "--spec-corpus", self.fifo], [*story, "--draft-model", self.fifo],
            ["keys", "list", "-f", self.fifo], ["generate", "-m", MODEL, "-f", self.fifo], ["generate", "-m", MODEL, "--session", self.fifo, "-p", "x"],
            ["tokenize", "-m", MODEL, "-f", self.fifo], ["inspect", "-m", self.fifo], ["perplexity", "-m", MODEL, "-f", self.fifo],
            ["run-batch", self.fifo, self.folder / "out.jsonl", "-m", MODEL], ["render", "--template", self.fifo, "--context", self.fifo],
            ["quantize", "-m", self.fifo, "-o", self.folder / "out.gguf", "--type", "q8_0"],
        ]
        for command in cases:
            with self.subTest(command=" ".join(map(str, command))):
                code, said = self.run_program(*command)
                self.assertNotEqual(code, 0, said)
                self.assertNotIn("serving", said)

    def test_what_a_shell_opened_is_read(self):
        for name in ("/dev/stdin", "-"):
            done = subprocess.run([PROGRAM, "generate", "-m", MODEL, "-f", name, "-n", "4"], input="Once upon", capture_output=True, text=True, timeout=60 * SLOW)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith("Once upon"), done.stdout)
        done = subprocess.run(["bash", "-c", f"'{PROGRAM}' generate -m '{MODEL}' -f <(echo -n Once upon) -n 4"], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertTrue(done.stdout.startswith("Once upon"), done.stdout + done.stderr)

    def test_adapters(self):
        whole = write_adapter(self.folder / "whole", MODEL)
        bad = [self.fifo, pathlib.Path("/dev/zero"), self.folder]
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            bad.append(self.folder / f"without-{name}")
            shutil.copytree(whole, bad[-1])
            (bad[-1] / name).unlink()
            os.mkfifo(bad[-1] / name)
        with Server("--lora-dir", self.folder, "--lora-dir", "/dev") as server:
            statuses = in_threads(len(bad), lambda i: server.post(LOAD, {"lora_name": f"a{i}", "lora_path": str(bad[i])}, timeout=30).status)
            self.assertTrue(all(isinstance(status, int) and 400 <= status < 600 for status in statuses), statuses)
            self.assertEqual(server.post(LOAD, {"lora_name": "whole", "lora_path": str(whole)}).status, 200)  # its thread is free
            self.assertEqual(server.stop(), 0)

    def test_a_key_file_that_becomes_none(self):
        file = self.folder / "keys.json"
        first = bearer(keys("add", "-f", file))
        with Server("--api-key-file", file) as server:
            kept = file.rename(self.folder / "kept.json")
            os.mkfifo(file)
            self.assertTrue(wait_for(lambda: server.get("/v1/models", first).status == 200 and "stay in force" in server.log()))
            file.unlink()
            kept.rename(file)
            second = bearer(keys("add", "-f", file))
            self.assertTrue(wait_for(lambda: server.get("/v1/models", second).status == 200))
            self.assertEqual(server.stop(), 0)


class Adapters(Case):
    """Requests name a path; it leads nowhere but into the operator's folders, and errors tell nothing of what is elsewhere."""

    def setUp(self):
        super().setUp()
        self.loras = self.folder / "loras"
        self.loras.mkdir()
        self.good = write_adapter(self.loras / "good", MODEL)
        self.outside = write_adapter(self.folder / "outside", MODEL, seed=2)
        self.secret = self.folder / "secret"
        self.secret.write_text(SECRET)

    def load(self, server, path, name="mine", headers=None, **fields):
        return server.post(LOAD, {"lora_name": name, "lora_path": str(path), **fields}, headers)

    def test_only_from_folders_that_were_named(self):
        (self.loras / "link").symlink_to(self.outside)
        (self.loras / "file-link").symlink_to(self.secret)
        shutil.copytree(self.good, self.loras / "half")
        (self.loras / "half" / "adapter_config.json").unlink()
        (self.loras / "half" / "adapter_config.json").symlink_to(self.secret)
        (self.folder / "loras-not").mkdir()
        outside = [self.outside, self.secret, self.loras / ".." / "outside", self.loras / "link", self.loras / "file-link", self.loras / "half",
                   self.folder / "loras-not", "/etc/passwd", "/", "../outside", "good/../../outside", self.folder / "none", "/none", self.loras / "link" / "none"]
        with Server("--lora-dir", self.loras) as server:
            replies = [self.load(server, path) for path in outside]
            self.assertEqual([reply.status for reply in replies], [403] * len(outside))
            self.assertEqual(len({reply.body for reply in replies}), 1)  # nobody learns what there is
            self.assertEqual(replies[0].json()["error"]["param"], "lora_path")
            for path in (self.loras / "none", "none", "good/none"):
                self.assertEqual(self.load(server, path).status, 404, path)
            for i, path in enumerate((self.good, "good", "./good/", self.loras / "link" / ".." / "loras" / "good", self.loras / "." / "good")):
                self.assertEqual(self.load(server, path, f"a{i}").status, 200, path)

    def test_without_a_folder_there_is_none(self):
        with Server() as server:
            self.assertEqual([self.load(server, path).status for path in (self.good, "/etc/shadow", "/none")], [403] * 3)
        code, said = self.run_program("serve", "-m", MODEL, "--lora-dir", self.folder / "none")
        self.assertEqual((code, "--lora-dir" in said), (3, True), said)

    def test_errors_tell_nothing_of_files(self):
        texts = {"a.gguf": SECRET, "b.gguf": "GGUF" + SECRET, "c.json": '{"' + SECRET, "d.safetensors": "\x40\0\0\0\0\0\0\0{" + SECRET + '"' + " " * 60}
        for name, text in texts.items():
            (self.loras / name).write_text(text)
        for name, config in (("e", SECRET), ("f", '{"peft_type": "' + SECRET + '"}'), ("g", '{"peft_type": "LORA", "bias": "' + SECRET + '"}'),
                             ("h", '{"peft_type": "LORA", "r": "' + SECRET + '"}'), ("i", '{"peft_type": 1e999, "a": ' + SECRET)):
            shutil.copytree(self.good, self.loras / name)
            (self.loras / name / "adapter_config.json").write_text(config)
        with Server("--lora-dir", self.loras) as server:
            for name in (*texts, *"efghi"):
                reply = self.load(server, name)
                self.assertGreaterEqual(reply.status, 400)
                said = reply.body.decode()
                for part in ("hunter", "root", "0x", "72 6f", SECRET[:4], str(self.folder)):
                    self.assertNotIn(part, said)

    def test_errors_of_models_name_no_folder(self):
        (self.folder / "bad.gguf").write_text(SECRET)
        config = self.folder / "models.json"
        config.write_text(json.dumps({"models": [{"name": "good", "model": str(MODEL)},
                                                 {"name": "bad", "model": str(self.folder / "bad.gguf"), "load": "first use"}]}))
        with Server("--models-config", config, model=None) as server:
            replies = [server.post("/v1/completions", {"model": "bad", "prompt": "x"}), server.get("/v1/models"), server.get("/props?model=bad"),
                       server.get("/slots?model=bad"), server.post("/v1/models/load", {"model": "bad"}), server.post("/api/generate", {"model": "bad", "prompt": "x"})]
            for reply in replies:
                self.assertIn(b"bad.gguf", reply.body)
                self.assertNotIn(str(self.folder).encode(), reply.body)
                self.assertNotIn(b"72 6f", reply.body)
            self.assertIn(str(self.folder), server.log())  # where who runs it finds out


class Ends(unittest.TestCase):
    def test_whatever_a_thread_is_doing(self):
        """One step of the engine takes far longer than the time there is to end."""
        with Server("--threads", 1, "--max-num-batched-tokens", 8192, "--max-num-seqs", 16, "--shutdown-timeout", 0.5, "--enable-prefix-caching",
                    model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            def ask(i):
                try:
                    return server.post("/v1/completions", {"prompt": [5 + i, *range(10, 500)], "max_tokens": 4}, timeout=60).status
                except OSError:
                    return 0

            asking = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
            for one in asking:
                one.start()
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") > 0 or server.get("/load").json()["server_load"] == 16))
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            took = time.monotonic() - begin
            for one in asking:
                one.join()
            self.assertLess(took, 0.5 + 1 + 2 * SLOW, server.log())  # the rest is the machine's

    def test_where_nobody_reads_the_log(self):
        """As behind `| less`: lines are left out while it serves, and the last words wait for nobody."""
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        with os.fdopen(reading, "rb") as log, subprocess.Popen(
                [PROGRAM, "serve", "-m", MODEL, "--host", "127.0.0.1", "--port", "0", "--kv-cache-memory", "16M", "--shutdown-timeout", "0.5"],
                stderr=writing, stdout=subprocess.DEVNULL) as process:
            try:
                os.close(writing)
                port = next(int(found[1]) for found in (re.search(rb"serving .*:(\d+)", line) for line in log) if found)
                for _ in range(200):  # lines of more than 4,096 bytes together
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30 * SLOW) as reply:
                        self.assertEqual(reply.status, 200)
                begin = time.monotonic()
                process.terminate()
                self.assertEqual(process.wait(60 * SLOW), 0)
                self.assertLess(time.monotonic() - begin, 0.5 + 1 + 2 * SLOW)
            finally:
                process.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
