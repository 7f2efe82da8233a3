"""Writes tests/data/ops.json: results and gradients of PyTorch, in float64, for the cases of
tests/support/op_cases.h under the same names. Run by hand after a case is added:
    python tests/unit/tensor/make_reference.py > tests/data/ops.json
Inputs come from the generator of tests/support/backend.h, so they need not be stored."""
import json
import math

import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1


class Uniform:
    def __init__(self, state):
        self.state = state & MASK

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 40) / 8388608.0 - 1


def f32(value):
    return torch.tensor(value, dtype=torch.float64).to(torch.float32).to(torch.float64)


def weight(i):
    u = Uniform(i * 77 + 5)
    u.next()
    return u.next()


# The batch of gradient.h: segments of 3, 1 and 4 tokens; `shared`: the first is the others' prompt.
CU = [0, 3, 4, 8]
TOKENS = [2, 0, 2, 4, 1, 1, 3, 0]
ROW_TARGET = [0, 2, 1, 1, 3, 0]


def positions(shared=False):
    return [i - CU[s] + (3 if shared and s else 0) for s in range(3) for i in range(CU[s], CU[s + 1])]


def rope(x, n_heads, half):
    inv = torch.tensor([1.0, 0.37, 0.05][:half], dtype=torch.float64)
    angle = torch.tensor(positions(), dtype=torch.float64)[:, None] * inv
    cos, sin = 1.3 * angle.cos()[:, None], 1.3 * angle.sin()[:, None]
    h = x.view(x.shape[0], n_heads, -1)
    a, b, rest = h[..., :half], h[..., half:2 * half], h[..., 2 * half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).view_as(x)


