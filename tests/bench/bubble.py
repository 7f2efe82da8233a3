#!/usr/bin/env python3
"""How long ranks of a pipeline wait for each other, beside theory; prints one JSON object and judges nothing.

usage: bubble.py NRL [--ranks 2] [--stages-per-rank 2] [--micro 4 8 16] [--steps 6] [--rounds 3] [--schedules 1f1b ...]

All micro-batches are alike, and stages cost alike: layers without a large vocabulary, divided evenly. The timeline of
`nrl profile` says when each rank computed each pass of a unit. Only the time from the first forward to the last backward
of any rank counts, so the exchanges of a step, the norm and the update are no part of a bubble. Schedules and numbers of
micro-batches M take turns.
F, B, W  seconds that all stages of a rank take for the forward (with the loss), the gradient of the input and the
         gradients of the weights of a micro-batch, the mean of the ranks; without zero_bubble B contains W
message  seconds from the end of a pass to the begin of a pass on another rank that waited for it, the least of all
bubble   (time - computing) / computing of the passes in the order in which they ran. Each operation of a pass takes the
         least time of all its micro-batches and steps, so that other programs, which delay ranks at random, do not count
wall     the same of the timeline as it was, the median of steps: the bubble, if each rank has a processor to itself
costs    (P - 1) (F + B - W) / (V M (F + B + W)) for zero_bubble and (P - 1) / (V M) for the others, with P ranks of V stages
theory   the same where F, B and W are equal
outside  seconds of a step before the first forward and after the last backward, the median of steps
"""
import argparse
import bisect
import collections
import json
import os
import statistics
import subprocess
import tempfile

import common

LAYERS = 4  # of a rank


