#!/usr/bin/env python3
"""Requests a second and the time to the first token of `nrl serve`, with 1, 8 and 32 clients; prints one JSON object.

usage: serve.py NRL [--model smollm2|tiny|DIR] [--layers N] [--clients N ...] [--requests N] [--tokens N] [--threads N]
                    [--repeats R]
Each client streams completions one after another, with prompts that nothing has cached. --requests is their number for each
client. The numbers of clients take turns, so that a busy machine slows all of them equally. Random weights of SmolLM2's shape
are made by `nrl run` unless --model is a directory with a tokenizer.
"""
import argparse
import http.client
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

import common

YAML = """model: {{config: {dir}/config.json, tokenizer: {dir}}}
data: {{train: {dir}/rows.jsonl, cache: {dir}/cache}}
train: {{steps: 1, global_batch: 1, precision: bf16}}
backend: {{name: cpu, threads: {threads}}}
optimizer: {{name: sgd, lr: 0.0}}
checkpoint: {{export: none}}
loggers: [jsonl]
out: {dir}/run
"""


def make_run(args, dir):
    """A run of one step whose weights are as they were initialised."""
    config = dict(common.model_config(args.model, args.layers), bos_token_id=None, eos_token_id=None)
    with open(os.path.join(dir, "config.json"), "w") as f:
        json.dump(config, f)
    common.write_tokenizer(dir, config["vocab_size"])
    with open(os.path.join(dir, "rows.jsonl"), "w") as f:
        f.write('{"text": "one two three"}\n')
    with open(os.path.join(dir, "run.yaml"), "w") as f:
        f.write(YAML.format(dir=dir, threads=args.threads))
    subprocess.run([args.nrl, "run", os.path.join(dir, "run.yaml"), "-q"], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(dir, "run")


def request(port, prompt, tokens):
    """Seconds to the first token and to the end, and the number of events with text."""
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0,
                                                              "stream": True, "stream_options": {"include_usage": True}}))
    answer, first, usage = connection.getresponse(), None, {}
    if answer.status != 200:
        raise SystemExit(answer.read().decode())
    for line in answer:
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - begin
            usage = json.loads(line[6:]).get("usage") or usage
    connection.close()
    return {"first": first, "whole": time.perf_counter() - begin, "tokens": usage["completion_tokens"]}


def load(args, port, n_clients):
    """All clients at once, each with its requests: the rows of request(), and the seconds of all."""
    rng, rows, lock = random.Random(time.time_ns()), [], threading.Lock()
    prompts = [[[rng.randrange(3, args.vocab) for _ in range(common.log_normal(rng, 48, 0.6, 8, 256))]
                for _ in range(args.requests)] for _ in range(n_clients)]

    def client(own):
        for prompt in own:
            row = request(port, prompt, args.tokens)
            with lock:
                rows.append(row)
    threads = [threading.Thread(target=client, args=(own,)) for own in prompts]
    begin = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {"rows": rows, "seconds": time.perf_counter() - begin}


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def report(n, runs):
    first = [row["first"] for run in runs for row in run["rows"]]
    return {"clients": n, "requests_per_s": round(statistics.median(len(r["rows"]) / r["seconds"] for r in runs), 3),
            "tokens_per_s": round(statistics.median(sum(row["tokens"] for row in r["rows"]) / r["seconds"] for r in runs), 1),
            "first_token_median_s": round(statistics.median(first), 4), "first_token_p95_s": round(quantile(first, 0.95), 4)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("--model", default="smollm2", help="smollm2, tiny, or a model's directory")
    p.add_argument("--layers", type=int, default=common.FULL_DEPTH, help="of a random model")
    p.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    p.add_argument("--requests", type=int, default=2, help="of each client")
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--vocab", type=int, default=500, help="prompts have ids below this")
    args = p.parse_args()
    dir = tempfile.mkdtemp(prefix="nrl-bench-")
    server = None
    try:
        source = make_run(args, dir) if args.model in ("smollm2", "tiny") else args.model
        server = subprocess.Popen([args.nrl, "serve", source, "--port", "0"], stdout=subprocess.PIPE, text=True,
                                  env=common.nrl_environment(args.threads))
        found = re.search(r":(\d+)/v1", server.stdout.readline())
        if not found:
            raise SystemExit("nrl serve failed")
        port = int(found.group(1))
        request(port, [3, 4, 5], 2)
        runs = common.interleaved(args.repeats, {n: lambda n=n: load(args, port, n) for n in args.clients})
    finally:
        if server:
            server.terminate()
            server.wait()
        shutil.rmtree(dir)
    print(json.dumps({"model": os.path.basename(args.model), "tokens": args.tokens, "threads": args.threads,
                      "repeats": args.repeats, "clients": [report(n, r) for n, r in runs.items()]}))


main()
