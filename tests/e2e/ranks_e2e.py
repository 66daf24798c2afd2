#!/usr/bin/env python3
"""Tensor parallelism by processes of one host: the same text as one process, and an end for all when one of them ends."""
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lora_model import write_adapter  # noqa: E402
from live_server import children, is_alive, LARGER_MODEL, MODEL, PROGRAM, SLOW, SLOW_KERNELS, SOURCE, Server, in_threads, read_until, slow_server, wait_for  # noqa: E402

PROMPTS = ["Once upon a time", "The dog", "Lily and Tom", "One day, a little boy named Tim", "In the forest", "Mom said"]
CLEAR = "One day, a little boy named Tim"  # whose likeliest tokens are ahead by more than what another order of sums may change
ENDS_WITHIN = 10  # seconds, of all ranks


def run(*args, code=0, env=None):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=120 * SLOW, env={**os.environ, **(env or {})})
    assert done.returncode == code, (done.returncode, done.stderr)
    return done


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def texts(server, **fields):
    """Greedy texts of all prompts at once."""
    return in_threads(len(PROMPTS), lambda i: server.generate(PROMPTS[i], **{"max_tokens": 40, **fields}).json()["text"])


def check_rank_metrics(test, server, n):
    """Every rank has numbers of its own, which follow within half a second."""
    names = ("rank_calls_total", "rank_bytes_total", "rank_seconds_total", "rank_resident_memory_bytes")
    value = lambda name, rank: server.metric(f"penstock:{name}", rank=rank)
    test.assertTrue(wait_for(lambda: all(value(name, rank) > 0 for name in names for rank in range(n))), server.metrics())
    test.assertEqual(sum("rank_calls_total{" in key for key in server.metrics()), n)
    resident = lambda: [int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") for pid in children(server.process)]
    said = lambda: [value("rank_resident_memory_bytes", rank) for rank in range(1, n)]
    near = lambda: all(abs(other - one) <= 0.2 * one for one, other in zip(sorted(resident()), sorted(said())))
    test.assertTrue(wait_for(near), (resident(), said()))


class SameText(unittest.TestCase):
    def test_generate_by_one_to_four(self):
        for model in (MODEL, LARGER_MODEL, SOURCE / "models" / "penstock-stories-sliding-4m-q8_0.gguf"):
            one = run("generate", "-m", model, "--temperature", 0, "--max-tokens", 60, "--prompt", CLEAR, "--kv-cache-dtype", "f32")
            for n in (2, 3, 4):
                several = run("generate", "-m", model, "--temperature", 0, "--max-tokens", 60, "--prompt", CLEAR,
                              "--kv-cache-dtype", "f32", "--tensor-parallel-size", n, "--threads", 1)
                self.assertEqual(several.stdout, one.stdout, f"{model.name}, {n} ranks")
                self.assertNotIn("rank", several.stderr)

    def serve_both(self, *args, fields=None, model=MODEL):
        with Server(*args, model=model) as one:
            wanted = texts(one, **(fields or {}))
            self.assertEqual(one.stop(), 0)
        with Server("--tensor-parallel-size", 2, "--threads", 1, *args, model=model) as two:
            self.assertEqual(texts(two, **(fields or {})), wanted)
            self.assertEqual(texts(two, **(fields or {})), wanted)  # now with a prefix cache
            tokens, said = (two.metric(f"penstock:{name}_total") for name in ("generation_tokens", "rank_bytes"))
            self.assertGreater(said, tokens * 4 * 256, "less than one sum of a narrow model for each token")
            self.assertGreater(two.metric("penstock:rank_calls_total"), tokens / 8)  # tokens of several sequences are in one sum
            self.assertGreater(two.metric("penstock:rank_seconds_total"), 0)
            ranks = children(two.process)
            self.assertEqual(len(ranks), 1)
            self.assertEqual(two.stop(), 0, two.log())
            self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks))))

    def test_served_together(self):
        self.serve_both()

    def test_metrics_of_every_rank(self):
        for grid, n in ((("--tensor-parallel-size", 3), 3), (("--pipeline-parallel-size", 2), 2)):
            with Server(*grid, "--threads", 1) as server:
                texts(server)
                check_rank_metrics(self, server, n)
                # Who waits for requests takes part in nothing.
                time.sleep(0.5)
                before = server.metric("penstock:rank_seconds_total", rank=1)
                time.sleep(2)
                server.generate(PROMPTS[0], max_tokens=1)
                time.sleep(0.5)
                self.assertLess(server.metric("penstock:rank_seconds_total", rank=1), before + 1.8 * SLOW)
                reply = server.get("/v1/metrics").json()
                self.assertEqual([len(reply[f"rank_{name}"]) for name in ("calls", "bytes", "seconds", "resident_memory_bytes")], [n] * 4)
        with Server() as server:
            self.assertNotIn("penstock:rank_seconds_total{", server.get("/metrics").body.decode())

    def test_with_speculation(self):
        self.serve_both("--spec", "ngram")
        self.serve_both("--draft-model", MODEL)
        for drafter in (["ngram"], ["medusa", "--spec-heads", SOURCE / "models" / "penstock-stories-15m-medusa"]):
            args = ("-m", LARGER_MODEL, "--temperature", 0, "--max-tokens", 60, "--prompt", CLEAR, "--kv-cache-dtype", "f32")
            one = run("generate", *args)
            two = run("generate", *args, "--spec", *drafter, "--tensor-parallel-size", 2, "--threads", 1)
            self.assertEqual(two.stdout, one.stdout, drafter)

    def test_with_grammars(self):
        self.serve_both(fields={"guided_regex": "(a|b|c){4,9} [a-z ]{8}"})
        self.serve_both(fields={"guided_json": {"type": "object", "properties": {"n": {"enum": ["one", "two"]}}, "required": ["n"]}})

    # All ranks compute the first layers for the guesses; the model has an exit. Guesses change no bit.
    def test_with_an_early_exit(self):
        args = ("--tensor-parallel-size", 2, "--threads", 1, "--batch-invariant")
        with Server(*args, model=LARGER_MODEL) as server:
            wanted = texts(server)
        with Server(*args, "--spec", "early-exit", "--spec-length", 3, model=LARGER_MODEL) as server:
            self.assertEqual(texts(server), wanted)
            self.assertGreater(server.metric("vllm:spec_decode_num_accepted_tokens_total"), 0)

    # Every rank keeps its share, and takes it from there.
    def test_with_packed_weights(self):
        for grid, n in ((("--tensor-parallel-size", 2), 2), (("--tensor-parallel-size", 3), 3), (("--pipeline-parallel-size", 2), 2)):
            with tempfile.TemporaryDirectory() as folder:
                args = ("generate", "-m", LARGER_MODEL, "--temperature", 0, "--max-tokens", 40, "--prompt", CLEAR, *grid, "--threads", 1)
                wanted = run(*args)
                first = run(*args, "--packed-cache", folder)
                made = {path: path.stat().st_ino for path in pathlib.Path(folder).glob("*.packed")}
                self.assertEqual(len(made), n)
                second = run(*args, "--packed-cache", folder)
                self.assertEqual((first.stdout, second.stdout), (wanted.stdout, wanted.stdout))
                self.assertEqual({path: path.stat().st_ino for path in pathlib.Path(folder).iterdir()}, made)  # none was made anew

    # Groups in act-order lie over all inputs: no part of them is a rank's. Stages have whole matrices.
    def test_act_order(self):
        with tempfile.TemporaryDirectory() as folder:
            small, text = SOURCE / "models" / "penstock-stories-1m-q8_0.gguf", SOURCE / "tests" / "golden" / "heldout_tinystories.txt"
            run("quantize", small, f"{folder}/f16", "--type", "f16")
            run("quantize", f"{folder}/f16", f"{folder}/gptq", "--type", "int4", "-g", 32, "--method", "gptq", "--layout", "gptq", "--act-order", "group",
                "--calibration", text, "--calibration-samples", 4)
            args = ("generate", "-m", f"{folder}/gptq", "--temperature", 0, "--max-tokens", 20, "--prompt", PROMPTS[0], "--threads", 1)
            done = run(*args, "--tensor-parallel-size", 2, code=4)
            self.assertRegex(done.stderr, "gptq: layer model.layers.0.self_attn.o_proj: its groups lie in act-order, .* not cut for tensor_parallel_size")
            self.assertEqual(run(*args, "--pipeline-parallel-size", 2).stdout, run(*args).stdout)

    def test_with_adapters(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [write_adapter(pathlib.Path(folder) / f"lora{i}", MODEL, seed=i + 1) for i in range(3)]
            flags = ["--lora-modules", *(f"style{i}={path}" for i, path in enumerate(paths)), "--max-loras", 2, "--lora-dir", folder]
            names = [MODEL.name, "style0", "style1", "style2", "style0"]

            def texts_of(server):
                one = lambda i: server.post("/v1/completions", {"model": names[i], "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0})
                return [reply.json()["choices"][0]["text"] for reply in in_threads(len(names), one)]

            with Server(*flags) as server:
                wanted = texts_of(server)
            self.assertEqual(len(set(wanted)), 4)
            with Server("--tensor-parallel-size", 2, "--threads", 1, *flags) as server:
                self.assertEqual(texts_of(server), wanted)
                bad = pathlib.Path(folder) / "other"
                write_adapter(bad, LARGER_MODEL)
                reply = server.post("/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": str(bad)})
                self.assertEqual(reply.status, 400, reply.body)
                self.assertEqual(texts_of(server), wanted)
                self.assertEqual(server.stop(), 0, server.log())

    # Blocks of all ranks go out of the cache and come back as they were.
    def test_preempted(self):
        args = ("--tensor-parallel-size", 2, "--threads", 1, "--batch-invariant")
        with Server(*args) as roomy:
            wanted = texts(roomy, max_tokens=110)
        with Server(*args, "--kv-store", "memory:64M", "--kv-cache-memory", "320K", "--max-model-len", 128) as server:
            for _ in range(5):  # a busy machine may let the requests come one after the other
                self.assertEqual(texts(server, max_tokens=110), wanted)
                if server.metric("penstock:kv_store_read_blocks_total") > 0:
                    break
            self.assertGreater(server.metric("penstock:kv_store_read_blocks_total"), 0)
            self.assertEqual(server.stop(), 0, server.log())

    def test_prefixes_are_kept_on_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            args = ("--tensor-parallel-size", 2, "--threads", 1, "--kv-store", folder)
            prompt = "Once upon a time there was a little girl who loved to play with her dog in the big green park. " * 2
            with Server(*args) as server:
                first = server.generate(prompt).json()
                self.assertEqual(server.stop(), 0, server.log())
            with Server(*args) as server:
                self.assertEqual(server.generate(prompt).json()["text"], first["text"])
                self.assertGreater(server.metric("penstock:prefix_cache_hits_total"), 16)

    # Whatever comes and goes, what stays is what one process gives.
    def test_requests_that_come_and_go(self):
        chance = random.Random(7)
        with Server("--tensor-parallel-size", 2, "--threads", 1, "--max-num-seqs", 4, "--kv-cache-memory", "2M") as server:
            wanted = server.generate(max_tokens=30).body
            for _ in range(12):
                socks = [server.stream({"prompt": chance.choice(PROMPTS), "max_tokens": 200, "stream": True, "ignore_eos": True},
                                       path="/v1/completions") for _ in range(chance.randrange(6))]
                time.sleep(chance.random() * 0.1)
                for sock in socks:
                    sock.close()
                self.assertEqual(server.generate(max_tokens=30).json()["text"], json.loads(wanted)["text"])
            self.assertEqual(server.stop(), 0, server.log())


TENSOR, STAGES = "--tensor-parallel-size", "--pipeline-parallel-size"
GRIDS = ((TENSOR, 2), (TENSOR, 3), (STAGES, 2), (STAGES, 2, TENSOR, 2))


class Vectors(unittest.TestCase):
    """Models that give vectors, in F32."""
    GOLDEN = SOURCE / "tests" / "golden"
    SENTENCES, CROSS, CLASSES = GOLDEN / "sentences" / "mean_normalized", GOLDEN / "cross_encoders" / "bert", GOLDEN / "classifiers" / "bert"
    TEXTS = ["the cat sat", "a dog", "the cat and the dog sat", "sat", "find: dog"] * 8  # several steps of 64 tokens

    def compare(self, grid, got, wanted):
        """Numbers of any nesting: stages change no bit, sums some."""
        if isinstance(wanted, list):
            self.assertEqual(len(got), len(wanted))
            for one, other in zip(got, wanted):
                self.compare(grid, one, other)
        elif isinstance(wanted, dict):
            self.assertEqual(got.keys(), wanted.keys())
            for key in wanted:
                if key not in ("id", "created", "model"):
                    self.compare(grid, got[key], wanted[key])
        elif isinstance(wanted, float) and TENSOR in grid:
            self.assertAlmostEqual(got, wanted, delta=1e-5)
        else:
            self.assertEqual(got, wanted)

    def test_embed(self):
        prompts = [part for text in self.TEXTS for part in ("-p", text)]
        for model in (self.SENTENCES, self.GOLDEN / "models" / "qwen3"):
            args = ["embed", "-m", model, "--json", "-t", 1, "--max-num-batched-tokens", 64, *prompts]
            if model.name == "qwen3":  # a decoder, without a tokenizer; a sequence longer than a step
                with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
                    json.dump([[1 + (i * 7 + k) % 60 for k in range(1 + i * 11)] for i in range(9)], ids)
                    ids.flush()
                    self.embed_on_grids(["embed", "-m", model, "--json", "-t", 1, "--max-num-batched-tokens", 32, "--ids", ids.name])
            else:
                self.embed_on_grids(args)

    def embed_on_grids(self, args):
        one = json.loads(run(*args).stdout)["embeddings"]
        for grid in GRIDS:
            several = run(*args, *grid)
            self.assertNotIn("rank", several.stderr)
            self.compare(grid, json.loads(several.stdout)["embeddings"], one)

    def test_served(self):
        documents = {"query": "find: dog", "documents": self.TEXTS[:5]}
        cases = [(self.SENTENCES, "/v1/embeddings", {"input": self.TEXTS}), (self.CROSS, "/v1/rerank", documents),
                 (self.CLASSES, "/classify", {"input": [[2, 9, 5, 3], [2, 7, 3], [4] * 20]})]
        for model, route, body in cases:
            with Server(model=model) as server:
                reply = server.post(route, body)
                self.assertEqual(reply.status, 200, reply.body)
                wanted = reply.json()
            for grid in GRIDS:
                with Server("--threads", 1, *grid, model=model) as server:
                    for _ in range(2):
                        self.compare(grid, server.post(route, body).json(), wanted)
                    ranks = children(server.process)
                    check_rank_metrics(self, server, len(ranks) + 1)
                    self.assertEqual(len(ranks), grid[1] * (grid[3] if len(grid) > 2 else 1) - 1)
                    self.assertEqual(server.stop(), 0, server.log())
                    self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks))))

    def test_a_rank_that_ends(self):
        for grid, number in (((TENSOR, 3), signal.SIGKILL), ((STAGES, 2), signal.SIGKILL), ((TENSOR, 2), signal.SIGSTOP)):
            with Server("--threads", 1, *grid, model=self.SENTENCES) as server:
                ranks = children(server.process)
                load = [threading.Thread(target=self.embed_until_refused, args=(server,)) for _ in range(3)]
                for thread in load:
                    thread.start()
                time.sleep(0.3)
                os.kill(ranks[-1], number)
                self.assertEqual(server.process.wait(ENDS_WITHIN * SLOW), 1, server.log())
                for thread in load:
                    thread.join(ENDS_WITHIN * SLOW)
                    self.assertFalse(thread.is_alive(), "a request was not answered")
                self.assertRegex(server.log(), "rank [0-9]+ of [0-9]+")
                self.assertFalse(listens(server.port))
                if number == signal.SIGSTOP and is_alive(ranks[-1]):
                    os.kill(ranks[-1], signal.SIGKILL)
                self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks)), ENDS_WITHIN * SLOW))

    def embed_until_refused(self, server):
        try:
            while server.post("/v1/embeddings", {"input": self.TEXTS}).status == 200:
                pass
        except (OSError, http.client.HTTPException):
            pass

    def test_what_cannot_be_is_refused(self):
        for args, message in (((TENSOR, 0), "tensor_parallel_size: expected at least 1, got 0"),
                              ((STAGES, 5), "pipeline_parallel_size 5: expected at most 2, for bert of 2 layers"),
                              ((TENSOR, 70000, STAGES, 70000), "expected 1 to 64, got 4900000000"),
                              ((TENSOR, 2, "--rank-wire-dtype", "f8"), "rank_wire_dtype: expected f32 or bf16, got f8")):
            done = subprocess.run([PROGRAM, "embed", "-m", str(self.SENTENCES), "-p", "a", *map(str, args)], capture_output=True, text=True,
                                  timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)