def write_inputs(folder, args):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 256,
              "intermediate_size": 768, "num_hidden_layers": LAYERS * args.ranks, "num_attention_heads": 4,
              "num_key_value_heads": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(folder, "model.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        for i in range(64):
            ids = [3 + (i * 31 + t * 17) % 500 for t in range(256)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(os.path.join(folder, "empty.yaml"), "w") as f:
        f.write("name: bubble\n")


def chunks_of(args, schedule):
    return args.stages_per_rank if schedule == "interleaved" else 1


def units_of(args, schedule):
    """The names of the units of each stage."""
    n = args.ranks * chunks_of(args, schedule)
    layers = ["layers.%d" % i for i in range(LAYERS * args.ranks)]
    stages = [layers[i * len(layers) // n:(i + 1) * len(layers) // n] for i in range(n)]
    stages[0].insert(0, "embed")
    stages[-1].append("norm")  # and the head
    return stages


def run(args, folder, schedule, micro):
    """The slices of a timeline."""
    split = [len(units) for units in units_of(args, schedule)]
    settings = {"model.config": "model.json", "data.train": "rows.jsonl", "data.max_length": 256, "algorithm": "sft",
                "train.steps": args.steps + 2, "train.global_batch": micro, "train.micro_batch_tokens": 256,
                "optimizer": "{name: adamw, lr: 1e-4}", "out": "out", "backend": "{name: cpu, threads: 1}",
                "parallel": "{pipeline: {size: %d, schedule: %s, split: %s, stages_per_rank: %d}}"
                            % (args.ranks, schedule, split, chunks_of(args, schedule))}
    command = [os.path.abspath(args.nrl), "launch", "-n", str(args.ranks), "--", "profile", "empty.yaml", "--steps",
               str(args.steps), "--trace", "trace.json", *("%s=%s" % pair for pair in settings.items())]
    subprocess.run(command, cwd=folder, env=dict(common.nrl_environment(1), GOMP_SPINCOUNT="1000"), check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "trace.json")) as f:
        return [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]


def turns_of(events, rank, step, stages):
    """The passes of a rank in a step, each [stage, pass, [times at which its units and operations begin and end]]."""
    inside = [e for e in events if e["pid"] == rank and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
    track = {name: sorted((e for e in inside if e["cat"] == name), key=lambda e: e["ts"])
             for name in ("units", "phases", "operations")}
    begins = [e["ts"] for e in track["phases"]]
    times = [e["ts"] for e in track["operations"]]
    stage_of = {unit: (i, k) for i, units in enumerate(stages) for k, unit in enumerate(units)}
    turns, last = [], None
    for e in track["units"]:
        stage, place = stage_of[e["name"]]
        phase = track["phases"][bisect.bisect_right(begins, e["ts"]) - 1]["name"]
        back = phase == "backward"
        follows = last and last[:2] == (stage, back) and (
            place < last[2] if back else place > last[2] or phase == "head")
        if not follows:
            turns.append([stage, "W" if back else "F", []])
        end = e["ts"] + e["dur"]
        operations = track["operations"][bisect.bisect_left(times, e["ts"]):bisect.bisect_left(times, end)]
        turns[-1][2] += [e["ts"], *(t for o in operations for t in (o["ts"], o["ts"] + o["dur"])), end]
        if back and any(o["name"] == "attention_grad" for o in operations):
            turns[-1][1] = "B"  # the gradients of weights need no attention
        last = (stage, back, place)
    return [(stage, name, [1e-6 * t for t in marks]) for stage, name, marks in turns]


class Schedule:
    """What was measured of a schedule with M micro-batches, over all runs."""

    def __init__(self, args, schedule, micro):
        self.ranks, self.chunks, self.micro = args.ranks, chunks_of(args, schedule), micro
        self.schedule, self.stages = schedule, units_of(args, schedule)
        self.walls, self.outside, self.order = [], [], None
        self.pieces = {}  # (stage, pass, number of pieces) -> the least seconds of each piece
        self.message = float("inf")

    def add(self, events):
        steps = [sorted((e for e in events if e["cat"] == "steps" and e["pid"] == r), key=lambda e: e["ts"])
                 for r in range(self.ranks)]
        for step in zip(*steps):
            self.add_step([turns_of(events, r, step[r], self.stages) for r in range(self.ranks)], step[0]["dur"] * 1e-6)

    def add_step(self, ranks, duration):
        order = [[(stage, name, len(marks) - 1) for stage, name, marks in turns] for turns in ranks]
        if self.order not in (None, order):
            raise SystemExit(f"{self.schedule}: the passes of two steps have different orders")
        self.order = order
        for stage, name, marks in (turn for turns in ranks for turn in turns):
            seconds = [end - begin for begin, end in zip(marks, marks[1:])]
            key = (stage, name, len(seconds))
            self.pieces[key] = [min(pair) for pair in zip(seconds, self.pieces.get(key, seconds))]
        spans = [[(marks[0], marks[-1]) for _, _, marks in turns] for turns in ranks]
        time = max(s[-1][1] for s in spans) - min(s[0][0] for s in spans)
        busy = sum(end - begin for s in spans for begin, end in s)
        self.walls.append(self.ranks * time / busy - 1)
        self.outside.append(duration - time)
        self.walk(lambda rank, i, _: spans[rank][i], self.late)

    def late(self, before, produced, begin):
        if produced > before:
            self.message = min(self.message, begin - produced)

    def walk(self, times, waited=None):
        """times(rank, i, ready) is the begin and the end of turn i of a rank; the end of the last turn of all."""
        done, number, free = {}, collections.Counter(), [0.0] * self.ranks
        at, left = [0] * self.ranks, sum(map(len, self.order))
        while left:
            before = left
            for rank, order in enumerate(self.order):
                while at[rank] < len(order):
                    stage, name, _ = order[at[rank]]
                    source = (stage + {"F": -1, "B": 1, "W": len(self.stages)}[name], name,
                              number[stage, name])
                    needs = 0 <= source[0] < len(self.stages)
                    if needs and source not in done:
                        break
                    arrived = done[source] if needs else 0.0
                    begin, end = times(rank, at[rank], max(free[rank], arrived + (self.message if needs else 0)))
                    if waited and needs:
                        waited(free[rank], arrived, begin)
                    done[stage, name, number[stage, name]] = free[rank] = end
                    number[stage, name] += 1
                    at[rank] += 1
                    left -= 1
            if left == before:
                raise SystemExit(f"{self.schedule}: no pass can run; expected the order of a pipeline")
        return max(free)

    def result(self):
        cost = {key: sum(seconds) for key, seconds in self.pieces.items()}
        turns = [turn for order in self.order for turn in order]
        busy = sum(cost[turn] for turn in turns)
        f, b, w = (sum(cost[turn] for turn in turns if turn[1] == name) / self.ranks / self.micro for name in "FBW")

        def least(rank, i, ready):
            return ready, ready + cost[self.order[rank][i]]

        theory = (self.ranks - 1) / (self.chunks * self.micro)
        return {"micro_batches": self.micro, "F": f, "B": b, "W": w, "message": self.message,
                "bubble": self.ranks * self.walk(least) / busy - 1, "wall": statistics.median(self.walls),
                "costs": theory * ((f + b - w) / (f + b + w) if w else 1), "theory": theory / (3 if w else 1),
                "outside": statistics.median(self.outside)}


def measure(args, folder):
    found = {s: [Schedule(args, s, m) for m in args.micro] for s in args.schedules}
    for _ in range(args.rounds):
        for i, m in enumerate(args.micro):
            for s in args.schedules:
                found[s][i].add(run(args, folder, s, m))
    return {"ranks": args.ranks, **{s: [one.result() for one in each] for s, each in found.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nrl")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stages-per-rank", type=int, default=2)
    parser.add_argument("--micro", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "gpipe", "interleaved", "zero_bubble"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder, args)
        print(json.dumps(measure(args, folder), indent=1))


if __name__ == "__main__":
    main()
