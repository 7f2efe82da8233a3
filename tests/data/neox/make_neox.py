"""Writes config.json, model.safetensors, rows.jsonl and expected.json: a small GPT-NeoX of transformers with random weights,
its logits, and the loss and gradient norm of three steps of SGD. Run in an environment with torch and transformers (5.x):
python make_neox.py"""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(0)
sizes = dict(vocab_size=48, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
             hidden_act="gelu", max_position_embeddings=64, layer_norm_eps=1e-5, use_parallel_residual=True,
             tie_word_embeddings=False)
rope = dict(rope_theta=10000.0, partial_rotary_factor=0.5)
config = GPTNeoXConfig(**sizes, rope_parameters=dict(rope_type="default", **rope), attn_implementation="eager",
                       bos_token_id=1, eos_token_id=2)
model = GPTNeoXForCausalLM(config).float()
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0))
        p.copy_(p.bfloat16().float())
save_file({k: v.bfloat16().contiguous() for k, v in model.state_dict().items()}, os.path.join(here, "model.safetensors"),
          {"format": "pt"})
with open(os.path.join(here, "config.json"), "w") as f:
    json.dump(dict(architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", rotary_pct=0.5, rotary_emb_base=10000,
                   bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16", **sizes), f, indent=2)

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
    expected["steps"].append(dict(loss=out.loss.item(), grad_norm=norm.item()))
    with torch.no_grad():
        for p in model.parameters():
            p -= LR * p.grad
with open(os.path.join(here, "expected.json"), "w") as f:
    json.dump(expected, f)
    f.write("\n")
