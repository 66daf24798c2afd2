#!/usr/bin/env python3
"""penstock run-batch: the results of requests, mistakes with their lines, going on after SIGKILL and Ctrl-C, what is no batch."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from batches_e2e import line
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SLOW_KERNELS, SOURCE, Server, wait_for

VECTORS = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.input, self.output = self.folder / "in.jsonl", self.folder / "out.jsonl"

    def write(self, lines):
        self.input.write_text("".join(one + "\n" for one in lines))

    def command(self, *flags, model=MODEL):
        return [PROGRAM, "run-batch", str(self.input), str(self.output), "-m", str(model), "--kv-cache-memory", "64M", *map(str, flags)]

    def run_batch(self, *flags, model=MODEL, code=0):
        done = subprocess.run(self.command(*flags, model=model), capture_output=True, text=True, timeout=120 * SLOW)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def results(self):
        lines = [json.loads(one) for one in self.output.read_text().splitlines()]
        self.assertEqual(len({one["custom_id"] for one in lines}), len(lines))
        return {one["custom_id"]: one for one in lines}


class Results(Case):
    def test_they_are_those_of_a_server(self):
        bodies = {str(i): {"prompt": f"Once upon a time {'there was ' * (i % 7)}", "max_tokens": 5, "temperature": 0} for i in range(40)}
        self.write([line(i, **body) for i, body in bodies.items()])
        self.assertIn("40 lines: 40 completed, 0 failed", self.run_batch())
        got = self.results()
        self.assertEqual(set(got), set(bodies))
        with Server() as server:
            for i in ("0", "6", "39"):
                response = got[i]["response"]
                self.assertEqual((response["status_code"], got[i]["error"]), (200, None))
                self.assertEqual(response["body"]["choices"], server.post("/v1/completions", bodies[i]).json()["choices"])
        before = self.output.read_bytes()
        self.assertIn("40 completed", self.run_batch())  # nothing is left to do
        self.assertEqual(self.output.read_bytes(), before)

    def test_forms_of_the_command(self):
        self.write([line("a")])
        done = subprocess.run([PROGRAM, "run-batch", "-i", str(self.input), "-o", str(self.output), "--model", str(MODEL), "-q"], capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(set(self.results()), {"a"})

    def test_chats_and_responses(self):
        model = script_model.write(self.folder / "script")
        self.write([line("chat", "/v1/chat/completions", messages=[{"role": "user", "content": "say plain words"}]),
                    line("response", "/v1/responses", input="say plain words"), line("short", "/chat/completions", messages=[{"role": "user", "content": "think"}])])
        self.run_batch(model=model)
        got = {i: one["response"]["body"] for i, one in self.results().items()}
        self.assertEqual(got["chat"]["choices"][0]["message"]["content"], got["response"]["output"][-1]["content"][0]["text"])
        self.assertEqual(got["short"]["choices"][0]["message"]["reasoning_content"], "Let me think.")

    def test_vectors_and_scores(self):
        self.write([line("vector", "/v1/embeddings", input="the cat"), line("score", "/score", text_1="a cat", text_2="a dog"),
                    line("rank", "/v1/rerank", query="a cat", documents=["cats", "cars"])])
        self.run_batch("--runner", "pooling", model=VECTORS)
        got = {i: one["response"]["body"] for i, one in self.results().items()}
        self.assertEqual(got["vector"]["data"][0]["object"], "embedding")
        self.assertIn("score", got["score"]["data"][0])
        self.assertEqual(len(got["rank"]["results"]), 2)

    def test_lines_that_fail_are_results_too(self):
        self.write([line("good"), line("bad", prompt="x", temperature=-1), line("other", prompt="x", model="gpt-9")])
        self.assertIn("1 completed, 2 failed", self.run_batch())
        self.assertEqual({i: one["response"]["status_code"] for i, one in self.results().items()}, {"good": 200, "bad": 400, "other": 404})
        self.assertIn("1 completed, 2 failed", self.run_batch())
        self.output.unlink()
        self.assertIn("2 completed, 1 failed", self.run_batch("--any-model-name"))


class Mistakes(Case):
    def test_lines(self):
        self.write([line("a"), "{", line("a"), line("b", "/v1/images"), line("c", method="GET"), "", "[]", line("d", prompt="x", stream=True)])
        error = self.run_batch(code=2)
        for words in ("line 2: expected a JSON object", "line 3: custom_id: given twice: a", "line 4: url: expected one of", "line 5: method",
                      "line 7: expected a JSON object", "line 8: body.stream"):
            self.assertIn(words, error)
        self.assertFalse(self.output.exists())

    def test_files(self):
        self.assertIn("No such file", self.run_batch(code=3))
        self.write([])
        self.assertIn("at least one line", self.run_batch(code=2))
        self.write([line("a")])
        self.output.write_text("what\n")
        self.assertIn("expected a result", self.run_batch(code=4))
        self.output.write_text('{"custom_id": "b"}\n')
        self.assertIn("is no line of", self.run_batch(code=2))
        # Another program's file is left as it is: the input itself, another input, and what only looks like one's results.
        one = line("a").encode()
        for content, code, words in ((b"my notes", 4, "expected a result"), (one, 4, "expected a result"), (one + b"\n" + one, 4, "expected a result"),
                                     (b'{"custom_id": "b"}\n{"my": "notes"', 2, "is no line of")):
            self.output.write_bytes(content)
            self.assertIn(words, self.run_batch(code=code))
            self.assertEqual(self.output.read_bytes(), content)
        # What a power failure leaves behind results is cut off; a file that begins with NUL bytes is no batch's.
        self.write([line("a"), line("b")])
        there = b'{"custom_id": "a", "response": [1]}\n'
        self.output.write_bytes(there + bytes(5000))
        self.assertIn("2 lines: 1 completed, 1 failed", self.run_batch())
        written = self.output.read_bytes()
        self.assertTrue(written.startswith(there + b"{"))
        self.assertEqual((written.count(b"\n"), written.count(b"\0")), (2, 0))
        self.output.write_bytes(bytes(5000))
        self.assertIn("expected a result", self.run_batch(code=4))
        self.assertEqual(self.output.read_bytes(), bytes(5000))
        self.output.unlink()
        self.output.hardlink_to(self.input)
        self.input.write_bytes(one)
        self.assertIn("the output is the input", self.run_batch(code=2))
        self.assertEqual(self.input.read_bytes(), one)
        self.output.unlink()
        self.write([line("a")])
        self.output.write_text('{"custom_id": "a", "response": [1]}\n')
        self.assertIn("1 lines: 0 completed, 1 failed", self.run_batch())
        self.output.unlink()
        self.output.mkdir()
        self.assertIn("out.jsonl", self.run_batch(code=1))
        with self.input.open("wb") as file:  # 2 GiB without an end of line
            file.truncate(2 << 30)
        self.assertIn("line 1: longer than", self.run_batch(code=2))

    def test_memory_does_not_follow_the_input(self):
        """192 MiB with one broken line, which is named; what is held of an input is where its lines are."""
        text = "Once upon a time " * 8000
        with self.input.open("w") as file:
            for i in range(1, 1500):
                one = line(f"r{i}", prompt=text, max_tokens=1)
                file.write((one if i != 1234 else one[:-2]) + "\n")
        size = self.input.stat().st_size
        self.assertGreater(size, 192 << 20)
        child = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True)
        error = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stderr.close()
        self.assertEqual(child.returncode, 2, error)
        self.assertIn("1 of its lines cannot be computed", error)
        self.assertIn("line 1234: expected a JSON object", error)
        self.assertLess(used.ru_maxrss * 1024, size / 2)
        self.assertFalse(self.output.exists())

    def test_memory_does_not_follow_another_programs_output(self):
        """Sparse files without a line end: one is none by its first byte, the other by the length of its line."""
        self.write([line("a")])
        for first, size, most in ((b"x", 1 << 30, 256 << 20), (b"{", 700 << 20, 700 << 20)):
            with self.output.open("wb") as file:
                file.write(first)
                file.truncate(size)
            child = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True)
            error = child.stderr.read()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            child.stderr.close()
            self.assertEqual(child.returncode, 4, error)
            self.assertIn("expected a result", error)
            self.assertLess(used.ru_maxrss * 1024, most)
            self.assertEqual(self.output.stat().st_size, size)

    def test_another_process(self):
        self.write([line(i, max_tokens=200, prompt="Once", ignore_eos=True) for i in range(200)])
        first = subprocess.Popen(self.command(model=LARGER_MODEL), env={**os.environ, **SLOW_KERNELS}, stderr=subprocess.DEVNULL)
        try:
            self.assertTrue(wait_for(self.output.exists))
            self.assertIn("another process", self.run_batch(code=1))
        finally:
            first.kill()
            first.wait()

    @unittest.skipUnless(os.geteuid() == 0, "a full disk is made of a small tmpfs, which takes root")
    def test_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        try:
            self.output = disk / "out.jsonl"
            self.write([line(i) for i in range(300)])
            self.assertIn("No space left", self.run_batch(code=1))
            for one in self.results().values():  # whole lines only
                self.assertEqual(one["response"]["status_code"], 200)
            subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
            self.assertIn("300 completed", self.run_batch())
            self.assertEqual(set(self.results()), {str(i) for i in range(300)})
        finally:
            subprocess.run(["umount", str(disk)], check=True)


class Stopped(Case):
    def test_no_line_is_lost_or_doubled(self):
        draw, n = random.Random(11), 1500
        self.write([line(i, prompt=f"Once upon a time {i}", max_tokens=1 + i % 9, temperature=0) for i in range(n)])
        for _ in range(12):
            before = self.output.stat().st_size if self.output.exists() else 0
            process = subprocess.Popen(self.command("--max-num-seqs", 8), stderr=subprocess.DEVNULL)
            self.assertTrue(wait_for(lambda: process.poll() is not None or self.output.exists() and self.output.stat().st_size > before, step=0.002))
            self.assertIsNone(process.poll(), "there were too few lines to be killed among them")
            time.sleep(draw.random() * 0.01)
            process.kill()
            process.wait()
        self.run_batch("--max-num-seqs", 8)
        got = self.results()
        self.assertEqual(set(got), {str(i) for i in range(n)})
        for i, one in got.items():
            self.assertEqual(one["response"]["body"]["usage"]["completion_tokens"], 1 + int(i) % 9)

    def test_ctrl_c(self):
        self.write([line(i, prompt="Once", max_tokens=30, ignore_eos=True) for i in range(100)])
        process = subprocess.Popen(self.command("--max-num-seqs", 2, model=LARGER_MODEL), stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **SLOW_KERNELS})
        self.assertTrue(wait_for(lambda: self.output.exists() and self.output.stat().st_size > 0))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60 * SLOW), 130)
        self.assertIn("the same command goes on", process.stderr.read())
        process.stderr.close()
        n = len(self.results())
        self.assertLess(n, 100)
        self.assertGreater(n, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
