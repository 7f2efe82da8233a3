"""New tokens between nrl and transformers: an export of a run with model.add_tokens loads with nothing missing, gives
nrl's ids and nrl's loss; rows of a fresh model are those of resize_token_embeddings but for its noise; adapters with the
new rows give nrl's loss in peft on the resized base.

usage: new_tokens.py   (the program is $NRL_TEST_BUILD/bin/nrl, models come from $NRL_TEST_SOURCE)
"""
import json, os, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
try:
    import peft, torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

BOUND = 2e-5  # of a mean loss; both compute in fp32
NOISE = 1e-3  # transformers samples new rows with 1e-9 of the covariance: deviations of at most 3.2e-5 of an element's
NRL = os.path.join(os.environ["NRL_TEST_BUILD"], "bin/nrl")
SOURCE = os.environ["NRL_TEST_SOURCE"]
TEXTS = ["a<tool>b<end tool>", "<tool> <tool>x", " x <end tool>", "<end tool", "no token"]


def nrl(*words):
    done = subprocess.run([NRL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def losses(model, rows):
    total = count = 0
    with torch.no_grad():
        for row in rows:
            logps = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0].log_softmax(-1)
            for t in range(1, len(row["input_ids"])):
                total, count = total - float(logps[t - 1, row["input_ids"][t]]), count + 1
    return total / count


def load(path):
    model, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    assert not any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()


def check(folder, tied):
    def at(name):
        return os.path.join(folder, ("tied-" if tied else "") + name)

    with open(os.path.join(SOURCE, "configs/models/tiny.json")) as f:
        config = json.load(f)
    config["tie_word_embeddings"] = tied
    config["vocab_size"] = 417  # as many rows as the tokenizer has tokens
    with open(at("config.json"), "w") as f:
        json.dump(config, f)
    with open(at("rows.jsonl"), "w") as f:
        for i in range(16):
            f.write(json.dumps({"prompt": f"<tool>{i}", "completion": f" {i * i}<end tool> and {i}"}) + "\n")
    with open(at("run.yaml"), "w") as f:
        f.write(f"data: {{train: {at('rows.jsonl')}, max_length: 64, train_on: all, cache: {at('cache')}}}\n"
                "train: {steps: 8, global_batch: 8, micro_batch_tokens: 256}\noptimizer: {name: adamw, lr: 1e-2}\n"
                "checkpoint: {export_dtype: f32}\nloggers: []\nbackend: {name: cpu, threads: 1}\n")
    tokens = 'model.add_tokens=["<tool>", {token: "<end tool>", special: true}, "naïve \\"x\\""]'
    nrl("run", at("run.yaml"), f"out={at('base')}", f"model.config={at('config.json')}",
        f"model.tokenizer={SOURCE}/configs/models/tiny-tokenizer", "train.steps=1")
    base = at("base") + "/model"
    nrl("run", at("run.yaml"), f"out={at('start')}", f"model.path={base}", tokens, "train.steps=1", "optimizer.lr=0")
    nrl("run", at("run.yaml"), f"out={at('run')}", f"model.path={base}", tokens)

    # the rows of transformers
    resized, start = load(base), load(at("start") + "/model")
    tokenizer = AutoTokenizer.from_pretrained(at("start") + "/model")
    resized.resize_token_embeddings(len(tokenizer), mean_resizing=True)
    for mine, theirs in ((start.get_input_embeddings(), resized.get_input_embeddings()),
                         (start.get_output_embeddings(), resized.get_output_embeddings())):
        assert mine.weight.shape == theirs.weight.shape == (config["vocab_size"] + 3, config["hidden_size"])
        apart, spread = (mine.weight - theirs.weight).abs().max(), theirs.weight.std()
        assert float(apart) < NOISE * float(spread), (float(apart), float(spread))

    # ids
    assert tokenizer.convert_tokens_to_ids(["<tool>", "<end tool>", 'naïve "x"']) == [config["vocab_size"] + i for i in range(3)]
    assert "<end tool>" not in tokenizer.decode(tokenizer("a<end tool>")["input_ids"], skip_special_tokens=True)
    for text in TEXTS + ['a naïve "x" b']:
        with open(at("text"), "w") as f:
            f.write(text)
        ids = [int(x) for x in nrl("tokenizer", "encode", at("text"), "--tokenizer", at("run") + "/model").split()]
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids, (text, ids)

    # loss of the trained export, and of adapters in peft
    rows = []
    for line in open(at("rows.jsonl")):
        row = json.loads(line)
        rows.append({"input_ids": tokenizer(row["prompt"] + row["completion"], add_special_tokens=False)["input_ids"]})
    with open(at("ids.jsonl"), "w") as f:
        f.writelines(json.dumps({**r, "labels": r["input_ids"]}) + "\n" for r in rows)
    said = json.loads(nrl("eval", at("run.yaml"), f"model.path={at('run')}/model", "out=none", "--json",
                          f"data.train={at('ids.jsonl')}", f"data.eval={at('ids.jsonl')}"))["eval_loss"]
    wanted = losses(load(at("run") + "/model"), rows)
    assert abs(said - wanted) < BOUND, (said, wanted)
    lora = "lora={rank: 4, alpha: 8, targets: [q_proj, v_proj], modules_to_save: [embed_tokens, lm_head]}"
    nrl("run", at("run.yaml"), f"out={at('lora')}", f"model.path={base}", tokens, lora)
    nrl("export", at("lora"), at("adapter"), "--adapter")
    resized = load(base)
    resized.resize_token_embeddings(config["vocab_size"] + 3, mean_resizing=False)
    theirs = losses(peft.PeftModel.from_pretrained(resized, at("adapter")).eval(), rows)
    merged = losses(load(at("lora") + "/model"), rows)
    print(f"tied {tied}: rows apart {float(apart):.1e} of {float(spread):.2f}, nrl {said:.6f} transformers {wanted:.6f}, "
          f"adapters: merged {merged:.6f} peft {theirs:.6f}")
    assert abs(theirs - merged) < BOUND
    assert len(AutoTokenizer.from_pretrained(at("adapter"))) == len(tokenizer)


with tempfile.TemporaryDirectory() as work:
    for tied in (False, True):
        check(work, tied)
