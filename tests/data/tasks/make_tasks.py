"""Writes the rows of small tasks in public formats, with sentences of its own, and records what lm-evaluation-harness
gives a model on them.

    make_tasks.py MODEL: writes *.jsonl and scores.json beside this file; needs lm-eval, torch and transformers.
        MODEL is a Hugging Face directory, here shared/data/models/stories260K/hf.
"""
import json
import os
import pathlib
import random
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1")
here = pathlib.Path(__file__).parent
model = sys.argv[1]
random.seed(20)
names, things, places = ["Tom", "Lily", "Ben", "Mia", "Sam"], ["ball", "cake", "dog", "boat", "red hat"], \
    ["park", "house", "garden", "sea", "big old tree"]
verbs = ["saw a", "wanted the", "played with a", "lost the", "gave Mom a"]


def sentence():
    return f"{random.choice(names)} {random.choice(verbs)} {random.choice(things)} in the {random.choice(places)}."


def phrase():
    return f"{random.choice(verbs)} {random.choice(things)}"


def write(name, rows):
    (here / f"{name}.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def arc(i):
    n = 5 if i % 3 == 0 else 4
    labels = list("ABCDE" if i % 2 else "12345")[:n]
    return {"id": str(i), "question": f"{sentence()} What did they do next?",
            "choices": {"text": [phrase() + (" and the café" if k == 1 else "") for k in range(n)], "label": labels},
            "answerKey": labels[i % n]}


write("hellaswag", [{
    "activity_label": "Telling a story", "ctx_a": sentence(), "ctx_b": random.choice(["then", "THEY", "she"]),
    "endings": [f"{phrase()}  and went [step] home{' [title] Be happy' if k == 2 else ''}." for k in range(4)],
    "label": str(i % 4)} for i in range(16)])
write("arc", [arc(i) for i in range(16)])
write("arc_examples", [arc(i) for i in range(2)])
write("piqa", [{"goal": f"How can {random.choice(names)} find the {random.choice(things)}?", "sol1": sentence(),
                "sol2": f"{phrase()} naïvely", "label": i % 2} for i in range(16)])
write("mmlu", [{"question": f" {sentence()} Why?\n", "subject": "high_school_stories",
                "choices": [phrase() for _ in range(4)], "answer": i % 4} for i in range(16)])
write("gsm8k", [{"question": f"{sentence()} It took {i} days. How many?", "answer": f"It is {i} times 300.\n#### {300 * i:,}"}
                for i in range(6)])

import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
from lm_eval.filters.extraction import RegexFilter  # noqa: E402
from lm_eval.api.metrics import exact_match_hf_evaluate  # noqa: E402

tasks = pathlib.Path(lm_eval.__file__).parent / "tasks"
folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"tasks-{os.getpid()}"
folder.mkdir()


def local(name, file, original, more="", examples=None):
    include = f"include: {tasks / original}\n"
    (folder / f"{name}.yaml").write_text(
        f"{include}task: {name}\ntag: []\ndataset_path: json\ndataset_name: null\n"
        f"dataset_kwargs: {{data_files: {{validation: {here / file}, train: {here / (examples or file)}}}}}\n"
        f"validation_split: validation\ntest_split: null\ntraining_split: train\nfewshot_split: train\n{more}")


local("l_hellaswag", "hellaswag.jsonl", "hellaswag/hellaswag.yaml")
local("l_arc", "arc.jsonl", "arc/arc_easy.yaml", "num_fewshot: 0\n")
local("l_arc2", "arc.jsonl", "arc/arc_easy.yaml", "num_fewshot: 2\nfewshot_config: {sampler: first_n}\n",
      "arc_examples.jsonl")
local("l_piqa", "piqa.jsonl", "piqa/piqa.yaml")
local("l_mmlu", "mmlu.jsonl", "mmlu/default/_default_template_yaml",
      'description: "The following are multiple choice questions (with answers) about high school stories.\\n\\n"\n'
      "num_fewshot: 0\n")
local("l_gsm8k", "gsm8k.jsonl", "gsm8k/gsm8k.yaml", "num_fewshot: 0\ngeneration_kwargs: {until: ['Question:', '</s>', "
      "'<|im_end|>'], do_sample: false, temperature: 0.0, max_gen_toks: 16}\n")
manager = lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False)
names = ["l_hellaswag", "l_arc", "l_arc2", "l_piqa", "l_mmlu", "l_gsm8k"]
result = lm_eval.simple_evaluate(model="hf", model_args=f"pretrained={model},dtype=float32", tasks=names,
                                 task_manager=manager, device="cpu", batch_size=1, bootstrap_iters=0, log_samples=True)
out = {"lm_eval": lm_eval.__version__, "model": "stories260K", "tasks": {}}
for name in names:
    scores = {k: v for k, v in result["results"][name].items() if isinstance(v, float)}
    samples = sorted(result["samples"][name], key=lambda s: s["doc_id"])
    one = {"scores": scores}
    if name == "l_gsm8k":
        one["texts"] = [s["resps"][0][0] for s in samples if s["filter"] == "strict-match"]
    else:
        one["prompts"] = [s["arguments"][0][0] for s in samples[:2]]
        one["loglikelihoods"] = [[round(float(r[0]), 5) for r in s["filtered_resps"]] for s in samples]
    out["tasks"][name[2:]] = one

# The filters and the comparison of gsm8k, on texts that exercise them.
texts = ["#### 1,200", "so it is 12 - 5 = 7.", "#### -5. or #### 6", "$1,000.50 in all", "no digits", "a - b", "-$5", "1 2 3",
         "####7", "x is 7,", "####  8", "-12.", "7.", "...", "5$", "#### abc 9"]
strict, flexible = RegexFilter(), RegexFilter(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
ignore = [",", r"\$", r"(?s).*#### ", r"\.$"]
out["numbers"] = [[t, list(strict.apply([[t]], [{}]))[0][0], list(flexible.apply([[t]], [{}]))[0][0]] for t in texts]
out["equal"] = [[p, r, bool(exact_match_hf_evaluate([p], [r], regexes_to_ignore=ignore, ignore_case=True)["exact_match"])]
                for p, r in [("1,200", "It is\n#### 1200"), ("7.", "#### 7"), ("$5", "x #### 5."), ("-5", "#### 5"),
                             ("[invalid]", "#### 3"), ("ABC", "#### abc")]]
(here / "scores.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
