#!/usr/bin/env python3
"""Data parallelism: several engines behind one server give the texts of one, share load and weights, and end together."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lora_model import write_adapter  # noqa: E402
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SOURCE, Server, in_threads, read_until, slow_server, wait_for  # noqa: E402
from ranks_e2e import ENDS_WITHIN, children, is_alive, listens  # noqa: E402

PROMPTS = ["Once upon a time", "The dog", "Lily and Tom", "One day, a little boy named Tim", "In the forest", "Mom said"] * 2
STORY = "Once upon a time there was a little girl who loved to play with her dog in the big green park. "


def texts(server, **fields):
    return in_threads(len(PROMPTS), lambda i: server.generate(PROMPTS[i], **{"max_tokens": 40, **fields}).json()["text"])


def by_engine(server, name):
    """{engine: value} of a metric."""
    found = (re.fullmatch(rf'{name}{{.*engine="(\d+)".*}}', key) for key in server.metrics())
    return {int(match[1]): server.metrics()[match[0]] for match in found if match}


class SameText(unittest.TestCase):
    def test_served_by_one_and_by_two(self):
        with Server() as one:
            wanted = texts(one)
        for flags in (["--data-parallel-size", 2], ["--data-parallel-size", 3, "--threads", 1, "--spec", "ngram"],
                      ["--data-parallel-size", 2, "--tensor-parallel-size", 2, "--threads", 1],
                      ["--data-parallel-size", 2, "--tensor-parallel-size", 2, "--pipeline-parallel-size", 2, "--threads", 1]):
            with Server(*flags) as server:
                self.assertEqual(texts(server), wanted, flags)
                self.assertEqual(texts(server), wanted, flags)  # now with a prefix cache
                each = by_engine(server, "penstock:generation_tokens_total")
                self.assertEqual(len(each), flags[1])
                self.assertTrue(all(n > 0 for n in each.values()), each)
                self.assertEqual(server.get("/v1/metrics").json()["total_tokens"], sum(each.values()))
                each_has = (2 if "--tensor-parallel-size" in flags else 1) * (2 if "--pipeline-parallel-size" in flags else 1)
                self.assertEqual(len(children(server.process)), flags[1] * (each_has - 1))
                self.assertEqual(server.stop(), 0, server.log())

    def test_generate(self):
        args = [PROGRAM, "generate", "-m", str(LARGER_MODEL), "--temperature", "0", "--prompt", PROMPTS[0], "-n", "40"]
        one = subprocess.run(args, capture_output=True, text=True, timeout=60 * SLOW, check=True)
        two = subprocess.run([*args, "--data-parallel-size", "2"], capture_output=True, text=True, timeout=60 * SLOW, check=True)
        self.assertEqual(two.stdout, one.stdout)

    def test_a_prefix_stays_with_its_cache(self):
        with Server("--data-parallel-size", 2) as server:
            first = server.generate(STORY * 3 + "Then", max_tokens=4)
            for end in ("One day", "But", "She"):
                # A reply is there a moment before its sequence counts as ended.
                self.assertTrue(wait_for(lambda: not any(by_engine(server, "vllm:num_requests_running").values()), 10 * SLOW))
                server.generate(STORY * 3 + end, max_tokens=4)
            hits = by_engine(server, "penstock:prefix_cache_hits_total")
            self.assertEqual(sorted(n > 150 for n in hits.values()), [False, True], hits)
            self.assertEqual(min(hits.values()), 0)
            self.assertEqual(server.post("/reset_prefix_cache", {}).status, 200)
            self.assertEqual(server.generate(STORY * 3 + "Then", max_tokens=4).json()["text"], first.json()["text"])
            self.assertEqual(by_engine(server, "penstock:prefix_cache_hits_total"), hits)
            self.assertEqual(server.stop(), 0, server.log())

    def test_adapters(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [write_adapter(pathlib.Path(folder) / f"lora{i}", MODEL, seed=i + 1) for i in range(2)]
            names = [MODEL.name, "style0", "style1"] * 3

            def texts_of(server):
                one = lambda i: server.post("/v1/completions", {"model": names[i], "prompt": PROMPTS[i], "max_tokens": 20, "temperature": 0})
                return [reply.json()["choices"][0]["text"] for reply in in_threads(len(names), one)]

            flags = ["--lora-modules", f"style0={paths[0]}", "--max-loras", 1, "--lora-dir", folder]
            load = {"lora_name": "style1", "lora_path": str(paths[1])}
            with Server(*flags) as server:
                self.assertEqual(server.post("/v1/load_lora_adapter", load).status, 200)
                wanted = texts_of(server)
            with Server("--data-parallel-size", 2, *flags) as server:
                self.assertEqual(server.post("/v1/load_lora_adapter", load).status, 200)
                self.assertEqual(texts_of(server), wanted)
                self.assertEqual(server.post("/v1/unload_lora_adapter", {"lora_name": "style1"}).status, 200)
                self.assertEqual(server.stop(), 0, server.log())

    def test_prefixes_are_kept_on_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            args = ("--data-parallel-size", 2, "--kv-store", f"memory:8M,{folder}")
            with Server(*args) as server:
                first = server.generate(STORY * 2).json()
                server.generate("The dog " * 30)
                self.assertEqual(server.stop(), 0, server.log())
            with Server(*args) as server:
                self.assertEqual(server.generate(STORY * 2).json()["text"], first["text"])

    def test_unloaded_and_loaded_again(self):
        with Server("--data-parallel-size", 2) as server:
            wanted = texts(server)
            self.assertEqual(server.post("/v1/models/unload", {"model": MODEL.name}).status, 200)
            self.assertEqual(server.post("/v1/models/load", {"model": MODEL.name}).status, 200)
            self.assertEqual(texts(server), wanted)


def mapped(pids, suffix):
    """Bytes of files with this suffix that the processes have in memory: each page once, and as often as it is mapped."""
    once = often = 0
    for pid in pids:
        of_file = False
        for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
                of_file = line.endswith(suffix)
            elif of_file and line.startswith("Pss:"):
                once += int(line.split()[1]) * 1024
            elif of_file and line.startswith("Rss:"):
                often += int(line.split()[1]) * 1024
    return once, often


class Memory(unittest.TestCase):
    SMALL = ("--threads", 1, "--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--kv-cache-memory", "8M")

    def own_bytes(self, n):
        """What the process has of its own once it has worked."""
        with Server("--data-parallel-size", n, *self.SMALL, model=LARGER_MODEL) as server:
            texts(server)
            [line] = [line for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines() if line.startswith("RssAnon:")]
            return int(line.split()[1]) * 1024

    # Packed once, whoever of the engines reads them; each would have the size of the file.
    def test_weights_are_there_once(self):
        weights = LARGER_MODEL.stat().st_size
        self.assertLess(self.own_bytes(4) - self.own_bytes(1), weights)

    # What was packed before is mapped by every engine, by processes of ranks too.
    def test_packed_files_are_mapped_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for flags, n_files in ((["--data-parallel-size", 2], 1), (["--data-parallel-size", 2, "--tensor-parallel-size", 2], 2)):
                for _ in range(2):  # the first makes them
                    with Server(*flags, *self.SMALL, "--packed-cache", folder, model=LARGER_MODEL) as server:
                        texts(server)
                        once, often = mapped([server.process.pid, *children(server.process)], ".packed")
                        self.assertEqual(server.stop(), 0, server.log())
                sizes = [path.stat().st_size for path in pathlib.Path(folder).glob("*.packed")]
                self.assertEqual(len(sizes), n_files)
                self.assertGreater(once, 0.5 * sum(sizes))
                self.assertLess(once, 1.1 * sum(sizes))
                if len(flags) > 2:  # two engines of two processes each
                    self.assertGreater(often, 1.5 * once)
                for path in pathlib.Path(folder).glob("*.packed"):
                    path.unlink()


class Faults(unittest.TestCase):
    def test_drained(self):
        server = slow_server("--data-parallel-size", 2)
        with server:
            socks = [server.stream({"prompt": prompt, "max_tokens": 60, "stream": True, "ignore_eos": True}) for prompt in PROMPTS[:4]]
            for sock in socks:
                read_until(sock, b"data:")
            server.terminate()
            for sock in socks:
                tail = b""
                while part := sock.recv(65536):
                    tail += part
                self.assertIn(b"[DONE]", tail)
            self.assertEqual(server.process.wait(60 * SLOW), 0, server.log())

    # Its requests end with the error, those of the other engine as they would.
    def test_a_killed_rank_of_one_engine(self):
        server = slow_server("--data-parallel-size", 2, "--tensor-parallel-size", 2)
        with server:
            ranks = children(server.process)
            self.assertEqual(len(ranks), 2)
            socks = [server.stream({"prompt": prompt, "max_tokens": 100, "stream": True, "ignore_eos": True}) for prompt in PROMPTS[:2]]
            for sock in socks:
                read_until(sock, b"data:")
            os.kill(ranks[0], signal.SIGKILL)
            begin = time.monotonic()
            tails = []
            for sock in socks:
                tail = b""
                while part := sock.recv(65536):
                    tail += part
                tails.append(tail)
            self.assertEqual(sorted(b'"error"' in tail for tail in tails), [False, True], tails)
            self.assertEqual(server.process.wait(60 * SLOW), 1, server.log())
            self.assertRegex(server.log(), r"engine [01] of 2: rank 1 of 2 \(process \d+\) was ended by signal 9")
            self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks)), ENDS_WITHIN * SLOW))
            self.assertLess(time.monotonic() - begin, 60 * SLOW)
            self.assertFalse(listens(server.port))

    def test_what_cannot_be_is_refused(self):
        for args, message in ((("--data-parallel-size", 65), "data_parallel_size: expected 0 to 64, got 65"),
                              (("--data-parallel-size", 2, "--policy", "none"), "policy"),
                              (("--data-parallel-size", 2, "--kv-cache-memory", "1K"), "the KV cache may take 512 bytes")):
            done = subprocess.run([PROGRAM, "generate", "-m", str(MODEL), *map(str, args)], capture_output=True, text=True, timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)


class Vectors(unittest.TestCase):
    MODEL = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"

    def test_are_those_of_one_engine(self):
        args = [PROGRAM, "embed", "-m", str(self.MODEL), "--json", "-t", "1", "--max-num-batched-tokens", "16", *(part for text in PROMPTS for part in ("-p", text))]

        def vectors(*flags):
            done = subprocess.run([*args, *flags], capture_output=True, text=True, timeout=60 * SLOW, check=True)
            return json.loads(done.stdout)["embeddings"]

        one, ranks = vectors(), vectors("--tensor-parallel-size", "2")
        self.assertEqual(vectors("--data-parallel-size", "2"), one)
        self.assertEqual(vectors("--data-parallel-size", "2", "--tensor-parallel-size", "2"), ranks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
