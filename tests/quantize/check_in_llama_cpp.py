"""Converts the checkpoints of tests/golden/models that llama.cpp's own converter takes to GGUF and runs them in llama.cpp: prints
those that it refuses, or whose logits are not transformers'. Not in CI: wants llama-cpp-python.

    python check_in_llama_cpp.py build/release/penstock

Left over with 0.3.36, for reasons of llama.cpp's: it has no windows for Mistral and Phi 3 and another routing for Phi-MoE; takes for granted
how many heads, layers or features some have (Cohere with norms of heads, DeepSeek V2, dots.1, EXAONE 4, Gemma 3n, OLMo, OLMoE) and a bias of
Phi-MoE's head; ends with Granite's dense hybrids (its own converter's file too), and does not know bitnet-b1.58. Experts of gpt-oss are not rewritten.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

MODELS = pathlib.Path(__file__).parent.parent / "golden" / "models"
TOLERANCE = 5e-3  # of the logits' length


def add_tokenizer(path):
    """GGUF files want one: byte-level BPE with a token for each id."""
    config = json.loads((path / "config.json").read_text())
    size = config.get("vocab_size") or config["text_config"]["vocab_size"]
    letters = [chr(i) for i in [*range(33, 127), *range(161, 173), *range(174, 900)]][:size - 1] + ['!"']
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": [["!", '"']]}
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                 "decoder": byte_level, "model": model}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))


def run(file, golden):
    """In a process of its own, which llama.cpp may end: how far its logits are from the golden ones."""
    import llama_cpp

    numbers = np.fromfile(golden, np.int32)
    n_tokens, vocab = int(numbers[0] + numbers[1]), int(numbers[2])
    want = numbers[3 + n_tokens:].view(np.float32).reshape(-1, vocab)
    model = llama_cpp.Llama(file, n_ctx=256, n_batch=256, n_threads=1, verbose=False, logits_all=True, type_k=0, type_v=0)
    model.eval(numbers[3:3 + n_tokens].tolist())
    got = np.array(model.scores[:n_tokens])[:, :vocab]
    print("distance", np.linalg.norm(got - want[:n_tokens]) / np.linalg.norm(want[:n_tokens]))


def main(program):
    for path in sorted(p.parent for p in MODELS.glob("*/model.gguf") if (p.parent / "config.json").exists()):
        with tempfile.TemporaryDirectory() as folder:
            copy, file = pathlib.Path(folder) / "model", pathlib.Path(folder) / "model.gguf"
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns("*.gguf"))
            add_tokenizer(copy)
            written = subprocess.run([program, "quantize", copy, file, "--type", "f32"], capture_output=True, text=True)
            if written.returncode != 0:
                print(f"{path.name}: {written.stderr.strip().splitlines()[-1]}")
                continue
            ran = subprocess.run([sys.executable, __file__, file, path / "golden.bin"], capture_output=True, text=True)
            distance = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("distance")]
            if not distance:
                print(f"{path.name}: {(ran.stderr.strip().splitlines() or ['no word'])[-1]}")
            elif not float(distance[0]) < TOLERANCE:
                print(f"{path.name}: logits {distance[0]} away")


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else run(*sys.argv[1:])
