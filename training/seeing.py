"""The model that sees: a SigLIP-like tower, two linear layers and the stories' little Llama, as transformers' LLaVA has them.

Shapes: B pictures, P patches, E the tower's width, T tokens, D the text's width. Names follow transformers', so that export
is a rename. The prompt is <s>, a picture's patches, then text: lines of a user, each answered with a text that </s> ends.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

import scenes
from model import Block, ModelConfig, RMSNorm, attend, rope_tables


@dataclasses.dataclass(frozen=True)
class TowerConfig:
    side: int = scenes.SIDE
    patch: int = 12
    dim: int = 192
    layers: int = 4
    heads: int = 6
    hidden: int = 768
    norm_eps: float = 1e-6

    @property
    def row(self):
        return self.side // self.patch

    @property
    def patches(self):
        return self.row ** 2


class TowerLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.register_buffer("zero", torch.zeros((), dtype=torch.bfloat16), persistent=False)
        self.layer_norm1 = nn.LayerNorm(cfg.dim, cfg.norm_eps)
        self.self_attn = nn.ModuleDict({name: nn.Linear(cfg.dim, cfg.dim) for name in ("q_proj", "k_proj", "v_proj", "out_proj")})
        self.layer_norm2 = nn.LayerNorm(cfg.dim, cfg.norm_eps)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(cfg.dim, cfg.hidden), "fc2": nn.Linear(cfg.hidden, cfg.dim)})

    def forward(self, x):
        b, p, e = x.shape
        y = self.layer_norm1(x)
        q, k, v = (self.self_attn[n](y).view(b, p, self.heads, e // self.heads).transpose(1, 2) for n in ("q_proj", "k_proj", "v_proj"))
        y = attend(q, k, v, self.zero).transpose(1, 2).reshape(b, p, e)
        x = x + self.self_attn["out_proj"](y)
        y = F.gelu(self.mlp["fc1"](self.layer_norm2(x)), approximate="tanh")
        return x + self.mlp["fc2"](y)


class Tower(nn.Module):
    """Pixels (B, side, side, 3) of bytes to states (B, P, E), without a last norm, as LLaVA takes them."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.patch_embedding = nn.Linear(3 * cfg.patch * cfg.patch, cfg.dim)  # a convolution's weight, flat
        self.position_embedding = nn.Parameter(torch.randn(cfg.patches, cfg.dim) * 0.02)
        self.layers = nn.ModuleList(TowerLayer(cfg) for _ in range(cfg.layers))

    def forward(self, pixels):
        n, p = self.cfg.row, self.cfg.patch
        x = pixels.float() / 127.5 - 1
        x = x.view(-1, n, p, n, p, 3).permute(0, 1, 3, 5, 2, 4).reshape(-1, n * n, 3 * p * p)
        x = self.patch_embedding(x) + self.position_embedding
        for layer in self.layers:
            x = layer(x)
        return x


class Seeing(nn.Module):
    """Tower, projector and text model; `hints` are classifiers that only training has.

    They read the tower's states, that of places the rows that the text model gets: nothing else brings places there but the tower's
    position embedding, since the text model's own positions only tell tokens apart.
    """

    def __init__(self, tower=TowerConfig(), text=ModelConfig()):
        super().__init__()
        self.tower_cfg, self.cfg = tower, text
        self.tower = Tower(tower)
        self.linear_1, self.linear_2 = nn.Linear(tower.dim, text.dim), nn.Linear(text.dim, text.dim)
        self.embedding = nn.Embedding(text.vocab, text.dim)
        self.blocks = nn.ModuleList(Block(text) for _ in range(text.layers))
        self.norm = RMSNorm(text.dim, text.norm_eps)
        self.hints = nn.ModuleDict({"shape": nn.Linear(tower.dim, 1 + len(scenes.SHAPES)), "word": nn.Linear(tower.dim, 1 + len(scenes.WORDS)),
                                    "color": nn.Linear(tower.dim, 1 + len(scenes.COLORS)), "place": nn.Linear(text.dim, 1 + len(scenes.PLACES))})
        cos, sin = rope_tables(text)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():  # as model.Model begins: what writes to the stream starts at zero
            if name.endswith(("out_proj.weight", "fc2.weight")):
                nn.init.zeros_(p)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def project(self, states):
        """What the text model gets (B, P, D) for the tower's states."""
        return self.linear_2(F.gelu(self.linear_1(states)))

    def read(self, rows, ids, positions, mask):
        """Normed states (B, T, D) of the text `ids` behind the pictures' rows (B, P, D).

        mask (B, 1, 1 + P + T, 1 + P + T), added to scores, says who sees whom.
        """
        b = ids.shape[0]
        first = self.embedding(ids.new_full((b, 1), 1))
        x = torch.cat([first.to(rows.dtype), rows, self.embedding(ids).to(rows.dtype)], 1)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        for block in self.blocks:
            x = block(x, cos, sin, mask, 0.0)
        return self.norm(x[:, 1 + rows.shape[1]:])

    def logits(self, states):
        return F.linear(states, self.embedding.weight.to(states.dtype))


def positions_and_mask(turns, patches, chained):
    """turns (B, T): the number of each token's question, -1 behind the text. chained (B): questions see those before them.

    Returns (positions (B, 1 + P + T), mask (B, 1, 1 + P + T, 1 + P + T)); a question that sees no other stands right behind the picture.
    """
    b, t = turns.shape
    before = 1 + patches
    whole = torch.cat([turns.new_full((b, before), -2), turns], 1)
    at = torch.arange(before + t)
    same = (whole[:, :, None] == whole[:, None, :]) | (whole[:, None, :] == -2) | chained[:, None, None]
    mask = torch.zeros(b, 1, before + t, before + t, dtype=torch.bfloat16).masked_fill(~(same & (at[:, None] >= at)).unsqueeze(1), -1e4)
    begins = torch.zeros(b, t, dtype=torch.long)
    new = torch.ones(b, t, dtype=torch.bool)
    new[:, 1:] = turns[:, 1:] != turns[:, :-1]
    begins[new] = torch.arange(t).expand(b, t)[new]
    begins = begins.cummax(1).values * ~chained[:, None]
    text = before + torch.arange(t) - begins
    return torch.cat([torch.arange(before).expand(b, before), text], 1), mask
