#!/usr/bin/env python3
"""What each way to save memory saves and costs, in nrl and beside it in PyTorch with peft and bitsandbytes, in turn.

usage: memory_vs_torch.py NRL [--model smollm2|tiny] [--layers N] [--batch B] [--length T] [--steps N] [--repeats R]
                          [--python PEERS] [--ways none checkpointing ...] [--table]
Both sides train the same f32 weights on the same rows by AdamW. Prints one JSON object (--table: a Markdown table): for each
side and way
  resident_bytes     the peak of the process, pages of mapped files included
  anonymous_bytes    without these, and without what the process had before it loaded the model: libraries
  seconds            of a step, the median without the first; and memory and seconds as ratios to `none` of the same side
PyTorch's ways to offload the optimizer and FSDP's shards move them between a GPU and the host: on a CPU they are null.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common

HERE = os.path.dirname(os.path.abspath(__file__))
WARM_UP = 1
SHARDS = "parallel={data: {name: fsdp, offload: disk}}"
WAYS = {
    "none": [],
    "checkpointing": ["train.activation_checkpointing=all"],
    "optimizer": ["train.offload.optimizer=disk"],
    "activations": ["train.offload.activations=disk"],
    "shards": [SHARDS],
    "everything": ["train.offload={optimizer: disk, activations: disk}", SHARDS, "train.activation_checkpointing=all"],
    "lora": ["lora={rank: 16}"],
    "qlora": ["lora={rank: 16, base: nf4}"],
}
PEER_WAYS = ("none", "checkpointing", "activations", "lora", "qlora")

YAML = """model: {{path: {dir}}}
data: {{train: {dir}/rows.jsonl, shuffle: false, max_length: {length}, cache: {dir}/cache}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch_tokens: {tokens}}}
backend: {{name: cpu, threads: {threads}}}
optimizer: {{name: adamw, lr: 1.0e-4, weight_decay: 0.0, betas: [0.9, 0.999], eps: 1.0e-8, clip_norm: 1.0}}
schedule: constant
checkpoint: {{every: 0, export: none, save_at_start: false}}
loggers: [jsonl]
out: {dir}/out
overwrite: true
"""


def watched(command, **options):
    """The output of a process, the peak of its anonymous memory, sampled, and that of its resident memory."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    anonymous = resident = 0
    while p.poll() is None:
        try:
            with open("/proc/%d/status" % p.pid) as f:
                status = dict(line.split(":", 1) for line in f)
            anonymous = max(anonymous, int(status["RssAnon"].split()[0]) << 10)
            resident = max(resident, int(status["VmHWM"].split()[0]) << 10)
        except (OSError, KeyError):
            pass  # it has ended
        time.sleep(0.005)
    out, err = p.communicate()
    if p.returncode:
        raise SystemExit("%s failed: %s" % (" ".join(command), err.strip()[-2000:]))
    print("%5.0f MB anonymous, %5.0f MB resident: %s" % (anonymous / 1e6, resident / 1e6, " ".join(command[1:])), file=sys.stderr)
    return out, anonymous, resident


def run_nrl(args, dir, way):
    command = [args.nrl, "run", os.path.join(dir, "bench.yaml"), *WAYS[way]]
    _, anonymous, resident = watched(command, env=common.nrl_environment(args.threads))
    rows = [r for r in common.read_lines(os.path.join(dir, "out", "metrics.jsonl")) if "loss" in r]
    before = [0] + [r["tokens"] for r in rows]
    return {"anonymous": anonymous, "resident": resident, "losses": [r["loss"] for r in rows],
            "seconds": [(r["tokens"] - b) / r["tokens_per_s"] for r, b in zip(rows, before)]}


def run_torch(args, dir, way):
    out, anonymous, resident = watched(
        [args.python, os.path.join(HERE, "peer_memory.py"), dir, way, "--batch", str(args.batch), "--steps", str(args.steps),
         "--threads", str(args.threads)])
    r = json.loads(out.splitlines()[-1])
    return {**r, "anonymous": anonymous - r["before"], "resident": resident}


def summary(runs, none):
    def seconds(some):
        return statistics.median(s for r in some for s in r["seconds"][WARM_UP:])

    def most(some, key):
        return max(r[key] for r in some)

    out = {"resident_bytes": most(runs, "resident"), "anonymous_bytes": most(runs, "anonymous"), "seconds": round(seconds(runs), 4),
           "last_loss": runs[0]["losses"][-1]}
    if none:
        out.update(memory_ratio=round(most(runs, "anonymous") / most(none, "anonymous"), 3),
                   time_ratio=round(seconds(runs) / seconds(none), 3))
    return out


def table(result):
    def cell(side):
        if not side:
            return "| | "
        ratios = "%+.0f %% | %+.0f %%" % (100 * side["memory_ratio"] - 100, 100 * side["time_ratio"] - 100)
        return "%.0f MB | %s" % (side["anonymous_bytes"] / 1e6, ratios)

    lines = ["| | nrl: memory | of none | step | PyTorch: memory | of none | step |", "| --- " * 7 + "|"]
    lines += ["| %s | %s | %s |" % (way, cell(sides["nrl"]), cell(sides["torch"])) for way, sides in result["ways"].items()]
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nrl")
    p.add_argument("--model", choices=["smollm2", "tiny"], default="smollm2")
    p.add_argument("--layers", type=int, default=common.FULL_DEPTH)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--python", default="python3", help="one that has torch, transformers, peft and bitsandbytes")
    p.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    p.add_argument("--table", action="store_true", help="print a Markdown table")
    args = p.parse_args()
    if args.steps <= WARM_UP:
        p.error("--steps: more than %d are needed" % WARM_UP)
    dir = tempfile.mkdtemp(prefix=".nrl-bench-", dir=".")  # /tmp may be in memory
    dir = os.path.abspath(dir)
    try:
        config = os.path.join(dir, "model.json")
        with open(config, "w") as f:
            json.dump(common.model_config(args.model, args.layers), f)
        subprocess.run([args.python, os.path.join(HERE, "peer_sft.py"), "make", config, dir, "--rows",
                        str(args.batch * args.steps), "--batch", str(args.batch), "--length", str(args.length)], check=True,
                       capture_output=True)
        with open(os.path.join(dir, "bench.yaml"), "w") as f:
            f.write(YAML.format(dir=dir, length=args.length, steps=args.steps, batch=args.batch,
                                tokens=args.batch * args.length, threads=args.threads))
        variants = {}
        for way in args.ways:
            variants["nrl", way] = lambda way=way: run_nrl(args, dir, way)
            if way in PEER_WAYS:
                variants["torch", way] = lambda way=way: run_torch(args, dir, way)
        runs = common.interleaved(args.repeats, variants)
    finally:
        shutil.rmtree(dir)
    result = {"model": args.model, "layers": args.layers, "batch": args.batch, "length": args.length, "steps": args.steps,
              "repeats": args.repeats, "threads": args.threads,
              "ways": {way: {side: summary(runs[side, way], runs.get((side, "none"))) if (side, way) in runs else None
                             for side in ("nrl", "torch")} for way in args.ways}}
    print(table(result) if args.table else json.dumps(result))


if __name__ == "__main__":
    main()
