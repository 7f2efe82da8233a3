#!/usr/bin/env python3
"""How long stages of a pipeline wait for each other, beside (P - 1) / M; prints one JSON object and judges nothing.

usage: bubble.py NRL [--stages 2] [--micro 1 2 4 8] [--steps 12] [--rounds 3] [--schedules 1f1b gpipe]

All micro-batches are alike, and stages cost alike: layers without a large vocabulary, divided evenly. A step of M of
them takes about (M + P - 1) t. Runs of different M take turns; of each the fastest round's median step counts.
t        seconds of a micro-batch on a stage: the slope of the step's time over M
bubble   step / (M t) - 1, and what it is at best
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import common


def write_inputs(folder, args):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 256,
              "intermediate_size": 768, "num_hidden_layers": 4 * args.stages, "num_attention_heads": 4,
              "num_key_value_heads": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(folder, "model.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        for i in range(64):
            ids = [3 + (i * 31 + t * 17) % 500 for t in range(256)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def run(args, folder, schedule, micro):
    out = os.path.join(folder, "out")
    units = [5] + [4] * (args.stages - 2) + [5] # embedding first, final norm and head last
    settings = {"model.config": "model.json", "data.train": "rows.jsonl", "data.max_length": 256, "algorithm": "sft",
                "train.steps": args.steps, "train.global_batch": micro, "train.micro_batch_tokens": 256,
                "optimizer": "{name: adamw, lr: 1e-4}", "loggers": "[jsonl]", "out": out, "overwrite": "true",
                "checkpoint.every": 0, "checkpoint.export": "none", "backend": "{name: cpu, threads: 1}",
                "parallel": "{pipeline: {size: %d, schedule: %s, split: %s}}" % (args.stages, schedule, units)}
    with open(os.path.join(folder, "empty.yaml"), "w") as f:
        f.write("name: bubble\n")
    command = [os.path.abspath(args.nrl), "launch", "-n", str(args.stages), "--", "run", "empty.yaml"]
    command += ["%s=%s" % pair for pair in settings.items()]
    subprocess.run(command, cwd=folder, env=dict(common.nrl_environment(1), GOMP_SPINCOUNT="1000"), check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        rates = [256 * micro / json.loads(line)["tokens_per_s"] for line in f]
    return statistics.median(rates[2:])


def measure(args, folder, schedule):
    seconds = {m: float("inf") for m in args.micro}
    for _ in range(args.rounds):
        for m in args.micro:
            seconds[m] = min(seconds[m], run(args, folder, schedule, m))
    low, high = args.micro[0], args.micro[-1]
    t = (seconds[high] - seconds[low]) / (high - low)
    rows = [{"micro_batches": m, "step_seconds": seconds[m], "bubble": seconds[m] / (m * t) - 1,
             "at_best": (args.stages - 1) / m} for m in args.micro]
    return {"t": t, "steps": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "gpipe"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder, args)
        print(json.dumps({"stages": args.stages, **{s: measure(args, folder, s) for s in args.schedules}}, indent=1))


if __name__ == "__main__":
    main()
