"""What stacked members write: token by token, all rows together, by the mean of the members' distributions or each for itself."""

import torch

from stacked import block_weights, norm, rope_tables
from tokenizer import EOS


def turn(x, cos, sin):
    """model.rotate at one position: cos, sin (head_dim / 2)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


@torch.no_grad()
def generate(weights, cfg, prompts, length, temperature=1.0, min_p=0.0, generator=None, dtype=torch.bfloat16, apart=False):
    """prompts: a list of lists of ids. Returns ids (R, length): the prompts and what follows them; nothing stops at </s>.

    apart: every member writes its own R / K of the rows, instead of all of them together.
    """
    device, members, rows = weights["norm.weight"].device, len(weights["norm.weight"]), len(prompts)
    heads, kv, hd = cfg["heads"], cfg["kv_heads"], cfg["dim"] // cfg["heads"]
    given = torch.full((rows, length), -1, dtype=torch.long)
    for row, ids in zip(given, prompts):
        row[:len(ids)] = torch.tensor(ids[:length])
    result = given.to(device)
    known = result >= 0
    cos, sin = rope_tables(cfg, device)
    emb = weights["embedding.weight"].to(dtype)
    blocks = [block_weights(weights, i, dtype) for i in range(cfg["layers"])]
    own = rows // members if apart else rows
    cache = [torch.zeros(2, members, own, kv, length, hd, dtype=dtype, device=device) for _ in blocks]
    k = torch.arange(members, device=device)[:, None]
    for t in range(length - 1):
        x = emb[k, result[:, t].view(-1, own).expand(members, -1)]
        for (qkv, o, gate_up, down, norm1, norm2), kept in zip(blocks, cache):
            y = torch.bmm(norm(x, norm1), qkv.mT).view(members, own, heads + 2 * kv, hd)
            q, key, v = y.split((heads, kv, kv), 2)
            kept[0, :, :, :, t], kept[1, :, :, :, t] = turn(key, cos[t], sin[t]), v
            # The heads of a group are the queries of one, so that keys and values are read once for all of them.
            q = turn(q, cos[t], sin[t]).view(members * own, kv, heads // kv, hd)
            past = (z.flatten(0, 1)[:, :, :t + 1] for z in kept)
            y = torch.nn.functional.scaled_dot_product_attention(q, *past).reshape(members, own, -1)
            x = x + torch.bmm(y, o.mT)
            gate, up = torch.bmm(norm(x, norm2), gate_up.mT).chunk(2, -1)
            x = x + torch.bmm(torch.nn.functional.silu(gate) * up, down.mT)
        z = torch.bmm(norm(x, weights["norm.weight"]), emb.mT).float()
        p = (z / (temperature or 1.0)).softmax(-1)
        p = p.flatten(0, 1) if apart else p.mean(0)
        if temperature:
            p = torch.where(p >= min_p * p.amax(-1, keepdim=True), p, 0.0)
            new = torch.multinomial(p, 1, generator=generator)[:, 0]
        else:
            new = p.argmax(-1)
        result[:, t + 1] = torch.where(known[:, t + 1], result[:, t + 1], new)
    return result


def stories(ids):
    """Rows of generate() as items <s> story </s> (none where a row was cut off: it keeps what it has)."""
    items = []
    for row in ids.cpu().numpy():
        end = (row == EOS).nonzero()[0]
        item = row[:end[0] + 1] if len(end) else row
        if len(item) > 32:
            items.append(item.astype("uint16"))
    return items
