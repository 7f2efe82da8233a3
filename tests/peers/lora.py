"""Adapters between nrl and peft: what `nrl export --adapter` writes gives, in peft on the base model, the loss that
nrl has of the merged weights, which transformers gives of the merged export, too; and an adapter that peft made
gives nrl that loss. With modules_to_save, 20 steps of losses and the trained modules are peft's, tied heads too. Llama's linear modules, Qwen2's with biases, and GPT-2's, whose files keep weights turned.

usage: lora.py   (the program is $NRL_TEST_BUILD/bin/nrl, models come from $NRL_TEST_SOURCE)
"""
import json, os, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
try:
    import peft, torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

BOUND = 2e-5  # of a mean loss; both compute in fp32
TENSOR_BOUND = 5e-5  # of an element after 20 steps of lr 0.05
NRL = os.path.join(os.environ["NRL_TEST_BUILD"], "bin/nrl")
CASES = [("llama", {"targets": "[q_proj, v_proj]"}, ["q_proj", "v_proj"]),
         ("qwen2", {"targets": "all-linear", "rslora": "true"}, ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]),
         ("gpt2", {"targets": "all-linear"}, ["c_attn", "c_fc"]),
         ("llama", {"targets": "all-linear", "dora": "true", "rank_pattern": "{v_proj: 2, '.*0.*q_proj': 3}",
                    "alpha_pattern": "{down_proj: 3}"}, ["q_proj", "down_proj"]),
         ("qwen2", {"targets": "[q_proj, o_proj]", "dora": "true", "base": "full"}, ["q_proj", "o_proj"]),
         ("llama", {"targets": "all-linear", "modules_to_save": "[embed_tokens, lm_head]"}, ["q_proj", "up_proj"]),
         ("llama", {"targets": "[q_proj, down_proj]", "modules_to_save": "[norm, 1.mlp, o_proj]"}, ["q_proj", "down_proj"]),
         ("qwen2", {"targets": "all-linear", "modules_to_save": "[lm_head, k_proj]"}, ["q_proj", "down_proj"]),
         ("gpt2", {"targets": "[c_attn]", "modules_to_save": "[mlp.c_fc, ln_f]"}, ["c_attn"])]
STEPS = 20


