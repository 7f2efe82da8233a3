"""Writes tests/data/operations.json: results and gradients of PyTorch, in float64, for the cases of test_operations.c under
the same names. Run by hand after a case is added:
    python tests/unit/operations/make_operations.py > tests/data/operations.json"""
import contextlib
import io
import json
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tensor"))
with contextlib.redirect_stdout(io.StringIO()):
    from make_reference import CU, positions, run


def sequences(shared):
    """Rows of each sequence in order, and how many of the first belong to a shared prompt."""
    prompt = list(range(CU[0], CU[1])) if shared else []
    return [(prompt if shared and s else [], list(range(CU[s], CU[s + 1]))) for s in range(3)]


def scan(a, b, shared=False):
    rows = {}
    for prompt, own in sequences(shared):
        h = rows[prompt[-1]] if prompt else torch.zeros(a.shape[1], dtype=a.dtype)
        for t in own:
            h = rows[t] = a[t] * h + b[t]
    return torch.stack([rows[t] for t in range(a.shape[0])])


def conv1d(x, w, bias, shared=False):
    rows = {}
    for prompt, own in sequences(shared):
        z = x[prompt + own].T[None]  # [1,C,T]
        y = F.conv1d(F.pad(z, (w.shape[1] - 1, 0)), w[:, None], bias, groups=w.shape[0])[0].T
        for t, row in zip(own, y[len(prompt):]):
            rows[t] = row
    return torch.stack([rows[t] for t in range(x.shape[0])])


def rope_interleaved(x, n_heads, half):
    inv = torch.tensor([1.0, 0.37, 0.05][:half], dtype=torch.float64)
    angle = torch.tensor(positions(), dtype=torch.float64)[:, None] * inv
    cos, sin = 1.3 * angle.cos()[:, None], 1.3 * angle.sin()[:, None]
    h = x.view(x.shape[0], n_heads, -1)
    a, b, rest = h[..., :2 * half:2], h[..., 1:2 * half:2], h[..., 2 * half:]
    pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([pairs, rest], -1).view_as(x)


def attention(q, k, v, sinks=None, slopes=None, window=0, shared=False):
    heads, kv_heads, width = 4, 2, 3
    seg = [s for s in range(3) for _ in range(CU[s], CU[s + 1])]
    pos = torch.tensor(positions(shared))
    q = q.view(8, heads, width).transpose(0, 1)
    k = k.view(8, kv_heads, width).transpose(0, 1).repeat_interleave(heads // kv_heads, 0)
    v = v.view(8, kv_heads, width).transpose(0, 1).repeat_interleave(heads // kv_heads, 0)
    distance = (pos[:, None] - pos[None]).double()
    scores = 0.7 * q @ k.transpose(1, 2)
    if slopes is not None:
        scores = scores - torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance
    visible = torch.tensor([[(seg[i] == seg[j] or (shared and seg[j] == 0)) and 0 <= distance[i, j] and
                             (window == 0 or distance[i, j] < window) for j in range(8)] for i in range(8)])
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(heads, 8, 1)], -1)
    p = scores.softmax(-1)[..., :8]
    return (p @ v).transpose(0, 1).reshape(8, -1)


def clamped_swiglu(x, alpha, limit):
    gate, up = x[:, ::2].clamp(max=limit), x[:, 1::2].clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


QKV = [(8, 12), (8, 6), (8, 6)]
SLOPES = [2.0 ** (-2 * (h + 1)) for h in range(4)]  # of 4 heads
CASES = {
    "top_k: values": (lambda x: x.topk(3, dim=1).values, (5, 6)),
    "swiglu: clamped": (lambda x: clamped_swiglu(x, 1.702, 0.5), (5, 8)),
    "columns: concat": (lambda a, b: torch.cat([a, b, a], 1), (3, 2), (3, 4)),
    "columns: split": (lambda x: x[:, 2:5] * x[:, 5:8], (4, 9)),
    "rope: interleaved": (lambda x: rope_interleaved(x, 2, 3), (8, 12)),
    "rope: interleaved, a part": (lambda x: rope_interleaved(x, 2, 2), (8, 12)),
    "scan: segments": (scan, (8, 5), (8, 5)),
    "scan: a shared prompt": (lambda a, b: scan(a, b, True), (8, 5), (8, 5)),
    "conv1d: segments": (conv1d, (8, 5), (5, 3), (5,)),
    "conv1d: a shared prompt": (lambda x, w, b: conv1d(x, w, b, True), (8, 5), (5, 3), (5,)),
    "attention: alibi": (lambda q, k, v: attention(q, k, v, slopes=SLOPES), *QKV),
    "attention: sinks": (lambda q, k, v, s: attention(q, k, v, s), *QKV, (4,)),
    "attention: both in a window": (lambda q, k, v, s: attention(q, k, v, s, SLOPES, 2), *QKV, (4,)),
    "attention: both with a shared prompt": (lambda q, k, v, s: attention(q, k, v, s, SLOPES, shared=True), *QKV, (4,)),
}
result = {name: run(function, shapes, {}) for name, (function, *shapes) in CASES.items()}
print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in result.items()) + "\n}")
