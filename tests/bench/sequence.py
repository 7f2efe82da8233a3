#!/usr/bin/env python3
"""What sequence parallel saves and costs, beside tensor parallel alone; prints one JSON object and judges nothing.

usage: sequence.py NRL [--ranks 1 2 4] [--layers 12] [--width 256] [--tokens 1024] [--steps 6] [--rounds 3]

A Llama whose heads and inner width divide by all numbers of ranks. For each number of ranks, with and without recomputed
activations: bytes of a micro-batch as `nrl check` predicts them and as `nrl bench` measures them (the peak beside weights,
gradients and the optimizer's state), and the bytes that a rank sends in a step. Variants of one number of ranks take turns;
of each the fastest round's median step counts.
saved          1 - activations with parts of the tokens / activations without, both measured
step_ratio     step with parts of the tokens / step without
"""
import argparse
import json
import os
import subprocess
import tempfile

import common


def write_inputs(folder, args):
    heads = 2 * max(args.ranks)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 512,
              "hidden_size": args.width, "intermediate_size": 3 * args.width, "num_hidden_layers": args.layers,
              "num_attention_heads": heads, "num_key_value_heads": heads // 2, "head_dim": args.width // heads,
              "max_position_embeddings": args.tokens, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(folder, "model.json"), "w") as f:
        json.dump(config, f)
    length = args.tokens // 4
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        for i in range(64):
            ids = [3 + (i * 31 + t * 17) % 500 for t in range(length)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    settings = {"model": {"config": "model.json"}, "data": {"train": "rows.jsonl", "max_length": length},
                "train": {"steps": args.steps + 2, "global_batch": 4, "micro_batch_tokens": args.tokens, "seed": 3},
                "optimizer": {"name": "adamw", "lr": 1e-4}, "checkpoint": {"export": "none", "every": 0},
                "backend": {"name": "cpu", "threads": 1}, "out": "out"}
    with open(os.path.join(folder, "run.yaml"), "w") as f:
        json.dump(settings, f) # JSON is YAML


def call(args, folder, *words):
    command = [os.path.abspath(args.nrl), *words]
    done = subprocess.run(command, cwd=folder, env=dict(common.nrl_environment(1), GOMP_SPINCOUNT="1000"), check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads("\n".join(line.removeprefix("[0] ") for line in done.stdout.splitlines()))


def measure(args, folder, ranks, recompute):
    variants = {ranks > 1 and sequence: None for sequence in (False, True)}
    for _ in range(args.rounds):
        for sequence in variants:
            config = ["run.yaml", "train.activation_checkpointing=" + ("all" if recompute else "none"),
                      "parallel={tensor: {size: %d, sequence: %s}}" % (ranks, str(sequence).lower())]
            memory = call(args, folder, "check", *config, "--json")["memory"]
            figures = call(args, folder, "launch", "-n", str(ranks), "--", "bench", *config, "--steps", str(args.steps),
                           "--json")
            row = {"ranks": ranks, "recomputed": recompute, "sequence": sequence,
                   "predicted_bytes": memory["micro_batch"], "measured_bytes": figures["memory"]["activation_bytes"],
                   "step_seconds": figures["step_seconds_median"]}
            if not variants[sequence] or row["step_seconds"] < variants[sequence]["step_seconds"]:
                variants[sequence] = row
    if ranks > 1:
        plain, parts = variants[False], variants[True]
        parts["saved"] = 1 - parts["measured_bytes"] / plain["measured_bytes"]
        parts["step_ratio"] = parts["step_seconds"] / plain["step_seconds"]
    return list(variants.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder, args)
        for ranks in args.ranks:
            for recompute in (False, True):
                rows += measure(args, folder, ranks, recompute)
    print(json.dumps({"bench": "sequence", "layers": args.layers, "width": args.width, "tokens": args.tokens,
                      "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
