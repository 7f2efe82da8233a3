"""Writes one directory for each family: config.json and model.safetensors as transformers saves them, of a small model with
random weights, rows.jsonl, and expected.json with the loss and gradient norm of three steps of SGD. Run in an environment
with torch and transformers (5.x): python make_families.py"""
import copy
import json
import os

import torch
from transformers import AutoConfig, AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
LR = 0.05
shared = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
families = {
    "glm": dict(head_dim=8),
    "glm4": dict(head_dim=8),
    "ernie4_5": dict(head_dim=8, use_bias=True),
    # the first layer has a window, the second sees all tokens without positions
    "exaone4": dict(sliding_window=6, sliding_window_pattern=2),
    "hunyuan_v1_dense": dict(head_dim=8, rope_parameters=dict(rope_type="dynamic", alpha=100.0, factor=1.0,
                                                              rope_theta=10000.0)),
    "arcee": dict(mlp_bias=True),
}

for family, sizes in families.items():
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**shared, **sizes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0))
            p.copy_(p.bfloat16().float())
    to = os.path.join(here, family)
    copy.deepcopy(model).bfloat16().save_pretrained(to)
    os.remove(os.path.join(to, "generation_config.json"))
    ids = torch.randint(3, 48, (2, 20))
    with open(os.path.join(to, "rows.jsonl"), "w") as f:
        for row in ids.tolist():
            f.write(json.dumps(dict(input_ids=row, labels=row)) + "\n")
    steps = []
    for step in range(3):
        model.zero_grad()
        out = model(ids, labels=ids)
        out.loss.backward()
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
        steps.append(dict(loss=out.loss.item(), grad_norm=norm.item()))
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
    with open(os.path.join(to, "expected.json"), "w") as f:
        json.dump(dict(steps=steps), f)
    print(family, steps)
