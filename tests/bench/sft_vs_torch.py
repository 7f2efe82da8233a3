#!/usr/bin/env python3
"""Training speed beside PyTorch in the same run, interleaved; prints one JSON object and judges nothing.

usage: sft_vs_torch.py NRL CONFIG_JSON --batch B --length T [--repeats R] [--steps N] [--python PEERS] [--bf16]
Both sides train the same weights on the same tokens; the largest difference of a loss is printed.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

YAML = """model: {{path: {dir}}}
data: {{train: {dir}/rows.jsonl, shuffle: false, max_length: {length}}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}, precision: {precision}}}
optimizer: {{name: adamw, lr: 1.0e-4, weight_decay: 0.0}}
schedule: constant
checkpoint: {{every: 0}}
loggers: [jsonl]
out: {out}
overwrite: true
"""


def run_nrl(args, dir, out, steps, precision):
    config = os.path.join(out, "bench.yaml")
    os.makedirs(out, exist_ok=True)
    with open(config, "w") as f:
        f.write(YAML.format(dir=dir, length=args.length, steps=steps, batch=args.batch,
                            tokens=args.batch * args.length, out=out, precision=precision))
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    p = subprocess.Popen([args.nrl, "run", config], stdout=subprocess.DEVNULL, env=env)
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        raise SystemExit("nrl failed")
    rows = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    return {"seconds": [args.batch * args.length / r["tokens_per_s"] for r in rows],
            "losses": [r["loss"] for r in rows], "peak_rss": usage.ru_maxrss * 1024}


def run_torch(args, dir, steps):
    command = [args.python, os.path.join(HERE, "peer_sft.py"), "run", dir, "--batch", str(args.batch),
               "--steps", str(steps), "--threads", str(args.threads)] + (["--bf16"] if args.bf16 else [])
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(text.splitlines()[-1])


def speed(args, runs):
    steady = [s for r in runs for s in r["seconds"][1:]]
    return args.batch * args.length / statistics.median(steady)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("config")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--length", type=int, required=True)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--python", default="python3", help="one that has torch and transformers")
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--keep")
    args = p.parse_args()
    dir = args.keep or tempfile.mkdtemp(prefix="nrl-bench-")
    if not os.path.exists(os.path.join(dir, "rows.jsonl")):
        subprocess.run([args.python, os.path.join(HERE, "peer_sft.py"), "make", args.config, dir, "--rows",
                        str(args.batch * args.steps), "--batch", str(args.batch), "--length",
                        str(args.length)], check=True, capture_output=True)
    ours, theirs = [], []
    for _ in range(args.repeats):
        ours.append(run_nrl(args, dir, os.path.join(dir, "out"), args.steps, "bf16" if args.bf16 else "fp32"))
        theirs.append(run_torch(args, dir, args.steps))
    difference = max(abs(a - b) for a, b in zip(ours[0]["losses"], theirs[0]["losses"]))
    print(json.dumps({
        "config": os.path.basename(args.config), "batch": args.batch, "length": args.length,
        "threads": args.threads, "precision": "bf16" if args.bf16 else "fp32",
        "nrl_tokens_per_s": round(speed(args, ours), 1), "torch_tokens_per_s": round(speed(args, theirs), 1),
        "ratio": round(speed(args, ours) / speed(args, theirs), 3),
        "nrl_peak_rss": max(r["peak_rss"] for r in ours), "torch_peak_rss": max(r["peak_rss"] for r in theirs),
        "rss_ratio": round(max(r["peak_rss"] for r in ours) / max(r["peak_rss"] for r in theirs), 3),
        "largest_loss_difference": difference, "torch": theirs[0]["version"]}))
    if not args.keep:
        shutil.rmtree(dir)


main()
