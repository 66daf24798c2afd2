"""Several models of one shape trained at once: every weight has a leading dimension of members.

The arithmetic is model.py's and optim.py's (test_recipe.py compares them); the matrices of the members are multiplied in
batches, each member has its own learning rate, decay, dropout, share of hidden tokens and text, and a step is captured as one CUDA
graph. A row of a batch holds several stories, each of which sees itself only.

Shapes: K members, B rows of T tokens (N = B T), D width, V vocabulary.
"""

import math
import time

import numpy as np
import torch
import torch.nn.functional as F

from optim import orthogonalize

T = 512  # tokens of a row: the context


def shapes_of(cfg):
    """{name: shape} with the names of model.Model's state."""
    d, kv = cfg["dim"], cfg["kv_heads"] * cfg["dim"] // cfg["heads"]
    shapes = {"embedding.weight": (cfg["vocab"], d)}
    for i in range(cfg["layers"]):
        a, m, b = f"blocks.{i}.attention.", f"blocks.{i}.mlp.", f"blocks.{i}."
        shapes |= {b + "input_norm.weight": (d,), a + "q_proj.weight": (d, d), a + "k_proj.weight": (kv, d),
                   a + "v_proj.weight": (kv, d), a + "o_proj.weight": (d, d), b + "post_norm.weight": (d,),
                   m + "gate_proj.weight": (cfg["hidden"], d), m + "up_proj.weight": (cfg["hidden"], d),
                   m + "down_proj.weight": (d, cfg["hidden"])}
    return shapes | {"norm.weight": (d,)}


def fresh(cfg, members, seed, device):
    """model.Model.reset's weights, by a generator of the CPU: the same on any device."""
    g, result = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes_of(cfg).items():
        if len(shape) == 1:
            w = torch.ones(members, *shape)
        elif name == "embedding.weight":
            w = torch.randn(members, *shape, generator=g) * 0.02
        elif "o_proj" in name or "down_proj" in name:
            w = torch.zeros(members, *shape)
        else:
            w = torch.randn(members, *shape, generator=g) * 0.5 / math.sqrt(shape[1])
        result[name] = w.to(device)
    return result


def block_weights(weights, i, dtype):
    """The tensors of block i in the order that `block` takes them; q, k, v and gate, up as one matrix each."""
    a, m, b = f"blocks.{i}.attention.", f"blocks.{i}.mlp.", f"blocks.{i}."
    get = lambda *names: torch.cat([weights[n + ".weight"] for n in names], 1).to(dtype)
    return [get(a + "q_proj", a + "k_proj", a + "v_proj"), get(a + "o_proj"), get(m + "gate_proj", m + "up_proj"),
            get(m + "down_proj"), weights[b + "input_norm.weight"], weights[b + "post_norm.weight"]]


def norm(x, gain):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)
    return (y * gain[:, None]).to(x.dtype)


def dropped(x, p):
    """Dropout with a rate per member, p (K, 1, 1) or None."""
    return x if p is None else x * ((torch.rand(x.shape, device=x.device) >= p) / (1 - p)).to(x.dtype)


