#!/usr/bin/env python3
"""--experts-offload: the same tokens with experts in a file, with less memory than the model has, and what is refused. PENSTOCK is the
program's path, PENSTOCK_SOURCE the source tree."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from live_server import Server

PROGRAM = os.environ["PENSTOCK"]
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
MIB = 1 << 20
DIM, FFN, EXPERTS, LAYERS, VOCAB = 256, 1024, 64, 4, 256
EXPERT_BYTES = LAYERS * EXPERTS * 3 * DIM * FFN * 2
LIMIT = 256 * MIB  # of memory, where it is limited: a good half of the experts
ARGS = ("generate", "-p", "Once upon a time", "-n", 12, "--temperature", 0, "--ignore-eos", "--json", "-t", 2, "--kv-cache-memory", "4M",
        "--max-num-seqs", 1, "--max-num-batched-tokens", 64, "--batch-invariant")


def bytes_alphabet():
    """The characters by which byte-level tokenizers call the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(byte if byte in plain else next(extra)) for byte in range(256)]


def write_mixture(folder):
    """A random mixture of experts in BF16, as Mixtral's checkpoints are, with a tokenizer of bytes."""
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,), "lm_head.weight": (VOCAB, DIM)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (DIM,), at + "post_attention_layernorm.weight": (DIM,),
                       at + "block_sparse_moe.gate.weight": (EXPERTS, DIM)})
        shapes.update({at + f"self_attn.{name}_proj.weight": (DIM, DIM) for name in "qkvo"})
        for e in range(EXPERTS):
            expert = at + f"block_sparse_moe.experts.{e}."
            shapes.update({expert + "w1.weight": (FFN, DIM), expert + "w3.weight": (FFN, DIM), expert + "w2.weight": (DIM, FFN)})
    header, size = {}, 0
    for name, shape in shapes.items():
        n_bytes = 2 * int.__mul__(*shape) if len(shape) == 2 else 2 * shape[0]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [size, size + n_bytes]}
        size += n_bytes
    signs = bytes(0x3D if byte % 2 else 0xBD for byte in range(256))  # numbers of 0.03 to 0.12, of both signs
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in header.items():
            n = (tensor["data_offsets"][1] - tensor["data_offsets"][0]) // 2
            values = bytearray(os.urandom(2 * n))
            values[1::2] = b"\x3f" * n if len(tensor["shape"]) == 1 else values[1::2].translate(signs)
            file.write(values)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": DIM, "intermediate_size": FFN, "vocab_size": VOCAB,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}))
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(bytes_alphabet())}, "merges": []}}))


