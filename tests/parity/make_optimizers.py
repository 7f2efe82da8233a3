#!/usr/bin/env python3
"""Records updates of PyTorch and bitsandbytes for tests/unit/optim/test_updates.c.

usage: make_optimizers.py OUT      (needs torch and bitsandbytes; writes tests/data/optim/updates.json)

Start values and gradients are not recorded: both sides draw them from the generator below. Of each parameter every
`every`-th element is recorded after each step.

  sgd        torch.optim.SGD in float64
  lion       Chen et al. 2023, program 2, in float64: PyTorch has none
  muon       the formulas of torch.optim.Muon in float64, which computes its iteration in bf16: the script checks that
             the two agree to the precision of bf16
  adamw8bit  bitsandbytes.optim.AdamW8bit in float32 on the CPU, with the rounding of its CUDA kernel: to the nearest
             entry, but never from below 0 to 0; its CPU code takes a neighbour of the nearest entry now and then
"""
import json
import sys

import bitsandbytes
import bitsandbytes.backends.cpu.ops as cpu_ops
import torch


def quantize_nearest(x, code, absmax_out, out, blocksize):
    blocks = torch.nn.functional.pad(x.reshape(-1), (0, -x.numel() % blocksize)).reshape(-1, blocksize)
    absmax = blocks.abs().max(dim=-1)[0]
    scaled = (blocks / absmax[:, None]).reshape(-1)[: x.numel()]
    best = torch.argmin((scaled[:, None] - code).abs(), dim=-1)
    best -= ((scaled < 0) & (code[best] >= 0)).long()
    out.copy_(best.to(torch.uint8).reshape(x.shape))
    absmax_out.copy_(absmax)


cpu_ops._quant_blockwise_fp32_direct = quantize_nearest


class Uniform:
    """The numbers of `uniform` in test_updates.c: 24 bits in [-1, 1)."""

    def __init__(self, seed):
        self.state = seed

    def draw(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**23 - 1

    def tensor(self, shape, dtype):
        n = 1
        for d in shape:
            n *= d
        return torch.tensor([self.draw() for _ in range(n)], dtype=dtype).reshape(shape)


def newton_schulz(u, eps, steps):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if u.shape[0] > u.shape[1] else x


class Lion:
    def __init__(self, params, lr, betas, weight_decay):
        self.params, self.lr, self.betas, self.decay = params, lr, betas, weight_decay
        self.m = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p, m in zip(self.params, self.m):
            p -= self.lr * (torch.sign(b1 * m + (1 - b1) * p.grad) + self.decay * p)
            m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Muon:
    def __init__(self, params, lr, momentum, weight_decay, adjust_lr_fn, nesterov=True, eps=1e-7, ns_steps=5):
        self.params, self.lr, self.momentum, self.decay = params, lr, momentum, weight_decay
        self.match, self.nesterov, self.eps, self.steps = adjust_lr_fn == "match_rms_adamw", nesterov, eps, ns_steps
        self.b = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self):
        for p, b in zip(self.params, self.b):
            b.lerp_(p.grad, 1 - self.momentum)
            u = p.grad.lerp(b, self.momentum) if self.nesterov else b
            rows, cols = p.shape
            ratio = 0.2 * max(rows, cols) ** 0.5 if self.match else max(1, rows / cols) ** 0.5
            p.mul_(1 - self.lr * self.decay)
            p.add_(newton_schulz(u, self.eps, self.steps), alpha=-self.lr * ratio)


def run(case, make, dtype):
    draw = Uniform(case["seed"])
    params = [torch.nn.Parameter(draw.tensor(s, dtype)) for s in case["shapes"]]
    o, after = make(params), []
    for step in range(case["steps"]):
        for p in params:
            p.grad = draw.tensor(p.shape, dtype) * 2.0 ** (step % 3)
        o.step()
        after.append([p.detach().reshape(-1)[:: case["every"]].tolist() for p in params])
    return {**case, "after": after}


def close(a, b, room):
    worst = max(abs(x - y) for s, t in zip(a["after"], b["after"]) for p, q in zip(s, t) for x, y in zip(p, q))
    assert worst < room, worst


def main(out):
    f64, f32 = torch.float64, torch.float32
    matrices = {"shapes": [[12, 20], [20, 12]], "steps": 5, "every": 7, "lr": 0.02}
    cases = []

    def add(case, make, dtype=f64):
        cases.append(run(case, make, dtype))
        return cases[-1]

    small = {"shapes": [[4, 3], [5]], "steps": 6, "every": 1, "lr": 0.01}
    add({"name": "sgd", "options": "{momentum: 0.9, dampening: 0.1, weight_decay: 0.1}", "seed": 1, **small},
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1, weight_decay=0.1))
    add({"name": "lion", "options": "{weight_decay: 0.1}", "seed": 2, **small},
        lambda p: Lion(p, 0.01, (0.9, 0.99), 0.1))
    for k, adjust in enumerate(("match_rms_adamw", "original")):
        case = {"name": "muon", "options": "{weight_decay: 0.1, adjust_lr: %s}" % adjust, "seed": 3 + k, **matrices}
        ours = add(case, lambda p: Muon(p, 0.02, 0.95, 0.1, adjust))
        torchs = run(case, lambda p: torch.optim.Muon(p, lr=0.02, momentum=0.95, weight_decay=0.1, adjust_lr_fn=adjust), f32)
        close(ours, torchs, 5 * 0.02 * (20**0.5 * 0.2 if k == 0 else (20 / 12) ** 0.5) * 0.05)
    add({"name": "adamw8bit", "options": "{betas: [0.9, 0.95], weight_decay: 0.1}", "seed": 5, "shapes": [[64, 80], [4, 3]], "steps": 6,
         "every": 37, "lr": 0.01},
        lambda p: bitsandbytes.optim.AdamW8bit(p, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1), f32)
    add({"name": "adafactor", "options": "{weight_decay: 0.1}", "seed": 6, "shapes": [[12, 20], [7]], "steps": 6,
         "every": 3, "lr": 0.05},
        lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.1))
    versions = {"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__}
    with open(out, "w") as f:
        json.dump({"versions": versions, "cases": cases}, f)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