def rotate(x, cos, sin):
    """x (rows, heads, T, head_dim); cos, sin (rows, 1, T, head_dim / 2)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def block(x, qkv, o, gate_up, down, norm1, norm2, cos, sin, bias, p, heads, kv_heads):
    """x (K, N, D) after one more layer; bias (rows, 1, T, T): -inf where a token does not see another."""
    k, n, d = x.shape
    hd, rows, t = d // heads, bias.shape[0], bias.shape[-1]
    y = torch.bmm(norm(x, norm1), qkv.mT).view(rows, t, heads + 2 * kv_heads, hd).transpose(1, 2)
    q, key, v = y.split((heads, kv_heads, kv_heads), 1)
    q, key, v = rotate(q, cos, sin), rotate(key, cos, sin), v.contiguous()
    key, v = (z.repeat_interleave(heads // kv_heads, 1) for z in (key, v))
    y = F.scaled_dot_product_attention(q, key, v, attn_mask=bias)
    x = x + dropped(torch.bmm(y.transpose(1, 2).reshape(k, n, d), o.mT), p)
    gate, up = torch.bmm(norm(x, norm2), gate_up.mT).chunk(2, -1)
    return x + dropped(torch.bmm(F.silu(gate) * up, down.mT), p)


def head_loss(states, emb, target, soft_ids, soft_p, hard):
    """Sums over the rows of a member (K,): the plain cross entropy, and that mixed with the teachers' distribution.

    target (K, N), -1: does not count; soft_ids, soft_p (K, N, S): the teachers' likeliest tokens, all others being one more
    whose probability is what theirs lack of 1; hard: the share of the plain loss.
    """
    logq = torch.bmm(states, emb.mT).float().log_softmax(-1)
    counts = target >= 0
    plain = -logq.gather(-1, target.clamp(min=0)[..., None])[..., 0] * counts
    likely, soft_p = logq.gather(-1, soft_ids.long()), soft_p.float()
    others = torch.log1p(-likely.exp().sum(-1).clamp(max=1 - 1e-5))
    soft = -((soft_p * likely).sum(-1) + (1 - soft_p.sum(-1)).clamp(min=0) * others) * counts
    return plain.sum(-1), (hard * plain + (1 - hard) * soft).sum(-1)


class Corpus:
    """Items of token ids in one array on the device, with what a place needs to know: its item's begin and whether it ends it."""

    def __init__(self, sources, device):
        self.names, self.first, self.items = list(sources), {}, []
        for name, items in sources.items():
            self.first[name] = len(self.items)
            self.items += list(items)
        lengths = np.array([len(i) for i in self.items])
        begin = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        self.counting = np.arange(lengths.sum() + 1, dtype=np.int32)
        last = np.zeros(lengths.sum() + 1, bool)
        last[begin + lengths - 1] = True
        self.lengths, self.begin = lengths, begin
        self.places = [(int(n) - 1, int(b)) for n, b in zip(lengths, begin)]  # an item's last token is only a target
        put = lambda x: torch.from_numpy(x).to(device)
        self.ids = put(np.concatenate(self.items + [np.zeros(1, np.uint16)]).astype(np.int32))
        self.of = put(np.concatenate((np.repeat(begin, lengths), [0])).astype(np.int32))
        self.last = put(last)
        self.device = device

    def members(self, name):
        """The indices of a source's items."""
        i = self.names.index(name)
        end = self.first[self.names[i + 1]] if i + 1 < len(self.names) else len(self.items)
        return np.arange(self.first[name], end)

    def look(self, index, window=0):
        """index (rows, T) of places, -1: nothing. Returns ids, targets, positions and the bias that keeps items apart."""
        i = index.clamp(min=0)
        of = torch.where(index >= 0, self.of[i], -1)
        targets = torch.where((index >= 0) & ~self.last[i], self.ids[i + 1], -1).long()
        position = torch.where(index >= 0, i - self.of[i], 0).clamp(max=T - 1)
        t = torch.arange(index.shape[1], device=index.device)
        seen = (of[:, :, None] == of[:, None, :]) & (t[:, None] >= t)
        if window:
            seen &= t[:, None] - t < window
        return self.ids[i].long(), targets, position, seen[:, None]


class Rows:
    """An endless, seeded stream of rows of places: items are drawn by the shares of their sources and fill each row well."""

    def __init__(self, corpus, mix, seed, pool=96):
        self.corpus, self.random, self.pool, self.size = corpus, np.random.default_rng(seed), [], pool
        self.of = {n: corpus.members(n) for n in mix if n in corpus.names}
        self.order = {n: [] for n in mix}
        self.passes = {n: 0 for n in mix}
        self.set_mix(mix)

    def set_mix(self, mix):
        """Shares of tokens by source; sources that the corpus lacks are left out."""
        self.names = [n for n in mix if n in self.of]
        rate = np.array([mix[n] / self.corpus.lengths[self.of[n]].mean() for n in self.names])
        self.rate = np.cumsum(rate / rate.sum())

    def item(self):
        name = self.names[min(int(np.searchsorted(self.rate, self.random.random())), len(self.names) - 1)]
        if not len(self.order[name]):
            self.order[name] = self.random.permutation(self.of[name]).tolist()
            self.passes[name] += 1
        return self.order[name].pop()

    def row(self, out):
        """Fills out (T,) with places: whatever item of the pool fits best comes next, a random one first."""
        free, at, places, pool = len(out), 0, self.corpus.places, self.pool
        out[:] = -1
        while free > 16:
            while len(pool) < self.size:
                pool.append(self.item())
            if not at:
                best = int(self.random.random() * len(pool))
            else:
                best, most = -1, 16
                for j, item in enumerate(pool):
                    if most < places[item][0] <= free:
                        best, most = j, places[item][0]
                if best < 0:
                    break
            n, begin = places[pool.pop(best)]
            n = min(n, free)
            out[at:at + n] = self.corpus.counting[begin:begin + n]
            at, free = at + n, free - n

    def rows(self, count, t=T):
        result = np.empty((count, t), np.int32)
        for row in result:
            self.row(row)
        return result


