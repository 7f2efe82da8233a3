"""Writes gpt_oss/float64.json: loss and gradient norm of 30 steps of AdamW by transformers and PyTorch in float64, on the rows of
tests/e2e/expert_ranks.sh, four a step in their order, each with a balance loss of its own. Run in an environment with torch
and transformers (5.x), after make_experts.py: python make_float64.py"""
import json
import os

import torch
from transformers import AutoModelForCausalLM

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt_oss")
rows = [[3 + (i * 31 + t * t * 17) % 44 for t in range(6 + i * 7 % 19)] for i in range(32)]
model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", experts_implementation="eager",
                                             dtype=torch.float64)
# The code of the model computes norms and softmaxes in float32.
torch.Tensor.float, torch.float32, torch.float = torch.Tensor.double, torch.float64, torch.float64
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
steps = []
for step in range(30):
    batch = [rows[(4 * step + i) % len(rows)] for i in range(4)]
    targets, tokens = sum(len(row) - 1 for row in batch), sum(len(row) for row in batch)
    loss = 0
    optimizer.zero_grad()
    for row in batch:
        ids = torch.tensor([row])
        out = model(ids, output_router_logits=True)
        part = torch.nn.functional.cross_entropy(out.logits[0, :-1], ids[0, 1:], reduction="sum") / targets
        part = part + model.config.router_aux_loss_coef * out.aux_loss * len(row) / tokens
        part.backward()
        loss += part.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    steps.append(dict(loss=loss, grad_norm=norm.item()))
with open(os.path.join(path, "float64.json"), "w") as f:
    json.dump(dict(steps=steps), f)
