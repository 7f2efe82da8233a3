#!/usr/bin/env python3
"""Start-up time, resident memory and installed size of nrl; prints one JSON object and judges nothing.

usage: footprint.py NRL MODEL_DIR [--build BUILD_DIR] [--repeats R] [--threads K]
first_step  seconds from exec to the first record of metrics.jsonl, of one-step runs with a fresh output folder
process     seconds from exec to exit of the same runs
peak_rss    of `nrl check` (everything before a device is opened) and of the one-step run
installed   bytes of `cmake --install BUILD_DIR`, without backends/cuda.so, and the largest files
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time

import common

YAML = """model: {{path: {model}}}
data: {{train: {dir}/rows.jsonl, max_length: 64}}
train: {{steps: 1, global_batch: 4}}
optimizer: {{name: adamw, lr: 1.0e-4}}
schedule: constant
checkpoint: {{every: 0, export: none, save_at_start: false}}
loggers: [jsonl]
backend: {{name: cpu, threads: {threads}}}
out: {dir}/out
overwrite: true
"""


def write_inputs(args, dir):
    vocab = json.load(open(os.path.join(args.model, "config.json")))["vocab_size"]
    rng = random.Random(1)
    with open(os.path.join(dir, "rows.jsonl"), "w") as f:
        for _ in range(8):
            ids = common.token_ids(rng, 48, vocab)
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(os.path.join(dir, "footprint.yaml"), "w") as f:
        f.write(YAML.format(model=os.path.abspath(args.model), dir=dir, threads=args.threads))


def timed(args, verb, dir):
    """Seconds to the exit, start time, peak resident bytes."""
    command = [args.nrl, verb, os.path.join(dir, "footprint.yaml")]
    start = time.time()
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=common.nrl_environment(args.threads))
    _, status, usage = os.wait4(p.pid, 0)
    seconds = time.time() - start
    if status:
        raise SystemExit("nrl %s failed" % verb)
    return seconds, start, usage.ru_maxrss * 1024


def one_step(args, dir):
    shutil.rmtree(os.path.join(dir, "out"), ignore_errors=True)
    seconds, start, rss = timed(args, "run", dir)
    first = common.read_lines(os.path.join(dir, "out", "metrics.jsonl"))[0]
    return {"first_step": first["time"] - start, "process": seconds, "peak_rss": rss}


def installed(build, dir):
    prefix = os.path.join(dir, "prefix")
    subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    sizes = {}
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and not path.endswith("backends/cuda.so"):
                sizes[os.path.relpath(path, prefix)] = os.path.getsize(path)
    largest = sorted(sizes, key=sizes.get, reverse=True)[:5]
    return {"bytes": sum(sizes.values()), "files": len(sizes), "largest": {name: sizes[name] for name in largest}}


def figures(seconds):
    return {"median": round(statistics.median(seconds), 4), "least": round(min(seconds), 4)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("model", help="a Hugging Face directory, such as stories260K")
    p.add_argument("--build", help="a built tree, to measure what it installs")
    p.add_argument("--repeats", type=int, default=10)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    dir = tempfile.mkdtemp(prefix="nrl-bench-")
    try:
        write_inputs(args, dir)
        checks = [timed(args, "check", dir)[2] for _ in range(args.repeats)]
        runs = [one_step(args, dir) for _ in range(args.repeats)]
        result = {"model": "/".join(os.path.normpath(args.model).split(os.sep)[-2:]), "threads": args.threads,
                  "repeats": args.repeats, "first_step": figures([r["first_step"] for r in runs]),
                  "process": figures([r["process"] for r in runs]),
                  "peak_rss": {"check": max(checks), "one_step": max(r["peak_rss"] for r in runs)}}
        if args.build:
            result["installed"] = installed(args.build, dir)
    finally:
        shutil.rmtree(dir)
    print(json.dumps(result))


main()