def all_rows(corpus, items, t=T):
    """Every item once: rows of places filled in order of length, as `Rows` fills them."""
    rows, free = [], []
    for item in sorted(items, key=lambda i: -corpus.lengths[i]):
        n, begin = min(int(corpus.lengths[item]) - 1, t), corpus.begin[item]
        j = next((j for j in range(max(0, len(rows) - 64), len(rows)) if free[j] >= n), None)
        if j is None:
            j = len(rows)
            rows.append(np.full(t, -1, np.int32))
            free.append(t)
        rows[j][t - free[j]:t - free[j] + n] = np.arange(begin, begin + n)
        free[j] -= n
    return np.stack(rows)


def rope_tables(cfg, device):
    hd = cfg["dim"] // cfg["heads"]
    inv = 10000.0 ** (-torch.arange(0, hd, 2, device=device).float() / hd)
    angle = torch.arange(T, device=device).float()[:, None] * inv
    return angle.cos(), angle.sin()


def states(weights, cfg, ids, position, seen, p=None, dtype=torch.float32, block=block, copies=1, hidden=None, streams=None):
    """ids, position (K, N); seen (rows, 1, T, T). Returns the normed states (K, N, D) after all layers and at the exit (or
    None), and the embedding (K, V, D), which is the output matrix.

    copies: of one member, to look like as many (one compiled block serves both). hidden: the chance that a token is read as
    nothing, (K, 1, 1) as p. streams: a dictionary that gets the residual streams before the layers that are its keys.
    """
    cos, sin = rope_tables(cfg, ids.device)
    rows, t = seen.shape[0], seen.shape[-1]
    cos, sin = (x[position].view(rows, 1, t, -1) for x in (cos, sin))
    bias = torch.zeros(seen.shape, dtype=dtype, device=ids.device).masked_fill_(~seen, float("-inf"))
    wide = lambda w: w if copies == 1 else w.expand(copies, *w.shape[1:]).contiguous()
    emb = wide(weights["embedding.weight"].to(dtype))
    k, vocab, d = emb.shape
    offset = torch.arange(k, device=ids.device)[:, None] * vocab
    x, at_exit = dropped(F.embedding(ids + offset, emb.view(k * vocab, d)), p), None
    if hidden is not None:
        x = x * (torch.rand(*ids.shape, 1, device=x.device) >= hidden).to(x.dtype)
    final_gain = wide(weights["norm.weight"])
    for i in range(cfg["layers"]):
        w = [wide(v) for v in block_weights(weights, i, dtype)]
        if streams is not None and i in streams:
            streams[i] = x
        x = block(x, *w, cos, sin, bias, p, cfg["heads"], cfg["kv_heads"])
        if i + 1 == cfg.get("exit_layer", 0):
            at_exit = norm(x, final_gain)
    return norm(x, final_gain), at_exit, emb


