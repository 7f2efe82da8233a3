#!/usr/bin/env python3
"""planner.py NRL FOLDER N SEED [memory]: N settings are predicted by `nrl plan --as-is` and then measured by `nrl bench`:
models, lengths, precisions, strategies on 1, 2 and 4 ranks, adapters on whole and on quantized weights, recomputed
activations and offload. Prints each and the distribution of the errors of memory and time; fails if memory is wrong by
more than 5 %, or if the median of the errors of processor time is above 15 %. N settings have a time; settings between
them that offload to a disk, whose time is not predicted, only count for memory. With `memory` only memory is predicted
and measured. A run must refuse every setting that `nrl plan` refuses.

Ranks have one thread each. Memory is that of the rank that uses most. Time is per token, and compared twice. The duration
of a step is only meaningful if nothing else runs on the machine and each rank has a processor. The processor time of a
rank, of all its threads, is disturbed less. Predictions and measurements alternate; of ROUNDS each the least counts, because
other programs can only make a step slower, and the median is printed beside it: if both errors are alike, the machine
was idle. NRL_CAMPAIGN_LEDGER=FILE keeps the measurements: the campaign continues from them, at the same commit."""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

MEMORY, TIME = 0.05, 0.15
# Measured steps of a bench, and all steps that it takes: two to warm up, and half as many again, at most five. A
# prediction is for the same steps, because later ones may have larger micro-batches. An epoch is two steps, in the order
# of the file, so that every shape has occurred after the steps to warm up, as in a run after its beginning: work that is
# done once for a new shape is not predicted.
STEPS, ALL = 6, 11
STEPS_OF_MEMORY, ALL_OF_MEMORY = 1, 4
ROUNDS = 3
WAYS = ("processor time", "duration of a step")


def llama(rng):
    width = rng.choice([128, 192, 256, 384, 576])
    heads = width // 64 if width >= 128 else 2
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": rng.choice([1024, 4096, 16384]),
            "hidden_size": width, "intermediate_size": width * rng.choice([2, 3, 4]),
            "num_hidden_layers": rng.choice([2, 4, 8]), "num_attention_heads": heads,
            "num_key_value_heads": heads if rng.random() < 0.5 or heads % 2 else heads // 2, "head_dim": 64,
            "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "initializer_range": 0.02, "tie_word_embeddings": rng.random() < 0.5, "bos_token_id": 1, "eos_token_id": 2,
            "torch_dtype": "float32"}


def gpt2(rng):
    width = rng.choice([128, 256, 384])
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": rng.choice([1024, 8192]),
            "n_embd": width, "n_layer": rng.choice([2, 4, 6]), "n_head": width // 32, "n_positions": 2048,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
            "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}