class LimitedMemory:
    """A control group, of version 2 or 1, with a limit of memory. `why` says why there is none."""

    def __init__(self, limit):
        self.folder, self.why = None, "no memory limit can be set: there are no control groups"
        for root, name in ((pathlib.Path("/sys/fs/cgroup"), "memory.max"), (pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")):
            folder = root / f"penstock-test-{os.getpid()}"
            if not (root / "cgroup.procs").exists():  # no hierarchy, or one of another version
                continue
            try:
                folder.mkdir()
                if not (folder / name).exists():
                    raise OSError(f"{folder} has no {name}")
                (folder / name).write_text(str(limit))
                self.folder = folder
                swap = folder / "memory.swap.max"
                if swap.exists():
                    swap.write_text("0")
                return
            except OSError as error:
                self.why = f"no memory limit can be set: {error}"
                if folder.exists():
                    folder.rmdir()

    def join(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.folder is not None:
            self.folder.rmdir()


class Offload(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.model = cls.folder / "mixture"
        cls.model.mkdir()
        write_mixture(cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_it(self, *args, cache="cache", join=None, model=None):
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / cache), "PENSTOCK_PACKED_CACHE": ""}
        return subprocess.run([PROGRAM, *map(str, ARGS), "-m", str(model or self.model), *map(str, args)], capture_output=True, timeout=300,
                              env=env, preexec_fn=join)

    def tokens(self, *args, **how):
        done = self.run_it(*args, **how)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)["tokens"]

    def test_same_tokens(self):
        wanted = self.tokens()
        self.assertEqual(len(wanted), 12)
        self.assertEqual(self.tokens("--experts-offload"), wanted)
        self.assertEqual(list((self.folder / "cache" / "penstock").iterdir()), [], "the file has a name")
        # The first start writes the packed weights, the second maps them.
        for _ in range(2):
            self.assertEqual(self.tokens("--experts-offload", "--packed-cache", self.folder / "packed"), wanted)
        self.assertEqual(len(list((self.folder / "packed").iterdir())), 1)
        self.assertEqual(self.tokens("--experts-offload", "--tensor-parallel-size", 2), self.tokens("--tensor-parallel-size", 2))
        self.assertEqual(self.tokens("--experts-offload", "--pipeline-parallel-size", 2), wanted)

    def test_less_memory_than_experts(self):
        wanted = self.tokens()
        group = LimitedMemory(LIMIT)
        if group.folder is None:
            self.skipTest(group.why)
        try:
            self.assertLess(LIMIT, 0.7 * EXPERT_BYTES)
            self.assertNotEqual(self.run_it(join=group.join).returncode, 0, "the limit does not hold")
            self.assertEqual(self.tokens("--experts-offload", join=group.join), wanted)
            for _ in range(2):
                self.assertEqual(self.tokens("--experts-offload", "--packed-cache", self.folder / "limited", join=group.join), wanted)
        finally:
            group.remove()

    def test_served(self):
        env = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        wanted = self.tokens()
        with Server("--experts-offload", "--kv-cache-dtype", "f16", "--batch-invariant", "-t", 2, model=self.model, env=env) as server:
            body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
            reply = server.post("/v1/completions", body).json()
            self.assertEqual(reply["usage"]["completion_tokens"], 12)
            self.assertTrue(any(name.startswith("penstock:expert_bytes_read_total") for name in server.metrics()))
            self.assertEqual(reply["choices"][0].get("token_ids", wanted), wanted)
            self.assertEqual(server.stop(), 0, server.log())

    def test_refused(self):
        dense = SOURCE / "models" / "penstock-stories-1m-q8_0.gguf"
        (self.folder / "file").write_text("")
        for args, how, code, text in (((), {"model": dense}, 2, "experts_offload: "),
                                      (("--packed-cache", self.folder / "file" / "x"), {}, None, f"experts_offload: folder {self.folder}/file/x")):
            done = self.run_it("--experts-offload", *args, **how)
            if code is not None:
                self.assertEqual(done.returncode, code, done.stderr)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, b"")
            self.assertIn(text, done.stderr.decode())

    def test_full_disk(self):
        def small_files():
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 * MIB, 64 * MIB))
        done = self.run_it("--experts-offload", join=small_files)
        self.assertEqual((done.returncode != 0, done.stdout), (True, b""))
        self.assertGreaterEqual(done.returncode, 0, "killed by a signal")
        self.assertIn(f"experts_offload: folder {self.folder}/cache/penstock: ", done.stderr.decode())
        self.assertIn(f"limit {64 * MIB}", done.stderr.decode())

    def test_places_on_the_cpus_backend(self):
        """llama.cpp's flags, of which each is true where the CPU has all experts; what is not is refused by name."""
        wanted = self.tokens()
        self.assertEqual(self.tokens("-ncmoe", 1, "-cmoe", "-ot", "blk.0.*exps=CPU", "-ot", "exps=CPU"), wanted)
        for value, words in (("exps=CUDA0", "expected backend cuda"), ("ffn_norm=CPU", "finds blk.0.ffn_norm.weight too"),
                             ("exps", "expected PATTERN=CPU or PATTERN=CUDA0")):
            done = self.run_it("--override-tensor", value)
            self.assertEqual(done.returncode, 2)
            self.assertIn("override_tensor: ", done.stderr.decode())
            self.assertIn(words, done.stderr.decode())

    def test_plan(self):
        def plan(*args):
            done = subprocess.run([PROGRAM, "plan", *map(str, args), "--memory", "24GiB"], capture_output=True, timeout=60)
            return done.returncode, done.stdout, done.stderr.decode()
        for model in (("-m", self.model), ("--shape", "deepseek-v3", "--type", "q4_k")):
            whole, mapped = (json.loads(plan(*model, "--json", *flags)[1]) for flags in ((), ("--experts-offload",)))
            self.assertEqual(whole["offloaded_bytes"], 0)
            self.assertEqual(whole["weight_bytes"], mapped["weight_bytes"])
            kept = mapped["weight_bytes"] - mapped["offloaded_bytes"]
            self.assertEqual(mapped["sequences_that_fit"], max(0, (24 << 30) - kept) // mapped["kv_bytes_per_sequence"])
            self.assertGreater(mapped["offloaded_bytes"], 0.9 * mapped["weight_bytes"])
        self.assertEqual((whole["sequences_that_fit"], mapped["sequences_that_fit"] > 0), (0, True))
        self.assertIn("experts in a file", plan("-m", self.model, "--experts-offload")[1].decode())
        for args in (("--shape", "llama-3.2-1b"), ("--shape", "deepseek-v3", "--tensor-parallel-size", 2)):
            code, out, err = plan(*args, "--experts-offload")
            self.assertEqual((code, out), (2, b""))
            self.assertIn("--experts-offload", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
