"""Writes z_loss.json into the directory of each family: the loss with a z-loss of coefficient 0.1, the z-loss and the gradient
norm of three steps of SGD in float64, by transformers and PyTorch; transformers itself has no z-loss for these families. Run
in an environment with torch and transformers (5.x), after make_experts.py: python make_z_loss.py"""
import json
import os

import torch
from transformers import AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
LR, COEFFICIENT = 0.05, 0.1

for family in ("qwen3_moe", "mixtral", "olmoe", "gpt_oss"):
    path = os.path.join(here, family)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", experts_implementation="eager",
                                                 dtype=torch.float64)
    with open(os.path.join(path, "rows.jsonl")) as f:
        ids = torch.tensor([json.loads(line)["input_ids"] for line in f])
    # The code of the models computes norms and softmaxes in float32.
    to_float, float32 = torch.Tensor.float, torch.float32
    torch.Tensor.float, torch.float32, torch.float = torch.Tensor.double, torch.float64, torch.float64
    steps = []
    for _ in range(3):
        model.zero_grad()
        out = model(ids, labels=ids, output_router_logits=True)
        z = torch.cat([torch.logsumexp(scores, -1) ** 2 for scores in out.router_logits]).mean()
        loss = out.loss + COEFFICIENT * z
        if not model.config.output_router_logits:
            loss = loss - model.config.router_aux_loss_coef * out.aux_loss
        assert loss.dtype == torch.float64
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters() if p.grad is not None))
        steps.append(dict(loss=loss.item(), router_z_loss=z.item(), grad_norm=norm.item()))
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p -= LR * p.grad
    torch.Tensor.float, torch.float32, torch.float = to_float, float32, float32
    with open(os.path.join(path, "z_loss.json"), "w") as f:
        json.dump(dict(coefficient=COEFFICIENT, steps=steps), f)
    print(family, steps)
