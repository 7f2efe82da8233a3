#!/usr/bin/env python3
"""Predicted time and efficiency of strategies from 8 to 1,024 ranks on a cluster that is described, by `nrl plan`; prints one
JSON object and judges nothing. The curves of docs/scaling.md are from it.

usage: curves.py NRL [--ranks 8 16 64 256 1024] [--strategies ddp ...] [--layers 12] [--width 512] [--svg FILE]

Each rank has a device whose operations take the longest of their arithmetic (--tflops), their memory traffic (--gbytes) and
a launch (--launch), and 4 samples of 1,024 tokens in a step. Nodes have 8 ranks and 8 links. Which operations a strategy
needs is found by a plan for this machine, whose times are then replaced. No number is measured.
step_seconds   of a step
efficiency     tokens per second and rank, divided by those of the strategy that is fastest on the least number of ranks
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import common

STRATEGIES = {"ddp": {"data": {"name": "ddp", "bucket_cap_mb": 128}},
              "fsdp": "fsdp",
              "fsdp, shard: optimizer": {"data": {"name": "fsdp", "shard": "optimizer"}},
              "fsdp, hybrid": {"data": {"name": "fsdp", "hybrid": True}},
              "fsdp, tensor: 4": {"data": "fsdp", "tensor": 4},
              "ddp, tensor: 4, pipeline: 2": {"data": {"name": "ddp", "bucket_cap_mb": 128}, "tensor": 4, "pipeline": 2}}
COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
LENGTH, SAMPLES = 1024, 4
CLUSTER = {"ranks_per_node": 8, "links": 8, "inside": {"alpha": 5e-6, "beta": 2.5e-12},
           "between": {"alpha": 1.5e-5, "beta": 2e-11}}


def model(args):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8192, "hidden_size": args.width,
            "intermediate_size": 4 * args.width, "num_hidden_layers": args.layers,
            "num_attention_heads": args.width // 64, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e5, "tie_word_embeddings": True}


def write_setting(folder, args):
    (folder / "model.json").write_text(json.dumps(model(args)))
    ids = [3 + t * 17 % 1000 for t in range(LENGTH)]
    line = json.dumps({"input_ids": ids, "labels": ids}) + "\n"
    with open(folder / "rows.jsonl", "w") as out:
        for _ in range(SAMPLES * max(args.ranks)):
            out.write(line)
    (folder / "config.yaml").write_text(json.dumps({
        "model": {"config": "model.json"}, "data": {"train": "rows.jsonl", "max_length": LENGTH},
        "train": {"epochs": 1, "global_batch": SAMPLES * min(args.ranks), "micro_batch_tokens": LENGTH, "precision": "bf16"},
        "optimizer": {"name": "adamw", "lr": 1e-4}, "backend": {"name": "cpu", "threads": 1}, "out": "out"}))


def plan(folder, args, strategy, machine, *more):
    p = subprocess.run([args.nrl, "plan", "config.yaml", "--as-is", "--json", "--ranks", ",".join(map(str, args.ranks)),
                        "--machine", machine, "parallel=" + json.dumps(STRATEGIES[strategy]), *more],
                       cwd=folder, capture_output=True, text=True, env=common.nrl_environment(1))
    if p.returncode:
        raise SystemExit(p.stdout + p.stderr)
    return json.loads(p.stdout)


def predict(folder, args, strategy):
    (folder / "machine.json").unlink(missing_ok=True)
    (folder / "cluster.json").write_text(json.dumps({"format": 1, "cluster": CLUSTER}))
    plan(folder, args, strategy, "cluster.json", "--save-machine", "machine.json")
    machine = json.loads((folder / "machine.json").read_text())
    for call in machine["calls"]:
        call["seconds"] = max(call["flops"] / (args.tflops * 1e12), call["bytes"] / (args.gbytes * 1e9), args.launch)
    (folder / "machine.json").write_text(json.dumps(machine))
    found = plan(folder, args, strategy, "machine.json")
    return [{"ranks": count["ranks"], **{key: count["candidates"][0][key] for key in
                                         ("step_seconds", "tokens_per_s", "total_bytes", "sent_bytes", "sent_messages")}}
            for count in found["counts"]]


def chart(rows, ranks):
    """Efficiency over the logarithm of the number of ranks."""
    left, top, width, height = 50, 12, 430, 240

    def place(n, efficiency):
        x = left + width * math.log(n / ranks[0]) / math.log(ranks[-1] / ranks[0])
        return f"{x:.0f},{top + height * (1 - efficiency):.0f}"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 300" font-family="sans-serif" font-size="12">',
           '<rect width="700" height="300" fill="white"/>']
    for i in range(6):
        y = top + height * (1 - i / 5)
        out.append(f'<path d="M{left} {y:.0f}h{width}" stroke="#ddd"/><text x="{left - 8}" y="{y + 4:.0f}" '
                   f'text-anchor="end">{i / 5:.1f}</text>')
    for n in ranks:
        x = place(n, 0).split(",")[0]
        out.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle">{n}</text>')
    out.append(f'<text x="{left + width // 2}" y="{top + height + 38}" text-anchor="middle">ranks</text>')
    out.append(f'<text x="12" y="{top + height // 2}" transform="rotate(-90 12 {top + height // 2})" '
               'text-anchor="middle">efficiency</text>')
    for i, (name, points) in enumerate(rows.items()):
        line = " ".join(place(p["ranks"], p["efficiency"]) for p in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLORS[i % 6]}" stroke-width="2"/>'
                   f'<path d="M500 {24 + 20 * i}h16" stroke="{COLORS[i % 6]}" stroke-width="2"/>'
                   f'<text x="522" y="{28 + 20 * i}">{name}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 64, 256, 1024])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tflops", type=float, default=100)
    parser.add_argument("--gbytes", type=float, default=1000)
    parser.add_argument("--launch", type=float, default=5e-6)
    parser.add_argument("--svg")
    args = parser.parse_args()
    args.nrl = os.path.abspath(args.nrl)
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_setting(folder, args)
        for strategy in args.strategies:
            rows[strategy] = predict(folder, args, strategy)
            print(json.dumps({strategy: rows[strategy]}), file=sys.stderr)
    best = max(points[0]["tokens_per_s"] for points in rows.values()) / min(args.ranks)
    for points in rows.values():
        for p in points:
            p["efficiency"] = p["tokens_per_s"] / p["ranks"] / best
    if args.svg:
        pathlib.Path(args.svg).write_text(chart(rows, args.ranks))
    print(json.dumps({"cluster": CLUSTER, "strategies": rows}, indent=1))


if __name__ == "__main__":
    main()
