#!/usr/bin/env python3
"""Pairs/s of DPO with data.prefix_sharing off and on, interleaved; prints one JSON object and judges nothing.

usage: prefix_sharing.py NRL [--config CONFIG_JSON] [--prompt 400] [--answer 50] [--pairs 8] [--threads 1]
                             [--reference online|cached] [--repeats R] [--steps N]
Random weights of the config (a small llama without --config), random pairs; both sides see the same data.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile

SMALL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 256,
         "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 64, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "vocab_size": 8192, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}

YAML = """model: {{config: {dir}/config.json}}
algorithm: {{name: dpo, reference: {reference}}}
data: {{train: {dir}/pairs.jsonl, max_length: {length}, cache: {dir}/cache, shuffle: false}}
train: {{steps: {steps}, global_batch: {pairs}, micro_batch_tokens: {tokens}}}
optimizer: {{name: adamw, lr: 1.0e-5}}
checkpoint: {{every: 0}}
out: {dir}/out
"""


def write_inputs(args, dir):
    config = json.load(open(args.config)) if args.config else SMALL
    rng = random.Random(1)

    def ids(n):
        return [rng.randrange(3, config["vocab_size"]) for _ in range(n)]

    with open(os.path.join(dir, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(dir, "pairs.jsonl"), "w") as f:
        for _ in range(args.pairs * 4):
            f.write(json.dumps({"prompt_input_ids": ids(args.prompt), "chosen_input_ids": ids(args.answer),
                                "rejected_input_ids": ids(args.answer)}) + "\n")
    length = args.prompt + args.answer
    with open(os.path.join(dir, "bench.yaml"), "w") as f:
        f.write(YAML.format(dir=dir, reference=args.reference, length=length, steps=args.steps + 8, pairs=args.pairs,
                            tokens=max(4096, 2 * length)))


def run(args, dir, sharing):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    command = [args.nrl, "bench", os.path.join(dir, "bench.yaml"), "data.prefix_sharing=" + sharing,
               "--steps", str(args.steps), "--json"]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    text = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        raise SystemExit("nrl failed")
    return dict(json.loads(text.splitlines()[-1]), cpu_seconds=usage.ru_utime + usage.ru_stime)


def figures(args, runs):
    seconds = statistics.median(r["step_seconds_median"] for r in runs)
    return {"pairs_per_s": round(args.pairs / seconds, 3),
            "best_pairs_per_s": round(args.pairs / min(r["step_seconds_min"] for r in runs), 3),
            "cpu_seconds": round(min(r["cpu_seconds"] for r in runs), 3),  # of the whole command
            "activation_bytes": max(r["activation_bytes"] for r in runs), "last_loss": runs[0]["last_loss"]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("--config")
    p.add_argument("--prompt", type=int, default=400)
    p.add_argument("--answer", type=int, default=50)
    p.add_argument("--pairs", type=int, default=8)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--reference", default="online", choices=["online", "cached"])
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    args = p.parse_args()
    dir = tempfile.mkdtemp(prefix="nrl-bench-")
    try:
        write_inputs(args, dir)
        runs = {"false": [], "true": []}
        for _ in range(args.repeats):
            for sharing in runs:
                runs[sharing].append(run(args, dir, sharing))
    finally:
        shutil.rmtree(dir)
    off, on = figures(args, runs["false"]), figures(args, runs["true"])
    print(json.dumps({"prompt": args.prompt, "answer": args.answer, "pairs": args.pairs, "threads": args.threads,
                      "reference": args.reference, "unshared": off, "shared": on,
                      "gain": round(on["pairs_per_s"] / off["pairs_per_s"], 3),
                      "best_gain": round(on["best_pairs_per_s"] / off["best_pairs_per_s"], 3),
                      "cpu_gain": round(off["cpu_seconds"] / on["cpu_seconds"], 3)}))


main()