def nrl(*words):
    done = subprocess.run([NRL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def make_rows(path):
    rows = []
    for i in range(12):
        ids = [3 + (i * 31 + t * t * 17) % 90 for t in range(4 + (i * 7) % 19)]
        rows.append({"input_ids": ids, "labels": [-100 if t < len(ids) // 3 else x for t, x in enumerate(ids)]})
    with open(path, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    return rows


def torch_loss(model, rows):
    total = count = 0
    with torch.no_grad():
        for row in rows:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
            logps = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            for t in range(1, len(labels)):
                if labels[t] >= 0:
                    total -= float(logps[t - 1, labels[t]])
                    count += 1
    return total / count


def torch_steps(model, rows, lr, steps):
    """Losses before each step of gradient descent on the mean over all trained tokens."""
    trained, losses = [p for p in model.parameters() if p.requires_grad], []
    for _ in range(steps):
        total, count = 0, 0
        for row in rows:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
            logps = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            for t in range(1, len(labels)):
                if labels[t] >= 0:
                    total, count = total - logps[t - 1, labels[t]], count + 1
        loss = total / count
        losses.append(loss.item())
        for p, g in zip(trained, torch.autograd.grad(loss, trained)):
            p.data -= lr * g
    return losses


def base(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")


def nrl_loss(config, **values):
    said = nrl("eval", config, "--json", "out=none", *(f"{k}={v}" for k, v in values.items()))
    return json.loads(said)["eval_loss"]


def saved_names(options):
    """modules_to_save as peft takes it: a tied head is named by its embedding."""
    words = options.get("modules_to_save", "")[1:-1]
    return [w.strip().replace("lm_head", "embed_tokens") if "k_proj" in words else w.strip()
            for w in words.split(",") if w] or None


def peft_adapter(path, modules, dora, saved, out):
    torch.manual_seed(1)
    plain = base(path)
    tied = bool(saved) and plain.config.tie_word_embeddings
    made = peft.get_peft_model(plain, peft.LoraConfig(
        modules_to_save=saved, ensure_weight_tying=tied,
        r=3, lora_alpha=5, target_modules=modules, task_type="CAUSAL_LM", lora_dropout=0.0,
        use_dora=dora, rank_pattern={modules[0]: 5}, alpha_pattern={modules[0]: 9}, fan_in_fan_out="c_attn" in modules))
    for name, p in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
        if "magnitude" in name:
            torch.nn.init.normal_(p, mean=1.0, std=0.2)
        if "modules_to_save" in name:
            p.data += 0.05 * torch.randn_like(p)
    made.save_pretrained(out)
    return made.eval()


def check(name, options, modules, folder):
    path = os.path.join(os.environ["NRL_TEST_SOURCE"], "tests/data/models", name)
    folder = tempfile.mkdtemp(dir=folder)
    data, config = os.path.join(folder, "rows.jsonl"), os.path.join(folder, name + ".yaml")
    rows, run = make_rows(data), os.path.join(folder, name)
    lora = ", ".join(f"{k}: {v}" for k, v in options.items())
    with open(config, "w") as f:
        f.write(f"model: {{path: {path}}}\ndata: {{train: {data}, eval: {data}, max_length: 64, cache: {folder}/cache}}\n"
                f"train: {{steps: 6, global_batch: 6, micro_batch_tokens: 128}}\noptimizer: {{name: adamw, lr: 3e-2}}\n"
                f"lora: {{rank: 4, alpha: 8, {lora}}}\nloggers: []\nbackend: {{name: cpu, threads: 1}}\n")
    nrl("run", config, f"out={run}")
    nrl("export", run, run + "-adapter", "--adapter")
    mine = nrl_loss(config, **{"model.path": run, "lora": "null"})
    theirs = torch_loss(peft.PeftModel.from_pretrained(base(path), run + "-adapter").eval(), rows)
    merged = torch_loss(base(run + "/model").eval(), rows)
    plain = torch_loss(base(path).eval(), rows)
    made = peft_adapter(path, modules, "dora" in options, saved_names(options), run + "-peft")
    read = nrl_loss(config, lora=f"{{use: {run}-peft}}")
    wanted = torch_loss(made, rows)
    print(f"{name:6} base {plain:.6f}  trained: nrl {mine:.6f} peft {theirs:.6f} merged {merged:.6f}  "
          f"made by peft: {wanted:.6f} nrl {read:.6f}")
    assert plain - mine > 0.05, "training changed nothing"
    assert abs(mine - theirs) < BOUND and abs(mine - merged) < BOUND and abs(read - wanted) < BOUND
    assert abs(wanted - plain) > 1e-3, "the adapter of peft changes nothing"
    # Steps of plain gradient descent from peft's adapter: gradients are peft's, too.
    nrl("run", config, f"out={run}-steps", f"lora={{use: {run}-peft}}", "train.global_batch=12", f"train.steps={STEPS}",
        "optimizer={name: sgd, lr: 0.05, momentum: 0, clip_norm: 0}", "schedule=constant", "loggers=[jsonl]")
    with open(f"{run}-steps/metrics.jsonl") as f:
        losses = [r["loss"] for r in map(json.loads, f) if "loss" in r]
    wanted = torch_steps(made, rows, 0.05, STEPS)
    print(f"       steps: nrl {losses[::6]} peft {wanted[::6]}")
    assert len(losses) == STEPS and all(abs(x - y) < BOUND for x, y in zip(losses, wanted))
    nrl("export", run + "-steps", run + "-again", "--adapter")
    made.save_pretrained(run + "-peft")
    mine, theirs = (load_file(f"{run}-{x}/adapter_model.safetensors") for x in ("again", "peft"))
    assert sorted(mine) == sorted(theirs), (sorted(mine), sorted(theirs))
    apart = max(float((mine[k] - theirs[k]).abs().max()) for k in theirs)
    print(f"       {len(mine)} tensors after {STEPS} steps, largest difference {apart:.1e}")
    assert apart < TENSOR_BOUND
    assert losses[0] - losses[-1] > 1e-3, "the steps change nothing"


def check_untied(folder):
    """An embedding that peft has trained apart from the tied head is no parameter of this model."""
    path = os.path.join(os.environ["NRL_TEST_SOURCE"], "tests/data/models/qwen2")
    made = peft.get_peft_model(base(path), peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["embed_tokens"]))
    made.save_pretrained(folder + "/untied")
    make_rows(folder + "/untied.jsonl")
    done = subprocess.run([NRL, "check", "/dev/stdin"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, input=
                          f"{{model: {{path: {path}}}, data: {{train: {folder}/untied.jsonl, cache: {folder}/cache}}, out: none,"
                          f" train: {{steps: 1}}, optimizer: {{name: sgd, lr: 0.1}}, lora: {{use: {folder}/untied}}}}")
    assert done.returncode == 2 and "were trained separately" in done.stderr, done.stderr


with tempfile.TemporaryDirectory() as work:
    for case in CASES:
        check(*case, work)
    check_untied(work)
