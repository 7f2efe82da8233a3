"""Writes one directory for each family: config.json and model.safetensors as transformers saves them, of a small mixture of
experts with random weights, rows.jsonl, and expected.json with its logits and the loss, router loss and gradient norm of
three steps of SGD; and gpt_oss again with its experts as MXFP4. Run in an environment with torch and transformers (5.x):
python make_experts.py"""
import copy
import json
import os

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

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
    # sinks, windows in every second layer, positions stretched by YaRN; sizes that blocks of MXFP4 divide
    "gpt_oss": dict(hidden_size=32, num_local_experts=4, intermediate_size=32, head_dim=8, sliding_window=6,
                    output_router_logits=True, router_aux_loss_coef=0.05,
                    rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, beta_fast=4.0, beta_slow=1.0,
                                         truncate=False, original_max_position_embeddings=16)),
}
packed = {}  # of gpt_oss: blocks and scales


def use_mxfp4(model):
    """Gives the experts values that MXFP4 has, some large enough for the limit of 7."""
    for name, p in model.named_parameters():
        if p.dim() == 3:
            n, rows, cols = p.shape
            blocks = torch.randint(0, 256, (n, cols, rows // 32, 16), dtype=torch.uint8)
            scales = torch.randint(123, 127, (n, cols, rows // 32), dtype=torch.uint8)
            packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
            p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))


for family, sizes in families.items():
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**shared, **sizes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0))
            p.copy_(p.bfloat16().float())
        if family == "gpt_oss":
            use_mxfp4(model)
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

tensors = load_file(os.path.join(here, "gpt_oss", "model.safetensors"))
to = os.path.join(here, "gpt_oss_mxfp4")
os.makedirs(to, exist_ok=True)
plain = {name: t for name, t in tensors.items() if name + "_blocks" not in packed}
save_file({**plain, **packed}, os.path.join(to, "model.safetensors"), metadata={"format": "pt"})
with open(os.path.join(here, "gpt_oss", "config.json")) as f:
    config = json.load(f)
config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn",
                                     "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
with open(os.path.join(to, "config.json"), "w") as f:
    json.dump(config, f, indent=2)
