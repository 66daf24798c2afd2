#!/usr/bin/env python3
"""PyTorch as a yardstick on a visit to a GPU (scripts/visit_cuda): products, attention, a read, and decode and prefill of whole models in BF16
with a static cache, compiled. One JSON object on the standard output.

    scripts/visit_torch.py kernels
    scripts/visit_torch.py model SHAPE       llama-3.2-1b, llama-3.1-8b, qwen2.5-0.5b, tiny; greedy, one sequence and several
    ... --device cpu                         to see that it runs
"""
import argparse
import json
import time

import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

# dim, ffn, layers, heads, kv heads, head, vocabulary
SHAPES = {"llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256), "llama-3.1-8b": (4096, 14336, 32, 32, 8, 128, 128256),
          "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 64, 151936), "tiny": (64, 128, 2, 4, 2, 16, 100)}
CASES = ((1, 1024), (1, 2048), (8, 256), (64, 128))  # sequences, tokens before: as cuda_visit has them
STEPS, WARM = 48, 8


class Llama:
    def __init__(self, shape, n_seqs, length, device):
        self.dim, ffn, n_layers, self.heads, self.kv_heads, self.head, vocab = SHAPES[shape]

        def matrix(rows, cols):
            return torch.randn(rows, cols, device=device, dtype=torch.bfloat16) * 0.02

        q, kv = self.heads * self.head, self.kv_heads * self.head
        self.embedding = matrix(vocab, self.dim)
        self.layers = [{"qkv": matrix(q + 2 * kv, self.dim), "o": matrix(self.dim, q), "gate_up": matrix(2 * ffn, self.dim),
                        "down": matrix(self.dim, ffn), "norms": torch.ones(2, self.dim, device=device, dtype=torch.bfloat16)} for _ in range(n_layers)]
        self.cache = torch.zeros(n_layers, 2, n_seqs, self.kv_heads, length, self.head, device=device, dtype=torch.bfloat16)
        angles = torch.arange(length, device=device)[:, None] * 500000.0 ** (-torch.arange(0, self.head, 2, device=device) / self.head)
        self.turns = torch.stack((angles.cos(), angles.sin()))
        self.numbers = torch.arange(length, device=device)

    def rotated(self, x, positions):
        c, s = self.turns[:, positions]
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * c - b * s, a * s + b * c), -1).to(x.dtype)

    def forward(self, tokens, positions, is_prompt=False):
        """tokens: [sequences, n]; positions: [n]. The likeliest next tokens."""
        x = self.embedding[tokens]
        n_seqs, n = tokens.shape
        sees = self.numbers[None, :] <= positions[:, None]
        for layer, cache in zip(self.layers, self.cache):
            heads = linear(rms_norm(x, (self.dim,), layer["norms"][0]), layer["qkv"]).view(n_seqs, n, -1, self.head).transpose(1, 2)
            q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
            cache[0].index_copy_(2, positions, self.rotated(k, positions))
            cache[1].index_copy_(2, positions, v)
            q = self.rotated(q, positions)
            if is_prompt:
                attended = scaled_dot_product_attention(q, cache[0][:, :, :n], v, is_causal=True, enable_gqa=True)
            else:
                attended = scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=sees, enable_gqa=True)
            x = x + linear(attended.transpose(1, 2).reshape(n_seqs, n, -1), layer["o"])
            gate, up = linear(rms_norm(x, (self.dim,), layer["norms"][1]), layer["gate_up"]).chunk(2, -1)
            x = x + linear(silu(gate) * up, layer["down"])
        return linear(rms_norm(x[:, -1], (self.dim,)), self.embedding).argmax(-1, keepdim=True)


def seconds(device, fn, n=1):
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        fn()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / n


@torch.no_grad()
def model(shape, device):
    rows = []
    for n_seqs, depth in ((1, 5), (3, 5)) if device == "cpu" else CASES:
        llama = Llama(shape, n_seqs, depth + STEPS + WARM, device)
        how = {"mode": "reduce-overhead"} if device == "cuda" else {"backend": "eager"}
        step = torch.compile(llama.forward, fullgraph=True, **how)
        prompt = torch.randint(0, SHAPES[shape][-1], (n_seqs, depth), device=device)
        before = torch.arange(depth, device=device)
        for _ in range(3):
            prefill = seconds(device, lambda: llama.forward(prompt, before, True))
        tokens, place = prompt[:, -1:].clone(), torch.tensor([depth], device=device)

        def decode():
            tokens.copy_(step(tokens, place))
            place.add_(1)

        seconds(device, decode, WARM)
        took = seconds(device, decode, STEPS)
        rows.append({"sequences": n_seqs, "depth": depth, "tokens_per_s": n_seqs / took, "prefill_tokens_per_s": n_seqs * depth / prefill})
        del llama, step
    return rows


@torch.no_grad()
def kernels(device):
    small = device == "cpu"
    result = {}
    out, width, n_weights = (64, 32, 2) if small else (14336, 4096, 4)
    weights = [torch.randn(out, width, device=device, dtype=torch.bfloat16) for _ in range(n_weights)]
    for n in (1, 16) if small else (1, 8, 16, 32, 128, 1024, 4096):
        x = torch.randn(n, width, device=device, dtype=torch.bfloat16)

        def all_of_them():
            for weight in weights:
                linear(x, weight)

        seconds(device, all_of_them, 3)
        t = seconds(device, all_of_them, 10) / n_weights
        result[f"linear {n} x {width} x {out}"] = {"us": t * 1e6, "Tflop_per_s": 2e-12 * n * width * out / t}
    big = torch.ones(1 << (16 if small else 28), device=device)
    seconds(device, big.sum, 3)
    result["read"] = {"GB_per_s": big.numel() * 4 / seconds(device, big.sum, 10) / 1e9}
    length = 64 if small else 8192
    q, k = (torch.randn(1, 32, length, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
    t = min(seconds(device, lambda: scaled_dot_product_attention(q, k, k, is_causal=True)) for _ in range(5))
    result[f"causal attention {length}"] = {"Tflop_per_s": 2e-12 * 32 * 128 * length * length / t}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kernels", "model"))
    parser.add_argument("shape", nargs="?", default="tiny", choices=tuple(SHAPES))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    args = parser.parse_args()
    print(json.dumps({args.what: kernels(args.device) if args.what == "kernels" else model(args.shape, args.device)}))


if __name__ == "__main__":
    main()
