#!/usr/bin/env python3
"""Checkpoints of real training: how small weights and Adam moments get, how fast, and how long the same numbers
take torch.save and safetensors on the same disk. Models are fine-tuned a little, and every save counts.

codec.py NRL BENCH_CODEC [MODEL_DIR ...] [--text FILE] [--saves N]
[--python PYTHON with torch and safetensors]"""
import argparse
import json
import os
import subprocess
import tempfile
import time

from common import nrl_environment

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

PEER = """
import json, os, sys, time
import torch, safetensors.torch
values = torch.from_file(sys.argv[1], dtype=torch.float32, size=os.path.getsize(sys.argv[1]) // 4).clone()
tensors = {str(i): t.clone() for i, t in enumerate(values.split(1 << 20))}
result = {}
def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
def measure(name, save, load):
    path = sys.argv[1] + "." + name
    start = time.monotonic()
    save(path)
    sync(path)
    middle = time.monotonic()
    load(path)
    end = time.monotonic()
    result[name] = {"save_s": middle - start, "load_s": end - middle, "bytes": os.path.getsize(path)}
    os.unlink(path)
for repeat in range(2):
    measure("torch.save", lambda p: torch.save(tensors, p), lambda p: torch.load(p, weights_only=True))
    measure("safetensors", lambda p: safetensors.torch.save_file(tensors, p), lambda p: safetensors.torch.load_file(p))
print(json.dumps(result))
"""


def write_rows(path, text):
    """Paragraphs of a text, or the answers of the quickstart's conversations."""
    if text:
        with open(text) as f:
            rows = [r.strip() for r in f.read().replace("<|endoftext|>", "\n\n").split("\n\n")]
    else:
        with open(os.path.join(SOURCE, "configs", "data", "chat.jsonl")) as f:
            rows = [json.loads(line)["messages"][-1]["content"] for line in f]
    with open(path, "w") as f:
        f.writelines(json.dumps({"text": r}) + "\n" for r in rows if r)


def train(nrl, out, steps, saves, model, rows):
    command = [nrl, "run", os.path.join(SOURCE, "configs", "sft.yaml"), "backend={name: cpu, threads: 1}", "eval.every=0",
               "train.epochs=0", f"train.steps={steps}", f"checkpoint.every={steps // saves}", "checkpoint.keep=0",
               "checkpoint.export=none", "loggers=jsonl", f"out={out}", "optimizer.lr=1e-3"]
    if model:
        command += [f"model={{path: {model}}}", f"data.train={rows}", "data.overlong=truncate", "data.eval=null",
                    "data.template=auto"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=nrl_environment(1))
    folder = os.path.join(out, "checkpoints")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def raw_disk(path, size):
    data = os.urandom(1 << 20) * (size >> 20)
    start = time.monotonic()
    with open(path, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    seconds = time.monotonic() - start
    os.unlink(path)
    return size / seconds / 1e9


def verify_seconds(nrl, dirs):
    start = time.monotonic()
    for d in dirs:
        subprocess.run([nrl, "checkpoint", "verify", d], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("bench_codec")
    p.add_argument("models", nargs="*")
    p.add_argument("--text")
    p.add_argument("--saves", type=int, default=12)
    p.add_argument("--python")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as work:
        dirs, rows = [], os.path.join(work, "rows.jsonl")
        write_rows(rows, a.text)
        for i, model in enumerate([None] + [os.path.abspath(m) for m in a.models]):
            dirs += train(os.path.abspath(a.nrl), os.path.join(work, str(i)), 10 * a.saves, a.saves, model, rows)
        dump = os.path.join(work, "numbers")
        out = subprocess.run([a.bench_codec, "--dump", dump, "--save", work, *dirs], check=True, capture_output=True, text=True).stdout
        size = os.path.getsize(dump)
        stored = sum(os.path.getsize(os.path.join(d, f)) for d in dirs for f in os.listdir(d))
        result = {"checkpoints": len(dirs), "raw_bytes": size, "stored_bytes": stored, "nrl": json.loads(out),
                  "disk_write_GBps": raw_disk(dump + ".raw", max(size, 1 << 20)),
                  "nrl_verify_s": verify_seconds(os.path.abspath(a.nrl), dirs)}
        if a.python:
            peer = subprocess.run([a.python, "-c", PEER, dump], check=True, capture_output=True, text=True).stdout
            result["peers"] = json.loads(peer)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
