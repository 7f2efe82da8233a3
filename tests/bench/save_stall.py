#!/usr/bin/env python3
"""What an asynchronous save costs a run: how long its snapshot takes, beside memcpy of as many bytes into touched
memory (by as many threads, after the run), how long the run waits altogether (also for an earlier save, where the
next one is due before it is written), and how long steps take while a checkpoint is written.

save_stall.py NRL BENCH_COPY [--model smollm2|tiny] [--layers N] [--steps N] [--every N] [--threads N] [--backend B]
With as many threads of the backend as cores, the writer has no core of its own."""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile

from common import FULL_DEPTH, model_config, nrl_environment, read_lines, token_ids


def write_rows(path, n, vocab, length):
    rng = random.Random(1)
    with open(path, "w") as f:
        for _ in range(n):
            f.write(json.dumps({"input_ids": token_ids(rng, length, vocab)}) + "\n")


def train(a, work):
    config = os.path.join(work, "config.json")
    rows = os.path.join(work, "rows.jsonl")
    shape = model_config(a.model, a.layers)
    backend = a.backend or "{name: cpu, threads: %d}" % a.threads
    with open(config, "w") as f:
        json.dump(shape, f)
    write_rows(rows, 64, shape["vocab_size"], a.length)
    out = os.path.join(work, "out")
    with open(os.path.join(work, "run.yaml"), "w") as f:
        f.write(f"""model: {{config: {config}}}
data: {{train: {rows}, max_length: {a.length}, cache: ""}}
algorithm: sft
train: {{epochs: 0, steps: {a.steps}, global_batch: 1}}
optimizer: {{name: adamw, lr: 1e-4}}
backend: {backend}
checkpoint: {{every: {a.every}, keep: 1, export: none, threads: {a.save_threads}}}
loggers: [{{name: console, every: 1000}}, jsonl]
out: {out}
""")
    p = subprocess.run([a.nrl, "run", os.path.join(work, "run.yaml")], capture_output=True, text=True,
                       env=nrl_environment(a.threads))
    if p.returncode:
        raise SystemExit(p.stderr)
    plan = next(line for line in p.stdout.splitlines() if "for the copy of" in line)
    return read_lines(os.path.join(out, "metrics.jsonl")), int(float(plan.split()[1]) * (1 << 20))


def copy_seconds(a, size):
    p = subprocess.run([a.bench_copy, str(size), str(a.save_threads), "5"], check=True, capture_output=True, text=True)
    return json.loads(p.stdout)["copy_s"]


def step_seconds(records, a):
    """Steps while one is written, and others. A record's time is that of its end."""
    until, writing, others = None, [], []
    for before, r in zip(records, records[1:]):
        seconds = r["time"] - before["time"]
        saved_before = before["step"] % a.every == 0  # the stall is in these seconds
        if saved_before:
            seconds -= next((s["save_snapshot_s"] for s in records if s["step"] > before["step"] and "save_s" in s), 0)
            until = next((s["step"] for s in records if s["step"] > before["step"] and "save_s" in s), a.steps + 1)
        (writing if until and r["step"] < until else others).append(seconds)
    return [statistics.median(s) if s else None for s in (writing, others)]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("nrl")
    p.add_argument("bench_copy")
    p.add_argument("--model", default="smollm2")
    p.add_argument("--layers", type=int, default=FULL_DEPTH)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--steps", type=int, default=24)
    p.add_argument("--every", type=int, default=8)
    p.add_argument("--threads", type=int, default=1, help="of the cpu backend")
    p.add_argument("--backend", help="unless given cpu, with --threads")
    p.add_argument("--save-threads", type=int, default=1)
    a = p.parse_args()
    a.nrl, a.bench_copy = os.path.abspath(a.nrl), os.path.abspath(a.bench_copy)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as work:
        records, size = train(a, work)
    copies = copy_seconds(a, size)
    saves = [r for r in records if "save_s" in r]
    snapshots = [r["save_snapshot_s"] for r in saves]
    writing, others = step_seconds(records, a)
    print(json.dumps({"state_bytes": size, "snapshot_s": snapshots, "stall_s": [r["save_stall_s"] for r in saves],
                      "save_s": [r["save_s"] for r in saves], "copy_s": copies,
                      "snapshot_over_copy": min(snapshots) / min(copies) if saves else None,
                      "median_step_s_while_writing": writing, "median_step_s": others,
                      "load": os.getloadavg()[0]}, indent=1))


if __name__ == "__main__":
    main()
