#!/usr/bin/env python3
"""Several updates on the same completions with the loss function of TRL (GRPOTrainer._compute_loss), in fp64 on
tests/data/models/llama, for the completions that nrl samples. Writes trl.json beside this file. Needs torch,
transformers, trl (1.16) and the path of a built nrl:

    make_trl.py build/release/bin/nrl

As in make_grpo.py, the losses agree only if every update does, because the weights sample the completions to come.
"""
import json, os, sys
from types import SimpleNamespace
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer
from trl.trainer.utils import nanstd
import make_grpo as made

made.STEPS, made.LR = 10, 5e-3
ITERATIONS = 2
CASES = [
    {"loss": "dapo", "beta": 0.04},
    {"loss": "grpo", "beta": 0.0, "importance_sampling": "sequence", "scale_rewards": "batch", "epsilon": 0.03, "epsilon_high": 0.04},
    {"loss": "bnpo", "beta": 0.0, "delta": 1.25, "scale_rewards": "batch", "epsilon_high": 0.28},
    {"loss": "dr_grpo", "beta": 0.1, "importance_sampling": "sequence", "epsilon": 0.05},
    {"loss": "cispo", "beta": 0.0, "epsilon_high": 1.05},
    {"loss": "sapo", "beta": 0.0, "sapo_temperature_pos": 0.8},
    {"loss": "grpo", "beta": 0.0, "scale_rewards": "batch", "reward": f"{made.HERE}/reward_nil.lua"},
    {"loss": "dapo", "beta": 0.0, "reward": f"{made.HERE}/reward_nil.lua"},
]
TRL_METRICS = ["kl", "entropy", "clip_ratio/low_mean", "clip_ratio/low_min", "clip_ratio/high_mean", "clip_ratio/high_max",
               "clip_ratio/region_mean", "cispo_clip_ratio"]


def padded(rows, value, dtype):
    out = torch.full((len(rows), max(map(len, rows))), value, dtype=dtype)
    for i, row in enumerate(rows):
        out[i, :len(row)] = torch.as_tensor(row, dtype=dtype)
    return out


def logps_and_entropies(samples, model):
    """[B, T] of completions; each sequence in a forward pass of its own, so that nothing is padded before them."""
    logps, entropies = [], []
    for s in samples:
        z = model(input_ids=torch.tensor([s["prompt"] + s["completion"]]), use_cache=False).logits[0, :-1].log_softmax(-1)
        z = z[len(s["prompt"]) - 1:]
        logps.append(z.gather(1, torch.tensor(s["completion"])[:, None])[:, 0])
        entropies.append(-(z.exp() * z).sum(-1))
    pad = lambda rows: torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return pad(logps), pad(entropies)


def trainer(case, samples):
    o = dict({"beta": 0.0, "epsilon": 0.2, "importance_sampling": "token"}, **case)
    accelerator = SimpleNamespace(num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x)
    t = SimpleNamespace(
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=False,
        importance_sampling_level=o["importance_sampling"], beta=o["beta"], loss_type=o["loss"], epsilon_low=o["epsilon"],
        epsilon_high=o.get("epsilon_high", o["epsilon"]), max_completion_length=made.LENGTH, accelerator=accelerator,
        current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False, _metrics={"train": {k: [] for k in TRL_METRICS}},
        args=SimpleNamespace(delta=o.get("delta"), use_bias_correction_kl=False, steps_per_generation=1,
                             sapo_temperature_pos=o.get("sapo_temperature_pos", 1.0), sapo_temperature_neg=1.05))
    t._get_per_token_logps_and_entropies = lambda model, *rest, **more: (*logps_and_entropies(samples, model), None)
    return t


def rewards_of(samples):
    return torch.tensor([float("nan") if s["reward"] is None else s["reward"] for s in samples], dtype=torch.float64)


def advantages_of(samples, case):
    """As GRPOTrainer._generate_and_score_completions computes them."""
    rewards = rewards_of(samples).view(-1, made.GROUP)
    std = nanstd(rewards) if case.get("scale_rewards") == "batch" else nanstd(rewards, 1, keepdim=True)
    return torch.nan_to_num((rewards - rewards.nanmean(1, keepdim=True)) / (std + 1e-4), nan=0.0).flatten()


def train(rollouts, case):
    model = AutoModelForCausalLM.from_pretrained(made.LLAMA, dtype=torch.float64, attn_implementation="eager").train()
    first = AutoModelForCausalLM.from_pretrained(made.LLAMA, dtype=torch.float64, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=made.LR, weight_decay=0.0)
    out = {"losses": [], "grad_norms": [], "fields": {}}
    per = made.BATCH * made.GROUP
    for step in range(made.STEPS):
        batch = step // ITERATIONS
        samples = rollouts[batch * per:(batch + 1) * per]
        if step % ITERATIONS == 0:
            with torch.no_grad():
                old, ref = logps_and_entropies(samples, model)[0], logps_and_entropies(samples, first)[0]
        mask = padded([[1] * len(s["completion"]) for s in samples], 0, torch.long)
        inputs = {"prompt_ids": padded([s["prompt"] for s in samples], 0, torch.long),
                  "prompt_mask": padded([[1] * len(s["prompt"]) for s in samples], 0, torch.long),
                  "completion_ids": padded([s["completion"] for s in samples], 0, torch.long), "completion_mask": mask,
                  "advantages": advantages_of(samples, case), "old_per_token_logps": old, "ref_per_token_logps": ref,
                  "num_items_in_batch": mask.sum()}
        t = trainer(case, samples)
        loss = GRPOTrainer._compute_loss(t, model, inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out["losses"].append(float(loss.detach()))
        out["grad_norms"].append(float(torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))))
        for name in ["entropy", *[name for name in ["clip_ratio/region_mean", "cispo_clip_ratio", "kl"] if t._metrics["train"][name]]]:
            out["fields"].setdefault(name, []).append(t._metrics["train"][name][0])
        if "reward" in case:
            out["fields"].setdefault("reward", []).append(float(rewards_of(samples).nanmean()))
            out["fields"].setdefault("reward_std", []).append(float(nanstd(rewards_of(samples))))
    return out


def main():
    cases = []
    for case in CASES:
        case = dict(case, num_iterations=ITERATIONS)
        rollouts = made.sample(sys.argv[1], case)
        assert len(rollouts) == made.STEPS // ITERATIONS * made.BATCH * made.GROUP
        config = made.config(case).replace(made.HERE, "TESTS/grpo").replace(made.LLAMA, "TESTS/models/llama")
        cases.append(dict({"config": config, "completions": [" ".join(map(str, r["completion"])) for r in rollouts]},
                          **train(rollouts, case)))
    with open(os.path.join(made.HERE, "trl.json"), "w") as f:
        json.dump({"cases": cases}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
