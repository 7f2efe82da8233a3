#!/usr/bin/env python3
"""Bytes of each parameter that a run holds after a step: weights, masters, gradients and states, for each optimizer and encoding.

usage: optimizer_bytes.py NRL [--model smollm2|tiny] [--layers N] [--table]
Trains one step of random weights and divides `tensor_mem_bytes` of its record, which counts what is allocated, by the number of
parameters. Prints one JSON object (--table: a Markdown table).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import common

HALVES = ["train.precision=bf16", "train.master=split16"]
SMALLEST = HALVES + ["train.gradients=bf16"]
ENCODINGS = {"fp32": [], "bf16": ["train.precision=bf16"], "bf16, `master: split16`": HALVES,
             "and `gradients: bf16`": SMALLEST}
OPTIMIZERS = {
    "adamw": "{name: adamw, lr: 1e-4}",
    "adamw8bit": "{name: adamw8bit, lr: 1e-4}",
    "adafactor": "{name: adafactor, lr: 1e-4}",
    "lion": "{name: lion, lr: 1e-4}",
    "muon": "{name: muon, lr: 1e-4}",
    "sgd": "{name: sgd, lr: 1e-4, momentum: 0.9}",
    "sgd without momentum": "{name: sgd, lr: 1e-4, momentum: 0}",
}
# The same moments, elsewhere.
ELSEWHERE = "adamw, `offload: {optimizer: disk}`"

YAML = """model: {config: model.json}
data: {train: rows.jsonl, max_length: 16}
train: {steps: 1, global_batch: 1, micro_batch_tokens: 16}
optimizer: {name: adamw, lr: 1.0e-4}
schedule: constant
checkpoint: {every: 0, export: none, save_at_start: false}
loggers: [jsonl]
backend: cpu
out: out
overwrite: true
"""


def measure(nrl, folder, arguments):
    run = subprocess.run([nrl, "run", "bench.yaml", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit("%s: %s" % (" ".join(arguments), run.stderr.strip()))
    record = next(r for r in common.read_lines(os.path.join(folder, "out", "metrics.jsonl")) if "tensor_mem_bytes" in r)
    return record["tensor_mem_bytes"]


def table(bytes_of):
    lines = ["| optimizer | " + " | ".join(ENCODINGS) + " |", "| --- " * (1 + len(ENCODINGS)) + "|"]
    lines += ["| %s | %s |" % (name, " | ".join("%.2f" % b for b in row.values())) for name, row in bytes_of.items()]
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nrl")
    p.add_argument("--model", choices=["smollm2", "tiny"], default="smollm2")
    p.add_argument("--layers", type=int, default=common.FULL_DEPTH)
    p.add_argument("--table", action="store_true", help="print a Markdown table")
    args = p.parse_args()
    nrl = os.path.abspath(args.nrl)
    rows = {name: ["optimizer=" + text] for name, text in OPTIMIZERS.items()}
    rows[ELSEWHERE] = rows["adamw"] + ["train.offload.optimizer=disk"]
    with tempfile.TemporaryDirectory(prefix=".nrl-bench-", dir=".") as folder:  # /tmp may be in memory
        with open(os.path.join(folder, "model.json"), "w") as f:
            json.dump(common.model_config(args.model, args.layers), f)
        with open(os.path.join(folder, "rows.jsonl"), "w") as f:
            for start in (3, 5):
                ids = list(range(start, start + 16))
                f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        with open(os.path.join(folder, "bench.yaml"), "w") as f:
            f.write(YAML)
        check = subprocess.run([nrl, "check", "bench.yaml"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
        parameters = int(re.search(r"([\d,]+) parameters", check.stdout)[1].replace(",", ""))
        found = {name: {encoding: measure(nrl, folder, arguments + more) / parameters for encoding, more in ENCODINGS.items()}
                 for name, arguments in rows.items()}
    print(table(found) if args.table else json.dumps({"model": args.model, "layers": args.layers, "parameters": parameters,
                                                      "bytes_per_parameter": found}))


if __name__ == "__main__":
    main()
