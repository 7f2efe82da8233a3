#!/usr/bin/env python3
"""The PyTorch side of the DPO benchmark: padded batches of pairs, policy and reference forward, eager transformers.

make:  peer_dpo.py make CONFIG_JSON DIR
       writes a randomly initialised model that both sides start from
run:   peer_dpo.py run DIR --batch B --steps N [--threads K] [--answer-rows]
       prints one JSON object: seconds of each step, losses, peak resident bytes

As a padded loop is usually written, the head runs on every position; --answer-rows runs it only where an answer's
token is predicted.
"""
import argparse
import json
import os
import resource
import time

from common import read_lines

BETA = 0.1


def make(args):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(args.config)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(args.dir)


def pad(pairs):
    """Ids, attention mask and labels (-100 = not an answer) of all chosen sides, then all rejected ones."""
    import torch

    sides = [(p["prompt_input_ids"], p[k]) for k in ("chosen_input_ids", "rejected_input_ids") for p in pairs]
    longest = max(len(p) + len(a) for p, a in sides)
    ids = torch.zeros(len(sides), longest, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, (prompt, answer) in enumerate(sides):
        n = len(prompt) + len(answer)
        ids[i, :n] = torch.tensor(prompt + answer)
        mask[i, :n] = 1
        labels[i, len(prompt):n] = torch.tensor(answer)
    return ids, mask, labels


def log_probs(model, batch, answer_rows):
    """Sum of each side's answer log-probs."""
    import torch

    ids, mask, labels = batch
    labels = labels[:, 1:]
    if answer_rows:
        rows = labels != -100
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[:, :-1][rows]
        nll = torch.zeros(labels.shape)
        nll[rows] = torch.nn.functional.cross_entropy(model.lm_head(hidden), labels[rows], reduction="none")
        return -nll.sum(1)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return -nll.view(labels.shape).sum(1)


def dpo_loss(policy, reference, batch, answer_rows):
    import torch

    with torch.no_grad():
        ref = log_probs(reference, batch, answer_rows)
    chosen, rejected = (log_probs(policy, batch, answer_rows) - ref).chunk(2)
    return -torch.nn.functional.logsigmoid(BETA * (chosen - rejected)).mean()


def run(args):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    policy, reference = (AutoModelForCausalLM.from_pretrained(args.dir, dtype=torch.float32, attn_implementation="sdpa")
                         for _ in range(2))
    policy.train()
    reference.eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    pairs = read_lines(os.path.join(args.dir, "pairs.jsonl"))
    seconds, losses, padded = [], [], 0
    for step in range(args.steps):
        start = time.perf_counter()
        batch = pad(pairs[step * args.batch:(step + 1) * args.batch])
        loss = dpo_loss(policy, reference, batch, args.answer_rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        padded += batch[0].numel()
    print(json.dumps({"side": "torch", "version": torch.__version__, "seconds": seconds, "losses": losses,
                      "padded_tokens": padded, "attention": policy.config._attn_implementation,
                      "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main():
    parser = argparse.ArgumentParser()
    sub = parser.add_subparsers(dest="verb", required=True)
    p = sub.add_parser("make")
    p.add_argument("config")
    p.add_argument("dir")
    p = sub.add_parser("run")
    p.add_argument("dir")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--answer-rows", action="store_true")
    args = parser.parse_args()
    {"make": make, "run": run}[args.verb](args)


main()
