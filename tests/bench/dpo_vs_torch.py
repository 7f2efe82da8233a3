#!/usr/bin/env python3
"""Pairs/s of DPO beside a padded PyTorch loop, interleaved; prints one JSON object and judges nothing.

usage: dpo_vs_torch.py NRL [--model smollm2|tiny] [--layers 6] [--pairs 64] [--batch 4] [--median 200] [--sigma 0.8]
                       [--repeats 5] [--threads 2] [--python PEERS] [--answer-rows]
Both sides train the same weights on the same pairs in the same global batches, with the reference computed in each
step: nrl packed (and once more without data.prefix_sharing), PyTorch padded to the longest side of a batch. The first
step is omitted of the speeds; the largest difference of a loss is printed.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

import common

HERE = os.path.dirname(os.path.abspath(__file__))

YAML = """model: {{path: {dir}}}
data: {{train: {dir}/pairs.jsonl, shuffle: false, max_length: {most}, cache: {dir}/cache}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}}}
algorithm: {{name: dpo, beta: 0.1, reference: {reference}}}
optimizer: {{name: adamw, lr: {lr}, weight_decay: 0.0, betas: [0.9, 0.999], eps: 1.0e-8, clip_norm: 1.0}}
schedule: constant
checkpoint: {{every: 0, export: none, save_at_start: false}}
loggers: [jsonl]
out: {dir}/out
overwrite: true
"""


def make_inputs(args, dir):
    config = common.model_config(args.model, args.layers)
    with open(os.path.join(dir, "config.json"), "w") as f:
        json.dump(config, f)
    subprocess.run([args.python, os.path.join(HERE, "peer_dpo.py"), "make", os.path.join(dir, "config.json"), dir],
                   check=True, capture_output=True)
    common.write_pairs(os.path.join(dir, "pairs.jsonl"), args.pairs, config["vocab_size"], args.median, args.sigma,
                       args.most)
    with open(os.path.join(dir, "bench.yaml"), "w") as f:
        f.write(YAML.format(dir=dir, most=args.most, steps=args.steps, batch=args.batch, tokens=args.tokens,
                            reference=args.reference, lr="%.17g" % args.lr))


def run_torch(args, dir):
    command = [args.python, os.path.join(HERE, "peer_dpo.py"), "run", dir, "--batch", str(args.batch), "--steps",
               str(args.steps), "--lr", repr(args.lr), "--threads", str(args.threads)]
    text = subprocess.run(command + ["--answer-rows"] * args.answer_rows, check=True, capture_output=True,
                          text=True).stdout
    return json.loads(text.splitlines()[-1])


def speeds(args, runs):
    return [args.batch * (args.steps - 1) / sum(r["seconds"][1:]) for r in runs]


def largest_difference(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours[0]["losses"], theirs[0]["losses"]))


def pace(args, runs, theirs):
    own = speeds(args, runs)
    return {"nrl_pairs_per_s": round(statistics.median(own), 3), **common.ratio(own, theirs)}


def report(args, ours, unshared, theirs):
    a, b = speeds(args, ours), speeds(args, theirs)
    differences = [largest_difference(side, theirs) for side in (ours, unshared) if side]
    memory = [max(r["peak_rss"] for r in side) for side in (ours, theirs)]
    return {"model": args.model, "layers": args.layers, "pairs": args.batch * args.steps, "batch": args.batch,
            "threads": args.threads, "reference": args.reference, "torch_answer_rows": args.answer_rows,
            "tokens": ours[0]["tokens"], "torch_padded_tokens": theirs[0]["padded_tokens"],
            "nrl_pairs_per_s": round(statistics.median(a), 3), "torch_pairs_per_s": round(statistics.median(b), 3),
            **common.ratio(a, b), "unshared": unshared and pace(args, unshared, b),
            "nrl_peak_rss": memory[0], "torch_peak_rss": memory[1],
            "rss_ratio": round(memory[0] / memory[1], 3), "first_loss": ours[0]["losses"][0],
            "last_losses": [ours[0]["losses"][-1], theirs[0]["losses"][-1]],
            "largest_loss_difference": max(differences),
            "torch": theirs[0]["version"], "torch_attention": theirs[0]["attention"]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("--model", default="smollm2", choices=["smollm2", "tiny"])
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--pairs", type=int, default=64)
    p.add_argument("--batch", type=int, default=4, help="pairs of an optimizer step")
    p.add_argument("--median", type=float, default=200, help="tokens of a side, prompt included")
    p.add_argument("--sigma", type=float, default=0.8)
    p.add_argument("--most", type=int, default=2048, help="tokens a side may have")
    p.add_argument("--tokens", type=int, default=8192, help="of a packed micro-batch")
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--reference", default="online", choices=["online", "cached"], help="of nrl")
    p.add_argument("--answer-rows", action="store_true", help="PyTorch's head on rows of answers only")
    p.add_argument("--shared-only", action="store_true", help="not also without data.prefix_sharing")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--python", default="python3", help="one that has torch and transformers")
    args = p.parse_args()
    args.steps = args.pairs // args.batch
    dir = tempfile.mkdtemp(prefix="nrl-bench-")
    try:
        make_inputs(args, dir)
        config, out = os.path.join(dir, "bench.yaml"), os.path.join(dir, "out")
        variants = {"nrl": lambda: common.nrl_run(args.nrl, config, out, args.threads), "torch": lambda: run_torch(args, dir)}
        if not args.shared_only:
            variants["unshared"] = lambda: common.nrl_run(args.nrl, config, out, args.threads, "data.prefix_sharing=false")
        results = common.interleaved(args.repeats, variants)
    finally:
        shutil.rmtree(dir)
    print(json.dumps(report(args, results["nrl"], results.get("unshared"), results["torch"])))


main()