def rows(path, rng, longest, vocab, n):
    with open(path, "w") as out:
        for _ in range(n):
            ids = [rng.randrange(3, vocab) for _ in range(rng.randint(longest // 4, longest))]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def setting(folder, seed, only_memory):
    """A config of random shape, the number of ranks, whether its time is predicted (a disk's is not), and its text."""
    rng = random.Random(seed)
    model = (gpt2 if rng.random() < 0.25 else llama)(rng)
    longest = rng.choice([64, 256, 1024])
    ranks = [1, 2, 1, 4, 2][seed % 5]
    batch = max(ranks, {64: 64, 256: 16, 1024: 4}[longest])
    place = rng.choice(["nowhere"] * 4 + ["optimizer", "activations", "shards"])
    timed = place == "nowhere" and not only_memory
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(json.dumps(model))
    rows(folder / "rows.jsonl", rng, longest, model["vocab_size"], 2 * batch)
    train = {"global_batch": batch, "steps": ALL if timed else ALL_OF_MEMORY, "seed": seed,
             "micro_batch_tokens": longest * rng.choice([1, 2, 4]),
             "precision": rng.choice(["fp32", "fp32", "bf16"]),
             "activation_checkpointing": rng.choice(["none", "none", "all"])}
    config = {"model": {"config": str(folder / "model.json")},
              "data": {"train": str(folder / "rows.jsonl"), "max_length": longest, "shuffle": False}, "algorithm": "sft", "train": train,
              "optimizer": {"name": "adamw", "lr": 1e-4}, "schedule": "constant", "out": str(folder / "out"),
              "backend": {"name": "cpu", "threads": 1}}
    if place in ("optimizer", "activations"):
        train["offload"] = {place: "disk"}
    if place == "shards":
        config["parallel"] = {"data": {"name": "fsdp", "offload": "disk"}}
    elif ranks > 1:
        strategies = ["ddp", "fsdp", {"name": "fsdp", "shard": "grads"}, {"name": "fsdp", "shard": "optimizer"},
                      {"data": "ddp", "tensor": 2}, {"data": "fsdp", "tensor": {"size": 2, "sequence": True}},
                      {"data": "ddp", "pipeline": 2}, {"data": "fsdp", "context": 2}]
        config["parallel"] = rng.choice(strategies)
    base = rng.choice([None] * 6 + ["full", "nf4", "nf4", "int8", "fp4"])
    if base:
        config["lora"] = {"rank": rng.choice([4, 8, 16]), "alpha": 16, "base": base}
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    text = json.dumps(config.get("parallel", "one rank")).replace('"', "")
    return path, ranks, timed, (f"{model['model_type']} {model.get('hidden_size', model.get('n_embd'))}x"
                                             f"{model.get('num_hidden_layers', model.get('n_layer'))} length {longest} "
                                             f"tokens {train['micro_batch_tokens']} {train['precision']} "
                                             f"recompute {train['activation_checkpointing']}, "
                                             f"{base or 'no'} lora, offload {place}, {ranks} ranks {text}")


def run(command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def bench(nrl, path, ranks, steps):
    """The bytes of the rank that used most, and by WAYS the seconds of a token."""
    words = ["bench", path, "--steps", steps, "--json"]
    command = [nrl, "launch", "-n", ranks, "--", *words] if ranks > 1 else [nrl, *words]
    done = run(command)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout[done.stdout.index("{"):])
    memory = found["memory"].get("most_used_peak_bytes", found["memory"]["used_peak_bytes"])
    return memory, [found["cpu_seconds_a_step"] / found["tokens_a_step"], 1 / found["tokens_per_s"]]


def plan_of(nrl, path, ranks, timed):
    """The prediction; None if the setting is refused, by a run too. Without `timed` nothing fits into the memory, so no
    time is measured."""
    command = [nrl, "plan", path, "--ranks", ranks, "--as-is", "--json"]
    done = run(command if timed else [*command, "--memory", "1KiB"])
    if done.returncode == (0 if timed else 6):
        return json.loads(done.stdout)["candidates"][0]
    found = run([nrl, "launch", "-n", ranks, "--", "check", path] if ranks > 1 else [nrl, "check", path])
    reason = done.stderr.split("error: ")[-1].splitlines()[0]
    if done.returncode != 2 or not found.returncode:
        raise SystemExit(f"{path}: `nrl plan` refuses it and a run does not: {reason}")
    print(f"refused by both: {reason}", flush=True)
    return None


def measure(nrl, path, ranks, timed):
    """What was found, for the ledger: bytes and, by WAYS, seconds of a token, predicted and measured in each round."""
    found = {"bytes": [], "seconds": [[], []]}
    for _ in range(ROUNDS if timed else 1):
        plan = plan_of(nrl, path, ranks, timed)
        if not plan:
            return None
        memory, seconds = bench(nrl, path, ranks, STEPS if timed else STEPS_OF_MEMORY)
        found["bytes"] = [plan["used_peak_bytes"], memory]
        for k, key in enumerate(("busy_seconds", "step_seconds") if timed else ()):
            found["seconds"][k].append([plan[key] / plan["tokens"], seconds[k]])
    return found


class Ledger:
    """Lines "COMMIT planner SEED RESULT" in the file that NRL_CAMPAIGN_LEDGER names, if it names one."""

    def __init__(self):
        self.path, self.found = os.environ.get("NRL_CAMPAIGN_LEDGER"), {}
        if not self.path:
            return
        folder = Path(__file__).resolve().parent

        def git(*words):
            return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()
        self.commit = git("rev-parse", "HEAD")
        if git("status", "--porcelain", "--untracked-files=no"):
            raise SystemExit(f"{self.path}: a ledger belongs to one commit; expected a checkout without changes")
        for line in open(self.path) if os.path.exists(self.path) else ():
            commit, name, seed, result = line.split(" ", 3)
            if (commit, name) != (self.commit, "planner"):
                raise SystemExit(f"{self.path}: belongs to {name} at {commit}; expected planner at {self.commit}")
            self.found[int(seed)] = json.loads(result)

    def get(self, seed, timed):
        """None: nothing is known; refused settings are {}."""
        found = self.found.get(seed)
        return None if found and timed and not found["seconds"][0] else found

    def put(self, seed, found):
        if self.path:
            with open(self.path, "a") as out:
                out.write(f"{self.commit} planner {seed} {json.dumps(found)}\n")


def spread(name, errors, goal):
    sizes = sorted(abs(e) for e in errors)
    inside = sum(e <= goal for e in sizes)
    print(f"{name}: median {100 * statistics.median(sizes):.1f} %, 90th percentile "
          f"{100 * sizes[int(0.9 * (len(sizes) - 1))]:.1f} %, largest {100 * sizes[-1]:.1f} %, mean of signed errors "
          f"{100 * statistics.mean(errors):+.1f} %; within {100 * goal:.0f} %: {inside} of {len(sizes)}", flush=True)
    return sizes, inside


def error(pairs, choose):
    """Of a prediction: the least or the median of the rounds, on both sides."""
    return choose(p for p, _ in pairs) / choose(m for _, m in pairs) - 1


def main():
    nrl, work, n, seed = sys.argv[1], Path(sys.argv[2]).absolute(), int(sys.argv[3]), int(sys.argv[4])
    only_memory = sys.argv[5:] == ["memory"]
    os.environ["OMP_NUM_THREADS"] = "1"
    ledger = Ledger()
    memory, times, this, tried = [], {}, seed - 1, 0
    while tried < n:
        if this - seed - tried > 2 * n:
            raise SystemExit("most settings are refused")
        this += 1
        path, ranks, timed, text = setting(work / f"planner{this}", this, only_memory)
        found = ledger.get(this, timed)
        if found is None:
            found = measure(nrl, path, ranks, timed) or {}
            ledger.put(this, found)
        shutil.rmtree(path.parent)
        if not found:
            continue
        tried += timed or only_memory
        predicted, bytes_ = found["bytes"]
        memory.append(predicted / bytes_ - 1)
        line = f"{this}: {text}: memory {bytes_ / 2**20:.1f} MiB ({100 * memory[-1]:+.1f} %)"
        for way, pairs in zip(WAYS, found["seconds"]):
            if not pairs:
                continue
            least, median = error(pairs, min), error(pairs, statistics.median)
            if way != WAYS[0] and ranks > os.cpu_count():
                way += " of ranks that share processors"
            times.setdefault(way, []).append((least, median))
            line += f", {way} {1e6 * min(m for _, m in pairs):.2f} us a token ({100 * least:+.1f} %, median {100 * median:+.1f} %)"
        print(line, flush=True)
    sizes, inside = spread("memory", memory, MEMORY)
    failed = len(sizes) - inside
    for way, errors in times.items():
        found, _ = spread(way, [least for least, _ in errors], TIME)
        spread(f"{way}, medians of {ROUNDS} rounds", [median for _, median in errors], TIME)
        failed += way == WAYS[0] and statistics.median(found) > TIME
    print(f"planner: {len(memory)} tried, {failed} failed, seed {seed}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
