#!/usr/bin/env python3
"""GRPO with two functions and a reward model, on completions that nrl samples: writes rewards.json beside this file. Needs
torch, transformers and the path of a built nrl:

    make_rewards.py build/release/bin/nrl

transformers computes the scores of the reward model tests/data/reward/model, in fp32. As in TRL's GRPOTrainer the reward is
the weighted sum of all, and each has its mean and its standard deviation (n - 1) over the batch.
"""
import json, os, subprocess, sys, tempfile
import torch
from transformers import AutoModelForSequenceClassification
import make_grpo

HERE, LLAMA = make_grpo.HERE, make_grpo.LLAMA
SCORER = os.path.join(HERE, "..", "reward", "model")
WEIGHTS = {"even": 1.0, "short": 0.05, "model": 2.0}
CONFIG = make_grpo.config({"loss": "dapo", "beta": 0.0}).replace(
    "reward.lua", "rewards.lua, reward_model: %s, reward_weights: {short: 0.05, model: 2}" % SCORER)


def main():
    scorer = AutoModelForSequenceClassification.from_pretrained(SCORER, dtype=torch.float32, attn_implementation="eager")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "grpo.yaml"), "w") as f:
            f.write(CONFIG)
        rollouts = os.path.join(folder, "rollouts.jsonl")
        subprocess.run([os.path.abspath(sys.argv[1]), "run", "grpo.yaml", "out=out"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "ROLLOUTS": rollouts, "OMP_NUM_THREADS": "1"})
        samples = [json.loads(line) for line in open(rollouts)]
    fields, n = {}, make_grpo.BATCH * make_grpo.GROUP
    for s in samples:
        with torch.no_grad():
            s["model"] = float(scorer(torch.tensor([s["prompt"] + s["completion"]])).logits[0, 0])
        s["reward"] = sum(w * s[name] for name, w in WEIGHTS.items())
    for step in range(make_grpo.STEPS):
        batch = samples[step * n:(step + 1) * n]
        for name in WEIGHTS:
            values = torch.tensor([s[name] for s in batch], dtype=torch.float64)
            fields.setdefault(f"rewards/{name}/mean", []).append(float(values.mean()))
            fields.setdefault(f"rewards/{name}/std", []).append(float(values.std()))
        values = torch.tensor([s["reward"] for s in batch], dtype=torch.float64)
        fields.setdefault("reward", []).append(float(values.mean()))
        fields.setdefault("reward_std", []).append(float(values.std()))
    losses, norms = make_grpo.run(samples, {"loss": "dapo", "beta": 0.0})
    case = {"config": CONFIG.replace(HERE, "TESTS/grpo").replace(LLAMA, "TESTS/models/llama"),
            "completions": [" ".join(map(str, s["completion"])) for s in samples], "losses": losses, "grad_norms": norms,
            "fields": fields}
    with open(os.path.join(HERE, "rewards.json"), "w") as f:
        json.dump({"steps": make_grpo.STEPS, "cases": [case]}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
