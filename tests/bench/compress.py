#!/usr/bin/env python3
"""What ddp's codecs cost in loss and save in bytes, on the task of scripts/quickstart.lua; prints one JSON object and
judges nothing.

usage: compress.py NRL [--ranks 2] [--steps 1000] [--threads 1] [--seeds 1 2] [--only NAME...]
eval_loss   on the held-out problems after the last step, mean over seeds, and its ratio to f32's; where it is small
            (after some hundred steps) seeds differ by a tenth
loss        mean of the last twentieth of the steps
plan        what the plan says of bytes
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile

import common

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CODECS = {
    "none": "",
    "bf16": "compress: bf16",
    "fp16": "compress: fp16",
    "powersgd": "compress: powersgd",
    "powersgd-8": "compress: powersgd, powersgd_rank: 8",
    "topk-30": "compress: topk, topk_ratio: 0.3",
    "topk-10": "compress: topk, topk_ratio: 0.1",
    "topk-10-late": "compress: topk, topk_ratio: 0.1, start_step: 300",
    "topk-1": "compress: topk, topk_ratio: 0.01",
    "threshold": "compress: threshold, threshold_value: 1e-3",
    "local": "sync_every: 4",
    "local-32": "sync_every: 32",
    "outer-32": "sync_every: 32, outer_lr: 0.7, outer_momentum: 0.9",
}


def environment(args):
    return dict(common.nrl_environment(args.threads), GOMP_SPINCOUNT="1000")


def run(args, command):
    p = subprocess.run([args.nrl, *command], capture_output=True, text=True, env=environment(args))
    if p.returncode:
        raise SystemExit(p.stdout + p.stderr)
    return p.stdout


def train(args, dir, codec, seed):
    start, out = os.path.join(dir, "task", "start"), os.path.join(dir, "out")
    data = os.path.join(dir, "task", "data")
    text = run(args, ["launch", "-n", str(args.ranks), "--", "run", os.path.join(SOURCE, "configs/quickstart.yaml"),
                      "backend={name: cpu, threads: %d}" % args.threads, "out=" + out, "overwrite=true",
                      "model.config=" + os.path.join(start, "config.json"), "model.tokenizer=" + start,
                      "data.train=" + os.path.join(data, "train.jsonl"), "data.eval=" + os.path.join(data, "test.jsonl"),
                      "data.cache=" + os.path.join(dir, "cache"), "train.steps=%d" % args.steps,
                      "train.seed=%d" % seed,
                      "eval.every=%d" % args.steps, "checkpoint.export=none",
                      "parallel={data: {name: ddp%s}}" % (codec and ", " + codec)])
    rows = common.read_lines(os.path.join(out, "metrics.jsonl"))
    losses = [r["loss"] for r in rows if "loss" in r]
    return {"eval_loss": [r["eval_loss"] for r in rows if "eval_loss" in r][-1],
            "loss": statistics.mean(losses[-max(1, args.steps // 20):]),
            "plan": re.search(r"ddp: (.*)", text).group(1)}


def measure(args, dir, codec):
    runs = [train(args, dir, codec, seed) for seed in args.seeds]
    return {"eval_loss": statistics.mean(r["eval_loss"] for r in runs), "eval_losses": [r["eval_loss"] for r in runs],
            "loss": statistics.mean(r["loss"] for r in runs), "plan": runs[0]["plan"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", default=list(CODECS))
    args = parser.parse_args()
    args.nrl = os.path.abspath(args.nrl)
    dir = tempfile.mkdtemp(prefix="nrl-compress-")
    try:
        run(args, ["run", os.path.join(SOURCE, "scripts/quickstart.lua"), "out=" + os.path.join(dir, "task"),
                   "train.steps=2"])
        results = {name: measure(args, dir, CODECS[name]) for name in args.only}
    finally:
        shutil.rmtree(dir)
    exact = results.get("none", {}).get("eval_loss")
    for r in results.values():
        r["over_none"] = exact and r["eval_loss"] / exact
    print(json.dumps({"ranks": args.ranks, "steps": args.steps, "codecs": results}, indent=1))


if __name__ == "__main__":
    main()
