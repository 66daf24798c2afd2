#!/usr/bin/env python3
"""What a visit to a GPU measures runs on the emulated device; decoding with recorded steps gives the tokens of decoding without."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ["PENSTOCK_BUILD"]) / "tests" / "cuda_visit"


def measured(*words, code=0):
    done = subprocess.run([PROGRAM, "cuda_emulated", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stderr)
    return json.loads(done.stdout) if code == 0 else done.stderr


class Visit(unittest.TestCase):
    def test_kernels(self):
        attention = measured("attention")["attention"]
        self.assertTrue(attention)
        for row in attention:
            self.assertLess(row["flash"]["difference"], 1e-3, row)
            for kernels in ("simple", "flash"):  # a difference of two times, which means something on a GPU only
                self.assertTrue(math.isfinite(row[kernels]["us"]), row)
            self.assertEqual("storing" in row, row["tokens"] <= 8, row)
            self.assertTrue(row.get("storing", {}).get("same_bits", True), row)
        for cache in ("int8", "fp8"):
            for row in measured("attention", cache)["attention"]:
                self.assertLess(row["flash"]["difference"], 5e-3, (cache, row))
        experts = measured("experts")["experts"]
        self.assertEqual({row["type"] for row in experts}, {"bf16", "q8_0", "q4_k", "q4_0", "mxfp4"})
        for row in experts:
            self.assertLess(row["apart"], 1e-4, row)
        for row in measured("products")["products"] + measured("stream")["stream"] + measured("draws")["draws"]:
            self.assertGreater(row["us"], 0, row)
        for row in measured("wide")["wide"]:
            self.assertTrue(all(rate > 0 for rates in row["Tflop_per_s"].values() for rate in rates.values()), row)
            self.assertTrue(all(apart < 5e-3 for ways in row["apart"].values() for apart in ways.values()), row)
        self.assertTrue(all(limit["value"] > 0 for limit in measured("limits")["limits"]))

    def test_a_model(self):
        rows = measured("model", "tiny", "q8_0")["model"]["decode"]
        self.assertEqual([row["sequences"] for row in rows], [1, 3])
        for row in rows:
            self.assertTrue(row["same_tokens"] and row["drawn"], row)

    def test_a_plot(self):
        results = {file: json.loads(file.read_text()) for file in sorted((SOURCE / "bench" / "results").glob("cuda-*.json"))}
        beside = [file for file in results if "peers" in results[file]]
        self.assertTrue(beside)
        with tempfile.TemporaryDirectory() as folder:
            image = pathlib.Path(folder) / "plot.svg"
            plot = lambda file: subprocess.run([SOURCE / "scripts" / "visit_cuda", "plot", file, image], capture_output=True, text=True)
            for file in set(results) - set(beside):  # a visit without llama.cpp
                self.assertIn("expected speeds beside llama.cpp's", plot(file).stderr)
            self.assertEqual(plot(beside[-1]).returncode, 0)
            peers = results[beside[-1]]["peers"]
            self.assertEqual(image.read_text().count('rx="2"'), sum(len(row["penstock"]) for row in peers.values()))

    def test_what_cannot_be(self):
        self.assertIn("expected device, limits, products, wide [TYPE], stream [TYPE [OUTxIN]], experts [TYPE], attention [f16|int8|fp8], draws or model SHAPE TYPE [SEQUENCESxDEPTH,...], got nothing", measured("nothing", code=1))
        self.assertIn("no-such-shape", measured("model", "no-such-shape", "q8_0", code=1))


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"skipped: no {PROGRAM}, built without the emulated device")
        sys.exit(0)
    unittest.main()
