#!/usr/bin/env python3
"""20 steps of PyTorch with the objectives of the plugins sft and distill, in fp64 on the small models of tests/data/models.
Writes rows.jsonl and objectives.json beside this file. Needs torch and transformers.

The student is models/llama, the teacher models/mistral: another architecture with the same vocabulary. Every
step takes the next 4 rows of the file, as nrl does with data.shuffle: false; a loss is a mean over the trained tokens of
the 4 rows; AdamW of PyTorch with a constant learning rate and no clipping.
"""
import json, os
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


def distill(divergence="forward_kl", temperature=1.0, kd_ratio=0.5):
    def loss(output, labels, teacher):
        z, targets = rows_of(output.logits, labels)
        zt, _ = rows_of(teacher.logits, labels)
        student, wise = (z / temperature).log_softmax(-1), (zt / temperature).log_softmax(-1)
        first, second = (student, wise) if divergence == "forward_kl" else (wise, student)
        kl = F.kl_div(first, second, log_target=True, reduction="none").sum(-1).mean()
        return kd_ratio * temperature**2 * kl + (1 - kd_ratio) * F.cross_entropy(z, targets)
    return loss


CASES = [
    ("sft", {"label_smoothing": 0.1}, sft), ("sft", {"z_loss": 1e-3}, sft),
    ("sft", {"label_smoothing": 0.2, "z_loss": 1e-2}, sft),
    ("distill", {}, distill), ("distill", {"divergence": "reverse_kl", "kd_ratio": 1.0}, distill),
    ("distill", {"temperature": 2.0, "kd_ratio": 0.75}, distill),
    ("distill", {"divergence": "reverse_kl", "temperature": 0.9, "kd_ratio": 0.25}, distill),
]


def run(rows, objective):
    student, teacher = load("llama"), load("mistral")
    optimizer = torch.optim.AdamW(student.parameters(), lr=LR, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        ids, labels, mask = pad(rows[step * BATCH:(step + 1) * BATCH])
        with torch.no_grad():
            wise = teacher(input_ids=ids, attention_mask=mask, use_cache=False)
        value = objective(student(input_ids=ids, attention_mask=mask, use_cache=False), labels, wise)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value))
    return losses


def main():
    rows = make_rows()
    with open(os.path.join(HERE, "rows.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    out = [{"algorithm": name, "options": options, "losses": run(rows, make(**options))} for name, options, make in CASES]
    with open(os.path.join(HERE, "objectives.json"), "w") as f:
        json.dump({"steps": STEPS, "global_batch": BATCH, "lr": LR, "cases": out}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
