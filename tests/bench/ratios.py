#!/usr/bin/env python3
"""What nrl's own features cost and gain, by `nrl bench`; prints one JSON object and judges nothing.

usage: ratios.py NRL [--model smollm2|tiny] [--layers 6] [--repeats 3] [--steps 8] [--threads 2] [--only NAME...]
dpo      tokens/s of DPO over SFT, reference online and cached; SFT trains on the same sides, two samples a pair.
         Prompts are computed for each side, as SFT does; "shared" is online with data.prefix_sharing
mix      tokens/s of SFT on log-normal lengths over equal ones of the same mean
bf16     tokens/s of SFT in bf16 over fp32
The variants of a ratio take turns; each process measures the same steps of the same data. What sharing gains on long
prompts is prefix_sharing.py's.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import tempfile

import common

YAML = """model: {{config: {dir}/config.json}}
data: {{train: {rows}, shuffle: false, max_length: {most}, cache: {dir}/cache, prefix_sharing: {sharing}}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}, precision: {precision}}}
algorithm: {algorithm}
optimizer: {{name: adamw, lr: 5.0e-6, weight_decay: 0.0}}
schedule: constant
out: {dir}/out
"""
WARM_UP = 2  # steps that nrl bench leaves out


def write_rows(path, rows):
    """Samples of (prompt, answer); only the answer is trained."""
    with open(path, "w") as f:
        for prompt, answer in rows:
            f.write(json.dumps({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}) + "\n")


class Bench:
    def __init__(self, args, dir):
        self.args, self.dir, self.memory = args, dir, {}
        self.vocab = common.model_config(args.model, args.layers)["vocab_size"]
        with open(os.path.join(dir, "config.json"), "w") as f:
            json.dump(common.model_config(args.model, args.layers), f)

    def path(self, name):
        return os.path.join(self.dir, name)

    def variant(self, name, rows, algorithm="sft", batch=None, precision="fp32", sharing="false"):
        """A function that measures this variant once: its tokens/s."""
        args, config = self.args, self.path(name + ".yaml")
        with open(config, "w") as f:
            f.write(YAML.format(dir=self.dir, rows=self.path(rows), most=args.most, steps=args.steps + WARM_UP,
                                batch=batch or args.batch, tokens=args.tokens, precision=precision,
                                algorithm=algorithm, sharing=sharing))

        def measure():
            r = common.nrl_bench(args.nrl, config, args.steps, args.threads)
            self.memory[name] = max(self.memory.get(name, 0), r["peak_rss"])
            return r["tokens_per_s"]
        return measure

    def n_samples(self):
        return self.args.batch * (self.args.steps + WARM_UP)

    def dpo(self):
        args = self.args
        common.write_pairs(self.path("pairs.jsonl"), self.n_samples() // 2, self.vocab, args.median, args.sigma,
                           args.most)
        write_rows(self.path("sides.jsonl"),
                   [(p["prompt_input_ids"], p[side]) for p in common.read_lines(self.path("pairs.jsonl"))
                    for side in ("chosen_input_ids", "rejected_input_ids")])
        dpo = "{name: dpo, reference: %s}"
        return {"sft": self.variant("sft", "sides.jsonl"),
                "online": self.variant("online", "pairs.jsonl", dpo % "online", args.batch // 2),
                "cached": self.variant("cached", "pairs.jsonl", dpo % "cached", args.batch // 2),
                "shared": self.variant("shared", "pairs.jsonl", dpo % "online", args.batch // 2, sharing="true")}

    def lengths(self):
        rng = random.Random(2)
        return [common.log_normal(rng, self.args.median, self.args.sigma, 8, self.args.most)
                for _ in range(self.n_samples())]

    def write_lengths(self, name, lengths):
        rng = random.Random(3)
        write_rows(self.path(name), [(common.token_ids(rng, 1, self.vocab),
                                      common.token_ids(rng, n - 1, self.vocab)) for n in lengths])

    def mix(self):
        lengths = self.lengths()
        self.write_lengths("mix.jsonl", lengths)
        self.write_lengths("equal.jsonl", [round(statistics.mean(lengths))] * len(lengths))
        return {"equal": self.variant("equal", "equal.jsonl"), "mix": self.variant("mix", "mix.jsonl")}

    def bf16(self):
        self.write_lengths("rows.jsonl", self.lengths())
        return {"fp32": self.variant("fp32", "rows.jsonl"),
                "bf16": self.variant("bf16", "rows.jsonl", precision="bf16")}

    def result(self, name):
        speeds = common.interleaved(self.args.repeats, getattr(self, name)())
        base, *others = speeds
        return {"tokens_per_s": {k: round(statistics.median(v), 1) for k, v in speeds.items()},
                **{"%s over %s" % (k, base): common.ratio(speeds[k], speeds[base]) for k in others},
                "peak_rss": {k: self.memory[k] for k in speeds}}


def main():
    names = ["dpo", "mix", "bf16"]
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("--model", default="smollm2", choices=["smollm2", "tiny"])
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--batch", type=int, default=16, help="sequences of an optimizer step; half as many pairs")
    p.add_argument("--tokens", type=int, default=4096, help="of a micro-batch")
    p.add_argument("--median", type=float, default=200, help="tokens of a sequence")
    p.add_argument("--sigma", type=float, default=0.8)
    p.add_argument("--most", type=int, default=2048, help="tokens a sequence may have")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", nargs="+", choices=names, default=names)
    args = p.parse_args()
    dir = tempfile.mkdtemp(prefix="nrl-bench-")
    try:
        bench = Bench(args, dir)
        results = {name: bench.result(name) for name in args.only}
    finally:
        shutil.rmtree(dir)
    print(json.dumps({"model": args.model, "layers": args.layers, "batch": args.batch, "threads": args.threads,
                      "median": args.median, "sigma": args.sigma, "micro_batch_tokens": args.tokens, **results}))


main()
