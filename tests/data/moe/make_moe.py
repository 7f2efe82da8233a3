"""Writes config.json, model.safetensors and expected.json: a small Qwen2-MoE of transformers with random weights, its
logits, and the loss, router loss and gradient norm of three steps of SGD. Run in an environment with torch and
transformers (5.x): python make_moe.py"""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(0)
sizes = dict(vocab_size=48, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=4, num_experts_per_tok=2,
             norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], router_aux_loss_coef=0.05, hidden_act="silu",
             max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False)
config = Qwen2MoeConfig(**sizes, rope_theta=10000.0, attn_implementation="eager", output_router_logits=True,
                        bos_token_id=1, eos_token_id=2)
model = Qwen2MoeForCausalLM(config).float()
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0))
        p.copy_(p.bfloat16().float())

tensors = {}
for name, p in model.state_dict().items():
    if name.endswith("experts.gate_up_proj"):
        for e in range(config.num_experts):
            gate, up = p[e].chunk(2, dim=0)
            tensors[name.replace("gate_up_proj", f"{e}.gate_proj.weight")] = gate
            tensors[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = up
    elif name.endswith("experts.down_proj"):
        for e in range(config.num_experts):
            tensors[name.replace("down_proj", f"{e}.down_proj.weight")] = p[e]
    else:
        tensors[name] = p
save_file({k: v.bfloat16().contiguous() for k, v in tensors.items()}, os.path.join(here, "model.safetensors"),
          {"format": "pt"})
with open(os.path.join(here, "config.json"), "w") as f:
    json.dump(dict(architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", rope_theta=10000.0, bos_token_id=1,
                   eos_token_id=2, torch_dtype="bfloat16", **sizes), f, indent=2)

ids = torch.randint(3, 48, (2, 20))
with open(os.path.join(here, "rows.jsonl"), "w") as f:
    for row in ids.tolist():
        f.write(json.dumps(dict(input_ids=row, labels=row)) + "\n")
expected = dict(ids=ids.tolist(), steps=[])
with torch.no_grad():
    expected["logits"] = [[round(v, 6) for v in row] for row in model(ids[:1]).logits[0].tolist()]
LR = 0.05
for step in range(3):
    model.zero_grad()
    out = model(ids, labels=ids)
    out.loss.backward()
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
    expected["steps"].append(dict(loss=out.loss.item(), router_loss=out.aux_loss.item(), grad_norm=norm.item()))
    with torch.no_grad():
        for p in model.parameters():
            p -= LR * p.grad
with open(os.path.join(here, "expected.json"), "w") as f:
    json.dump(expected, f)
print(expected["steps"])
