#!/usr/bin/env python3
"""penstock plan of several ranks: its numbers against sums that are done here. PENSTOCK is the program's path."""
import json
import math
import os
import subprocess
import unittest

PROGRAM = os.environ["PENSTOCK"]
GIB = 1 << 30
LLAMA_70B = ("plan", "--shape", "llama-3.1-70b", "--type", "bf16", "--json")


def penstock(*args):
    """(exit code, stdout bytes, stderr text)"""
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def penstock_json(*args):
    code, out, err = penstock(*args)
    assert code == 0, f"{args}: exit {code}: {err}"
    return json.loads(out)


def ranks(*args):
    return penstock_json(*args)["ranks"]


class Split(unittest.TestCase):
    """Prefill on another machine: bytes of a prompt over rates."""
    SHAPE = ("plan", "--shape", "llama-3.1-70b", "--type", "q4_k", "--tokens", 4096)

    def split(self, *args):
        return penstock_json(*self.SHAPE, "--json", *args)["split"]

    def test_times(self):
        found = self.split("--link-rate", "1GiB", "--disk-rate", "2GiB", "--prefill-rate", 1000)
        # 80 layers of 8 heads of 128, K and V, f16
        self.assertEqual((found["tokens"], found["bytes"]), (4096, 4096 * 2 * 80 * 8 * 128 * 2))
        self.assertAlmostEqual(found["link_seconds"], found["bytes"] / GIB)
        self.assertAlmostEqual(found["disk_seconds"], found["bytes"] / GIB / 2)
        self.assertAlmostEqual(found["read_seconds"], 1.25)
        self.assertAlmostEqual(found["prefill_seconds"], 4.096)
        self.assertAlmostEqual(found["later_seconds"], 1.25)
        self.assertAlmostEqual(found["most_prefill_tokens_per_second"], 4096 / 1.25 / 2)
        self.assertTrue(found["pays"])
        fast = self.split("--link-rate", "1GiB", "--prefill-rate", 8192)
        self.assertAlmostEqual(fast["later_seconds"], 1.25 + 0.75)  # what is not written yet, and all of it read
        self.assertFalse(fast["pays"])
        smaller = self.split("--link-rate", "1GiB", "--kv-cache-dtype", "int8")
        self.assertTrue(0.5 < smaller["link_seconds"] / found["link_seconds"] < 0.55)
        self.assertNotIn("split", penstock_json(*self.SHAPE, "--json"))

    def test_text_and_refusals(self):
        out = penstock(*self.SHAPE, "--link-rate", "1GiB", "--prefill-rate", 1000)[1].decode()
        self.assertRegex(out, r"handing over a prompt +1\.25 GiB for 4096 tokens: 1\.25 s over a link of 1GiB/s")
        self.assertRegex(out, r"prefill elsewhere +pays: computing takes 4\.1 s there, and the first token comes 1\.25 s later")
        self.assertRegex(out, r"pays up to 1638 prompt tokens a second")
        for args, words in ((("--prefill-rate", 10), "--prefill-rate: expected --link-rate or --disk-rate"),
                            (("--link-rate", "much"), "--link-rate: expected a size"), (("--disk-rate", "0"), "above 0, got 0")):
            with self.subTest(words=words):
                code, got, err = penstock(*self.SHAPE, *args)
                self.assertEqual((code, got), (2, b""))
                self.assertIn(words, err)


