#!/usr/bin/env python3
"""Training speed beside PyTorch in the same run, interleaved; prints one JSON object and judges nothing.

usage: sft_vs_torch.py NRL CONFIG_JSON --batch B --length T [--repeats R] [--steps N] [--python PEERS] [--bf16]
                       [--mix] [--peers eager compile packed compile-packed] [--device cpu|cuda] [--backend BACKEND]
Both sides train the same weights on the same tokens in the same batches; nrl packs them. Each of --peers is a way to write
the PyTorch side (peer_sft.py), run in turn with nrl. The first WARM_UP steps are omitted of the speeds; the largest
difference of a loss is printed, over all steps and repeats.
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
WARM_UP = 2  # a compiled model is made in the first step, and perhaps once more in the second
PEERS = {"eager": [], "compile": ["--compile"], "packed": ["--packed"], "compile-packed": ["--compile", "--packed"]}

YAML = """model: {{path: {dir}}}
data: {{train: {dir}/rows.jsonl, shuffle: false, max_length: {length}, cache: {dir}/cache}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}, precision: {precision}}}
backend: {backend}
optimizer: {{name: adamw, lr: 1.0e-4, weight_decay: 0.0, betas: [0.9, 0.999], eps: 1.0e-8, clip_norm: 1.0}}
schedule: constant
checkpoint: {{every: 0, export: none, save_at_start: false}}
loggers: [jsonl]
out: {dir}/out
overwrite: true
"""


def make_inputs(args, dir):
    subprocess.run([args.python, os.path.join(HERE, "peer_sft.py"), "make", args.config, dir, "--rows",
                    str(args.batch * args.steps), "--batch", str(args.batch), "--length", str(args.length)]
                   + ["--mix"] * args.mix, check=True, capture_output=True)
    with open(os.path.join(dir, "bench.yaml"), "w") as f:
        f.write(YAML.format(dir=dir, length=args.length, steps=args.steps, batch=args.batch,
                            tokens=args.batch * args.length, precision="bf16" if args.bf16 else "fp32",
                            backend=args.backend))


def run_nrl(args, dir):
    config = os.path.join(dir, "bench.yaml")
    p = subprocess.Popen([args.nrl, "run", config], stdout=subprocess.DEVNULL, env=common.nrl_environment(args.threads))
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        raise SystemExit("nrl failed")
    rows = [r for r in common.read_lines(os.path.join(dir, "out", "metrics.jsonl")) if "loss" in r]
    before = [0] + [r["tokens"] for r in rows]
    return {"seconds": [(r["tokens"] - b) / r["tokens_per_s"] for r, b in zip(rows, before)],
            "losses": [r["loss"] for r in rows], "tokens": before, "peak_rss": usage.ru_maxrss * 1024,
            "peak_used_bytes": max(r["mem_bytes"] for r in rows)}


def run_torch(args, dir, peer):
    command = [args.python, os.path.join(HERE, "peer_sft.py"), "run", dir, "--batch", str(args.batch), "--steps",
               str(args.steps), "--device", args.device, "--threads", str(args.threads)]
    p = subprocess.run(command + ["--bf16"] * args.bf16 + PEERS[peer], capture_output=True, text=True)
    if p.returncode:
        raise SystemExit("%s failed: %s" % (peer, p.stderr.strip().splitlines()[-1:]))
    return json.loads(p.stdout.splitlines()[-1])


def speed(run, tokens):
    """Tokens that are no padding, a second."""
    return (tokens[-1] - tokens[WARM_UP]) / sum(run["seconds"][WARM_UP:])


def difference(ours, theirs):
    return max(abs(a - b) for o, t in zip(ours, theirs) for a, b in zip(o["losses"], t["losses"]))


def beside(args, ours, theirs):
    tokens = ours[0]["tokens"]
    a, b = ([speed(r, tokens) for r in runs] for runs in (ours, theirs))
    memory = "peak_used_bytes" if args.device == "cuda" else "peak_rss"
    peaks = [max(r[memory] for r in runs) for runs in (ours, theirs)]
    return {"torch_tokens_per_s": round(statistics.median(b), 1), **common.ratio(a, b), "torch_" + memory: peaks[1],
            "memory_ratio": round(peaks[0] / peaks[1], 3), "largest_loss_difference": difference(ours, theirs)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("config")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--length", type=int, required=True)
    p.add_argument("--mix", action="store_true", help="rows of log-normal lengths, --length at most")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=7)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--peers", nargs="+", choices=PEERS, default=["eager"])
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of PyTorch")
    p.add_argument("--backend", help="of nrl; unless given that of the device")
    p.add_argument("--python", default="python3", help="one that has torch and transformers")
    p.add_argument("--bf16", action="store_true")
    args = p.parse_args()
    args.backend = args.backend or ("cuda" if args.device == "cuda" else "{name: cpu, threads: %d}" % args.threads)
    if args.steps <= WARM_UP:
        p.error("--steps: more than %d are needed" % WARM_UP)
    dir = tempfile.mkdtemp(prefix="nrl-bench-")
    try:
        make_inputs(args, dir)
        variants = {"nrl": lambda: run_nrl(args, dir)}
        for peer in args.peers:
            variants[peer] = lambda peer=peer: run_torch(args, dir, peer)
        results = common.interleaved(args.repeats, variants)
    finally:
        shutil.rmtree(dir)
    ours = results.pop("nrl")
    peers = {name: beside(args, ours, runs) for name, runs in results.items()}
    best = max(peers.values(), key=lambda r: r["torch_tokens_per_s"])
    own = statistics.median(speed(r, ours[0]["tokens"]) for r in ours)
    print(json.dumps({
        "config": os.path.basename(args.config), "batch": args.batch, "length": args.length, "mix": args.mix,
        "steps": args.steps, "repeats": args.repeats, "backend": args.backend, "device": args.device,
        "threads": args.threads, "precision": "bf16" if args.bf16 else "fp32",
        "nrl_tokens_per_s": round(own, 1), "torch_tokens_per_s": best["torch_tokens_per_s"], "ratio": best["ratio"],
        "nrl_peak_rss": max(r["peak_rss"] for r in ours), "nrl_peak_used_bytes": max(r["peak_used_bytes"] for r in ours),
        "first_loss": ours[0]["losses"][0], "last_loss": ours[0]["losses"][-1],
        "peers": peers, "torch": next(iter(results.values()))[0]["version"],
        "largest_loss_difference": max(r["largest_loss_difference"] for r in peers.values())}))


main()
