"""Trains a small model with a loss of its own and lets it answer: finetune.py CONFIGS OUT."""
import sys

import nrl


@nrl.loss(metrics={"confidence": ("mean", "larger")})
def focal(b):
    """Focal loss: tokens that the model already knows count less."""
    p = b.logps.exp()
    b.metric("confidence", (p * b.weights).sum(), b.count("answer_tokens"))
    return -((1 - p) ** 2 * b.logps * b.weights).sum()


configs, out = sys.argv[1:3]
config = {
    "model": {"config": f"{configs}/models/tiny.json", "tokenizer": f"{configs}/models/tiny-tokenizer"},
    "data": {"train": f"{configs}/data/chat.jsonl", "template": "chatml", "max_length": 128},
    "algorithm": focal, "train": {"steps": 3, "global_batch": 8}, "optimizer": {"lr": 3e-3}, "out": out,
}
with nrl.open(config) as run:
    for step in run.steps():
        print(f"step {step.step} loss {step.loss:.6f} confidence {step.values['confidence']:.4f}")
    question = "What is two plus two?"
    print(question, run.sample(question, chat=True, max_tokens=8))