class Gpu(unittest.TestCase):
    QWEN = ("plan", "--shape", "qwen3-30b-a3b", "--type", "q4_k", "--gpu-gbps", 500, "--host-gbps", 50, "--tokens", 4096, "--json")

    def plan(self, *args):
        return penstock_json(*self.QWEN, *args)["gpu"]

    def test_what_does_not_fit_is_the_cpus(self):
        whole, some, few = (self.plan("--gpu-memory", memory) for memory in ("80GiB", "14GiB", "8GiB"))
        self.assertEqual((whole["cpu_expert_layers"], whole["cpu_expert_bytes"], whole["fits"]), (0, 0, True))
        self.assertTrue(0 < some["cpu_expert_layers"] < few["cpu_expert_layers"] < 48)
        for row in (some, few):
            self.assertTrue(row["fits"])
            self.assertLess(row["weight_bytes"], row["memory_bytes"])
            self.assertEqual(row["weight_bytes"] + row["cpu_expert_bytes"], whole["weight_bytes"])
        self.assertTrue(whole["tokens_per_second"] > some["tokens_per_second"] > few["tokens_per_second"] > few["tokens_per_second_cpu_moe"])
        self.assertFalse(self.plan("--gpu-memory", "512MiB")["fits"])

    def test_copies_of_experts(self):
        rows = [self.plan("--gpu-memory", "8GiB", "--cpu-moe", *flag) for flag in ((), ("--expert-cache-memory", 0), ("--expert-cache-memory", 1 << 30))]
        self.assertTrue(1 << 30 < rows[0]["expert_cache_bytes"] < 4 << 30, rows[0])
        self.assertEqual([row["expert_cache_bytes"] for row in rows[1:]], [0, 1 << 30])
        self.assertEqual(self.plan("--gpu-memory", "80GiB")["expert_cache_bytes"], 0)

    def test_predicted_is_what_reading_takes(self):
        asked = self.plan("--gpu-memory", "80GiB", "--n-cpu-moe", 12)
        all_layers = self.plan("--gpu-memory", "80GiB", "--cpu-moe")
        self.assertEqual((asked["cpu_expert_layers"], all_layers["cpu_expert_layers"]), (12, 48))
        self.assertEqual(asked["cpu_expert_bytes"] * 4, all_layers["cpu_expert_bytes"])
        # 8 of 128 experts in each of 12 layers by the CPU in place of the GPU, and 30 us a layer besides what the link takes.
        read = asked["cpu_expert_bytes"] * 8 / 128
        slower = 1 / asked["tokens_per_second"] - 1 / self.plan("--gpu-memory", "80GiB")["tokens_per_second"]
        self.assertAlmostEqual(slower, read / 50e9 - read / 500e9 + 12 * (30e-6 + 4 * (2 * 2048 + 128) / 25e9), places=9)
        self.assertAlmostEqual(asked["tokens_per_second_cpu_moe"], all_layers["tokens_per_second"])

    def test_refusals(self):
        for args, words in ((("--gpu-memory", "much"), "--gpu-memory: expected a size"),
                            (("--gpu-memory", "8GiB", "--override-tensor", "attn=CPU"), "override_tensor: attn=CPU: finds blk.0.attn_")):
            code, out, err = penstock(*self.QWEN, *args)
            self.assertEqual((code, out), (2, b""))
            self.assertIn(words, err)
        text = penstock(*self.QWEN[:-1], "--gpu-memory", "8GiB")[1].decode()
        self.assertIn("experts on the CPU      layers 0-", text)