class Faults(unittest.TestCase):
    def served(self, victim, number):
        """A server under load whose rank gets a signal."""
        server = slow_server("--tensor-parallel-size", 3)
        with server:
            ranks = children(server.process)
            self.assertEqual(len(ranks), 2)
            sock = server.stream({"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "ignore_eos": True})
            read_until(sock, b"data:")
            os.kill(ranks[victim] if victim is not None else server.process.pid, number)
            begin = time.monotonic()
            if victim is not None:
                self.assertEqual(server.process.wait(ENDS_WITHIN * SLOW), 1, server.log())
                tail = b""
                while part := sock.recv(65536):
                    tail += part
                self.assertIn(b'"error"', tail)
                self.assertIn(b"rank ", tail)
                self.assertIn(f"process {ranks[victim]}", server.log())
            still = [rank for rank in ranks if number != signal.SIGSTOP or victim is None or rank != ranks[victim]]
            self.assertTrue(wait_for(lambda: not any(map(is_alive, still)), ENDS_WITHIN * SLOW))
            self.assertLess(time.monotonic() - begin, ENDS_WITHIN * SLOW)
            if victim is None:
                server.process.kill()
                server.process.wait()
            self.assertFalse(listens(server.port))
            for rank in ranks:
                if is_alive(rank):
                    os.kill(rank, signal.SIGKILL)

    def test_a_killed_rank(self):
        self.served(0, signal.SIGKILL)
        self.served(1, signal.SIGKILL)

    def test_a_stopped_rank(self):
        self.served(1, signal.SIGSTOP)

    def test_a_killed_server(self):
        self.served(None, signal.SIGKILL)

    def test_a_stopped_server(self):
        self.served(None, signal.SIGSTOP)

    def test_a_killed_rank_of_an_idle_server(self):
        with Server("--tensor-parallel-size", 2, "--threads", 1) as server:
            os.kill(children(server.process)[0], signal.SIGKILL)
            self.assertEqual(server.process.wait(ENDS_WITHIN * SLOW), 1)
            self.assertIn("was ended by signal 9", server.log())

    # Wherever the run is: beginning, loading, waiting or computing. The seed is in the message when one of them fails.
    def test_at_random_moments(self):
        seed = int(os.environ.get("PENSTOCK_SEED", random.randrange(1 << 30)))
        chance = random.Random(seed)
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGKILL):
            with self.subTest(seed=seed, number=number):
                self.at_a_random_moment(chance, number)

    def at_a_random_moment(self, chance, number):
        n = chance.choice((2, 3))
        victim, delay = chance.randrange(n - 1), chance.random() * chance.choice((0.1, 1.5)) * SLOW
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen([PROGRAM, "serve", "-m", str(LARGER_MODEL), "--port", "0", "--host", "127.0.0.1", "--tensor-parallel-size", str(n),
                                        "--threads", "1", "--kv-cache-memory", "64M"], stdout=subprocess.DEVNULL, stderr=log,
                                       env={**os.environ, **SLOW_KERNELS})

            def said():
                log.seek(0)
                return log.read()
            try:
                self.assertTrue(wait_for(lambda: len(children(process)) == n - 1, step=0.002), said())
                ranks = sorted(children(process))
                time.sleep(delay)
                found = re.search(r"serving \S+ at http://[\d.]+:(\d+)", said())
                port = int(found[1]) if found else None
                load = [threading.Thread(target=self.complete, args=(port, prompt)) for prompt in PROMPTS if port]
                for thread in load:
                    thread.start()
                time.sleep(chance.random() * 0.3 if port else 0)
                os.kill(ranks[victim], number)
                begin = time.monotonic()
                code = process.wait(ENDS_WITHIN * SLOW)
                for thread in load:
                    thread.join(ENDS_WITHIN * SLOW)
                    self.assertFalse(thread.is_alive(), "a request was not answered")
                others = [rank for rank in ranks if number == signal.SIGKILL or rank != ranks[victim]]
                self.assertTrue(wait_for(lambda: not any(map(is_alive, others)), ENDS_WITHIN))
                self.assertLess(time.monotonic() - begin, ENDS_WITHIN * SLOW)
                self.assertNotEqual(code, 0, said())
                self.assertRegex(said(), "rank [0-9]+ of [0-9]+")
                self.assertFalse(port and listens(port))
            finally:
                process.kill()
                process.wait()
                for rank in ranks:
                    if is_alive(rank):
                        os.kill(rank, signal.SIGKILL)

    def complete(self, port, prompt):
        """Whatever comes of it, it comes."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * SLOW)
        try:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 300, "ignore_eos": True}),
                               {"Content-Type": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    # What ranks share has no name: it needs nothing of /dev/shm.
    def test_without_shared_memory_files(self):
        args = f"{PROGRAM} generate -m {MODEL} --temperature 0 --max-tokens 30 --prompt Once --tensor-parallel-size 2 --threads 1"
        wanted = subprocess.run(args.split(), capture_output=True, text=True, timeout=60 * SLOW)
        self.assertEqual(wanted.returncode, 0, wanted.stderr)
        full = "mount -t tmpfs -o size=4k none /dev/shm || exit 1; head -c 8192 /dev/zero > /dev/shm/full 2>/dev/null; "
        missing = "mount -t tmpfs none /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9; "
        for name, change in (("full", full), ("missing", missing)):
            with self.subTest(name):
                if subprocess.run(["unshare", "-m", "sh", "-c", change + "true"], capture_output=True).returncode != 0:
                    self.skipTest("needs mounts of its own (root)")
                shown = "ls -d /dev/shm >&2; " if name == "missing" else "df --output=avail /dev/shm >&2; "
                done = subprocess.run(["unshare", "-m", "sh", "-c", change + shown + args], capture_output=True, text=True, timeout=60 * SLOW)
                self.assertEqual((done.returncode, done.stdout), (0, wanted.stdout), done.stderr)
                self.assertRegex(done.stderr, "No such file" if name == "missing" else r"Avail\n *0\n")

    # No room for what ranks share: memory is limited, not files, for they have no name.
    def test_what_cannot_be_is_refused(self):
        cases = {
            ("--tensor-parallel-size", 0): "tensor_parallel_size: expected at least 1, got 0",
            ("--tensor-parallel-size", 65): "tensor_parallel_size: expected 1 to 64, got 65",
            ("--tensor-parallel-size", 2, "--rank-wire-dtype", "f16"): "rank_wire_dtype: expected f32 or bf16, got f16",
        }
        for args, message in cases.items():
            done = subprocess.run([PROGRAM, "generate", "-m", str(MODEL), *map(str, args)], capture_output=True, text=True, timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)
        done = subprocess.run([PROGRAM, "bench", "--shape", "tiny", "--tensor-parallel-size", "2"], capture_output=True, text=True,
                              timeout=60 * SLOW)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("every rank reads its share of a file", done.stderr)

    def test_a_rank_that_cannot_begin(self):
        with tempfile.TemporaryDirectory() as folder:
            args = ("generate", "-m", MODEL, "--tensor-parallel-size", 2, "--kv-cache-memory", "64M")
            done = subprocess.run([PROGRAM, *map(str, args), "--max-model-len", "100000000"], capture_output=True, text=True, cwd=folder,
                                  timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
        place = subprocess.run([PROGRAM, "rank", "--parent", str(os.getpid()), "--segment", "0", "--rank", "1", "--size", "2"], capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=60 * SLOW)
        self.assertNotEqual(place.returncode, 0)
        self.assertIn("file descriptor 0 is no memory that ranks share", place.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
