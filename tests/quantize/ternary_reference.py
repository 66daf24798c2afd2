"""Perplexity of a bitllama checkpoint (llama2.c form) by its formulas in torch, story by story with a BOS.

python ternary_reference.py bitllama.bin tok512.model stories.txt   (stories separated by <|endoftext|>)

Every linear layer reads its input divided by its root mean square, rounded to 8 bits per token, and has ternary
weights with one scale; sums are exact whole numbers. Compare with
  penstock perplexity -m bitllama-tq2_0.gguf -f stories.txt --separator "<|endoftext|>"
"""
import struct
import sys

import numpy as np
import sentencepiece
import torch

path, tokenizer, stories = sys.argv[1:4]
data = open(path, "rb").read()
magic, version, dim, hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_positions = struct.unpack("<9i", data[:36])
head, at = dim // n_heads, 256


def floats(*shape):
    global at
    values = np.frombuffer(data, "<f4", int(np.prod(shape)), at).reshape(shape)
    at += values.nbytes
    return torch.tensor(values)


def ternary(rows, cols):  # one float scale, then 2-bit codes, lowest bits first: 0, +1 and 3 = -1
    global at
    scale = floats(1)
    codes = np.frombuffer(data, np.uint8, rows * cols // 4, at)
    at += codes.nbytes
    codes = np.stack([codes >> shift & 3 for shift in (0, 2, 4, 6)], 1).reshape(rows, cols)
    return scale, torch.tensor(np.array([0, 1, 0, -1], np.float64)[codes])


final_norm, embedding = floats(dim), floats(n_vocab, dim)
shapes = [(dim, dim), (n_kv_heads * head, dim), (n_kv_heads * head, dim), (dim, dim), (hidden, dim), (dim, hidden), (hidden, dim)]
wq, wk, wv, wo, w1, w2, w3 = ([ternary(*shape) for _ in range(n_layers)] for shape in shapes)
assert at == len(data), (at, len(data))


def linear(x, weight):
    scale, codes = weight
    x = x / torch.sqrt(torch.mean(x * x, -1, keepdim=True)) / x.shape[-1]
    step = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    rounded = torch.round(x * step).clamp(-128, 127)
    return (rounded.double() @ codes.T).float() / step * scale


def rotate(x):  # adjacent pairs; x: [heads, tokens, head]
    angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, head, 2) / head)
    c, s, a, b = angles.cos(), angles.sin(), x[..., 0::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def forward(ids):
    x = embedding[ids]
    split = lambda y, n: y.view(len(ids), n, head).transpose(0, 1)
    for i in range(n_layers):
        q, k, v = rotate(split(linear(x, wq[i]), n_heads)), rotate(split(linear(x, wk[i]), n_kv_heads)), split(linear(x, wv[i]), n_kv_heads)
        k, v = (t.repeat_interleave(n_heads // n_kv_heads, 0) for t in (k, v))
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(attended.transpose(0, 1).reshape(len(ids), dim), wo[i])
        x = x + linear(torch.nn.functional.silu(linear(x, w1[i])) * linear(x, w3[i]), w2[i])
    x = x / torch.sqrt(torch.mean(x * x, -1, keepdim=True)) * final_norm
    return x @ embedding.T


words = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
nll = count = 0
for story in open(stories, encoding="utf-8").read().split("<|endoftext|>"):
    ids = torch.tensor([1] + words.encode(story.strip()))[:n_positions]
    with torch.no_grad():
        logits = forward(ids)
    nll += float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum"))
    count += len(ids) - 1
print(f"perplexity {np.exp(nll / count):.4f} ({count} tokens)")
