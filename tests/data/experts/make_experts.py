"""Writes one directory for each family: config.json and model.safetensors as transformers saves them, of a small mixture of
experts with random weights, rows.jsonl, and expected.json with its logits and the loss, router loss and gradient norm of
three steps of SGD. Run in an environment with torch and transformers (5.x): python make_experts.py"""
import copy
import json
import os

import torch
from transformers import AutoConfig, AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
LR = 0.05
shared = dict(vocab_size=48, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
              num_experts_per_tok=2, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
families = {
    # the first layer has an MLP
    "qwen3_moe": dict(num_experts=4, moe_intermediate_size=12, intermediate_size=20, head_dim=8, norm_topk_prob=True,
                      mlp_only_layers=[0], decoder_sparse_step=1, output_router_logits=True, router_aux_loss_coef=0.05),
    "mixtral": dict(num_local_experts=6, intermediate_size=12, head_dim=8, sliding_window=9, output_router_logits=True,
                    router_aux_loss_coef=0.05),
    # without a balance loss, and with queries, keys and values between -1 and 1
    "olmoe": dict(num_experts=8, intermediate_size=12, clip_qkv=1.0, output_router_logits=False),
}

for family, sizes in families.items():
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **shared, **sizes)
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
    expected = dict(ids=ids.tolist(), steps=[])
    with torch.no_grad():
        expected["logits"] = [[round(v, 6) for v in row] for row in model(ids[:1]).logits[0].tolist()]
    for step in range(3):
        model.zero_grad()
        out = model(ids, labels=ids)
        out.loss.backward()
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters() if p.grad is not None))
        values = dict(loss=out.loss.item(), grad_norm=norm.item())
        if out.aux_loss is not None:
            values["router_loss"] = out.aux_loss.item()
        expected["steps"].append(values)
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p -= LR * p.grad
    with open(os.path.join(to, "expected.json"), "w") as f:
        json.dump(expected, f)
    print(family, expected["steps"])
