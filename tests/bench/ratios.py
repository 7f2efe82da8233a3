#!/usr/bin/env python3
"""What nrl's own features cost and gain, by `nrl bench`; prints one JSON object and judges nothing.

usage: ratios.py NRL [--model smollm2|tiny] [--layers 6] [--repeats 3] [--steps 4] [--threads 2] [--only NAME...]
dpo      tokens/s of DPO over SFT, reference online and cached; SFT trains on the same sides, two samples a pair.
         Prompts are computed for each side, as SFT does
mix      tokens/s of SFT on log-normal lengths over equal ones of the same mean
bf16     tokens/s of SFT in bf16 over fp32
lua      the share of a step that the loss of scripts/dpo.lua takes outside tensor operations, at the model's full depth
The variants of a ratio take turns; each process measures the same steps of the same data. The defaults take a few
minutes; --layers 30 --batch 16 --steps 8 is the whole SmolLM2-135M and takes most of an hour. What sharing gains on
long prompts is prefix_sharing.py's.
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile

import common

YAML = """model: {{config: {model}}}
data: {{train: {rows}, shuffle: false, max_length: {most}, cache: {dir}/cache, prefix_sharing: false}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}, precision: {precision}}}
algorithm: {algorithm}
optimizer: {{name: adamw, lr: 5.0e-6, weight_decay: 0.0}}
schedule: constant
out: {dir}/out
"""
WARM_UP = 2  # steps that nrl bench leaves out
HERE = os.path.dirname(os.path.abspath(__file__))

LUA = """local nrl = require "nrl"
%s
local run <close> = nrl.open(nrl.config(arg[1]), {out = arg[2], quiet = true})
local steps, seconds, host = 0, 0, 0
for e in run:steps() do
  steps = steps + 1
  if steps == %d then run:profile(true) end
  if steps > %d then seconds = seconds + e.seconds end
end
for _, row in ipairs(run:profile()) do
  if row.op == "loss (host)" then host = row.seconds end
end
print(host, seconds)
"""


def write_rows(path, rows):
    """Samples of (prompt, answer); only the answer is trained."""
    with open(path, "w") as f:
        for prompt, answer in rows:
            f.write(json.dumps({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}) + "\n")


class Bench:
    def __init__(self, args, dir):
        self.args, self.dir, self.memory = args, dir, {}
        self.vocab = common.model_config(args.model, args.layers)["vocab_size"]

    def path(self, name):
        return os.path.join(self.dir, name)

    def variant(self, name, rows, algorithm="sft", batch=None, precision="fp32"):
        """A function that measures this variant once: its tokens/s."""
        config = self.config(name, rows, algorithm, batch, precision)

        def measure():
            r = common.nrl_bench(self.args.nrl, config, self.args.steps, self.args.threads)
            self.memory[name] = max(self.memory.get(name, 0), r["peak_rss"])
            return r["tokens_per_s"]
        return measure

    def config(self, name, rows, algorithm="sft", batch=None, precision="fp32", layers=None):
        args, config = self.args, self.path(name + ".yaml")
        model = self.path("config-%d.json" % (layers or args.layers))
        with open(model, "w") as f:
            json.dump(common.model_config(args.model, layers or args.layers), f)
        with open(config, "w") as f:
            f.write(YAML.format(dir=self.dir, model=model, rows=self.path(rows), most=args.most,
                                steps=args.steps + WARM_UP, batch=batch or args.batch, tokens=args.tokens,
                                precision=precision, algorithm=algorithm))
        return config

    def n_samples(self):
        return self.args.batch * (self.args.steps + WARM_UP)

    def write_pairs(self):
        args = self.args
        common.write_pairs(self.path("pairs.jsonl"), self.n_samples() // 2, self.vocab, args.median, args.sigma,
                           args.most)

    def dpo(self):
        self.write_pairs()
        write_rows(self.path("sides.jsonl"),
                   [(p["prompt_input_ids"], p[side]) for p in common.read_lines(self.path("pairs.jsonl"))
                    for side in ("chosen_input_ids", "rejected_input_ids")])
        dpo = "{name: dpo, reference: %s}"
        return {"sft": self.variant("sft", "sides.jsonl"),
                "online": self.variant("online", "pairs.jsonl", dpo % "online", self.args.batch // 2),
                "cached": self.variant("cached", "pairs.jsonl", dpo % "cached", self.args.batch // 2)}

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

    def lua(self):
        """Host seconds of the loss and seconds of the steps, both after the warm-up."""
        args, script = self.args, self.path("loss.lua")
        with open(os.path.join(HERE, "..", "..", "scripts", "dpo.lua")) as f:
            loss = re.search(r"^nrl\.loss \{.*?^\}", f.read(), re.M | re.S).group()
        with open(script, "w") as f:
            f.write(LUA % (loss, WARM_UP, WARM_UP))
        self.write_pairs()
        config = self.config("lua", "pairs.jsonl", "dpo_in_lua", args.batch // 2, layers=common.FULL_DEPTH)
        command = [args.nrl, "run", script, config, self.path("out"), "backend={name: cpu, threads: %d}" % args.threads]
        p = subprocess.run(command, capture_output=True, text=True, env=common.nrl_environment(args.threads))
        if p.returncode:
            raise SystemExit(p.stderr)
        host, seconds = map(float, p.stdout.split())
        return {"layers": common.FULL_DEPTH, "host_ms_a_step": round(1e3 * host / args.steps, 3),
                "share": round(host / seconds, 6)}

    def result(self, name):
        if name == "lua":
            return self.lua()
        speeds = common.interleaved(self.args.repeats, getattr(self, name)())
        base, *others = speeds
        return {"tokens_per_s": {k: round(statistics.median(v), 1) for k, v in speeds.items()},
                **{"%s over %s" % (k, base): common.ratio(speeds[k], speeds[base]) for k in others},
                "peak_rss": {k: self.memory[k] for k in speeds}}


def main():
    names = ["dpo", "mix", "bf16", "lua"]
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("--model", default="smollm2", choices=["smollm2", "tiny"])
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--batch", type=int, default=8, help="sequences of an optimizer step; half as many pairs")
    p.add_argument("--tokens", type=int, default=4096, help="of a micro-batch")
    p.add_argument("--median", type=float, default=200, help="tokens of a sequence")
    p.add_argument("--sigma", type=float, default=0.8)
    p.add_argument("--most", type=int, default=2048, help="tokens a sequence may have")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
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
