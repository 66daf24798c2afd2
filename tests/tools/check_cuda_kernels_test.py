#!/usr/bin/env python3
"""check_cuda_kernels.py finds spills, stacks, missing architectures and missing instructions in what compilers report."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_cuda_kernels  # noqa: E402

ENTRY = """ptxas info    : Compiling entry function 'run_{name}' for '{architecture}'
ptxas info    : Function properties for run_{name}
    {frame} bytes stack frame, {spill} bytes spill stores, {spill} bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
"""
SASS = """
Fatbin elf code:
arch = sm_90a
\t\tFunction : run_MultiplyFast
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24, !UPT ;
        /*0020*/                   EXIT ;
\t\tFunction : run_MultiplySlow
        /*0000*/                   HMMA.16816.F32.BF16 R4, R4, R8, R12 ;
"""


class CheckCudaKernels(unittest.TestCase):
    def setUp(self):
        self.made = tempfile.TemporaryDirectory()
        self.addCleanup(self.made.cleanup)
        self.folder = pathlib.Path(self.made.name)

    def report(self, frame=0, spill=0, architectures=("sm_80", "sm_90a")):
        text = "".join(ENTRY.format(name="A", architecture=a, frame=frame, spill=spill) for a in architectures)
        (self.folder / "a.ptxas").write_text(text + "nvcc took 2.5 s of CPU\n")

    def found(self, needs_hgmma=()):
        return list(check_cuda_kernels.violations(self.folder, needs_hgmma))

    def test_good_ones_pass(self):
        self.report()
        (self.folder / "a.o").write_bytes(bytes(100))
        self.assertEqual(self.found(), [])

    def test_stacks_spills_and_missing_code_are_found(self):
        self.assertIn("nothing was compiled", self.found()[0])
        self.report(frame=16)
        self.assertEqual(len(self.found()), 2)
        self.report(spill=8, architectures=("sm_90a",))
        self.assertEqual([("spills" in line, "sm_80" in line) for line in self.found()], [(True, False), (False, True)])

    def test_serialized_products_are_found(self):
        self.report()
        with (self.folder / "a.ptxas").open("a") as report:
            report.write("ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
                         "this and that in the function 'run_A'\n")
        self.assertEqual(self.found(), ["a: wgmma.mma_async instructions are serialized due to this and that in the function 'run_A'"])

    def test_too_much_code_is_found(self):
        self.report()
        with open(self.folder / "a.o", "wb") as file:
            file.truncate(check_cuda_kernels.MAX_OBJECT_BYTES + 1)
        self.assertIn("at most", self.found()[0])

    def test_wanted_instructions(self):
        self.assertEqual(list(check_cuda_kernels.without_hgmma(SASS, ["MultiplyFast"])), [])
        self.assertEqual(list(check_cuda_kernels.without_hgmma(SASS, ["Multiply", "Missing"])),
                         [("Multiply", "run_MultiplySlow"), ("Missing", None)])

    def test_wanted_instructions_are_looked_for_in_objects(self):
        self.report()
        (self.folder / "a.o").write_bytes(b"")
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = "/nowhere"
        self.assertEqual(self.found(["MultiplyFast"]), [])  # without a tool it only says so
        tool = self.folder / "cuobjdump"
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{SASS}\nEND\n")
        tool.chmod(0o755)
        os.environ["PATH"] = f"{self.folder}:{path}"
        self.assertEqual(self.found(["MultiplyFast"]), [])
        self.assertEqual(self.found(["MultiplySlow"]), ["run_MultiplySlow on sm_90a: no HGMMA"])

    def test_the_compiler_is_timed_and_its_words_are_shown_when_it_fails(self):
        wrapper, log = ROOT / "cmake" / "run_nvcc.sh", self.folder / "b.ptxas"
        subprocess.run([wrapper, log, "sh", "-c", "echo said >&2"], check=True)
        self.assertRegex(log.read_text(), r"^said\nnvcc took \d+\.\d s of CPU\n$")
        failed = subprocess.run([wrapper, log, "sh", "-c", "echo wrong; exit 3"], capture_output=True, text=True)
        self.assertEqual((failed.returncode, failed.stderr, log.exists()), (1, "wrong\n", False))


if __name__ == "__main__":
    unittest.main()