class Optimizer:
    """Muon for the matrices of the blocks, AdamW for the rest, as optim.py; rates are tensors (K,), so that a graph can be replayed."""

    def __init__(self, weights, lr, adam_lr, decay, device):
        self.weights = weights
        self.shapes = {}
        for n, w in weights.items():
            if w.dim() == 3 and n != "embedding.weight":
                self.shapes.setdefault(tuple(w.shape[1:]), []).append(n)
        self.rest = [n for n, w in weights.items() if w.dim() == 2 or n == "embedding.weight"]
        put = lambda x: torch.tensor(x, dtype=torch.float32, device=device)
        self.lr, self.adam_lr, self.decay = put(lr), put(adam_lr), put(decay)
        self.factor, self.step_count, self.average_rate = put(1.0), put(0.0), put(1.0)
        self.momentum = {n: torch.zeros_like(w) for n, w in weights.items()}
        self.square = {n: torch.zeros_like(weights[n]) for n in self.rest}
        self.average = {n: w.clone() for n, w in weights.items()}

    def tensors(self):
        """Everything a step changes, for putting it back."""
        return [self.step_count, *self.weights.values(), *self.momentum.values(), *self.square.values(), *self.average.values()]

    @torch.no_grad()
    def step(self, grads):
        self.step_count += 1
        for shape, names in self.shapes.items():
            g = torch.stack([grads[n] for n in names], 1)
            buffer = torch.stack([self.momentum[n] for n in names], 1).lerp_(g, 0.05)
            update = orthogonalize(g.lerp_(buffer, 0.95).flatten(0, 1)).view(buffer.shape)
            rate = (self.lr * self.factor)[:, None, None]
            scale = max(1, shape[0] / shape[1]) ** 0.5
            for i, n in enumerate(names):
                self.momentum[n].copy_(buffer[:, i])
                self.weights[n].mul_(1 - rate * self.decay[:, None, None]).sub_(update[:, i] * rate * scale)
        total = sum(grads[n].square().flatten(1).sum(1) for n in self.rest).sqrt()
        clip = (1.0 / (total + 1e-6)).clamp(max=1.0)
        one, two = 1 - 0.9**self.step_count, 1 - 0.95**self.step_count
        for n in self.rest:
            like = (-1,) + (1,) * (grads[n].dim() - 1)
            g = grads[n] * clip.view(like)
            self.momentum[n].lerp_(g, 0.1)
            self.square[n].lerp_(g.square(), 0.05)
            update = self.momentum[n] / one / ((self.square[n] / two).sqrt() + 1e-8)
            self.weights[n].sub_(update * (self.adam_lr * self.factor).view(like))
        for n, w in self.weights.items():
            self.average[n].lerp_(w, self.average_rate)