def attention(q, k, v, heads, kv_heads, width, window=0, shared=False, cap=0, sinks=None):
    seg = [s for s in range(3) for _ in range(CU[s], CU[s + 1])]
    pos = positions(shared)
    visible = torch.zeros(8, 8, dtype=torch.bool)
    for i in range(8):
        for j in range(8):
            own = seg[i] == seg[j] or (shared and seg[j] == 0)
            visible[i, j] = own and pos[j] <= pos[i] and (window == 0 or pos[i] - pos[j] < window)
    q = q.view(8, heads, width).transpose(0, 1)
    k = k.view(8, kv_heads, width).transpose(0, 1).repeat_interleave(heads // kv_heads, 0)
    v = v.view(8, kv_heads, width).transpose(0, 1).repeat_interleave(heads // kv_heads, 0)
    if sinks is not None:
        scores = (0.7 * q @ k.transpose(1, 2)).masked_fill(~visible, -torch.inf)
        y = torch.cat([scores, sinks[:, None, None].expand(heads, 8, 1)], -1).softmax(-1)[..., :-1] @ v
    elif cap:
        scores = cap * torch.tanh(0.7 * q @ k.transpose(1, 2) / cap)
        y = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v
    else:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=0.7)
    return y.transpose(0, 1).reshape(8, -1)


def rms(x, w):
    g = x.view(-1, w.shape[0])
    return F.rms_norm(g, w.shape, w, 1e-5).view_as(x)


def layer(x, w, b):
    return F.layer_norm(x, w.shape, w, b, 1e-5)


def add_norm(norm, a, b, *w):
    s = a + b
    return s * norm(s, *w)


def three_linears(x, p, q):
    return (x @ p.T) * (x @ q.T) + x @ p.T


def residual(x, w, p):
    return (x + rms(x, w) @ p.T) * x


def remade(x, w, b, p):
    n = rms(x, w)
    nn = layer(n, w, b)
    return ((F.silu(n) * nn) @ p.T) * (nn @ p.T)


def slices(x, _):
    a, b = x[:, 0:2], x[:, 1:3]
    return a * b * b[:, 1:2]


def gather(x, _):
    zero = torch.zeros_like(x[:1])
    return torch.cat([x[2:3], x[0:1], zero, x[2:3], x[1:2]])


def segment_sum(x, _):
    return torch.stack([x[0] + x[1], torch.zeros_like(x[0]), x[3]])


def head(x, w, b=None, scale=1.0, cap=0.0, entropy=False, shared=False):
    row_token = [0, 1, 2, 2, 5, 6] if shared else [0, 1, 3, 4, 5, 6]
    z = scale * F.linear(x[row_token], w, b)
    if cap:
        z = cap * torch.tanh(z / cap)
    if entropy:
        z = z / 0.8
    lp = torch.log_softmax(z, -1)
    y = lp[torch.arange(6), torch.tensor(ROW_TARGET)]
    return y * y * -(lp.exp() * lp).sum(-1) + z.logsumexp(-1) ** 2 if entropy else y


def max_columns(x):
    return torch.amax(x, -1)


CASES = {}


def case(name, function, *shapes, ranges=None):
    CASES[name] = (function, shapes, ranges or {})


case("linear: plain", lambda x, w: x @ w.T, (5, 7), (3, 7))
case("linear: bias", F.linear, (5, 7), (3, 7), (3,))
case("linear: one row", F.linear, (1, 3), (17, 3), (17,))
case("linear: 3 dimensions", lambda x, w: x @ w.T, (2, 3, 5), (4, 5))
case("shared: three linears", three_linears, (3, 4), (5, 4), (5, 4))
case("shared: residual", residual, (3, 5), (5,), (5, 5))
case("shared: norms of norms", remade, (3, 5), (5,), (5,), (4, 5))
case("matmul: ..", lambda a, b: a @ b, (3, 5), (5, 4))
case("matmul: T.", lambda a, b: a.T @ b, (5, 3), (5, 4))
case("matmul: .T", lambda a, b: a @ b.T, (3, 5), (4, 5))
case("matmul: TT", lambda a, b: a.T @ b.T, (5, 3), (4, 5))
case("embedding: tokens", lambda t: t[TOKENS], (5, 3))
case("embedding: positions", lambda t: t[positions()], (4, 3))
case("rope: whole heads", lambda x: rope(x, 2, 3), (8, 12))
case("rope: a part of each head", lambda x: rope(x, 2, 2), (8, 14))
QKV = [(8, 6)] * 3
case("attention: plain", lambda *x: attention(*x, 2, 2, 3), *QKV)
case("attention: window", lambda *x: attention(*x, 2, 2, 3, window=2), *QKV)
case("attention: shared prompt", lambda *x: attention(*x, 2, 2, 3, shared=True), *QKV)
case("attention: grouped queries", lambda *x: attention(*x, 4, 2, 5, shared=True), (8, 20), (8, 10), (8, 10))
case("attention: capped scores", lambda *x: attention(*x, 2, 2, 3, shared=True, cap=0.4), *QKV)
case("attention: rotated", lambda q, k, v: attention(rope(q, 4, 2), rope(k, 2, 2), v, 4, 2, 5), (8, 20), (8, 10), (8, 10))
case("attention: sinks", lambda q, k, v, s: attention(q, k, v, 4, 2, 5, window=2, shared=True, sinks=s), (8, 20), (8, 10),
     (8, 10), (4,))
case("norm: rms", rms, (3, 7), (7,))
case("norm: rms of heads", rms, (3, 10), (5,))
case("norm: layer", layer, (3, 7), (7,), (7,))
case("norm: add rms", lambda a, b, w: add_norm(rms, a, b, w), (3, 7), (3, 7), (7,))
case("norm: rms around 0", lambda x, w: rms(x, 1 + w), (3, 10), (5,))
case("norm: add rms around 0", lambda a, b, w: add_norm(rms, a, b, 1 + w), (3, 7), (3, 7), (7,))
case("norm: add layer", lambda a, b, w, c: add_norm(layer, a, b, w, c), (3, 7), (3, 7), (7,), (7,))
case("glu: silu", lambda g, u: F.silu(g) * u, (3, 19), (3, 19), ranges={0: (0, 3)})
case("glu: gelu tanh", lambda g, u: F.gelu(g, approximate="tanh") * u, (3, 19), (3, 19), ranges={0: (0, 3)})

UNARY = {
    "neg": (torch.neg, 0, 1), "exp": (torch.exp, 0, 1), "log": (torch.log, 2, 1), "sqrt": (torch.sqrt, 2, 1),
    "square": (torch.square, 0, 1), "reciprocal": (torch.reciprocal, 2, 1), "abs": (torch.abs, 1.5, 1),
    "abs below 0": (torch.abs, -1.5, 1), "relu": (torch.relu, 1.5, 1), "relu below 0": (torch.relu, -1.5, 1),
    "sigmoid": (torch.sigmoid, 0, 3), "log_sigmoid": (F.logsigmoid, 0, 3), "softplus": (F.softplus, 0, 3),
    "tanh": (torch.tanh, 0, 2), "silu": (F.silu, 0, 3), "gelu": (F.gelu, 0, 3),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), 0, 3), "expm1": (torch.expm1, 0, 1),
    "log1p": (torch.log1p, 2, 1), "affine": (lambda x: 0.7 * x + 0.2, 0, 1),
    "clamp inside": (lambda x: x.clamp(-3, 4), 1, 1), "clamp outside": (lambda x: x.clamp(-3, 4), 9, 1),
    "pow": (lambda x: x ** 2.5, 2, 1), "pow of a negative number": (lambda x: x ** 3, -2, 1),
}
for name, (function, middle, reach) in UNARY.items():
    case("unary: " + name, function, (3, 5), ranges={0: (middle, reach)})

BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "min": torch.minimum,
          "max": torch.maximum}
PAIRS = [((3, 5), b) for b in [(3, 5), (1, 5), (3, 1), (1, 1)]] + [(a, (3, 5)) for a in [(1, 5), (3, 1), (1, 1)]]
for name, function in BINARY.items():
    for a, b in PAIRS:
        case(f"binary: {name} [{a[0]},{a[1]}] [{b[0]},{b[1]}]", function, a, b, ranges={1: (2.2, 1)})
for name in ["add", "sub", "mul"]:
    case("same: " + name, lambda x, f=BINARY[name]: f(x, x), (3, 5))
case("where: by sign", lambda a, b, m: torch.where(m > 0, a, b), (3, 5), (3, 5), (3, 5), ranges={2: (0, 40)})

REDUCE = {"sum": lambda x: x.sum().view(1), "mean": lambda x: x.mean().view(1), "sum_columns": lambda x: x.sum(1),
          "sum_rows": lambda x: x.sum(0), "max_columns": max_columns, "log_sum_exp": lambda x: x.logsumexp(1),
          "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(1)}
for name, function in REDUCE.items():
    case("reduce: " + name, function, (3, 7), ranges={0: (0, 2)})

ROWS = {"reshape": lambda x, _: x.reshape(2, 3, 2), "slice of rows": lambda x, _: x[1:3],
        "slices of slices": slices, "concat": lambda x, z: torch.cat([x, z, x]), "transpose": lambda x, _: x.T,
        "gather": gather, "segment sum": segment_sum, "rows of columns": lambda x, _: x[1:3, 1:3] ** 2}
for name, function in ROWS.items():
    case("rows: " + name, function, (4, 3), (2, 3))
for name in ["slice of rows", "concat", "gather", "segment sum"]:
    case("vectors: " + name, ROWS[name], (4,), (2,))

case("head: plain", head, (8, 3), (5, 3))
case("head: bias, scale and cap", lambda x, w, b: head(x, w, b, 0.6, 2.5), (8, 3), (5, 3), (5,))
case("head: entropy", lambda x, w, b: head(x, w, b, 0.6, 2.5, entropy=True), (8, 3), (5, 3), (5,))
case("head: rows that share a token", lambda x, w: head(x, w, shared=True), (8, 3), (5, 3))


def numbers(t):
    return [float(f"{v:.12g}") for v in t.detach().reshape(-1).tolist()]


def run(function, shapes, ranges):
    uniform = Uniform(42)
    operands = []
    for i, shape in enumerate(shapes):
        middle, reach = ranges.get(i, (0, 1))
        values = [middle + reach * uniform.next() for _ in range(math.prod(shape))]
        operands.append(f32(values).view(shape).requires_grad_())
    y = function(*operands)
    seed = f32([weight(i) for i in range(y.numel())]).view(y.shape)
    grads = torch.autograd.grad(y, operands, seed, allow_unused=True)
    return {"output": numbers(y),
            "grads": [numbers(g if g is not None else torch.zeros_like(x)) for g, x in zip(grads, operands)]}


result = {name: run(*c) for name, c in CASES.items()}
print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in result.items()) + "\n}")
