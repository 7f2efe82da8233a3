"""What the benches share: a model's config, random lengths, and nrl as a child process."""
import json
import math
import os
import random
import statistics
import subprocess

SMOLLM2 = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 576,
           "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
           "head_dim": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
           "vocab_size": 49152, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
           "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "torch_dtype": "float32"}
FULL_DEPTH = SMOLLM2["num_hidden_layers"]
# For proofs that a bench works.
TINY = dict(SMOLLM2, hidden_size=64, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, vocab_size=512)


def model_config(name, layers):
    return dict({"smollm2": SMOLLM2, "tiny": TINY}[name], num_hidden_layers=layers)


def write_tokenizer(folder, vocab):
    """Bytes and pairs of bytes, up to the size of the vocabulary; without an end token, so that every text has its length."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # the alphabet of byte-level BPE (GPT-2)
    others = [b for b in range(256) if b not in printable]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
    merges = [(a, b) for a in letters for b in letters][:max(0, vocab - 256)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    words = {word: i for i, word in enumerate(letters + [a + b for a, b in merges])}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump({"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
                   "model": {"type": "BPE", "vocab": words, "merges": [f"{a} {b}" for a, b in merges]}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, f)


def log_normal(rng, median, sigma, least, most):
    return max(least, min(most, round(rng.lognormvariate(math.log(median), sigma))))


def token_ids(rng, n, vocab):
    return [rng.randrange(3, vocab) for _ in range(n)]


def write_pairs(path, n, vocab, median, sigma, most, seed=1):
    """Pairs whose sides (prompt and answer) are of log-normal length; the prompt is a third of the shorter one."""
    rng = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(n):
            chosen, rejected = (log_normal(rng, median, sigma, 8, most) for _ in range(2))
            prompt = max(2, min(chosen, rejected) // 3)
            f.write(json.dumps({"prompt_input_ids": token_ids(rng, prompt, vocab),
                                "chosen_input_ids": token_ids(rng, chosen - prompt, vocab),
                                "rejected_input_ids": token_ids(rng, rejected - prompt, vocab)}) + "\n")


def read_lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def nrl_environment(threads):
    return dict(os.environ, OMP_NUM_THREADS=str(threads))


def nrl_bench(nrl, config, steps, threads, *overrides):
    """The JSON of `nrl bench`."""
    command = [nrl, "bench", config, "backend={name: cpu, threads: %d}" % threads, *overrides, "--steps", str(steps),
               "--json"]
    p = subprocess.run(command, capture_output=True, text=True, env=nrl_environment(threads))
    if p.returncode:
        raise SystemExit(p.stderr)
    return json.loads(p.stdout.splitlines()[-1])


def nrl_run(nrl, config, out, threads, *overrides):
    """Seconds and losses of each step, and the peak of resident bytes, of `nrl run`."""
    command = [nrl, "run", config, "backend={name: cpu, threads: %d}" % threads, "out=" + out, *overrides]
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=nrl_environment(threads))
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        raise SystemExit("nrl failed")
    rows = [r for r in read_lines(os.path.join(out, "metrics.jsonl")) if "loss" in r]
    before = [0] + [r["tokens"] for r in rows]
    return {"seconds": [(r["tokens"] - b) / r["tokens_per_s"] for r, b in zip(rows, before)],
            "losses": [r["loss"] for r in rows], "tokens": rows[-1]["tokens"], "peak_rss": usage.ru_maxrss * 1024}


def interleaved(repeats, variants):
    """Runs each of {name: function} in turn, `repeats` times over: a list of results for each name."""
    results = {name: [] for name in variants}
    for _ in range(repeats):
        for name, run in variants.items():
            results[name].append(run())
    return results


def ratio(above, below):
    """Of two lists of speeds measured in turn: of their medians, and of each repeat."""
    return {"ratio": round(statistics.median(above) / statistics.median(below), 3),
            "each": [round(a / b, 3) for a, b in zip(above, below)]}
