"""Reward models between nrl and transformers: the export of a run is loaded as ...ForSequenceClassification without a missing
or unexpected weight, and gives the accuracy and the mean scores of `nrl eval`.

usage: reward.py   (the program is $NRL_TEST_BUILD/bin/nrl, data comes from $NRL_TEST_SOURCE)
"""
import json, os, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
try:
    import torch
    from transformers import AutoModelForSequenceClassification
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

BOUND = 2e-5  # of a mean score; both compute in fp32
NRL = os.path.join(os.environ["NRL_TEST_BUILD"], "bin/nrl")
DATA = os.path.join(os.environ["NRL_TEST_SOURCE"], "tests/data/reward")
MODELS = os.path.join(os.environ["NRL_TEST_SOURCE"], "tests/data/models")


def nrl(*words):
    done = subprocess.run([NRL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def score(model, ids):
    with torch.no_grad():
        return float(model(input_ids=torch.tensor([ids])).logits[0, 0])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    rows = [json.loads(line) for line in open(f"{DATA}/pairs.jsonl")]
    for name in ("llama", "qwen2", "gpt2"):  # with an output layer of its own, tied, and with a prefix of tensor names
        config = {"model": {"path": f"{MODELS}/{name}"}, "algorithm": {"name": "reward", "pad_token_id": 0}, "out": name,
                  "data": {"train": f"{DATA}/pairs.jsonl", "eval": f"{DATA}/pairs.jsonl", "max_length": 32},
                  "train": {"steps": 4, "global_batch": 8, "micro_batch_tokens": 256}, "optimizer": {"name": "adamw", "lr": 1e-3},
                  "loggers": ["jsonl"]}
        json.dump(config, open("config.yaml", "w"))
        nrl("run", "config.yaml")
        said = json.loads(nrl("eval", "config.yaml", f"model.path={name}/model", "out=none", "--json"))
        model, info = AutoModelForSequenceClassification.from_pretrained(f"{name}/model", dtype=torch.float32,
                                                                         output_loading_info=True)
        wrong = {k: v for k, v in info.items() if v}
        assert type(model).__name__.endswith("ForSequenceClassification") and not wrong, (name, wrong)
        chosen = [score(model, r["prompt_input_ids"] + r["chosen_input_ids"]) for r in rows]
        rejected = [score(model, r["prompt_input_ids"] + r["rejected_input_ids"]) for r in rows]
        found = {"rewards/accuracies": sum(c > r for c, r in zip(chosen, rejected)) / len(rows),
                 "rewards/chosen": sum(chosen) / len(rows), "rewards/rejected": sum(rejected) / len(rows)}
        for key, value in found.items():
            assert abs(value - said["eval_" + key]) < BOUND, (name, key, value, said)
        print(name, found)
