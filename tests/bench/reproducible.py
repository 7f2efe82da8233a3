#!/usr/bin/env python3
"""What `reproducible` costs: seconds of a step beside the plain strategy on the same micro-batches; prints one JSON object
and judges nothing.

usage: reproducible.py NRL [--shards 8] [--ranks 1 2] [--tokens 512] [--each 1] [--layers 12] [--vocab 4096] [--steps 6]
                       [--repeats 3] [--threads 1] [--tiny]
--each      micro-batches of a shard, each of --tokens tokens
ratio       seconds of a step, reproducible / plain, in fp32; medians over steps and turns of the variants
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile

import common

YAML = """model: {{config: {dir}/config.json}}
data: {{train: {dir}/rows.jsonl, shuffle: false, max_length: {length}, cache: {dir}/cache}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}}}
algorithm: sft
optimizer: {{name: adamw, lr: 1.0e-5, clip_norm: 1}}
schedule: constant
checkpoint: {{every: 0, save_at_start: false}}
loggers: [jsonl]
overwrite: true
out: {dir}/out
"""
LENGTH = 128
WARM_UP = 2


class Bench:
    def __init__(self, args, dir):
        self.args, self.dir = args, dir
        model = dict(common.model_config("tiny" if args.tiny else "smollm2", args.layers), vocab_size=args.vocab)
        steps, batch = args.steps + WARM_UP, args.shards * args.each * max(1, args.tokens // LENGTH)
        with open(os.path.join(dir, "config.json"), "w") as f:
            json.dump(model, f)
        rng = random.Random(1)
        with open(os.path.join(dir, "rows.jsonl"), "w") as f:
            for _ in range(steps * batch):
                ids = common.token_ids(rng, LENGTH, args.vocab)
                f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        self.config = os.path.join(dir, "bench.yaml")
        with open(self.config, "w") as f:
            f.write(YAML.format(dir=dir, steps=steps, batch=batch, tokens=args.tokens, length=LENGTH))

    def run(self, ranks, strategy):
        """Seconds of a step, median."""
        launch = ["launch", "-n", str(ranks), "--"] if ranks > 1 else []
        command = [self.args.nrl, *launch, "run", self.config,
                   "backend={name: cpu, threads: %d}" % self.args.threads, "parallel={data: %s}" % strategy]
        p = subprocess.run(command, capture_output=True, text=True, env=dict(
            common.nrl_environment(self.args.threads), GOMP_SPINCOUNT="1000"))
        if p.returncode:
            raise SystemExit(p.stdout + p.stderr)
        rows = [r for r in common.read_lines(os.path.join(self.dir, "out", "metrics.jsonl")) if "loss" in r]
        before = [0] + [r["tokens"] for r in rows]
        return statistics.median([(r["tokens"] - b) / r["tokens_per_s"] for r, b in zip(rows, before)][WARM_UP:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.nrl = os.path.abspath(args.nrl)
    dir = tempfile.mkdtemp(prefix="nrl-reproducible-")
    out = {"shards": args.shards, "micro_batches": args.shards * args.each, "tokens": args.tokens, "runs": []}
    try:
        bench = Bench(args, dir)
        for ranks in args.ranks:
            for name in ("ddp", "fsdp"):
                results = common.interleaved(args.repeats, {
                    "plain": lambda: bench.run(ranks, name),
                    "reproducible": lambda: bench.run(ranks, "{name: %s, reproducible: %d}" % (name, args.shards))})
                out["runs"].append({"ranks": ranks, "strategy": name,
                                    "plain": statistics.median(results["plain"]),
                                    **common.ratio(results["reproducible"], results["plain"])})
        print(json.dumps(out, indent=1))
    finally:
        shutil.rmtree(dir)


if __name__ == "__main__":
    main()
