#!/usr/bin/env python3
"""Texts to vectors: penstock.LLM.embed beside sentence-transformers, the same random checkpoint, texts and threads, by turns.

Usage: embeddings.py [--shape all-minilm-l6] [--texts 256] [--rounds 5] [--quantize q8_0]
       (in an environment with the wheel, torch, transformers and sentence-transformers; nothing else running)
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="all-minilm-l6")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quantize", default="", help="also with weights rounded to this type")
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
    print(f"{processor}; torch {torch.__version__}, penstock {penstock.__version__}")


if __name__ == "__main__":
    main()
