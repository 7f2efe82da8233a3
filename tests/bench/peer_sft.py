#!/usr/bin/env python3
"""The PyTorch side of the training benchmark: full AdamW steps on fixed tokens, eager transformers.

make:  peer_sft.py make CONFIG_JSON DIR --rows N --batch B --length T [--mix]
       writes a randomly initialised model and pre-tokenized rows that both sides train on
run:   peer_sft.py run DIR --batch B --steps N [--threads K] [--bf16] [--compile]
       prints one JSON object: seconds of each step, losses, peak resident bytes
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


def run(args):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    model = AutoModelForCausalLM.from_pretrained(args.dir, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    forward = torch.compile(model) if args.compile else model
    rows = [json.loads(line)["input_ids"] for line in open(os.path.join(args.dir, "rows.jsonl"))]
    seconds, losses = [], []
    for step in range(args.steps):
        ids = torch.tensor(rows[step * args.batch:(step + 1) * args.batch])
        start = time.perf_counter()
        with torch.autocast("cpu", dtype, enabled=args.bf16):
            loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"side": "torch", "version": torch.__version__, "seconds": seconds, "losses": losses,
                      "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


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
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    {"make": make, "run": run}[args.verb](args)


main()
