#!/usr/bin/env python3
"""Texts to vectors: penstock.LLM.embed beside sentence-transformers and, where they are installed, onnxruntime and OpenVINO; the
same random checkpoint, texts and threads, by turns.

Usage: embeddings.py [--shape all-minilm-l6] [--texts 256] [--rounds 5] [--quantize q8_0] [--peers onnxruntime openvino]
       (in an environment with the wheel, torch, transformers and sentence-transformers, for the peers onnx, onnxscript and themselves;
       nothing else running)
"""
import argparse
import os
import pathlib
import random
import statistics
import tempfile
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TQDM_DISABLE", "1")
import numpy
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import penstock

# As published: (configuration, pooling). Vocabularies are of made-up words, so that a word is a token.
SHAPES = {
    "all-minilm-l6": (lambda: transformers.BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6,
                                                      num_attention_heads=12, intermediate_size=1536), "mean"),
    "bge-base": (lambda: transformers.BertConfig(vocab_size=30522), "cls"),
    "bge-m3": (lambda: transformers.XLMRobertaConfig(
        vocab_size=250002, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        max_position_embeddings=8194, type_vocab_size=1), "cls"),
    "qwen3-embedding-0.6b": (lambda: transformers.Qwen3Config(
        vocab_size=151669, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        intermediate_size=3072, max_position_embeddings=32768, tie_word_embeddings=True), "lasttoken"),
}
N_WORDS = 20000


def make_checkpoint(shape, folder):
    """A directory as sentence-transformers saves it, with random weights."""
    config, pooling = SHAPES[shape]
    torch.manual_seed(0)
    inner = os.path.join(folder, "inner")
    transformers.AutoModel.from_config(config()).save_pretrained(inner)
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(N_WORDS))])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                         sep_token="[SEP]", model_max_length=512).save_pretrained(inner)
    transformer = Transformer(inner, max_seq_length=512)
    width = transformer.get_word_embedding_dimension()
    path = os.path.join(folder, "model")
    SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode=pooling), Normalize()], device="cpu").save(path)
    return path


class Exported:
    """The checkpoint as an ONNX file, run as sentence-transformers runs it: texts sorted by length, 32 at a time."""

    def __init__(self, path, pooling, texts, file):
        self.pooling = pooling
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        self.order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        self.encode = lambda chunk: tokenizer([texts[i] for i in chunk], padding=True, truncation=True, max_length=512, return_tensors="np")
        self.chunks = [self.order[i:i + 32] for i in range(0, len(texts), 32)]
        model = transformers.AutoModel.from_pretrained(path, attn_implementation="sdpa").eval()

        class States(torch.nn.Module):
            def forward(self, input_ids, attention_mask):
                return model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

        example = torch.randint(4, 1000, (2, 16)), torch.ones(2, 16, dtype=torch.int64)
        batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=512)
        torch.onnx.export(States().eval(), example, file, input_names=["input_ids", "attention_mask"], output_names=["states"], dynamo=True,
                          dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}), external_data=True, verbose=False)

    def vectors(self, states, mask):
        if self.pooling == "mean":
            pooled = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        else:
            pooled = states[numpy.arange(len(states)), mask.sum(axis=1) - 1 if self.pooling == "lasttoken" else 0]
        return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)

    def in_order(self, parts):
        out = numpy.concatenate(parts)
        result = numpy.empty_like(out)
        result[self.order] = out
        return result


def with_onnxruntime(exported, file, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def run():
        parts = []
        for chunk in exported.chunks:
            batch = exported.encode(chunk)
            feeds = {name: batch[name].astype(numpy.int64) for name in ("input_ids", "attention_mask")}
            parts.append(exported.vectors(session.run(None, feeds)[0], feeds["attention_mask"]))
        return exported.in_order(parts)
    return run, f"onnxruntime {onnxruntime.__version__}"


def with_openvino(exported, file, threads, stream):
    """stream: all threads on one batch at a time; otherwise a batch for each, as its hint for throughput has it."""
    import openvino
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(file), "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY" if stream else "THROUGHPUT"})
    queue = openvino.AsyncInferQueue(compiled)

    def run():
        parts = [None] * len(exported.chunks)

        def done(request, job):
            index, mask = job
            parts[index] = exported.vectors(request.get_output_tensor(0).data, mask)
        queue.set_callback(done)
        for index, chunk in enumerate(exported.chunks):
            batch = exported.encode(chunk)
            mask = batch["attention_mask"].astype(numpy.int64)
            queue.start_async({"input_ids": batch["input_ids"].astype(numpy.int64), "attention_mask": mask}, (index, mask))
        queue.wait_all()
        return exported.in_order(parts)
    return run, f"OpenVINO {openvino.__version__.split('-')[0]}"


def add_peers(args, path, texts, folder, threads, engines):
    """Their versions, by engine."""
    if not args.peers:
        return {}
    file = os.path.join(folder, "model.onnx")
    exported = Exported(path, SHAPES[args.shape][1], texts, file)
    versions = {}
    for name in args.peers:
        if name == "onnxruntime":
            engines[name], versions[name] = with_onnxruntime(exported, file, threads)
        else:
            for kind, stream in (("latency", True), ("throughput", False)):
                engines[f"openvino, {kind}"], versions[name] = with_openvino(exported, file, threads, stream)
    return versions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="all-minilm-l6")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quantize", default="", help="also with weights rounded to this type")
    parser.add_argument("--peers", nargs="*", choices=["onnxruntime", "openvino"], default=[])
    args = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    draw = random.Random(1)
    texts = [" ".join(f"w{draw.randrange(N_WORDS)}" for _ in range(draw.randrange(8, 256))) for _ in range(args.texts)]
    with tempfile.TemporaryDirectory() as folder:
        path = make_checkpoint(args.shape, folder)
        reference = SentenceTransformer(path, device="cpu")
        engines = {"sentence-transformers": lambda: reference.encode(texts, batch_size=32)}
        opened = []
        for name, more in [("penstock", {})] + ([(f"penstock {args.quantize}", {"quantize": args.quantize})] if args.quantize else []):
            llm = penstock.LLM(path, threads=threads, **more)
            opened.append(llm)
            engines[name] = lambda llm=llm: numpy.array([one.outputs.embedding for one in llm.embed(texts, use_tqdm=False)])
        versions = add_peers(args, path, texts, folder, threads, engines)
        expected = engines["sentence-transformers"]()
        n_tokens = sum(len(text.split()) + 2 for text in texts)
        seconds = {name: [] for name in engines}
        for name, run in engines.items():
            cosine = (expected * run()).sum(axis=1)
            print(f"{name}: least cosine to sentence-transformers' vectors {cosine.min():.6f}")
        for _ in range(args.rounds):
            for name, run in engines.items():
                start = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - start)
        for llm in opened:
            llm.close()
    base = seconds["sentence-transformers"]
    for name, times in seconds.items():
        ratio = statistics.median(b / t for b, t in zip(base, times))
        print(f"{args.shape}, {args.texts} texts, {n_tokens} tokens, {threads} threads, {name}: "
              f"{n_tokens / statistics.median(times):,.0f} tokens/s, {ratio:.2f} of sentence-transformers")
    processor = next(line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                     if line.startswith("model name"))
    print("; ".join([processor, f"torch {torch.__version__}", *versions.values(), f"penstock {penstock.__version__}"]))


if __name__ == "__main__":
    main()
