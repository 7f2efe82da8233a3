#!/usr/bin/env python3
"""How much of the communication of ddp, or of tensor parallel, hides behind the backward; prints one JSON object and judges
nothing.

usage: overlap.py NRL [--axis data|tensor|sequence] [--ranks 2] [--share 0.5] [--caps 4 ...] [--layers 12] [--tokens 512]
                  [--steps 8] [--repeats 3] [--threads 1] [--options KEY=VALUE ...] [--tiny]
With --axis data:
compute        seconds of a step of the same ranks without gradients on the wire (sync_every above the run)
communication  seconds that the bytes of a step take at gloo's rate_limit, which is set so that this is `share` of
               compute
step           seconds of a step of ddp at that rate, for each bucket_cap_mb of --caps
exposed        (step - compute) / communication
over_max       step / max(compute, communication)
waited         the record's comm_fraction
With --axis tensor or sequence (parallel.tensor without and with `sequence`), at the rate that makes communication `share`
of a step without a limit:
blocking       seconds of a step with overlap: false, all of whose communication is waited for
overlapped     the same with overlap: true
hidden         1 - seconds waited in an overlapped step / seconds waited in a blocking one
step_ratio     overlapped / blocking
The variants take turns; medians over steps and turns. Ranks need a core each, and one for their network threads.
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
optimizer: {{name: adamw, lr: 1.0e-5}}
schedule: constant
checkpoint: {{every: 0, save_at_start: false}}
loggers: [jsonl]
overwrite: true
out: {dir}/out
"""
LENGTH = 128
WARM_UP = 2


def model(args):
    config = dict(common.model_config("tiny" if args.tiny else "smollm2", args.layers), vocab_size=args.vocab)
    if args.axis != "data" and not args.tiny: # heads that divide over 2, 4 and 8 ranks
        config.update(num_attention_heads=8, num_key_value_heads=8, head_dim=64)
    return config


def parameters(c):
    """Elements whose gradients go out: a tied embedding once."""
    width, heads = c["hidden_size"], c["num_attention_heads"] * c["head_dim"]
    key_value = c["num_key_value_heads"] * c["head_dim"]
    layer = width * (2 * heads + 2 * key_value + 3 * c["intermediate_size"] + 2)
    return c["vocab_size"] * width + c["num_hidden_layers"] * layer + width


class Bench:
    def __init__(self, args, dir):
        self.args, self.dir = args, dir
        steps, per_step = args.steps + WARM_UP, args.ranks * max(1, args.tokens // LENGTH)
        with open(os.path.join(dir, "config.json"), "w") as f:
            json.dump(model(args), f)
        rng = random.Random(1)
        with open(os.path.join(dir, "rows.jsonl"), "w") as f:
            for _ in range(steps * per_step):
                ids = common.token_ids(rng, LENGTH, args.vocab)
                f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        self.config = os.path.join(dir, "bench.yaml")
        with open(self.config, "w") as f:
            f.write(YAML.format(dir=dir, steps=steps, batch=per_step, tokens=args.tokens, length=LENGTH))

    def run(self, *overrides):
        """(seconds of a step, share of it spent waiting), medians."""
        command = [self.args.nrl, "launch", "-n", str(self.args.ranks), "--", "run", self.config,
                   "backend={name: cpu, threads: %d}" % self.args.threads, *overrides]
        p = subprocess.run(command, capture_output=True, text=True, env=dict(
            common.nrl_environment(self.args.threads), GOMP_SPINCOUNT="1000"))
        if p.returncode:
            raise SystemExit(p.stdout + p.stderr)
        rows = [r for r in common.read_lines(os.path.join(self.dir, "out", "metrics.jsonl")) if "loss" in r]
        before = [0] + [r["tokens"] for r in rows]
        seconds = [(r["tokens"] - b) / r["tokens_per_s"] for r, b in zip(rows, before)]
        return statistics.median(seconds[WARM_UP:]), statistics.median(r["comm_fraction"] for r in rows[WARM_UP:])


def ddp(cap, options):
    first = "" if cap is None else ", bucket_cap_mb: %g" % cap
    return "parallel={data: {name: ddp%s%s}}" % (first, "".join(", " + o.replace("=", ": ") for o in options))


def measure(bench, args):
    alone = "parallel={data: {name: ddp, sync_every: 1000000}}"
    elements, r = parameters(model(args)), args.ranks
    n_bytes = 4 * elements * 2 * (r - 1) / r
    first = bench.run(alone)[0]
    rate = n_bytes / (args.share * first) / 1e6
    limit = "collective={name: gloo, rate_limit: %g}" % rate
    variants = {"compute": lambda: bench.run(alone)}
    for cap in args.caps:
        variants["cap %g" % cap] = lambda cap=cap: bench.run(ddp(cap, args.options), limit)
    results = common.interleaved(args.repeats, variants)
    compute = statistics.median(s for s, _ in results.pop("compute"))
    communication = n_bytes / rate / 1e6
    out = {"ranks": r, "parameters": elements, "mib_a_step_and_rank": n_bytes / 2**20, "rate_limit_mb_s": rate,
           "compute": compute, "communication": communication, "caps": {}}
    for name, rows in results.items():
        step = statistics.median(s for s, _ in rows)
        out["caps"][name[4:]] = {"step": step, "exposed": (step - compute) / communication,
                                 "over_max": step / max(compute, communication),
                                 "waited": statistics.median(w for _, w in rows)}
    return out


def measure_tensor(bench, args):
    c, r = model(args), args.ranks

    def layers(overlap):
        return "parallel={tensor: {size: %d, sequence: %s, overlap: %s, vocabulary: false}}" % (
            r, str(args.axis == "sequence").lower(), str(overlap).lower())
    free = bench.run(layers(False))[0]
    # [N, width] for each of 2 products a layer is summed forth and back; a gather is half of a sum
    sums = 2 * c["num_hidden_layers"] * (2.5 if args.axis == "sequence" else 2)
    tokens = r * max(1, args.tokens // LENGTH) * LENGTH
    n_bytes = 4 * tokens * c["hidden_size"] * sums * 2 * (r - 1) / r
    rate = n_bytes / (args.share * free) / 1e6
    limit = "collective={name: gloo, rate_limit: %g}" % rate
    results = common.interleaved(args.repeats, {name: lambda name=name: bench.run(layers(name == "overlapped"), limit)
                                                for name in ("blocking", "overlapped")})
    out = {"axis": args.axis, "ranks": r, "mib_a_step_and_rank": n_bytes / 2**20, "rate_limit_mb_s": rate,
           "without_limit": free}
    waited = {}
    for name, rows in results.items():
        out[name] = statistics.median(s for s, _ in rows)
        waited[name] = statistics.median(s * w for s, w in rows)
    out["waited_blocking"], out["waited_overlapped"] = waited["blocking"], waited["overlapped"]
    out["hidden"] = 1 - waited["overlapped"] / waited["blocking"]
    out["step_ratio"] = out["overlapped"] / out["blocking"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--axis", choices=["data", "tensor", "sequence"], default="data")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--caps", type=float, nargs="+", default=[4])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--options", nargs="*", default=[])
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.nrl = os.path.abspath(args.nrl)
    dir = tempfile.mkdtemp(prefix="nrl-overlap-")
    try:
        print(json.dumps((measure if args.axis == "data" else measure_tensor)(Bench(args, dir), args), indent=1))
    finally:
        shutil.rmtree(dir)


if __name__ == "__main__":
    main()