class Stage:
    """Trains members for `seconds`: warm-up, a constant rate, then a linear decay over the last `decay` of the time.

    `loss(weights, index)` gives (what is minimised, the plain losses (K,)) of a batch of places, `rows(done)` the next batch
    when `done` of the time is over. Averaged weights are validated `every` times; the best of each member are kept.
    """

    def __init__(self, name, optimizer, loss, rows, seconds, log, validate, decay, warmup=30, span=100, every=8):
        self.name, self.opt, self.loss, self.rows, self.seconds, self.log = name, optimizer, loss, rows, seconds, log
        self.validate, self.decay, self.warmup, self.span, self.every = validate, decay, warmup, span, every
        self.device = optimizer.lr.device
        self.best, self.steps = None, 0

    def one_step(self):
        leaves = {n: w.detach().requires_grad_() for n, w in self.opt.weights.items()}
        loss, plain = self.loss(leaves, self.index)
        grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
        self.opt.step(grads)
        self.plain.copy_(plain)

    def prepare(self, example):
        """Static tensors, a few steps to compile and warm up, the capture; the weights are as before afterwards."""
        self.index = torch.from_numpy(example).to(self.device)
        self.plain = torch.zeros(len(self.opt.lr), device=self.device)
        self.graph = None
        if self.device.type != "cuda":
            return
        kept = [t.clone() for t in self.opt.tensors()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.one_step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        for t, k in zip(self.opt.tensors(), kept):
            t.copy_(k)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.one_step()

    def run(self):
        """(the best averaged weights of each member, their bits per byte)."""
        cuda = self.device.type == "cuda"
        self.prepare(self.rows(0.0))
        size = self.rows(0.0).size
        pinned = [torch.empty(self.index.shape, dtype=torch.int32, pin_memory=cuda) for _ in range(4)]
        scalars = [torch.empty(3, pin_memory=cuda) for _ in range(4)]
        events = [None] * 4
        begin, step, checked = time.time(), 0, 0
        while True:
            elapsed = time.time() - begin
            left = self.seconds - elapsed - (0.3 if cuda else 0)
            if left <= 0:
                break
            done = elapsed / self.seconds
            slot = step % 4
            if events[slot] is not None:
                events[slot].synchronize()
            pace = max(elapsed / step, 1e-4) if step else self.seconds / 1000
            span = min(self.span, step / 4 + 1, left / pace / 4 + 4)
            factor = min((step + 1) / self.warmup, 1.0, max(0.0, left) / (self.decay * self.seconds))
            pinned[slot].copy_(torch.from_numpy(self.rows(done)))
            scalars[slot][0], scalars[slot][1] = factor, 1 / span
            self.index.copy_(pinned[slot], non_blocking=True)
            self.opt.factor.copy_(scalars[slot][0], non_blocking=True)
            self.opt.average_rate.copy_(scalars[slot][1], non_blocking=True)
            if self.graph:
                self.graph.replay()
            else:
                self.one_step()
            if cuda:
                events[slot] = torch.cuda.Event()
                events[slot].record()
            step += 1
            if done * self.every >= checked + 1 or (checked == 0 and step == 20):
                checked = max(checked, int(done * self.every))
                self.check(step, begin, size)
        self.check(step, begin, size)
        self.steps = step
        return self.best

    def check(self, step, begin, size):
        bits = self.validate(self.opt.average)
        now = time.time() - begin
        self.log({"stage": self.name, "step": step, "seconds": round(now, 1), "tokens/s": int(step * size / now),
                  "loss": [round(x, 4) for x in self.plain.tolist()], "valid": [round(x, 4) for x in bits]})
        if self.best is None:
            self.best = {n: w.clone() for n, w in self.opt.average.items()}, list(bits)
            return
        weights, least = self.best
        for k, x in enumerate(bits):
            if x <= least[k]:
                least[k] = x
                for n, w in weights.items():
                    w[k].copy_(self.opt.average[n][k])


class Validation:
    """Bits per byte of the validation stories for each member, by README's protocol."""

    def __init__(self, corpus, items, bytes_, cfg, dtype):
        self.rows = torch.from_numpy(all_rows(corpus, items)).to(corpus.device)
        self.corpus, self.bytes, self.cfg, self.dtype = corpus, bytes_, cfg, dtype

    @torch.no_grad()
    def logits(self, weights):
        """(logits (K, n, V) in float of the places that count, targets (n,), the same of the exit or None), a few rows at a time."""
        k = len(weights["norm.weight"])
        for rows in self.rows.split(16):
            ids, targets, position, seen = self.corpus.look(rows, self.cfg.get("window", 0))
            flat = lambda x: x.flatten().expand(k, -1)
            final, at_exit, emb = states(weights, self.cfg, flat(ids), flat(position), seen.repeat(k, 1, 1, 1), dtype=self.dtype)
            keep = targets.flatten() >= 0
            z = lambda s: torch.bmm(s[:, keep], emb.mT).float()
            yield z(final), targets.flatten()[keep], None if at_exit is None else z(at_exit)

    def log_chances(self, weights):
        """The logarithm of the chance that each member gives to each token (K, n)."""
        return torch.cat([z.log_softmax(-1).gather(-1, targets.expand(len(z), -1)[..., None])[..., 0]
                          for z, targets, _ in self.logits(weights)], 1).double()

    def bits(self, log_chances):
        return (-log_chances.sum(-1) / math.log(2) / self.bytes).tolist()

    def __call__(self, weights):
        return self.bits(self.log_chances(weights))

    def of_mixture(self, weights, least=0.03, rounds=100):
        """(the shares of the members by which the mean of their distributions is best, none below `least`; bits per byte of it, and of
        the plain mean)."""
        logs = self.log_chances(weights)
        shares = torch.full_like(logs[:, :1], 1 / len(logs))
        plain = self.bits((logs + shares.log()).logsumexp(0))
        for i in range(2 * rounds):  # expectation, maximization
            if i == rounds:
                shares = torch.where(shares < least, 0.0, shares)
            shares = (logs + shares.log()).softmax(0).mean(1, keepdim=True)
        return shares[:, 0].tolist(), self.bits((logs + shares.log()).logsumexp(0)), plain

    def of_exit(self, weights):
        """(bits per byte of the exit, its acceptance) per member."""
        total, kept, count = 0, 0, 0
        for z, targets, y in self.logits(weights):
            total = total + -y.log_softmax(-1).gather(-1, targets.expand(len(z), -1)[..., None]).double().sum((1, 2))
            kept = kept + torch.minimum(z.softmax(-1), y.softmax(-1)).double().sum((1, 2))
            count += len(targets)
        return (total / math.log(2) / self.bytes).tolist(), (kept / count).tolist()
