#!/usr/bin/env python3
"""20 steps of PyTorch with the objectives of the plugins sft and distill, in fp64 on the small models of tests/data/models.
Writes rows.jsonl and objectives.json beside this file. Needs torch and transformers.

The student is models/llama, the teacher models/mistral: another architecture with the same vocabulary. Every
step takes the next 4 rows of the file, as nrl does with data.shuffle: false; a loss is a mean over the trained tokens of
the 4 rows; AdamW of PyTorch with a constant learning rate and no clipping.
"""
import json, math, os
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
from transformers.trainer_pt_utils import LabelSmoother

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "models")
STEPS, BATCH, LR = 20, 4, 2e-3
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


def make_rows():
    rows = []
    for i in range(STEPS * BATCH):
        ids = [3 + (i * 31 + t * t * 17 + t * (i % 5)) % 90 for t in range(5 + (i * 7) % 14)]
        prompt = len(ids) // 3
        rows.append({"input_ids": ids, "labels": [-100 if t < prompt else x for t, x in enumerate(ids)]})
    return rows


def pad(rows):
    n = max(len(r["input_ids"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [0] * (n - len(r["input_ids"])) for r in rows])
    labels = torch.tensor([r["labels"] + [-100] * (n - len(r["labels"])) for r in rows])
    mask = torch.tensor([[1] * len(r["input_ids"]) + [0] * (n - len(r["input_ids"])) for r in rows])
    return ids, labels, mask


def load(name):
    path = os.path.join(MODELS, name)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager")


def rows_of(logits, labels):
    """Logits and targets of the trained positions."""
    keep = labels[:, 1:] != -100
    return logits[:, :-1][keep], labels[:, 1:][keep]


def sft(label_smoothing=0.0, z_loss=0.0):
    def loss(output, labels, teacher):
        z, targets = rows_of(output.logits, labels)
        if label_smoothing:
            value = LabelSmoother(epsilon=label_smoothing)(output, labels, shift_labels=True)
        else:
            value = F.cross_entropy(z, targets)
        return value + z_loss * (z.logsumexp(-1) ** 2).mean()
    return loss


def jsd(student, wise, beta):
    """The generalized Jensen-Shannon divergence of GKD, as TRL's GKDTrainer computes it."""
    mixture = torch.logsumexp(torch.stack([student + math.log1p(-beta), wise + math.log(beta)]), 0)
    parts = [F.kl_div(mixture, x, log_target=True, reduction="none").sum(-1).mean() for x in (wise, student)]
    return beta * parts[0] + (1 - beta) * parts[1]


def complete(student, row, max_tokens):
    """The row with a greedy completion by the student in the place of its answer."""
    prompt = [x for x, label in zip(row["input_ids"], row["labels"]) if label == -100]
    ids = list(prompt)
    with torch.no_grad():
        while len(ids) < len(prompt) + max_tokens and (len(ids) == len(prompt) or ids[-1] != student.config.eos_token_id):
            ids.append(int(student(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return {"input_ids": ids, "labels": [-100] * len(prompt) + ids[len(prompt):]}


def distill(divergence="forward_kl", temperature=1.0, kd_ratio=0.5, beta=0.5, **on_policy):
    def loss(output, labels, teacher):
        z, targets = rows_of(output.logits, labels)
        zt, _ = rows_of(teacher.logits, labels)
        student, wise = (z / temperature).log_softmax(-1), (zt / temperature).log_softmax(-1)
        if divergence == "jsd":
            return kd_ratio * temperature**2 * jsd(student, wise, beta) + (1 - kd_ratio) * F.cross_entropy(z, targets)
        first, second = (student, wise) if divergence == "forward_kl" else (wise, student)
        kl = F.kl_div(first, second, log_target=True, reduction="none").sum(-1).mean()
        return kd_ratio * temperature**2 * kl + (1 - kd_ratio) * F.cross_entropy(z, targets)
    return loss


def value_head():
    """A zero value head beside the output layer, which is added to the student and learns the number 1."""
    def loss(output, labels, teacher, values):
        z, targets = rows_of(output.logits, labels)
        return F.cross_entropy(z, targets) + ((values - 1) ** 2).mean()
    loss.has_values = True
    return loss


def follow():
    def loss(output, labels, teacher):
        own, wise = ((z.log_softmax(-1).gather(-1, t[:, None])[:, 0]) for z, t in
                     (rows_of(output.logits, labels), rows_of(teacher.logits, labels)))
        return ((own - wise) ** 2 / 2).mean()
    return loss


CASES = [
    ("sft", {"label_smoothing": 0.1}, sft), ("sft", {"z_loss": 1e-3}, sft),
    ("sft", {"label_smoothing": 0.2, "z_loss": 1e-2}, sft),
    ("distill", {}, distill), ("distill", {"divergence": "reverse_kl", "kd_ratio": 1.0}, distill),
    ("distill", {"temperature": 2.0, "kd_ratio": 0.75}, distill),
    ("distill", {"divergence": "reverse_kl", "temperature": 0.9, "kd_ratio": 0.25}, distill),
    ("distill", {"divergence": "jsd", "beta": 0.1, "temperature": 0.9}, distill),
    # every step trains on the student's own completions, which are greedy here, so that both sides have the same
    ("distill", {"divergence": "jsd", "kd_ratio": 1.0, "on_policy": 1.0, "sample_temperature": 0, "max_tokens": 9}, distill),
    ("value_head", {}, value_head), ("follow", {}, follow), # plugins of tests/e2e/plugins
]


def run(rows, objective, options):
    student, teacher = load("llama"), load("mistral")
    head = torch.nn.Parameter(torch.zeros(student.config.hidden_size, dtype=torch.float64))
    has_values = hasattr(objective, "has_values")
    optimizer = torch.optim.AdamW([*student.parameters(), *([head] if has_values else [])], lr=LR, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        batch = rows[step * BATCH:(step + 1) * BATCH]
        if "on_policy" in options:
            batch = [complete(student, row, options["max_tokens"]) for row in batch]
        ids, labels, mask = pad(batch)
        with torch.no_grad():
            wise = teacher(input_ids=ids, attention_mask=mask, use_cache=False)
        output = student(input_ids=ids, attention_mask=mask, use_cache=False, output_hidden_states=has_values)
        if has_values:
            last = output.hidden_states[-1][torch.arange(len(ids)), mask.sum(1) - 1]
            value = objective(output, labels, wise, last @ head)
        else:
            value = objective(output, labels, wise)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value))
    return losses


def main():
    rows = make_rows()
    with open(os.path.join(HERE, "rows.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    out = [{"algorithm": name, "options": options, "losses": run(rows, make(**options), options)} for name, options, make in CASES]
    with open(os.path.join(HERE, "objectives.json"), "w") as f:
        json.dump({"steps": STEPS, "global_batch": BATCH, "lr": LR, "cases": out}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
