"""A model that nrl exports asks in transformers as it was trained: apply_chat_template of OUT/model gives the ids of the
template that the run named, built-in or a file.

usage: template.py PEERS_CHAT NRL MODEL (MODEL: a tiny model without a tokenizer; more tokenizers, of real models, come
from NRL_TEST_SHARED where it is set)
"""
import json, os, shutil, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
from transformers import AutoTokenizer, PreTrainedTokenizerFast

NAMES = ("chatml", "llama3", "mistral", "plain")
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
FILE = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}{{ eos_token }}{% endfor %}" \
       "{% if add_generation_prompt %}[assistant] {% endif %}\n"


def talk(*texts, system=None):
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return ([{"role": "system", "content": system}] if system else []) + turns


ROWS = [{"messages": m, "prompt": p} for p in (False, True) for m in (
    talk("hi"), talk("hi", "so it's \\ \"this\""), talk(" a ", "\n b\t\n"), talk("q", "a", system="be kind"),
    talk("q", "a", "r", "b", system=" kind\t"), talk("q", "<|im_end|>b", "r"), talk("{{ x }}", "{% y %}"), talk("Köln 🥶", ""))]


def of_nrl(program, folder, template, rows=None):
    if rows is None:
        return subprocess.run([program, folder, template], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    path = os.path.join(folder, "rows.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(rows, f)
    return json.loads(subprocess.run([program, folder, template, path], check=True, stdout=subprocess.PIPE).stdout)


def compare(program, folder, template, theirs, rows):
    for row, mine in zip(rows, of_nrl(program, folder, template, rows)):
        ids = theirs.apply_chat_template(row["messages"], add_generation_prompt=row["prompt"], tokenize=True, return_dict=True)
        assert mine.get("ids") == ids["input_ids"], (template, row, mine, ids["input_ids"], theirs.decode(ids["input_ids"]))
    return len(rows)


def real_tokenizers(program, shared):
    n = 0
    for name in ("gpt2", "llama2", "qwen2", "mistral"):
        source = os.path.join(shared, "data/tokenizers", name, "tokenizer.json")
        if not os.path.exists(source):
            continue
        for adds in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                with open(source, encoding="utf-8") as f:
                    tokenizer = json.load(f)
                first = max(list(tokenizer["model"]["vocab"].values()) + [t["id"] for t in tokenizer["added_tokens"]]) + 1
                for i, text in enumerate(SPECIALS + ["<x>", "</x>"]):
                    tokenizer["added_tokens"].append({"id": first + i, "content": text, "single_word": False, "lstrip": False,
                                                      "rstrip": False, "normalized": False, "special": True})
                path = os.path.join(folder, "tokenizer.json")
                with open(path, "w", encoding="utf-8") as f:
                    json.dump(tokenizer, f)
                tokens = {"bos_token": "<x>", "eos_token": "</x>"}
                with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
                    json.dump({**tokens, "add_bos_token": adds}, f)
                theirs = PreTrainedTokenizerFast(tokenizer_file=path, **tokens)
                for template in NAMES:
                    theirs.chat_template = of_nrl(program, folder, template)
                    n += compare(program, folder, template, theirs, ROWS)
    return n


def make_model(folder, source):
    """The tiny model with a tokenizer of letters: its vocabulary has no room for bytes."""
    shutil.copytree(source, folder)
    words = ["<s>", "</s>"] + SPECIALS + ["Ġ", "Ċ"] + list("abcdefghijklmnopqrstuvwxyz:.[]/AIUNST")
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, t in enumerate(words[:2 + len(SPECIALS)])]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
                   "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                   "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                   "added_tokens": added, "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(words)}, "merges": []}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                   "chat_template": "the old one"}, f)


def exports(program, nrl, source):
    """OUT/model, as AutoTokenizer reads it."""
    rows = [row for row in ROWS if "Köln" not in row["messages"][0]["content"] and "{" not in row["messages"][0]["content"]
            and '"' not in row["messages"][-1]["content"] and "|" not in row["messages"][-1]["content"]]
    n = 0
    with tempfile.TemporaryDirectory() as work:
        model, data, jinja = os.path.join(work, "model"), os.path.join(work, "data.jsonl"), os.path.join(work, "t.jinja")
        make_model(model, source)
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"messages": talk("so what", "this is it")}) + "\n" for _ in range(4))
        with open(jinja, "w", encoding="utf-8") as f:
            f.write(FILE)
        config = os.path.join(work, "run.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"model: {{path: {model}}}\ndata: {{train: {data}, max_length: 64}}\n"
                    "train: {steps: 1, global_batch: 2}\noptimizer: {name: adamw, lr: 1e-3}\nbackend: {name: cpu, threads: 1}\n")
        for template in NAMES + (jinja,):
            out = os.path.join(work, "run-" + os.path.basename(template))
            subprocess.run([nrl, "run", config, f"data.template={template}", f"out={out}"], check=True, stdout=subprocess.DEVNULL)
            theirs = AutoTokenizer.from_pretrained(os.path.join(out, "model"))
            n += compare(program, model, template, theirs, rows)
            with open(os.path.join(out, "model", "tokenizer_config.json"), encoding="utf-8") as f:
                assert json.load(f)["chat_template"] == open(os.path.join(out, "model", "chat_template.jinja")).read()
    return n


def main():
    program, nrl, source = sys.argv[1:]
    print(f"{exports(program, nrl, source)} conversations by the templates of exported models: ids agree")
    print(f"{real_tokenizers(program, os.environ.get('NRL_TEST_SHARED', ''))} conversations of real tokenizers: ids agree")
    return 0


sys.exit(main())
