#!/usr/bin/env python3
"""How long ranks of a pipeline wait for each other, beside theory; prints one JSON object and judges nothing.

usage: bubble.py NRL [--ranks 2] [--stages-per-rank 2] [--micro 4 8 16] [--steps 12] [--rounds 3] [--schedules 1f1b ...]

All micro-batches are alike, and stages cost alike: layers without a large vocabulary, divided evenly. Runs of different
M and schedules take turns; of each the fastest round's median step counts.
t        seconds that a rank computes for a micro-batch: the slope of the step's time over M, of 1f1b if it is measured
bubble   step / (M t) - 1
theory   the same from the formulas: with P ranks of V stages (P - 1) / (V M), a third of that for zero_bubble, where the
         forward, the gradient of the input and the gradients of the weights cost the same
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
              "intermediate_size": 768, "num_hidden_layers": 4 * args.ranks, "num_attention_heads": 4,
              "num_key_value_heads": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(folder, "model.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        for i in range(64):
            ids = [3 + (i * 31 + t * 17) % 500 for t in range(256)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def chunks_of(args, schedule):
    return args.stages_per_rank if schedule == "interleaved" else 1


def run(args, folder, schedule, micro):
    out = os.path.join(folder, "out")
    stages = args.ranks * chunks_of(args, schedule)
    units = [4 * args.ranks // stages] * stages
    units[0] += 1 # embedding
    units[-1] += 1 # final norm and head
    settings = {"model.config": "model.json", "data.train": "rows.jsonl", "data.max_length": 256, "algorithm": "sft",
                "train.steps": args.steps, "train.global_batch": micro, "train.micro_batch_tokens": 256,
                "optimizer": "{name: adamw, lr: 1e-4}", "loggers": "[jsonl]", "out": out, "overwrite": "true",
                "checkpoint.every": 0, "checkpoint.export": "none", "backend": "{name: cpu, threads: 1}",
                "parallel": "{pipeline: {size: %d, schedule: %s, split: %s, stages_per_rank: %d}}"
                            % (args.ranks, schedule, units, chunks_of(args, schedule))}
    with open(os.path.join(folder, "empty.yaml"), "w") as f:
        f.write("name: bubble\n")
    command = [os.path.abspath(args.nrl), "launch", "-n", str(args.ranks), "--", "run", "empty.yaml"]
    command += ["%s=%s" % pair for pair in settings.items()]
    subprocess.run(command, cwd=folder, env=dict(common.nrl_environment(1), GOMP_SPINCOUNT="1000"), check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        rates = [256 * micro / json.loads(line)["tokens_per_s"] for line in f]
    return statistics.median(rates[2:])


def theory(args, schedule, micro):
    return (args.ranks - 1) / (chunks_of(args, schedule) * micro) / (3 if schedule == "zero_bubble" else 1)


def measure(args, folder):
    seconds = {s: {m: float("inf") for m in args.micro} for s in args.schedules}
    for _ in range(args.rounds):
        for m in args.micro:
            for s in args.schedules:
                seconds[s][m] = min(seconds[s][m], run(args, folder, s, m))
    low, high = args.micro[0], args.micro[-1]
    first = seconds["1f1b" if "1f1b" in seconds else args.schedules[0]]
    t = (first[high] - first[low]) / (high - low)
    return {"ranks": args.ranks, "t": t, **{s: [
        {"micro_batches": m, "step_seconds": seconds[s][m], "bubble": seconds[s][m] / (m * t) - 1,
         "theory": theory(args, s, m)} for m in args.micro] for s in args.schedules}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stages-per-rank", type=int, default=2)
    parser.add_argument("--micro", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "gpipe", "interleaved", "zero_bubble"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder, args)
        print(json.dumps(measure(args, folder), indent=1))


if __name__ == "__main__":
    main()
