#!/usr/bin/env python3
"""Stages of a pipeline: the bits of one process, and an end for all when one of them ends."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SLOW_KERNELS, SOURCE, Server, in_threads, read_until, slow_server, wait_for  # noqa: E402
from lora_model import write_adapter  # noqa: E402
from ranks_e2e import CLEAR, ENDS_WITHIN, PROMPTS, children, is_alive, listens, run  # noqa: E402

LONG = "Once upon a time there was a little girl who loved to play with her dog in the big green park. " * 6
SLIDING = SOURCE / "models" / "penstock-stories-sliding-4m-q8_0.gguf"
# Of what one process computes every bit, whatever runs beside it.
EXACT = ("--threads", 1, "--batch-invariant")


def stages(n, tensor=1):
    return ("--pipeline-parallel-size", n, *(("--tensor-parallel-size", tensor) if tensor > 1 else ()))


def completions(server, bodies):
    """Replies to all at once: every bit of the logits shows in the logarithms of chances."""
    def one(i):
        body = {"max_tokens": 24, "temperature": 0, **bodies[i]}
        reply = server.post("/v1/completions", body)
        assert reply.status == 200, reply.body
        return [{key: choice[key] for key in ("text", "logprobs", "finish_reason")} for choice in reply.json()["choices"]]
    return in_threads(len(bodies), one)


GREEDY = [{"prompt": prompt, "logprobs": 3} for prompt in [*PROMPTS, LONG]]
# Several sequences of one request, grammars, penalties, chances of the prompt.
OTHERS = [
    {"prompt": PROMPTS[0], "n": 3, "temperature": 0.9, "seed": 7, "logprobs": 1},
    {"prompt": PROMPTS[2], "guided_regex": "(a|b|c){4,9} [a-z ]{8}"},
    {"prompt": PROMPTS[3], "temperature": 0.7, "seed": 3, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "logprobs": 2},
    {"prompt": LONG, "prompt_logprobs": 1, "max_tokens": 4},
]


class SameBits(unittest.TestCase):
    def test_generate(self):
        for model, n in ((MODEL, (2, 3)), (LARGER_MODEL, (2, 4)), (SLIDING, (2,))):
            args = ("generate", "-m", model, "--temperature", 0, "--max-tokens", 60, "--prompt", PROMPTS[0], *EXACT)
            one = run(*args)
            for stage in n:
                several = run(*args, *stages(stage))
                self.assertEqual(several.stdout, one.stdout, f"{model.name}, {stage} stages")
                self.assertNotIn("rank", several.stderr)

    def same(self, *args, bodies=GREEDY, n=2, model=MODEL):
        with Server(*EXACT, *args, model=model) as one:
            wanted = completions(one, bodies)
            self.assertEqual(one.stop(), 0)
        with Server(*EXACT, *stages(n), *args, model=model) as several:
            self.assertEqual(completions(several, bodies), wanted)
            self.assertEqual(completions(several, bodies), wanted)  # now with a prefix cache
            self.assertGreater(several.metric("penstock:rank_bytes_total"), 0)
            ranks = children(several.process)
            self.assertEqual(len(ranks), n - 1)
            self.assertEqual(several.stop(), 0, several.log())
            self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks))))

    def test_served_together(self):
        self.same(bodies=GREEDY + OTHERS)
        self.same(bodies=GREEDY + OTHERS, n=3, model=LARGER_MODEL)

    def test_prompts_in_chunks(self):
        self.same("--prefill-chunk", 32, bodies=[{"prompt": LONG * 2 + prompt, "logprobs": 2} for prompt in PROMPTS])

    def test_with_speculation(self):
        self.same("--spec", "ngram", bodies=GREEDY + OTHERS)
        self.same("--draft-model", MODEL, model=LARGER_MODEL)
        self.same("--spec", "medusa", "--spec-heads", SOURCE / "models" / "penstock-stories-15m-medusa", model=LARGER_MODEL)

    # The model has an exit, of which the layers are in one stage, or in two.
    def test_with_an_early_exit(self):
        for args, n in (((), 2), ((), 3), (("--spec-exit-layer", 5), 2)):
            drafts = (*EXACT, "--spec", "early-exit", "--spec-length", 3, *args)
            with Server(*EXACT, model=LARGER_MODEL) as one:
                wanted = completions(one, GREEDY + OTHERS)
            with Server(*drafts, *stages(n), model=LARGER_MODEL) as several:
                self.assertEqual(completions(several, GREEDY + OTHERS), wanted)
                self.assertEqual(completions(several, GREEDY + OTHERS), wanted)
                self.assertGreater(several.metric("vllm:spec_decode_num_accepted_tokens_total"), 0)
                self.assertEqual(several.stop(), 0, several.log())

    def test_with_adapters(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [write_adapter(pathlib.Path(folder) / f"lora{i}", MODEL, seed=i + 1) for i in range(3)]
            flags = ["--lora-modules", *(f"style{i}={path}" for i, path in enumerate(paths)), "--max-loras", 2]
            self.same(*flags, bodies=[{"prompt": PROMPTS[0], "model": name, "logprobs": 1} for name in (MODEL.name, "style0", "style1", "style2", "style0")])

    # Blocks of all ranks go out of the cache and come back as they were, while steps are on their way.
    def test_preempted(self):
        bodies = [{"prompt": PROMPTS, "max_tokens": 110, "logprobs": 1}]  # of one request, that they run together on a busy machine too
        with Server(*EXACT) as roomy:
            wanted = completions(roomy, bodies)
        for store in ((), ("--kv-store", "memory:64M")):
            with Server(*EXACT, *stages(2), *store, "--kv-cache-memory", "320K", "--max-model-len", 128) as server:
                seen = "penstock:kv_store_read_blocks_total" if store else "vllm:num_preemptions_total"
                for _ in range(5):  # who waits for whom is not the same in each run
                    self.assertEqual(completions(server, bodies), wanted)
                    if server.metric(seen) > 0:
                        break
                self.assertGreater(server.metric(seen), 0)
                self.assertEqual(server.stop(), 0, server.log())

    def test_prefixes_are_kept_on_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            args = (*EXACT, *stages(2), "--kv-store", folder)
            with Server(*args) as server:
                first = server.generate(LONG).json()
                self.assertEqual(server.stop(), 0, server.log())
            with Server(*args) as server:
                self.assertEqual(server.generate(LONG).json()["text"], first["text"])
                self.assertGreater(server.metric("penstock:prefix_cache_hits_total"), 16)

    # Two stages, each of two ranks that share its layers.
    def test_with_tensor_parallelism(self):
        args = ("generate", "-m", LARGER_MODEL, "--temperature", 0, "--max-tokens", 60, "--prompt", CLEAR, "--kv-cache-dtype", "f32",
                "--threads", 1)
        self.assertEqual(run(*args, *stages(2, 2)).stdout, run(*args).stdout)
        with Server(*EXACT, "--tensor-parallel-size", 2, model=LARGER_MODEL) as two:
            wanted = completions(two, GREEDY + OTHERS)
        with Server(*EXACT, *stages(2, 2), model=LARGER_MODEL) as four:
            self.assertEqual(len(children(four.process)), 3)
            self.assertEqual(completions(four, GREEDY + OTHERS), wanted)
            self.assertEqual(four.stop(), 0, four.log())

    # Whatever comes and goes, what stays is what one process gives.
    def test_requests_that_come_and_go(self):
        chance = random.Random(7)
        with Server(*EXACT, *stages(2), "--max-num-seqs", 4, "--kv-cache-memory", "2M") as server:
            wanted = server.generate(max_tokens=30).body
            for _ in range(12):
                socks = [server.stream({"prompt": chance.choice(PROMPTS), "max_tokens": 200, "stream": True, "ignore_eos": True},
                                       path="/v1/completions") for _ in range(chance.randrange(6))]
                time.sleep(chance.random() * 0.1)
                for sock in socks:
                    sock.close()
                self.assertEqual(server.generate(max_tokens=30).json()["text"], json.loads(wanted)["text"])
            self.assertEqual(server.stop(), 0, server.log())


class Faults(unittest.TestCase):
    def served(self, victim, number):
        """A server under load of whose three stages one gets a signal; victim -1: rank 0, which is the server."""
        with slow_server(*stages(3)) as server:
            ranks = children(server.process)
            self.assertEqual(len(ranks), 2)
            socks = [server.stream({"prompt": prompt, "max_tokens": 400, "stream": True, "ignore_eos": True}) for prompt in PROMPTS[:3]]
            for sock in socks:
                read_until(sock, b"data:")
            killed = server.process.pid if victim < 0 else ranks[victim]
            os.kill(killed, number)
            begin = time.monotonic()
            if victim >= 0:
                self.assertEqual(server.process.wait(ENDS_WITHIN * SLOW), 1, server.log())
                for sock in socks:
                    tail = b""
                    while part := sock.recv(65536):
                        tail += part
                    self.assertIn(b'"error"', tail)
                    self.assertIn(b"rank ", tail)
                self.assertIn(f"process {killed}", server.log())
            still = [rank for rank in ranks if number != signal.SIGSTOP or rank != killed]
            self.assertTrue(wait_for(lambda: not any(map(is_alive, still)), ENDS_WITHIN * SLOW))
            self.assertLess(time.monotonic() - begin, ENDS_WITHIN * SLOW)
            if victim < 0:
                server.process.kill()
                server.process.wait()
            self.assertFalse(listens(server.port))
            for rank in ranks:
                if is_alive(rank):
                    os.kill(rank, signal.SIGKILL)

    def test_a_killed_stage(self):
        self.served(0, signal.SIGKILL)
        self.served(1, signal.SIGKILL)

    def test_a_stopped_stage(self):
        self.served(0, signal.SIGSTOP)
        self.served(1, signal.SIGSTOP)

    def test_a_killed_server(self):
        self.served(-1, signal.SIGKILL)

    def test_a_stopped_server(self):
        self.served(-1, signal.SIGSTOP)

    def test_a_killed_stage_of_an_idle_server(self):
        with Server(*stages(2), "--threads", 1) as server:
            os.kill(children(server.process)[0], signal.SIGKILL)
            self.assertEqual(server.process.wait(ENDS_WITHIN * SLOW), 1)
            self.assertIn("was ended by signal 9", server.log())

    def test_what_cannot_be_is_refused(self):
        cases = {
            ("--pipeline-parallel-size", 0): "pipeline_parallel_size: expected at least 1, got 0",
            ("--pipeline-parallel-size", 33, "--tensor-parallel-size", 2):
                "tensor_parallel_size times pipeline_parallel_size: expected 1 to 64, got 66",
            ("--pipeline-parallel-size", 60): "pipeline_parallel_size 60: expected at most",
            ("--pipeline-parallel-size", 2, "--spec", "early-exit"): "spec early-exit: the model was not trained with an exit",
        }
        for args, message in cases.items():
            done = subprocess.run([PROGRAM, "generate", "-m", str(MODEL), *map(str, args)], capture_output=True, text=True, timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)

    # What their stages give one another behind the exit is not what the last one takes.
    def test_an_exit_among_layers_with_features_of_their_own(self):
        for name, message in (("gemma3n_apart", "gemma3n"), ("gemma4_full", "gemma4")):
            args = ("bench", "-m", SOURCE / "tests" / "golden" / "models" / name, "-t", 1, "-p", 8, "-n", 4, "-r", 1, "--no-roofline",
                    *stages(2), "--spec", "early-exit", "--spec-exit-layer")
            done = subprocess.run([PROGRAM, *map(str, args), "1"], capture_output=True, text=True, timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"spec early-exit: {message} gives other features to each layer, and those of layer 1 are not with the output matrix", done.stderr)
            run(*args, 2)  # in the last stage


@unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
class Mpi(unittest.TestCase):
    def serve(self, n, *args, tensor=1, **kwargs):
        from mpi_e2e import ENVIRONMENT, mpirun
        return Server(*stages(n, tensor), *args, launcher=mpirun(n * tensor), env={**ENVIRONMENT, **kwargs.pop("env", {})}, **kwargs)

    def test_bits_of_one_process(self):
        from mpi_e2e import ranks_of
        with Server(*EXACT, model=LARGER_MODEL) as one:
            wanted = completions(one, GREEDY + OTHERS)
        for n in (2, 3):
            with self.serve(n, *EXACT, model=LARGER_MODEL) as server:
                self.assertEqual(completions(server, GREEDY + OTHERS), wanted)
                self.assertEqual(len(ranks_of(server)), n)
                os.kill(ranks_of(server)[0], signal.SIGTERM)  # rank 0 ends the run in good order
                self.assertEqual(server.process.wait(60 * SLOW), 0, server.log())

    def test_stages_of_two_ranks(self):
        from mpi_e2e import ranks_of
        with Server(*EXACT, "--tensor-parallel-size", 2) as two:
            wanted = completions(two, GREEDY)
        with self.serve(2, *EXACT, tensor=2) as server:
            self.assertEqual(completions(server, GREEDY), wanted)
            self.assertEqual(len(ranks_of(server)), 4)

    def test_a_stage_that_ends(self):
        from mpi_e2e import ranks_of
        for victim, number in ((0, signal.SIGKILL), (1, signal.SIGKILL), (2, signal.SIGKILL), (1, signal.SIGSTOP)):
            with self.serve(3, "--threads", 1, model=LARGER_MODEL, env=SLOW_KERNELS) as server:
                ranks = ranks_of(server)
                sock = server.stream({"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "ignore_eos": True})
                read_until(sock, b"data:")
                os.kill(ranks[victim], number)
                begin = time.monotonic()
                self.assertNotEqual(server.process.wait(ENDS_WITHIN * SLOW), 0, server.log())
                self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks)), ENDS_WITHIN * SLOW))
                self.assertLess(time.monotonic() - begin, ENDS_WITHIN * SLOW)
                self.assertFalse(listens(server.port))
                if number == signal.SIGSTOP:
                    self.assertIn(f"rank {victim} of 3 has shown no life", server.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
