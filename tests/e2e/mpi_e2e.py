#!/usr/bin/env python3
"""Ranks that mpirun has started: the same bits as ranks of one host, and an end for all when one of them ends."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SLOW_KERNELS, SOURCE, Server, in_threads, read_until, wait_for  # noqa: E402
from two_hosts import TwoHosts, available  # noqa: E402
from ranks_e2e import ENDS_WITHIN, PROMPTS, is_alive, listens  # noqa: E402

# Root as CI is; more ranks than CPUs; no binding, so that Penstock shares the CPUs out.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
LONG = "Once upon a time there was a little girl who loved to play with her dog in the big green park. " * 6


def mpirun(n):
    return ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(n)]


def run(n, *args, code=0):
    done = subprocess.run([*mpirun(n), PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=120 * SLOW, stdin=subprocess.DEVNULL,
                          env={**os.environ, **ENVIRONMENT})
    assert done.returncode == code, (done.returncode, done.stderr)
    return done


def serve(n, *args, env=None, **kwargs):
    return Server("--tensor-parallel-size", n, "--threads", 1, *args, launcher=mpirun(n), env={**ENVIRONMENT, **(env or {})}, **kwargs)


def ranks_of(server):
    """Processes of the ranks that mpirun has started, in their order."""
    ranks = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for entry in environment:
            if entry.startswith(b"OMPI_COMM_WORLD_RANK=") and int(fields[1]) == server.process.pid:
                ranks[int(entry.split(b"=")[1])] = int(path.name)
    return [ranks[rank] for rank in sorted(ranks)]


def segments_of(ranks):
    """Files by which ranks of one host show each other what they have."""
    maps = "".join(pathlib.Path(f"/proc/{rank}/maps").read_text() for rank in ranks)
    return {pathlib.Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if "segment" in line.rsplit("/", 1)[-1]}


def answers(server):
    """Greedy texts with the logarithms of their chances, all at once: every bit of the sums shows."""
    def one(i):
        body = {"prompt": [*PROMPTS, LONG][i], "max_tokens": 24, "temperature": 0, "logprobs": 3}
        return server.post("/v1/completions", body).json()["choices"][0]
    return in_threads(len(PROMPTS) + 1, one)


class Conformance(unittest.TestCase):
    def test_what_every_communicator_does(self):
        program = pathlib.Path(os.environ["PENSTOCK_BUILD"]) / "tests" / "tests_parallel"
        for n in (2, 3):
            done = subprocess.run([*mpirun(n), program, "--gtest_filter=Communicators.MpiConforms", "--gtest_color=no"], capture_output=True, text=True,
                                  timeout=60 * SLOW, stdin=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count("[  PASSED  ] 1 test"), n, done.stdout)
            self.assertNotIn("SKIPPED", done.stdout)


class SameBits(unittest.TestCase):
    def test_generate(self):
        args = ("generate", "-m", MODEL, "--temperature", 0, "--max-tokens", 60, "--prompt", PROMPTS[0], "--kv-cache-dtype", "f32")
        one = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, check=True)
        for n in (2, 3):
            self.assertEqual(run(n, *args, "--tensor-parallel-size", n, "--threads", 1).stdout, one.stdout, n)

    def test_started_by_penstock(self):
        args = [PROGRAM, "generate", "-m", str(MODEL), "--temperature", "0", "--max-tokens", "40", "--prompt", PROMPTS[0]]
        one = subprocess.run(args, capture_output=True, text=True, check=True)
        several = [*args, "--tensor-parallel-size", "2", "--threads", "1"]
        for hosts in (["--hosts", "localhost"], ["--hosts=localhost"]):
            two = subprocess.run([*several, *hosts], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLOW,
                                 env={**os.environ, **ENVIRONMENT})
            self.assertEqual((two.returncode, two.stdout), (0, one.stdout), two.stderr)
        wrong = subprocess.run([*several, "--hosts", "a,b,c"], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--hosts: expected --tensor-parallel-size times --pipeline-parallel-size to be a multiple of the 3 hosts, got 2", wrong.stderr)
        none = subprocess.run([*several, "--hosts", "localhost"], capture_output=True, text=True, timeout=60 * SLOW, env={"PATH": "/nowhere"})
        self.assertIn("mpirun cannot be started", none.stderr)

    def test_as_srun_tells_it(self):
        """srun --mpi=pmix gives a rank in PMIX_RANK, as mpirun does too, and how many there are in SLURM_NTASKS; it has no names of OpenMPI's own."""
        args = [PROGRAM, "generate", "-m", MODEL, "--temperature", 0, "--max-tokens", 40, "--prompt", PROMPTS[0]]
        one = subprocess.run(list(map(str, args)), capture_output=True, text=True, check=True)
        names = [word for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE") for word in ("-u", f"OMPI_COMM_WORLD_{name}")]
        for n, ranks, code in ((2, 2, 0), (2, 3, 2)):
            done = subprocess.run([*mpirun(n), "env", *names, f"SLURM_NTASKS={n}", *map(str, args), "--threads", "1", "--tensor-parallel-size", str(ranks)],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLOW, env={**os.environ, **ENVIRONMENT})
            self.assertEqual(done.returncode, code, done.stderr)
            if code == 0:
                self.assertEqual(done.stdout, one.stdout)
            else:
                self.assertIn("MPI has started 2 ranks, expected as many, got 3", done.stderr)

    def test_several_engines_are_refused(self):
        done = subprocess.run([*mpirun(2), PROGRAM, "generate", "-m", MODEL, "--prompt", "a", "--tensor-parallel-size", "2", "--data-parallel-size", "2"],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLOW, env={**os.environ, **ENVIRONMENT})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("data_parallel_size 2: ranks that MPI has started are of one engine", done.stderr)

    def test_served(self):
        for model, n in ((MODEL, 2), (LARGER_MODEL, 2), (MODEL, 3)):
            with Server("--tensor-parallel-size", n, "--threads", 1, "--batch-invariant", model=model) as server:
                wanted = answers(server)
            with serve(n, "--batch-invariant", model=model) as server:
                self.assertEqual(answers(server), wanted)
                self.assertEqual(len(ranks_of(server)), n)
                for rank in range(n):  # others than rank 0 say it with their signs of life
                    self.assertTrue(wait_for(lambda: server.metric("penstock:rank_bytes_total", rank=rank) > 0), rank)
                    self.assertGreater(server.metric("penstock:rank_resident_memory_bytes", rank=rank), 1 << 20)
                os.kill(ranks_of(server)[0], signal.SIGTERM)  # rank 0 ends the run in good order
                self.assertEqual(server.process.wait(60 * SLOW), 0, server.log())

    # Attention of every kind, experts, states and encoders: what sums give is the same by either way, to the bit.
    def test_vectors_of_architectures(self):
        golden = SOURCE / "tests" / "golden"
        with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
            json.dump([[1 + (i * 7 + k) % 37 for k in range(2 + i * 5)] for i in range(5)], ids)
            ids.flush()
            for name in ("models/gemma3n", "models/deepseek_v3", "models/gpt_oss", "models/qwen3_next", "models/mamba2", "models/lfm2", "encoders/modernbert",
                         "encoders/roberta"):
                for grid in (("--tensor-parallel-size", 2), ("--tensor-parallel-size", 3), ("--pipeline-parallel-size", 2)):
                    args = ["embed", "-m", golden / name, "--ids", ids.name, "--json", "-t", 1, "--pooling", "mean", "--no-normalize", *grid]
                    here = subprocess.run(list(map(str, [PROGRAM, *args])), capture_output=True, text=True, timeout=60 * SLOW)
                    self.assertEqual(here.returncode, 0, here.stderr)
                    self.assertEqual(run(grid[1], *args).stdout, here.stdout, (name, grid))

    # Half the bytes for sums, the same on every way: short ones and (of the prompts together) long ones.
    def test_sums_in_bf16(self):
        def asked(server):
            """Bytes of a prompt of 250 tokens, nearly all for sums; answers to several requests."""
            server.generate("One day Lily went out. " * 42, max_tokens=1)
            return server.metric("penstock:rank_bytes_total", rank=0), answers(server)

        with Server("--tensor-parallel-size", 2, "--threads", 1, "--batch-invariant") as server:
            exact = asked(server)
        args = ("--batch-invariant", "--rank-wire-dtype", "bf16")
        with Server("--tensor-parallel-size", 2, "--threads", 1, *args) as server:
            half, wanted = asked(server)
        self.assertNotEqual(wanted, exact[1])
        self.assertLess(half, 0.6 * exact[0])
        with serve(2, *args) as server:
            self.assertEqual(answers(server), wanted)
            os.kill(ranks_of(server)[0], signal.SIGTERM)
            self.assertEqual(server.process.wait(60 * SLOW), 0, server.log())


class Faults(unittest.TestCase):
    def served(self, victim, number):
        """A server under load whose rank gets a signal."""
        with serve(3, model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            ranks = ranks_of(server)
            self.assertEqual(len(ranks), 3)
            sock = server.stream({"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "ignore_eos": True})
            read_until(sock, b"data:")
            segments = segments_of(ranks)
            self.assertGreaterEqual(len(segments), 3)
            os.kill(ranks[victim], number)
            begin = time.monotonic()
            self.assertNotEqual(server.process.wait(ENDS_WITHIN * SLOW), 0, server.log())
            self.assertTrue(wait_for(lambda: not any(map(is_alive, ranks)), ENDS_WITHIN * SLOW))
            self.assertLess(time.monotonic() - begin, ENDS_WITHIN * SLOW)
            self.assertFalse(listens(server.port))
            self.assertEqual([str(path) for path in segments if path.exists()], [])
            tail = b""
            try:
                while part := sock.recv(65536):
                    tail += part
            except ConnectionError:
                pass
            return tail, server.log()

    # mpirun itself ends the others.
    def test_a_killed_rank(self):
        for victim in (0, 2):
            self.served(victim, signal.SIGKILL)

    # mpirun does not see that it is stopped; rank 0 does.
    def test_a_stopped_rank(self):
        tail, log = self.served(1, signal.SIGSTOP)
        self.assertIn(b"rank 1 of 3 has shown no life", tail)
        self.assertIn("rank 1 of 3 has shown no life", log)

    def test_another_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            shutil.copy(MODEL, path)
            # Rank 1 sees a folder of its own in the place of this one, with another file: a host whose copy is not the same.
            wrapper = pathlib.Path(folder) / "run"
            other = pathlib.Path(folder) / "other"
            other.mkdir()
            shutil.copy(LARGER_MODEL, other / "model.gguf")
            wrapper.write_text(f"""#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec unshare -m sh -c 'mount --bind {other}/model.gguf {path}; exec "$0" "$@"' {PROGRAM} "$@"; fi
exec {PROGRAM} "$@"
""")
            wrapper.chmod(0o755)
            if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
                self.skipTest("needs mounts of its own (root)")
            done = subprocess.run([*mpirun(2), wrapper, "generate", "-m", path, "--prompt", "Once", "--tensor-parallel-size", "2"],
                                  capture_output=True, text=True, timeout=60 * SLOW, stdin=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT})
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, "rank 1 of 2|another model")

    def test_what_cannot_be_is_refused(self):
        for args, message in ((("inspect", "-m", MODEL), "inspect: MPI has started 2 processes: expected a command with --tensor-parallel-size 2"),
                              (("generate", "-m", MODEL, "--prompt", "a"), "expected a command with --tensor-parallel-size 2"),
                              (("generate", "-m", MODEL, "--prompt", "a", "--tensor-parallel-size", 3),
                               "tensor_parallel_size times pipeline_parallel_size: MPI has started 2 ranks, expected as many, got 3")):
            done = subprocess.run([*mpirun(2), PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=60 * SLOW,
                                  stdin=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)


@unittest.skipUnless(available(), "needs network namespaces (root, iproute2)")
class Hosts(unittest.TestCase):
    """Two hosts that talk by TCP."""
    def test_generate(self):
        args = [PROGRAM, "generate", "-m", MODEL, "--temperature", 0, "--max-tokens", 60, "--prompt", LONG, "--tensor-parallel-size", 2,
                "--threads", 1]
        here = subprocess.run(list(map(str, args)), capture_output=True, text=True, check=True)
        with TwoHosts() as hosts:
            two = subprocess.run(hosts.mpirun(*args), capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=60 * SLOW, env={**os.environ, **ENVIRONMENT})
        self.assertEqual((two.returncode, two.stdout), (0, here.stdout), two.stderr)

    def test_a_cut_cable(self):
        args = [PROGRAM, "generate", "-m", LARGER_MODEL, "--temperature", 0, "--max-tokens", 2000, "--max-model-len", 2048, "--ignore-eos",
                "--prompt", "Once", "--tensor-parallel-size", 2, "--threads", 1]
        # Text and messages apart: a warning may come between two words.
        with tempfile.TemporaryDirectory() as folder, TwoHosts() as hosts:
            text, messages = (pathlib.Path(folder) / name for name in ("text", "messages"))
            with text.open("w") as stdout, messages.open("w") as stderr:
                process = subprocess.Popen(hosts.mpirun(*args), stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL,
                                           env={**os.environ, **ENVIRONMENT, **SLOW_KERNELS})
            self.assertTrue(wait_for(lambda: "Once upon" in text.read_text(), 60 * SLOW), text.read_text() + messages.read_text())
            ranks = [hosts.pids(host, "penstock") for host in (0, 1)]
            self.assertTrue(all(ranks), ranks)
            hosts.cut()
            begin = time.monotonic()
            self.assertTrue(wait_for(lambda: not any(is_alive(rank) for rank in sum(ranks, [])), ENDS_WITHIN * SLOW))
            self.assertLess(time.monotonic() - begin, ENDS_WITHIN * SLOW)
            process.kill()  # it waits for its daemon on the other host
            process.wait()
            self.assertIn("rank 1 of 2 has shown no life", messages.read_text())


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun (Debian: openmpi-bin)")
        sys.exit(0)
    unittest.main(verbosity=2)
