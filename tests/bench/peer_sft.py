#!/usr/bin/env python3
"""The PyTorch side of the training benchmark: full AdamW steps on fixed tokens by transformers' model, f32 weights and
moments, fused AdamW, torch's own scaled_dot_product_attention, and with --bf16 products in bf16 (autocast).

make:  peer_sft.py make CONFIG_JSON DIR --rows N --batch B --length T [--mix]
       writes a randomly initialised model and pre-tokenized rows that both sides train on
run:   peer_sft.py run DIR --batch B --steps N [--device cpu|cuda] [--threads K] [--bf16] [--compile] [--packed]
       prints one JSON object: seconds of each step, losses, peak resident bytes, on a GPU the peaks of its pool

Rows of different lengths are padded to the longest of a batch, as a loop is usually written; --packed lays them one after
another with position ids, from which transformers makes the mask. --compile compiles the model, and counts in no step
but the first ones.
"""
import argparse
import json
import os
import random
import resource
import time


def lengths(args, rng):
    if not args.mix:
        return [args.length] * args.rows
    return [max(8, min(args.length, int(rng.lognormvariate(5.3, 0.8)))) for _ in range(args.rows)]


def make(args):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(args.config)
    for name in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(args.dir)
    rng = random.Random(1)
    with open(os.path.join(args.dir, "rows.jsonl"), "w") as f:
        for n in lengths(args, rng):
            ids = [rng.randrange(3, config.vocab_size) for _ in range(n)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def padded(rows, device):
    """Arguments of the model; no mask where all rows are of one length."""
    import torch

    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = labels[i, :len(row)] = torch.tensor(row)
        mask[i, :len(row)] = 1
    batch = {"input_ids": ids.to(device), "labels": labels.to(device)}
    return batch if mask.all() else {**batch, "attention_mask": mask.to(device)}


def packed(rows, device):
    """All rows in one; nothing predicts the first token of a row."""
    import torch

    ids = torch.tensor([[t for row in rows for t in row]])
    positions = torch.tensor([[i for row in rows for i in range(len(row))]])
    labels = torch.where(positions == 0, -100, ids)
    return {"input_ids": ids.to(device), "labels": labels.to(device), "position_ids": positions.to(device)}


def run(args):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.dir, dtype=torch.float32, attn_implementation="sdpa").to(args.device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    forward = torch.compile(model) if args.compile else model
    with open(os.path.join(args.dir, "rows.jsonl")) as f:
        rows = [json.loads(line)["input_ids"] for line in f]
    seconds, losses = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        batch = (packed if args.packed else padded)(rows[step * args.batch:(step + 1) * args.batch], args.device)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
            loss = forward(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())  # waits for the device
        seconds.append(time.perf_counter() - start)
    result = {"side": "torch", "version": torch.__version__, "seconds": seconds, "losses": losses,
              "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if args.device == "cuda":
        result.update(peak_used_bytes=torch.cuda.max_memory_allocated(), peak_held_bytes=torch.cuda.max_memory_reserved())
    print(json.dumps(result))


def main():
    parser = argparse.ArgumentParser()
    sub = parser.add_subparsers(dest="verb", required=True)
    p = sub.add_parser("make")
    p.add_argument("config")
    p.add_argument("dir")
    p.add_argument("--rows", type=int, required=True)
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--length", type=int, required=True)
    p.add_argument("--mix", action="store_true")
    p = sub.add_parser("run")
    p.add_argument("dir")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--packed", action="store_true")
    args = parser.parse_args()
    {"make": make, "run": run}[args.verb](args)


main()
