#!/usr/bin/env python3
"""planner.py NRL FOLDER N SEED [memory]: N settings are predicted by `nrl plan --as-is` and then measured by `nrl bench`:
models, lengths, precisions, strategies on 1, 2 and 4 ranks, adapters on whole and on quantized weights, recomputed
activations and offload. Prints each and the distribution of the errors of memory and time; fails where memory is off by
more than 5 %, or where the median of the errors of processor time is above 15 %. With `memory` time is not measured. A
setting that `nrl plan` refuses must be refused by a run too, and another one takes its place.

Ranks have one thread each. Time is compared twice: the predicted duration of a step with the median, which only says
something if nothing else runs on the machine and each rank has a processor; and the predicted processor time of a rank
with that of a bench with many steps less that of one with few, divided by the steps between and by the ranks (the least
of three such differences), which other programs disturb less. A prediction is of the first steps: it is scaled by the
mean tokens of a step, because those between are whole epochs."""
import json
import os
import random
import resource
import statistics
import subprocess
import sys
from pathlib import Path

MEMORY, TIME = 0.05, 0.15
SHORT, LONG, TRIES = 2, 10, 3
EPOCH = 4  # steps of it, of which those between are a multiple


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
    """Writes n rows; the sum of their tokens."""
    tokens = 0
    with open(path, "w") as out:
        for _ in range(n):
            length = rng.randint(longest // 4, longest)
            tokens += length
            ids = [rng.randrange(3, vocab) for _ in range(length)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return tokens


def setting(folder, seed):
    """A config of random shape, the number of ranks, whether its time is predicted (a disk's is not), the mean tokens of
    a step, and its text."""
    rng = random.Random(seed)
    model = (gpt2 if rng.random() < 0.25 else llama)(rng)
    longest = rng.choice([64, 256, 1024])
    ranks = [1, 2, 1, 4, 2][seed % 5]
    batch = max(ranks, {64: 64, 256: 16, 1024: 4}[longest])
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(model))
    tokens = rows(folder / "rows.jsonl", rng, longest, model["vocab_size"], EPOCH * batch) / EPOCH
    train = {"global_batch": batch, "steps": 2 * LONG, "seed": seed,
             "micro_batch_tokens": longest * rng.choice([1, 2, 4]),
             "precision": rng.choice(["fp32", "fp32", "bf16"]),
             "activation_checkpointing": rng.choice(["none", "none", "all"])}
    config = {"model": {"config": str(folder / "model.json")},
              "data": {"train": str(folder / "rows.jsonl"), "max_length": longest}, "algorithm": "sft", "train": train,
              "optimizer": {"name": "adamw", "lr": 1e-4}, "schedule": "constant", "out": str(folder / "out"),
              "backend": {"name": "cpu", "threads": 1}}
    places = ["nowhere"] * 3 + ["optimizer", "activations"] + ["shards"] * (ranks < 4)
    place = places[seed % len(places)]
    if place in ("optimizer", "activations"):
        train["offload"] = {place: "disk"}
    if place == "shards":
        config["parallel"] = {"data": {"name": "fsdp", "offload": "disk"}}
    elif ranks > 1:
        strategies = ["ddp", "fsdp", {"name": "fsdp", "shard": "grads"}, {"name": "fsdp", "shard": "optimizer"},
                      {"data": "ddp", "tensor": 2}, {"data": "fsdp", "tensor": {"size": 2, "sequence": True}},
                      {"data": "ddp", "pipeline": 2}, {"data": "fsdp", "context": 2}]
        config["parallel"] = rng.choice(strategies)
    base = [None, None, None, "full", "nf4", None, None, "int8", "fp4", "nf4"][seed % 10]
    if base:
        config["lora"] = {"rank": rng.choice([4, 8, 16]), "alpha": 16, "base": base}
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    text = json.dumps(config.get("parallel", "one rank")).replace('"', "")
    return path, ranks, place == "nowhere", tokens, (f"{model['model_type']} {model.get('hidden_size', model.get('n_embd'))}x"
                         f"{model.get('num_hidden_layers', model.get('n_layer'))} length {longest} "
                         f"tokens {train['micro_batch_tokens']} {train['precision']} "
                         f"recompute {train['activation_checkpointing']}, "
                         f"{base or 'no'} lora, offload {place}, {ranks} ranks {text}")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def bench(nrl, path, ranks, steps):
    """What rank 0 prints, and the processor time of all ranks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["bench", str(path), "--steps", str(steps), "--json"]
    found = run([nrl, "launch", "-n", str(ranks), "--", *words] if ranks > 1 else [nrl, *words])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(nrl, path, ranks, timed):
    if not timed:
        return bench(nrl, path, ranks, SHORT)[0]["memory"]["used_peak_bytes"], None, None
    times = []
    for _ in range(TRIES):
        _, few = bench(nrl, path, ranks, SHORT)
        found, many = bench(nrl, path, ranks, LONG)
        # bench profiles half as many steps again, at most five
        between = LONG + min(5, (LONG + 1) // 2) - SHORT - min(5, (SHORT + 1) // 2)
        times.append((many - few) / between / ranks)
    return found["memory"]["used_peak_bytes"], min(times), found["step_seconds_median"]


def spread(name, errors, goal):
    sizes = sorted(abs(e) for e in errors)
    inside = sum(e <= goal for e in sizes)
    print(f"{name}: median {100 * statistics.median(sizes):.1f} %, 90th percentile "
          f"{100 * sizes[int(0.9 * (len(sizes) - 1))]:.1f} %, largest {100 * sizes[-1]:.1f} %, mean of signed errors "
          f"{100 * statistics.mean(errors):+.1f} %; within {100 * goal:.0f} %: {inside} of {len(sizes)}", flush=True)
    return sizes, inside


def plan_of(nrl, path, ranks):
    """The prediction; None if the setting is refused, by a run too."""
    done = subprocess.run([nrl, "plan", str(path), "--ranks", str(ranks), "--as-is", "--json"], capture_output=True,
                          text=True)
    if not done.returncode:
        return json.loads(done.stdout)["candidates"][0]
    command = [nrl, "launch", "-n", str(ranks), "--", "check", str(path)] if ranks > 1 else [nrl, "check", str(path)]
    run_ = subprocess.run(command, capture_output=True, text=True)
    reason = done.stderr.split("error: ")[-1].splitlines()[0]
    if done.returncode != 2 or not run_.returncode:
        raise SystemExit(f"{path}: `nrl plan` refuses it and a run does not: {reason}")
    print(f"refused by both: {reason}", flush=True)
    return None


def main():
    nrl, work, n, seed = sys.argv[1], Path(sys.argv[2]).absolute(), int(sys.argv[3]), int(sys.argv[4])
    only_memory = sys.argv[5:] == ["memory"]
    os.environ["OMP_NUM_THREADS"] = "1"
    memory, time, walls, this = [], [], [], seed - 1
    while len(memory) < n:
        if this - seed - len(memory) > n:
            raise SystemExit("more than half of the settings are refused")
        this += 1
        path, ranks, timed, tokens, text = setting(work / f"planner{this}", this)
        found = plan_of(nrl, path, ranks)
        if not found:
            continue
        bytes_, seconds, wall = measure(nrl, path, ranks, timed and not only_memory)
        memory.append(found["used_peak_bytes"] / bytes_ - 1)
        line = f"{this}: {text}: memory {bytes_ / 2**20:.1f} MiB ({100 * memory[-1]:+.1f} %)"
        if seconds:
            scale = tokens / found["tokens"]
            time.append(scale * found["busy_seconds"] / seconds - 1)
            walls.append(scale * found["step_seconds"] / wall - 1)
            line += (f", processor time {1e3 * seconds:.1f} ms ({100 * time[-1]:+.1f} %), step "
                     f"{1e3 * wall:.1f} ms ({100 * walls[-1]:+.1f} %)")
        print(line, flush=True)
    sizes, inside = spread("memory", memory, MEMORY)
    failed = len(sizes) - inside
    if time:
        times, _ = spread("processor time", time, TIME)
        spread("duration of a step", walls, TIME)
        failed += statistics.median(times) > TIME
    print(f"planner: {n} tried, {failed} failed, seed {seed}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