class Ranks(unittest.TestCase):
    def test_tensor_parallel(self):
        plan = ("plan", "--shape", "llama-3.1-70b", "--type", "bf16", "--tensor-parallel-size", "1,2,8,64", "--batch", 4, "--json")
        rows = ranks(*plan, "--memory-gbps", 200)
        self.assertEqual([row["tensor_parallel_size"] for row in rows], [1, 2, 8, 64])
        self.assertEqual([row["sums_per_step"] for row in rows], [0, 161, 161, 161])
        whole = rows[0]
        self.assertAlmostEqual(whole["speedup"], 1)
        self.assertEqual((whole["communication_ms"], whole["bytes_per_token"]), (0, 0))
        # 161 sums of 8,192 floats, and 128,256 / 2 logits.
        self.assertAlmostEqual(rows[1]["bytes_per_token"], 4 * (161 * 8192 + 128256 / 2))
        for row, n in zip(rows[1:], (2, 8, 64)):
            share = row["weight_bytes_per_rank"] * n / whole["weight_bytes_per_rank"]
            self.assertTrue(0.999 < share < (1.3 if n == 64 else 1.01), share)  # KV heads on several ranks, blocks of 256 features
            self.assertLess(row["speedup"], n)
        self.assertGreater(rows[1]["speedup"], 1.9)
        # 8 KV heads on 64 ranks: each has one.
        self.assertEqual(rows[2]["kv_bytes_per_token_per_rank"], rows[3]["kv_bytes_per_token_per_rank"])
        # A step that was measured, and a network between.
        known = penstock_json(*plan, "--step-ms", 1000)["ranks"]
        self.assertAlmostEqual(known[0]["compute_ms"], 1000)
        slow = ("plan", "--shape", "llama-3.1-70b", "--tensor-parallel-size", 8, "--step-ms", 1000, "--link-gbps", 10, "--json")
        for microseconds in (50, 2000):
            row = penstock_json(*slow, "--hosts", 8, "--link-us", microseconds)["ranks"][0]
            self.assertGreater(row["communication_ms"], 161 * 3 * microseconds / 1e3)
        self.assertIn("speed-up", penstock("plan", "--shape", "tiny", "--tensor-parallel-size", 2)[1].decode())
        for wrong in (["2", "--hosts", 2], ["3", "--hosts", 2, "--link-gbps", 1, "--link-us", 1], ["0"], ["2000"],
                      ["2", "--step-ms", -1]):
            code, out, err = penstock("plan", "--shape", "tiny", "--tensor-parallel-size", *wrong)
            self.assertEqual((code, out), (2, b""), wrong)
            self.assertIn("penstock: --", err)

    def test_pipeline(self):
        plan = (*LLAMA_70B, "--memory-gbps", 100, "--tokens", 1024)
        one, four = ranks(*plan, "--pipeline-parallel-size", "1,4")
        self.assertEqual((four["sums_per_step"], four["messages_per_step"]), (0, 4))  # the batch, and three times a stream
        self.assertEqual(four["bytes_per_token"], 4 * 8192)
        # 80 layers of 855,654,400 weights; two tables of 128,256 x 8,192: each stage has 20 layers, more or fewer, and one table at most.
        self.assertAlmostEqual(four["weight_bytes_per_rank"] / (2 * (20 * 855654400 + 128256 * 8192)), 1, delta=0.03)
        self.assertAlmostEqual(four["kv_bytes_per_token_per_rank"] / one["kv_bytes_per_token_per_rank"], 1 / 4, delta=0.02)
        # One sequence goes through one stage after the other; sixteen keep all of them busy.
        self.assertAlmostEqual(four["speedup"], 1, delta=0.001)
        for batch in (4, 16):
            one, four = ranks(*plan, "--pipeline-parallel-size", "1,4", "--batch", batch)
            # Each stage reads its weights for each of four steps.
            self.assertAlmostEqual(four["compute_ms"] / one["compute_ms"], 1, delta=0.06)
        # Where operations are what takes time, four stages do four times as much.
        one, four = ranks(*plan, "--pipeline-parallel-size", "1,4", "--batch", 64, "--rank-tflops", 0.1)
        self.assertGreater(four["speedup"], 3.7)
        known = ranks(*plan, "--pipeline-parallel-size", "1,2", "--batch", 8, "--step-ms", "1=100,4=160,8=240")
        self.assertAlmostEqual(known[0]["step_ms"], 240)
        self.assertAlmostEqual(known[1]["step_ms"], 160, delta=5)  # two steps of four rows, each half as long
        # A link that is slow: 4 messages for a token, that one sequence waits for and many do not.
        link = ("--pipeline-parallel-size", 4, "--hosts", 4, "--link-gbps", 1, "--link-us", 2000)
        alone, many = (ranks(*plan, *link, "--batch", n)[0] for n in (1, 64))
        self.assertGreater(alone["communication_ms"], 8)
        self.assertLess(many["communication_ms"], 1e-6 + 0.02 * many["compute_ms"])

    def test_data_parallel(self):
        plan = (*LLAMA_70B, "--memory-gbps", 100, "--batch", 8, "--tokens", 1024)
        one, two = ranks(*plan, "--data-parallel-size", "1,2")
        self.assertEqual(two["weight_bytes_per_rank"], one["weight_bytes_per_rank"])
        self.assertEqual(two["cache_bytes_per_rank"] * 2, one["cache_bytes_per_rank"])
        self.assertEqual((two["messages_per_step"], two["bytes_per_token"]), (0, 0))
        # Two engines of four sequences each read the weights twice.
        self.assertLess(two["speedup"], 1.1)
        half = ranks(*plan[:-4], "--batch", 4, "--tokens", 1024, "--tensor-parallel-size", 1)[0]
        self.assertAlmostEqual(two["tokens_per_second"], 2 * half["tokens_per_second"])

    def test_mixture_reads_the_experts_that_are_met(self):
        plan = ("plan", "--shape", "deepseek-v3", "--type", "q4_k", "--memory-gbps", 100, "--tensor-parallel-size", 8, "--json")
        times = [ranks(*plan, "--batch", n)[0]["compute_ms"] for n in (1, 16, 1024)]
        self.assertGreater(times[1], 4 * times[0])   # 16 tokens take about 102 of 256 experts
        self.assertLess(times[1], 12 * times[0])
        self.assertLess(times[2], 40 * times[0])     # all of them, and no more than that

    # bench/shaped_links.py holds the same against measurements.
    def test_between_two_hosts(self):
        """Llama 3.2 1B: 33 sums of 2,048 floats for a token, of 16 layers and the embedding; 128,256 / 2 logits."""
        link_ms, gbps = 0.5, 4
        plan = ("plan", "--shape", "llama-3.2-1b", "--tensor-parallel-size", 2, "--hosts", 2, "--link-us", 1e3 * link_ms, "--link-gbps", gbps, "--tokens", 512,
                "--step-ms", "1=20,512=20", "--prompt-tokens", 512, "--json")

        def turn(n_bytes):  # to every rank, in pieces of 1 MiB
            return link_ms * math.ceil(n_bytes / (1048576 - 4096)) + 1e-3 + n_bytes * 8 / gbps * 1e-6

        def total(n_bytes):  # of more than 256 KiB of both each rank sums a half
            return turn(n_bytes) if 2 * n_bytes <= 262144 else 2 * turn(n_bytes / 2)

        command = link_ms + 1e-3
        for batch in (1, 8, 16, 17, 256, 257):
            row, few = (ranks(*plan, "--batch", batch, "--candidates", n)[0] for n in (0, 1))
            sums = command + 33 * total(8192 * batch)
            self.assertAlmostEqual(row["communication_ms"], sums + turn(batch * 2 * 128256), places=6)
            self.assertAlmostEqual(few["communication_ms"], sums + turn(8 * batch), places=6)
            self.assertEqual(row["bytes_per_token"] - few["bytes_per_token"], 2 * 128256 - 8)
        self.assertAlmostEqual(few["prompt_ms"], 10 + command + 33 * total(8192 * 512) + turn(8), delta=0.01)
        # The same in two steps of 256 tokens.
        parts = ranks(*plan, "--candidates", 1, "--max-num-batched-tokens", 256)[0]
        self.assertAlmostEqual(parts["prompt_ms"], 20 + 2 * (command + 33 * total(8192 * 256)) + turn(8), delta=0.1)

    def test_a_prompt_through_stages(self):
        """Parts as the engine cuts them: what is left by twice the stages, at least 64; each takes the stages one after the other."""
        link_ms, gbps, n = 2, 1, 700
        row = ranks("plan", "--shape", "llama-3.2-1b", "--pipeline-parallel-size", 2, "--hosts", 2, "--link-us", 1e3 * link_ms, "--link-gbps", gbps,
                    "--step-ms", "1=1,100=100,1000=1900", "--prompt-tokens", n, "--json")[0]
        # A millisecond for each of the first 100 rows, two for the others, which attend to more. 16 layers of 60.8 M weights, 128,256 x 2,048 of the output matrix, which the last row alone needs:
        # ten layers are as much as six and the matrix.
        layer, table = 2 * 2048 * (2048 + 512) + 3 * 2048 * 8192, 128256 * 2048
        def known(rows):
            return rows + max(0, rows - 100)

        left, ends, done = n, [0, 0], []
        while left:
            part = min(left, max(64, left // 4))
            left -= part
            before = n - left - part
            ms = max(known(part), known(before + part) - known(before))
            every_weight = ms / (16 * layer * part + table)
            ends[0] = max(ends[0], (done[-3] if len(done) > 2 else 0) + link_ms) + 10 * layer * part * every_weight
            n_bytes = 8192 * part
            wire = n_bytes * 8 / gbps * 1e-6
            # What has to be asked for is not taken while the stage computes.
            arrives = max(ends) + 3 * link_ms + wire if n_bytes > 1048576 - 4096 else max(ends[0] + link_ms + wire, ends[1])
            ends[1] = arrives + (6 * layer * part + (0 if left else table)) * every_weight
            done.append(ends[1])
        self.assertAlmostEqual(row["prompt_ms"], done[-1], delta=0.1)
        self.assertNotIn("prompt_ms", ranks("plan", "--shape", "tiny", "--pipeline-parallel-size", 2, "--memory-gbps", 10, "--json")[0])

    def test_all_ways(self):
        machine = ("--hosts", 4, "--link-gbps", 100, "--link-us", 5, "--memory-gbps", 100, "--batch", 16, "--tokens", 1024)
        found = ranks(*LLAMA_70B, "--ranks", 16, *machine)
        ways = {(row["tensor_parallel_size"], row["pipeline_parallel_size"], row["data_parallel_size"]) for row in found}
        self.assertEqual(ways, {(t, p, 16 // t // p) for t in (1, 2, 4, 8, 16) for p in (1, 2, 4, 8, 16) if 16 % (t * p) == 0})
        speeds = [row["tokens_per_second"] for row in found]
        self.assertEqual(speeds, sorted(speeds, reverse=True))
        best = found[0]
        same = ranks(*LLAMA_70B, *machine, *(word for kind in ("tensor", "pipeline", "data")
                                             for word in (f"--{kind}-parallel-size", best[f"{kind}_parallel_size"])))
        self.assertEqual(same, [best])
        # 132 GiB of weights: not on one rank of four that share 192 GiB of a host.
        small = ranks(*LLAMA_70B, "--ranks", 16, *machine, "--memory", "192GiB")
        self.assertTrue(0 < len(small) < len(found))
        self.assertLessEqual(max(row["host_bytes"] for row in small), 192 * GIB)
        code, out, err = penstock(*LLAMA_70B, "--ranks", 16, *machine, "--memory", "8GiB")
        self.assertEqual((code, out), (2, b""))
        self.assertRegex(err, r"every way needs at least [\d.]+ GiB of a host, got --memory 8.00 GiB")
        row = ranks(*LLAMA_70B, "--tensor-parallel-size", 16, *machine, "--memory", "8GiB")[0]
        self.assertFalse(row["fits"])

    def test_the_largest_machine(self):
        plan = ("plan", "--shape", "llama-3.1-405b", "--hosts", 128, "--link-gbps", 400, "--link-us", 5, "--memory-gbps", 3000, "--batch", 512)
        found = ranks(*plan, "--ranks", 1024, "--json")
        self.assertGreater(len(found), 20)
        self.assertEqual({row["tensor_parallel_size"] * row["pipeline_parallel_size"] * row["data_parallel_size"] for row in found}, {1024})
        self.assertIn("tensor  pipeline  data", penstock(*plan, "--ranks", 1024)[1].decode())

    def test_what_cannot_be(self):
        tiny = ("plan", "--shape", "tiny", "--memory-gbps", 10)
        host = ("--link-gbps", 1, "--link-us", 1, "--hosts")
        for code, message, wrong in (
                (4, "pipeline_parallel_size 3: expected at most 2", ["--pipeline-parallel-size", 3]),
                (2, "--pipeline-parallel-size: expected 1 to 1024, got 0", ["--pipeline-parallel-size", 0]),
                (2, "--data-parallel-size: expected 1 to 1024, got -1", ["--data-parallel-size", -1]),
                (2, "expected at most 1024 ranks, got 2048", ["--tensor-parallel-size", 1024, "--data-parallel-size", 2]),
                (2, "tensor 2 x pipeline 1 x data 3", ["--tensor-parallel-size", 2, "--data-parallel-size", 3, *host, 2]),
                (2, "--ranks 3: expected a multiple of --hosts 2", ["--ranks", 3, *host, 2]),
                (2, "excludes --ranks", ["--ranks", 4, "--tensor-parallel-size", 2]),
                (2, "--step-ms: expected ROWS=MS", ["--pipeline-parallel-size", 2, "--step-ms", "10,20"]),
                (2, "--step-ms: expected rows from 1 to 65536 that ascend", ["--pipeline-parallel-size", 2, "--step-ms", "4=10,2=20"]),
                (2, "--step-ms: expected a number above 0, got nan", ["--pipeline-parallel-size", 2, "--step-ms", "nan"]),
                (2, "--memory-gbps and --rank-tflops", ["--pipeline-parallel-size", 2, "--rank-tflops", "nan"])):
            with self.subTest(wrong=wrong):
                got, out, err = penstock(*tiny, *wrong)
                self.assertEqual((got, out), (code, b""), err)
                self.assertIn(message, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
