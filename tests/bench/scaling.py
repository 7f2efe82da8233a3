#!/usr/bin/env python3
"""How good the predictions of `nrl plan` are on 1 to 8 ranks of this machine; prints one JSON object and judges nothing.

usage: scaling.py NRL [--ranks 2 4 8] [--strategies ddp fsdp ...] [--layers 4] [--width 256] [--length 256] [--samples 2]

Ranks have one thread each, and the same number of samples each, all of the same length, so the work of a rank stays and
what is exchanged grows. A prediction is made by `nrl plan FILE --as-is` from operations and calls that it measures
itself, then `nrl bench` measures.
processor_seconds  of a rank in a step, the mean of ranks, whatever the number of processors is. Measured: a bench of many
                   steps less one of few, divided by the steps between; the least of three
relative           processor_seconds divided by those of one rank, which is measured again beside each setting: what other
                   programs on the machine change least, as they slow both alike
step_seconds       of a step. It only says something if nothing else runs and each rank has a processor to itself
                   (start this program with `taskset` to give it such processors)
error              predicted / measured - 1
"""
import argparse
import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "campaigns"))
import planner  # noqa: E402: the predictions and measurements of its settings

STRATEGIES = {"ddp": "ddp", "fsdp": "fsdp", "hsdp": {"data": {"name": "fsdp", "shard_size": 2}},
              "tensor x pipeline": {"data": "ddp", "tensor": 2, "pipeline": 2}}
LEAST = {"hsdp": 4, "tensor x pipeline": 4}  # ranks


def write_config(folder, args, strategy, ranks):
    batch = args.samples * ranks
    path = folder / f"{strategy} {ranks}.yaml"
    config = {"model": {"config": str(folder / "model.json")},
              "data": {"train": str(folder / "rows.jsonl"), "max_length": args.length}, "algorithm": "sft",
              "train": {"global_batch": batch, "steps": 100, "micro_batch_tokens": args.length},
              "optimizer": {"name": "adamw", "lr": 1e-4}, "schedule": "constant", "out": str(folder / "out"),
              "backend": {"name": "cpu", "threads": 1},
              "collective": {"name": "gloo", "spin": 0}}  # a rank that spins takes time without working
    if ranks > 1:
        config["parallel"] = STRATEGIES[strategy]
    path.write_text(json.dumps(config))
    return path


def compare(args, folder, strategy, ranks):
    seconds, steps = {}, {}
    for n in (1, ranks):
        path = write_config(folder, args, strategy, n)
        found = planner.plan_of(args.nrl, path, n)
        _, processor, step = planner.measure(args.nrl, path, n, True)
        seconds[n], steps[n] = (found["busy_seconds"], processor), (found["step_seconds"], step)
    predicted, measured = ({"processor_seconds": seconds[ranks][i], "relative": seconds[ranks][i] / seconds[1][i],
                            "step_seconds": steps[ranks][i]} for i in (0, 1))
    return {"strategy": strategy, "ranks": ranks, "predicted": predicted, "measured": measured,
            "error": {key: predicted[key] / measured[key] - 1 for key in predicted}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--samples", type=int, default=2, help="of a rank in a step")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = dict(planner.llama(random.Random(1)), vocab_size=1024, hidden_size=args.width,
                     intermediate_size=3 * args.width, num_hidden_layers=args.layers,
                     num_attention_heads=args.width // 64, num_key_value_heads=args.width // 64)
        (folder / "model.json").write_text(json.dumps(model))
        ids = [3 + t * 17 % 1000 for t in range(args.length)]
        line = json.dumps({"input_ids": ids, "labels": ids}) + "\n"
        (folder / "rows.jsonl").write_text(line * (4 * args.samples * max(args.ranks)))
        for ranks in args.ranks:
            for strategy in args.strategies:
                if ranks >= LEAST.get(strategy, 2):
                    rows.append(compare(args, folder, strategy, ranks))
                    print(json.dumps(rows[-1]), file=sys.stderr)
    print(json.dumps({"settings": rows}, indent=1))


if __name__ == "__main__":
    main()
