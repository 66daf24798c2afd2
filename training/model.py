"""The decoder every model of the family is an instance of: Llama, with a few switches.

Shapes: B sequences, T tokens, D width, V vocabulary. Weights follow the Hugging Face Llama names, so that
export is a rename and the engine reads the result as an ordinary checkpoint.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model. `ternary` makes it BitNet b1.58, `window` > 0 a sliding-window (Mistral) model."""

    vocab: int = 4096
    dim: int = 512
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 1024
    context: int = 512
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    exit_layer: int = 0  # the early exit reads the output of this many layers; 0: none
    ternary: bool = False
    window: int = 0  # a token sees itself and the window - 1 tokens before it; 0: all

    @property
    def head_dim(self):
        return self.dim // self.heads


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


class TernaryLinear(nn.Linear):
    """A linear layer whose forward pass sees weights of {-1, 0, 1} times one scale and 8-bit activations.

    The scale is the mean magnitude of the weights; activations are scaled per token to [-127, 127]. Both
    roundings are straight-through in the backward pass, so the float weights keep learning.
    """

    def ternary(self):
        scale = self.weight.abs().mean().clamp(min=1e-5)
        return (self.weight / scale).round().clamp(-1, 1), scale

    def forward(self, x):
        codes, scale = self.ternary()
        w = self.weight + (codes * scale - self.weight).detach()
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5).float() / 127
        q = ((x / step).round().clamp(-128, 127) * step).to(x.dtype)
        return F.linear(x + (q - x).detach(), w)


def rope_tables(cfg, device=None):
    """cos and sin of every position and pair: two (context, head_dim / 2) float tensors."""
    inv = cfg.rope_theta ** (-torch.arange(0, cfg.head_dim, 2, device=device).float() / cfg.head_dim)
    angle = torch.arange(cfg.context, device=device).float()[:, None] * inv
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotates the pairs (i, i + head_dim / 2) of x (B, heads, T, head_dim), the Hugging Face order."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def attend(q, k, v, mask):
    """Attention of (B, heads, T, head_dim). A mask of numbers is added to the scores, by plain products: on CPUs, for rows of a few
    hundred tokens, these are faster than the fused operation, which takes masks of bools."""
    if mask is None or mask.dtype == torch.bool:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return (q * q.shape[-1] ** -0.5 @ k.mT + mask).softmax(-1).to(v.dtype) @ v


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        linear = TernaryLinear if cfg.ternary else nn.Linear
        kv = cfg.kv_heads * cfg.head_dim
        self.cfg = cfg
        self.q_proj = linear(cfg.dim, cfg.dim, bias=False)
        self.k_proj = linear(cfg.dim, kv, bias=False)
        self.v_proj = linear(cfg.dim, kv, bias=False)
        self.o_proj = linear(cfg.dim, cfg.dim, bias=False)
        self.sub_norm = RMSNorm(cfg.dim, cfg.norm_eps) if cfg.ternary else nn.Identity()

    def forward(self, x, cos, sin, mask):
        cfg, (b, t, _) = self.cfg, x.shape
        q = rotate(self.q_proj(x).view(b, t, cfg.heads, cfg.head_dim).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, t, cfg.kv_heads, cfg.head_dim).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, cfg.kv_heads, cfg.head_dim).transpose(1, 2)
        group = cfg.heads // cfg.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = attend(q, k, v, mask)
        return self.o_proj(self.sub_norm(y.transpose(1, 2).reshape(b, t, cfg.dim)))


class Mlp(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        linear = TernaryLinear if cfg.ternary else nn.Linear
        self.gate_proj = linear(cfg.dim, cfg.hidden, bias=False)
        self.up_proj = linear(cfg.dim, cfg.hidden, bias=False)
        self.down_proj = linear(cfg.hidden, cfg.dim, bias=False)
        self.sub_norm = RMSNorm(cfg.hidden, cfg.norm_eps) if cfg.ternary else nn.Identity()

    def forward(self, x):
        return self.down_proj(self.sub_norm(F.silu(self.gate_proj(x)) * self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.input_norm = RMSNorm(cfg.dim, cfg.norm_eps)
        self.attention = Attention(cfg)
        self.post_norm = RMSNorm(cfg.dim, cfg.norm_eps)
        self.mlp = Mlp(cfg)

    def forward(self, x, cos, sin, mask, dropout: float):
        x = x + F.dropout(self.attention(self.input_norm(x), cos, sin, mask), dropout, self.training)
        return x + F.dropout(self.mlp(self.post_norm(x)), dropout, self.training)


class Model(nn.Module):
    """Tokens (B, T) to hidden states (B, T, D); `logits` turns those into scores by the tied embedding."""

    def __init__(self, cfg, dropout=0.0):
        super().__init__()
        self.cfg, self.dropout = cfg, dropout
        self.embedding = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.dim, cfg.norm_eps)
        cos, sin = rope_tables(cfg)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.reset()

    def reset(self):
        """Small random weights; the matrices that write to the residual stream start at zero."""
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, p in self.named_parameters():
            if p.dim() == 2 and "embedding" not in name:
                nn.init.normal_(p, std=0.5 / math.sqrt(p.shape[1]))
                if not self.cfg.ternary and ("o_proj" in name or "down_proj" in name):
                    nn.init.zeros_(p)

    def mask(self, t, device):
        """None for plain causal attention, else the boolean (T, T) sliding window."""
        if not self.cfg.window or t <= self.cfg.window:
            return None
        distance = torch.arange(t, device=device)[:, None] - torch.arange(t, device=device)
        return (distance >= 0) & (distance < self.cfg.window)

    def forward(self, ids):
        """Returns (final, exit): normed states after all layers and after exit_layer (None without one)."""
        t = ids.shape[1]
        cos, sin, mask = self.cos[:t], self.sin[:t], self.mask(t, ids.device)
        x, at_exit = self.embedding(ids), None
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin, mask, self.dropout)
            if i + 1 == self.cfg.exit_layer:
                at_exit = self.norm(x)
        return self.norm(x), at_exit

    def logits(self, states):
        return F.linear(states, self.embedding.weight.to(states.dtype))


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())
