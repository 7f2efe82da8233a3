#!/usr/bin/env python3
"""20 steps of TRL's RewardTrainer on the small model of tests/data/models/llama, in fp32 on the CPU. Writes pairs.jsonl,
reward.json, and what the runs start from: model (a LlamaForSequenceClassification) and adapter (of peft), beside this file.
Needs torch, transformers, trl and peft.

Every step takes the next 4 pairs of the file, as nrl does with data.shuffle: false.
"""
import json, math, os, tempfile
os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1", OMP_NUM_THREADS="1")
import torch
from torch.utils.data import SequentialSampler
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import RewardConfig, RewardTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "models", "llama")
STEPS, BATCH, LR, PAD = 20, 4, 2e-3, 0
torch.set_num_threads(1)


def make_pairs():
    rows = []
    for i in range(STEPS * BATCH):
        ids = lambda seed, n: [3 + (seed * 31 + t * t * 17 + t * (seed % 5)) % 90 for t in range(n)]
        rows.append({"prompt_input_ids": ids(i, 3 + i % 5), "chosen_input_ids": ids(i + 7, 2 + i * 7 % 9),
                     "rejected_input_ids": ids(3 * i + 1, 2 + i * 5 % 11), "margin": (i % 4) / 8})
    return rows


def tokenizer():
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(96)}, unk_token="w1"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token=f"w{PAD}", eos_token="w2")


class InOrder(RewardTrainer):
    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


def load(path):
    return LlamaForSequenceClassification.from_pretrained(path, num_labels=1, dtype=torch.float32,
                                                          attn_implementation="eager", pad_token_id=PAD)


def start():
    """The language model with a score of its own."""
    model = load(MODEL)
    with torch.no_grad():
        model.score.weight.copy_(torch.tensor([[0.02 * math.sin(i) for i in range(32)]]))
    model.save_pretrained(os.path.join(HERE, "model"))


def adapted(model, **options):
    """A is a function of its indices, B is 0."""
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], **options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_A" in name:
                p.copy_(0.1 * torch.sin(torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape)))
    return model


def run(rows, margin=False, center_coefficient=0.0, lora=False):
    model = load(os.path.join(HERE, "model"))
    data = [{"chosen_ids": r["prompt_input_ids"] + r["chosen_input_ids"],
             "rejected_ids": r["prompt_input_ids"] + r["rejected_input_ids"], **({"margin": r["margin"]} if margin else {})}
            for r in rows]
    if lora:
        model = adapted(model, modules_to_save=["score"], task_type="SEQ_CLS")
    with tempfile.TemporaryDirectory() as out:
        args = RewardConfig(output_dir=out, max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=LR, lr_scheduler_type="constant",
                            weight_decay=0.0, max_grad_norm=0.0, logging_steps=1, report_to=[], save_strategy="no", max_length=None,
                            center_rewards_coefficient=center_coefficient or None, use_cpu=True, disable_tqdm=True, bf16=False,
                            gradient_checkpointing=False, disable_dropout=True)
        trainer = InOrder(model=model, args=args, train_dataset=Dataset.from_list(data), processing_class=tokenizer())
        losses = []
        compute = trainer.compute_loss
        def watched(*a, **k):
            value = compute(*a, **k)
            losses.append(float((value[0] if isinstance(value, tuple) else value).detach()))
            return value
        trainer.compute_loss = watched
        trainer.train()
        accuracies = [h["accuracy"] for h in trainer.state.log_history if "accuracy" in h]
    return {"losses": losses, "accuracies": accuracies}


def main():
    rows = make_pairs()
    with open(os.path.join(HERE, "pairs.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    start()
    adapted(load(os.path.join(HERE, "model"))).save_pretrained(os.path.join(HERE, "adapter"))
    os.remove(os.path.join(HERE, "adapter", "README.md"))
    path = os.path.join(HERE, "adapter", "adapter_config.json")
    config = {**json.load(open(path)), "base_model_name_or_path": None, "auto_mapping": None}
    json.dump(config, open(path, "w"), indent=2)
    cases = [{"options": o, **run(rows, **o)} for o in
             ({}, {"center_coefficient": 0.01}, {"margin": True, "center_coefficient": 0.1}, {"lora": True})]
    with open(os.path.join(HERE, "reward.json"), "w") as f:
        json.dump({"steps": STEPS, "global_batch": BATCH, "lr": LR, "cases": cases}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
