#!/usr/bin/env python3
"""20 steps of sharpness-aware minimization in PyTorch, in fp64 on tests/data/models/llama and the rows of tests/data/objectives.
Writes sam.json beside this file. Needs torch and transformers.

Every step takes the next 4 rows, as nrl does with data.shuffle: false; the loss is a mean over the trained tokens. The
gradient at the weights gives the norm and the climb, the gradient there, clipped where the case says so, the update.
"""
import json, os
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "models", "llama")
ROWS = os.path.join(HERE, "..", "objectives", "rows.jsonl")
STEPS, BATCH = 20, 4
torch.use_deterministic_algorithms(True)

CASES = [
    {"base": "adamw", "rho": 0.05, "lr": 2e-3, "clip": 0.0},
    {"base": "adamw", "rho": 0.5, "lr": 2e-3, "clip": 0.5},
    {"base": "sgd", "rho": 0.2, "lr": 5e-2, "momentum": 0.9, "clip": 0.0},
    {"base": "sgd", "rho": 0.1, "lr": 1e-1, "momentum": 0.0, "clip": 0.25},
]


def batches():
    rows = [json.loads(line) for line in open(ROWS)]
    for step in range(STEPS):
        part = rows[step * BATCH:(step + 1) * BATCH]
        n = max(len(r["input_ids"]) for r in part)
        pad = lambda key, x: torch.tensor([r[key] + [x] * (n - len(r[key])) for r in part])
        mask = torch.tensor([[1] * len(r["input_ids"]) + [0] * (n - len(r["input_ids"])) for r in part])
        yield pad("input_ids", 0), pad("labels", -100), mask


def run(case):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64, attn_implementation="eager")
    params = [p for p in model.parameters() if p.requires_grad]
    if case["base"] == "adamw":
        base = torch.optim.AdamW(params, lr=case["lr"], weight_decay=0.0)
    else:
        base = torch.optim.SGD(params, lr=case["lr"], momentum=case["momentum"])

    def gradient(ids, labels, mask):
        base.zero_grad()
        z = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
        keep = labels[:, 1:] != -100
        loss = F.cross_entropy(z[keep], labels[:, 1:][keep])
        loss.backward()
        return loss

    losses, norms = [], []
    for batch in batches():
        loss = gradient(*batch)
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        old = [p.detach().clone() for p in params]
        with torch.no_grad():
            for p in params:
                p.add_(p.grad, alpha=case["rho"] / (float(norm) + 1e-12))
        gradient(*batch)
        with torch.no_grad():
            for p, w in zip(params, old):
                p.copy_(w)
        if case["clip"]:
            torch.nn.utils.clip_grad_norm_(params, case["clip"])
        base.step()
        losses.append(float(loss))
        norms.append(float(norm))
    return {**case, "losses": losses, "norms": norms}


if __name__ == "__main__":
    with open(os.path.join(HERE, "sam.json"), "w") as f:
        json.dump({"steps": STEPS, "global_batch": BATCH, "cases": [run(c) for c in CASES]}, f, indent=1)
        f.write("\n")
