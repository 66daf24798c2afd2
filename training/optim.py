"""Muon for the matrices of the blocks, AdamW for the embedding and the gains.

Muon orthogonalizes each matrix's momentum (Newton-Schulz iteration), so that every direction of the update has
about the same size; on these small models it needs about half of AdamW's steps.
"""

import torch


def orthogonalize(m, steps=5):
    """m (N, rows, columns) to matrices whose singular values are all near 1; quintic Newton-Schulz in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m.bfloat16()
    wide = x.shape[1] > x.shape[2]
    x = x.mT if wide else x
    x = x / (x.flatten(1).float().norm(dim=1)[:, None, None].to(x.dtype) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.mT if wide else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for shape, params in shapes.items():
                self.step_shape(group, shape, params)

    def step_shape(self, group, shape, params):
        updates = []
        for p in params:
            buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
            buffer.lerp_(p.grad, 1 - group["momentum"])
            updates.append(p.grad.lerp(buffer, group["momentum"]))
        scale = group["lr"] * max(1, shape[0] / shape[1]) ** 0.5
        for p, update in zip(params, orthogonalize(torch.stack(updates))):
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)


def make_optimizers(model, cfg):
    """[Muon, AdamW]; cfg: lr (Muon), adam_lr, weight_decay."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embedding" not in n]
    rest = [p for n, p in model.named_parameters() if p.dim() != 2 or "embedding" in n]
    return [Muon(matrices, cfg["lr"], weight_decay=cfg["weight_decay"]),
            torch.optim.AdamW(rest, cfg["adam_lr"], betas=(0.9, 0.95), weight_decay=0.0)]
