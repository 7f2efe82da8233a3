#!/usr/bin/env python3
"""GRPO in PyTorch, in fp64 on tests/data/models/llama, for the completions that nrl samples. Writes grpo.json beside this
file. Needs torch, transformers and the path of a built nrl:

    make_grpo.py build/release/bin/nrl

nrl runs each case and records what it samples. Then PyTorch trains on the same completions with the loss of TRL's
GRPOTrainer: one update for each batch of completions, so the ratio to the policy that sampled is 1 and has a gradient.
The losses agree only if every update does, because the weights of a step sample the completions of the next one.
"""
import json, os, subprocess, sys, tempfile
import torch
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = os.path.join(HERE, "..", "models", "llama")
STEPS, BATCH, GROUP, LENGTH, LR = 8, 2, 4, 8, 2e-3
CASES = [
    {"loss": "dapo", "beta": 0.04},
    {"loss": "grpo", "beta": 0.0, "scale_rewards": "none"},
    {"loss": "dr_grpo", "beta": 0.1},
    {"loss": "dapo", "beta": 0.0, "mask_truncated": True, "temperature": 3.0},
    {"loss": "grpo", "beta": 0.0, "mask_truncated": True, "temperature": 3.0},
    {"loss": "dr_grpo", "beta": 0.0, "mask_truncated": True, "temperature": 3.0},
]
torch.use_deterministic_algorithms(True)


def config(case):
    case = {"reward": f"{HERE}/reward.lua", **case}
    words = ", ".join(f"{k}: {str(v).lower() if isinstance(v, bool) else v}" for k, v in case.items())
    return f"""model: {{path: {LLAMA}}}
data: {{train: {HERE}/../objectives/rows.jsonl, max_length: 32, shuffle: false, cache: cache}}
algorithm: {{name: grpo, group_size: {GROUP}, max_tokens: {LENGTH}, {words}}}
train: {{steps: {STEPS}, global_batch: {BATCH}, micro_batch_tokens: 256, seed: 3}}
optimizer: {{name: adamw, lr: {LR}, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, clip_norm: 0}}
schedule: {{name: constant}}
loggers: [jsonl]
"""


def sample(nrl, case):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "grpo.yaml"), "w") as f:
            f.write(config(case))
        rollouts = os.path.join(folder, "rollouts.jsonl")
        subprocess.run([os.path.abspath(nrl), "run", "grpo.yaml", "out=out"], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "ROLLOUTS": rollouts, "OMP_NUM_THREADS": "1"})
        return [json.loads(line) for line in open(rollouts)]


def logps(model, samples):
    """Log-probs of the completions' tokens, one list per sample."""
    out = []
    for s in samples:
        ids = torch.tensor([s["prompt"] + s["completion"]])
        z = model(input_ids=ids, use_cache=False).logits[0, :-1].log_softmax(-1)
        out.append(z.gather(1, ids[0, 1:, None])[len(s["prompt"]) - 1:, 0])
    return out


def grpo_loss(new, old, samples, advantages, case):
    total, tokens, kept = 0.0, 0, 0 # means over completions count those that are masked
    for x, ref, s, a in zip(new, old, samples, advantages):
        if case.get("mask_truncated") and not s["finished"]:
            continue
        ratio = torch.exp(x - x.detach())
        each = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
        each = each + case["beta"] * (torch.exp(ref - x) - (ref - x) - 1)
        n = len(s["completion"])
        total = total + each.sum() / {"dapo": 1, "grpo": n, "dr_grpo": LENGTH}[case["loss"]]
        tokens += n
        kept += 1
    return total / (tokens if case["loss"] == "dapo" else len(samples)) if kept else None


def run(rollouts, case):
    model = AutoModelForCausalLM.from_pretrained(LLAMA, dtype=torch.float64, attn_implementation="eager")
    first = AutoModelForCausalLM.from_pretrained(LLAMA, dtype=torch.float64, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        samples = rollouts[step * BATCH * GROUP:(step + 1) * BATCH * GROUP]
        rewards = torch.tensor([s["reward"] for s in samples], dtype=torch.float64).view(-1, GROUP)
        advantages = rewards - rewards.mean(1, keepdim=True)
        if case.get("scale_rewards") != "none":
            advantages = advantages / (rewards.std(1, keepdim=True) + 1e-4)
        with torch.no_grad():
            old = logps(first, samples)
        loss = grpo_loss(logps(model, samples), old, samples, advantages.flatten(), case)
        optimizer.zero_grad()
        if loss is None:
            for p in model.parameters():
                p.grad = torch.zeros_like(p)
        else:
            loss.backward()
        optimizer.step()
        losses.append(0.0 if loss is None else float(loss.detach()))
        norms.append(float(torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))))
    return losses, norms


def main():
    out = []
    for case in CASES:
        rollouts = sample(sys.argv[1], case)
        assert len(rollouts) == STEPS * BATCH * GROUP
        losses, norms = run(rollouts, case)
        out.append({"config": config(case).replace(HERE, "TESTS/grpo").replace(LLAMA, "TESTS/models/llama"),
                    "completions": [" ".join(map(str, r["completion"])) for r in rollouts], "losses": losses, "grad_norms": norms})
    with open(os.path.join(HERE, "grpo.json"), "w") as f:
        json.dump({"steps": STEPS, "cases": out}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
