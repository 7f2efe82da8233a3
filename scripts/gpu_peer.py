"""gpu_peer.py CONFIG.json ROWS.jsonl BATCH DEVICE: steps of AdamW by torch and transformers on rows of token ids, as one
JSON line. f32 weights and moments, products in bf16 (autocast), fused optimizer, attention by torch's own
scaled_dot_product_attention, no compilation: what a user has who changes nothing. Called by gpu_check.sh."""
import json
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

WARM, STEPS = 3, 10


def main():
    config_path, rows_path, batch, device = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    with open(config_path) as f:
        fields = json.load(f)
    config = AutoConfig.for_model(**fields)
    with open(rows_path) as f:
        rows = torch.tensor([json.loads(line)["input_ids"] for line in f])
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    losses, times = [], []
    for step in range(WARM + STEPS):
        at = step * batch % len(rows)
        ids = rows[at : at + batch].to(device)
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
    median = sorted(times[WARM:])[STEPS // 2]
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    print(json.dumps({"tokens_per_s": batch * rows.shape[1] / median, "step_seconds_median": median,
                      "first_loss": losses[0], "last_loss": losses[-1], "peak_bytes": peak,
                      "torch": torch.__version__}))


main()
