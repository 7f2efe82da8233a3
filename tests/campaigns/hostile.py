"""hostile.py NRL WEIGHT N SEED: gives malicious input of many kinds, in turn, to the built program.

Each generator below starts from valid input and changes its structure: values of other types and sizes, members
that are missing, duplicated or moved, forged hashes, unfinished conversations; in one try of six some bytes are
changed, too. In every try nrl must end within LIMIT_S (OPEN_LIMIT_S if unknown peers connect and no secret rejects
them) and use at most MAX_RESIDENT. It must not be ended by a signal, its exit code must be a documented one, an error
must have a text that begins with "error:", and its output must not contain control characters.

A failed try prints its own seed: N = 1 and that seed repeat it. NRL_CAMPAIGN_KEEP=FOLDER keeps its files;
NRL_CAMPAIGN_KINDS="peers scripts" selects kinds (seeds then have another meaning).
"""
import copy
import ctypes
import gzip
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

NRL, WEIGHT, N, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEEP = os.environ.get("NRL_CAMPAIGN_KEEP")
LIMIT_S = 10
OPEN_LIMIT_S = 45 # without a secret an unknown peer counts as a client of the store, which waits 30 s for clients to leave
MAX_RESIDENT = 1 << 30  # in addition to the memory in the plan of a run
MAX_ADDRESSES = 4 << 30 # limit of the process, so that the machine stays usable; beyond it nrl must report an error
CODES = {0, 1, 2, 3, 4, 5, 6, 7, 65, 75}
MODEL = SOURCE + "/tests/data/models/llama"
TOKENIZER = SOURCE + "/configs/models/tiny-tokenizer"
THREADS = "backend={name: cpu, threads: 1}"

# ---- changing structures ----

NUMBERS = [0, -1, 1, 2, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -2**31, -2**63, 0.5, -0.0,
           1e308, -1e308, 1e-320, 1e999, math.nan, math.inf, -math.inf]
TEXTS = ["", " ", "\0", "\x1b[31mred", "\x1b]0;title\x07", "\x7f\x9b", "a" * 5000, "\u202e\ufeff", "\ud800", "\U0010ffff",
         "%s%n%d", "${env:HOME}", "..", "../../x", "/dev/null", "/dev/zero", "null", "true", "1e5", "nan", "é" * 300, "\n\r\t",
         "'\"\\", "{{ x }}", "<|im_end|>", "-1", "0x10", "auto", "none", "all"]


class Text(str):
    """Text that is written to JSON unchanged."""


def deep(rng):
    n = rng.choice((20, 300, 5000))
    return Text(rng.choice(("[" * n + "]" * n, '{"a":' * n + "1" + "}" * n, "[" * n)))


def value(rng):
    return rng.choice((lambda: rng.choice(NUMBERS), lambda: rng.choice(TEXTS), lambda: rng.choice((None, True, False)),
                       lambda: [], dict, lambda: [[]] * 3, lambda: {"name": rng.choice(TEXTS)}, lambda: deep(rng),
                       lambda: [rng.choice(NUMBERS)] * rng.choice((1, 2, 1000)), lambda: rng.randint(-10, 300)))()


def places(tree, depth=0):
    """[(the list or map, its index or key)] of every value below `tree`"""
    if depth > 50 or not isinstance(tree, (dict, list)):
        return []
    found = []
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        found.append((tree, key))
        found += places(tree[key], depth + 1)
    return found


def nudge(rng, v):
    if isinstance(v, bool) or v is None:
        return not v
    if isinstance(v, (int, float)):
        return rng.choice((v + 1, v - 1, -v, v * 2, v * 10 ** rng.randint(1, 18), str(v), [v]))
    if isinstance(v, str):
        at = rng.randint(0, len(v))
        return rng.choice((v[:at], v[:at] + rng.choice(TEXTS) + v[at:], v * 2, v.upper(), v + " ", [v]))
    return rng.choice(({"a": v}, [v, v], value(rng)))


def mutate(rng, tree, most=3):
    """A changed copy of a tree of JSON."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, most))):
        all_places = places(tree)
        if not all_places:
            return value(rng)
        where, key = rng.choice(all_places)
        kind = rng.random()
        if kind < 0.25:
            where[key] = value(rng)
        elif kind < 0.65:
            where[key] = nudge(rng, where[key])
        elif kind < 0.75:
            del where[key]
        elif kind < 0.85:
            other, from_key = rng.choice(all_places)
            try:
                where[key] = copy.deepcopy(other[from_key])
            except (KeyError, IndexError):
                pass # it was removed above
        elif isinstance(where, dict):
            name = nudge(rng, str(key))
            where[name if isinstance(name, str) else "x"] = where[key]
        else:
            where[key:key] = [where[key]] * rng.choice((1, 1, 500))
    return tree


def dump(tree, rng=None):
    """JSON; with `rng` one in fifty has a key twice."""
    twice = None
    if rng and rng.random() < 0.02:
        twice = rng.choice([p for p in places(tree) if isinstance(p[0], dict)] or [None])
    return write(tree, twice)


def write(tree, twice):
    if isinstance(tree, Text):
        return str(tree)
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {write(v, twice)}" for k, v in tree.items() for _ in range(
            2 if twice and twice[0] is tree and twice[1] == k else 1)) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(write(v, twice) for v in tree) + "]"
    return json.dumps(tree)


def spoil(rng, data):
    """One try in six: a few bytes changed, added or lost."""
    if rng.random() > 1 / 6:
        return data
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        kind = rng.randint(0, 4)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at:at] = rng.choice((b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"\xc0\x80", b"\t", b"\r\n", rng.randbytes(5)))
        elif kind == 2 and at < len(data):
            data[at] ^= 1 << rng.randint(0, 7)
        elif kind == 3:
            del data[at:at + rng.randint(1, 20)]
        else:
            data[at:at] = data[at:at + rng.randint(1, 200)]
    return bytes(data)


def put(path, data, rng=None):
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    with open(path, "wb") as f:
        f.write(spoil(rng, data) if rng else data)


# ---- the kinds: each writes its files into the working folder and returns commands ----

def ids_row(rng):
    ids = [rng.randint(3, 92) for _ in range(rng.randint(3, 40))]
    return {"input_ids": ids, "labels": [-100 if i < 2 else x for i, x in enumerate(ids)]}


def rows_of(make, n):
    return "".join(dump(make()) + "\n" for _ in range(n))


BASE = {
    "model": {"path": MODEL}, "data": {"train": "train.jsonl", "eval": "train.jsonl", "max_length": 64, "packing": True,
                                       "shuffle": True, "overlong": "drop", "workers": 1},
    "algorithm": {"name": "sft", "loss": "nll"},
    "train": {"steps": 2, "global_batch": 4, "micro_batch_tokens": 128, "precision": "fp32", "seed": 1,
              "activation_checkpointing": "none", "nan": "stop"},
    "optimizer": {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0},
    "schedule": {"name": "cosine", "warmup_ratio": 0.1},
    "checkpoint": {"every": 1, "keep": 1, "keep_best": 1, "metric": "eval_loss"}, "eval": {"every": 1},
    "loggers": [{"name": "console", "every": 1}, "jsonl"], "lora": {"rank": 2, "alpha": 4, "targets": ["q_proj"]},
}


def yaml(tree, indent=""):
    """Block style, as people write it."""
    if isinstance(tree, dict) and tree:
        return "".join("\n%s%s: %s" % (indent, k, yaml(v, indent + "  ")) for k, v in tree.items())
    return dump(tree)


def config(rng):
    base = copy.deepcopy(BASE)
    for key in ("lora", "schedule", "checkpoint", "eval", "loggers"):
        if rng.random() < 0.5:
            del base[key]
    tree = mutate(rng, base)
    if not isinstance(tree, dict):
        tree = {"model": tree}
    tree["out"] = "out" # so that no try writes outside of it
    if isinstance(tree.get("data"), dict):
        tree["data"].pop("cache", None)
    text = dump(tree, rng) if rng.random() < 0.5 else yaml(tree)
    if rng.random() < 0.1:
        lines = text.split("\n")
        at = rng.randint(0, len(lines))
        lines[at:at] = [rng.choice(("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: *c", "<<: *x", "\tx: 1", "? [a]\n: b", "--- ",
                                    "x: !!python/object y", "%YAML 9.9", "a: &a {b: *a}", "defaults: config.yaml",
                                    "x: |\n  y\n z", "a:\n" + "  - " * 2000))]
        text = "\n".join(lines)
    put("train.jsonl", rows_of(lambda: ids_row(rng), 8))
    put("config.yaml", text, rng)
    verb = rng.choice(("check", "run"))
    return [[NRL, verb, "config.yaml", "out=out", THREADS] + ["train.steps=2", "train.epochs=0"] * (verb == "run")]


ROWS = [
    ("sft", lambda r: {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "What color?"},
                                    {"role": "assistant", "content": "Ash is gray."}]}),
    ("sft", lambda r: {"prompt": "Spell cat.", "completion": "c a t"}),
    ("sft", lambda r: {"text": "Name the color of the sky."}),
    ("sft", lambda r: {"instruction": "a", "input": "b", "output": "c", "history": [["q", "a"]]}),
    ("sft", lambda r: {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s"}),
    ("sft", lambda r: {"messages": [{"role": "user", "content": "x", "weight": 1},
                                    {"role": "assistant", "content": [{"type": "text", "text": "b"}], "weight": 0}]}),
    ("sft", ids_row),
    ("dpo", lambda r: {"prompt": "a b", "chosen": "c", "rejected": "d e"}),
    ("dpo", lambda r: {"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                       "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]}),
    ("kto", lambda r: {"prompt": "a", "completion": "b", "label": r.random() < 0.5}),
]


TABLES = {} # of `nrl describe`: {section or plugin: its options}


def in_range(rng, option):
    """A value that the option's row allows, often the first or last."""
    kind, low, high = option["type"], option.get("min"), option.get("max")
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "word":
        return rng.choice(option["choices"].split("|"))
    low = max(-1e300, float(-1e300 if low is None else low))
    high = min(1e300, float(1e300 if high is None else high))
    try:
        default = float(option["default"])
    except (TypeError, ValueError):
        default = low
    v = rng.choice((low, high, default, low + 1, high - 1, default * 2, default * 1000, low + (high - low) * rng.random() ** 8))
    v = min(max(v, low), high)
    return int(v) if kind == "int" else v


VALUES = { # options whose rows name no range
    "activation_checkpointing": ["none", "all", {"every": 1}, {"every": 10**9}, {"ratio": 0.5}, {"ratio": 0}, {"layers": [0, 1]}, {"layers": []}],
    "loss_scale": ["dynamic", 1, 65536, 1e-30, 1e30, {"init": 2, "growth": 1e9, "growth_interval": 1}, {"backoff": 1e-9}],
    "betas": [[0, 0], [0.9, 0.999], [0.999999, 0], [1, 1], [0.5]], "units": [{"every": 1}, {"every": 10**9}, {"min_params": 10**15}],
    "split": [[1, 1], [2], [0, 4], [10**9]], "targets": ["all-linear", ["q_proj"], ".*", "(a+)+$", [], ["nothing"]],
    "columns": [{"prompt": "q"}, {}], "extra": [["score"], [], ["prompt"] * 50], "debug": [True, {"every": 1}, {"every": 0}],
    "loss_weights": [[1], [0.5, 0.5], []], "tensor": [1, 2, {"size": 1}], "pipeline": [1, 2, {"size": 1}], "data": [1, "ddp", {"name": "fsdp"}],
}
NOT_TRIED = {"path", "config", "tokenizer", "train", "eval", "cache", "out", "template", "reference_model", "use", "nodes", "resume", "file",
             "folder", "interface", "address", "metric", "name", "steps", "epochs", "check_initial_loss"}


def options(rng):
    """A run whose options are all within their documented ranges."""
    algorithm = rng.choice(("sft", "sft", "dpo", "kto"))
    tree = {"model": {"config": SOURCE + "/configs/models/tiny.json", "tokenizer": TOKENIZER},
            "data": {"train": "train.jsonl", "eval": "train.jsonl", "template": "chatml", "max_length": 64, "overlong": "truncate"},
            "algorithm": {"name": algorithm}, "train": {"global_batch": 8, "micro_batch_tokens": 256, "steps": 2},
            "optimizer": {"name": "adamw", "lr": 1e-3}, "schedule": {"name": rng.choice(("constant", "cosine", "linear", "polynomial",
            "inverse_sqrt", "warmup_stable_decay", "cosine_with_restarts"))}, "backend": {"name": "cpu", "threads": 1}, "out": "out"}
    if rng.random() < 0.3:
        tree["lora"] = {"rank": 2}
    homes = {"model": "model", "data": "data", "train": "train", "checkpoint": "checkpoint", "eval": "eval", "launch": "launch",
             "algorithm": "algorithm", "optimizer": "optimizer", "algorithms/" + algorithm: "algorithm",
             "optimizers/adamw": "optimizer", "schedules/" + tree["schedule"]["name"]: "schedule", "backends/cpu": "backend", **({"adapters/lora": "lora"} if "lora" in tree else {})}
    rows_ = [(home, o) for name, home in homes.items() for o in TABLES[name] if o["name"] not in NOT_TRIED]
    for home, option in rng.sample(rows_, rng.randint(1, 5)):
        if option["type"] in ("bool", "word", "int", "number"):
            tree.setdefault(home, {})[option["name"]] = in_range(rng, option)
        elif option["name"] in VALUES:
            tree.setdefault(home, {})[option["name"]] = rng.choice(VALUES[option["name"]])
    make = rng.choice([m for a, m in ROWS if a == algorithm])
    put("train.jsonl", rows_of(lambda: make(rng), 8))
    put("config.yaml", dump(tree))
    return [[NRL, "run", "config.yaml", "train.steps=2", "train.epochs=0"]]


def small_run(algorithm, *more):
    return [NRL, "run", "config.yaml", "algorithm=" + algorithm, "train.steps=1", "out=out", THREADS, *more]


def small_config(train="train.jsonl", **more):
    tree = {"model": {"config": SOURCE + "/configs/models/tiny.json", "tokenizer": TOKENIZER},
            "data": {"train": train, "max_length": 128, "template": "chatml", "overlong": "truncate"}, "algorithm": "sft",
            "train": {"steps": 1, "global_batch": 8, "micro_batch_tokens": 256}, "optimizer": {"name": "adamw", "lr": 1e-3},
            "checkpoint": {"every": 0, "export": "none"}, "loggers": ["console"]}
    for key, v in more.items():
        tree[key].update(v)
    put("config.yaml", dump(tree))


def rows(rng):
    algorithm, make = rng.choice(ROWS)
    n = rng.randint(1, 8)
    made = [mutate(rng, make(rng)) if rng.random() < 0.6 else make(rng) for _ in range(n)]
    name = "train.jsonl"
    if rng.random() < 0.2:
        text = "[" + ",".join(dump(r, rng) for r in made) + "]"
    else:
        text = "\n".join(dump(r, rng) for r in made) + "\n"
    data = spoil(rng, text.encode("utf-8", "surrogatepass"))
    if rng.random() < 0.1:
        name, data = "train.jsonl.gz", spoil(rng, gzip.compress(data))
    put(name, data)
    small_config(name)
    return [small_run(algorithm)]


def tokenizer(rng):
    os.mkdir("tok")
    folder = SOURCE + "/tests/fuzz/corpus/tokenizer/"
    name = rng.choice(("tiny", "byte_level.json", "llama.json", "metaspace.json", "ranks.tiktoken", "sentencepiece.model"))
    if name in ("ranks.tiktoken", "sentencepiece.model"):
        data = open(folder + name, "rb").read()
        for _ in range(3):
            data = spoil(rng, data)
        put("tok/tokenizer.model", data)
    else:
        with open(TOKENIZER + "/tokenizer.json" if name == "tiny" else folder + name, encoding="utf-8") as f:
            tree = json.load(f)
        if rng.random() < 0.3:
            steps = [{"type": "Replace", "pattern": {"String": rng.choice("abc ")}, "content": rng.choice("abc ") * rng.choice((2, 10, 1000))}
                     for _ in range(rng.randint(1, 20))]
            tree["normalizer"] = {"type": "Sequence", "normalizers": steps}
        if rng.random() < 0.2:
            tree["pre_tokenizer"] = {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {
                "Regex": rng.choice(("(a+)+$", "(a|a)*b", "(.*)*x", "((a{1,50}){1,50}){1,50}", "(?=(a+))\\1*b", "[", "(" * 500, ""))}}
        put("tok/tokenizer.json", dump(mutate(rng, tree) if rng.random() < 0.9 else tree, rng), rng)
        with open(TOKENIZER + "/tokenizer_config.json", encoding="utf-8") as f:
            tree = json.load(f)
        put("tok/tokenizer_config.json", dump(mutate(rng, tree) if rng.random() < 0.3 else tree))
    text = rng.choice(("a" * rng.choice((10, 3000)), "hello world \u00e9\u4e2d " * 20, " \t\n" * 100, "".join(TEXTS[:12]), "abc" * 500))
    put("text.txt", text.replace("\0", "") + "\n")
    put("ids.txt", " ".join(str(rng.choice((0, 1, 5, 6, 300, 10**6, -1, 2**31)) if rng.random() < 0.02 else rng.randint(0, 7)) for _ in range(20)) + "\n")
    return [[NRL, "tokenizer", "encode", "text.txt", "--tokenizer", "tok"],
            [NRL, "tokenizer", "decode", "ids.txt", "--tokenizer", "tok"]]


FILTERS = ["trim", "upper", "length", "list", "join('x')", "tojson", "int", "float", "string", "replace('a', 'aaaaaaaa')", "sort",
           "unique", "first", "last", "default('x')", "map('upper')|list", "selectattr('role')|list", "dictsort", "reverse",
           "indent(9999)", "batch(2)", "sum", "max", "center(99999)", "items", "join", "abs", "safe", "title", "capitalize"]
ATOMS = ["messages", "messages[0]", "messages[0].content", "messages[-1]['role']", "'a'", "'a' * 100000", "range(100000)", "[1, 2, 3]",
         "{'a': 1}", "1", "9223372036854775807", "1.5", "none", "true", "bos_token", "undefined_name", "loop", "loop.index", "ns",
         "namespace(x=[])", "range(1000)|list", "x", "''", "('a' * 1000).split('a')", "'%s' % 'x'", "cycler", "dict(a=1)", "self"]


def expression(rng, depth=0):
    kind = rng.randint(0, 9 if depth < 4 else 2)
    if kind <= 2:
        return rng.choice(ATOMS)
    a, b = expression(rng, depth + 1), expression(rng, depth + 1)
    if kind == 3:
        return f"({a}|{rng.choice(FILTERS)})"
    if kind == 4:
        return f"({a} {rng.choice(('+', '*', '-', '/', '//', '%', '**', '~', '<', '>=', '==', 'in', 'not in', 'and', 'or', 'is'))} {b})"
    if kind == 5:
        return f"{a}[{b}]"
    if kind == 6:
        return f"{a}[{b}:{expression(rng, depth + 1)}]"
    if kind == 7:
        return f"{a}.{rng.choice(('content', 'split', 'strip', 'items()', 'upper()', 'replace(x, x)', 'startswith(x)', '__class__', 'x'))}"
    if kind == 8:
        return f"({a} if {b} else {expression(rng, depth + 1)})"
    return f"{rng.choice(('range', 'namespace', 'raise_exception', 'strftime_now', 'f', 'dict'))}({a})"


def statement(rng, depth=0):
    e = lambda: expression(rng)
    if depth > 3:
        return "{{ %s }}" % e()
    inner = lambda: "".join(statement(rng, depth + 1) for _ in range(rng.randint(0, 3)))
    return rng.choice((
        lambda: "{{ %s }}" % e(), lambda: "text \u00e9 ", lambda: "{%% set x = %s %%}" % e(),
        lambda: "{%% for m in %s %%}%s{%% endfor %%}" % (e(), inner()),
        lambda: "{%% for m in messages %%}{{ m.role }}{{ m.content }}%s{%% endfor %%}" % inner(),
        lambda: "{%% if %s %%}%s{%% else %%}%s{%% endif %%}" % (e(), inner(), inner()),
        lambda: "{%% set ns = namespace(a=%s) %%}{%% set ns.a = %s %%}" % (e(), e()),
        lambda: "{%% macro f(x) %%}%s{{ f(x) if %s }}{%% endmacro %%}{{ f(%s) }}" % (inner(), e(), e()),
        lambda: "{%% filter %s %%}%s{%% endfilter %%}" % (rng.choice(FILTERS), inner()),
        lambda: "{%% generation %%}%s{{ messages[-1].content }}{%% endgeneration %%}" % inner(),
        lambda: "{% set x = x ~ x %}", lambda: "{%- raw -%}{{{% endraw %}", lambda: "{# c #}", lambda: rng.choice(("{% break %}", "{% for a in x %}{% continue %}{% endfor %}"))))()


def templates(rng):
    text = "{% set x = 'ab' %}" + "".join(statement(rng) for _ in range(rng.randint(1, 6)))
    if rng.random() < 0.1:
        text += rng.choice(("{{" + "(" * 3000 + "1" + ")" * 3000 + "}}", "{% if 1 %}" * 3000, "{{ '" + "\\x00" + "' }}", "{{ " + "-" * 5000 + "1 }}",
                            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
                            "{% for i in range(64) %}{% set x = x + x %}{% endfor %}{% set ns = namespace(s='a') %}"
                            "{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"))
    put("t.jinja", text, rng)
    put("train.jsonl", rows_of(lambda: ROWS[0][1](rng), 4))
    small_config(data={"template": "t.jinja"})
    return [small_run("sft")]


def read_safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]


def safetensors(rng):
    family = rng.choice(("llama", "gpt2", "qwen3", "gemma3_text", "phi3"))
    source = SOURCE + "/tests/data/models/" + family
    os.mkdir("m")
    header, body = read_safetensors(source + "/model.safetensors")
    with open(source + "/config.json", encoding="utf-8") as f:
        settings = json.load(f)
    if rng.random() < 0.6:
        header = mutate(rng, header)
    if rng.random() < 0.5:
        settings = mutate(rng, settings)
    text = dump(header, rng).encode("utf-8", "surrogatepass")
    size = len(text) if rng.random() < 0.9 else rng.choice((0, 7, 2**63, 2**64 - 1, len(text) - 1, len(text) + 1, 100 << 20))
    name = "model.safetensors"
    if rng.random() < 0.15:
        name = rng.choice(("model-00001-of-00002.safetensors", "../train.jsonl", "x"))
        index = {"metadata": {"total_size": len(body)}, "weight_map": {k: name for k in header if k != "__metadata__"}}
        put("m/model.safetensors.index.json", dump(mutate(rng, index), rng))
    put("m/" + os.path.basename(name), spoil(rng, struct.pack("<Q", size) + text + body))
    put("m/config.json", dump(settings, rng), rng)
    put("train.jsonl", rows_of(lambda: ids_row(rng), 4))
    small_config()
    model = "model={path: m}" if rng.random() < 0.7 else "model={config: m/config.json}" # then no weights tell its sizes
    return [small_run("sft", model, "data.max_length=48")]


def xxh3_128(data):
    """As text, in the form of checkpoints."""
    class Hash(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
    lib = ctypes.CDLL("libxxhash.so.0")
    lib.XXH3_128bits.restype = Hash
    lib.XXH3_128bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    h = lib.XXH3_128bits(data, len(data))
    return "%016x%016x" % (h.high, h.low)


def manifests(rng):
    """Forged: the hashes are right."""
    shutil.copytree(WEIGHT + "/run", "out")
    step = "out/checkpoints/step-%08d" % rng.choice((1, 2))
    with open(step + "/manifest.json", encoding="utf-8") as f:
        manifest = json.load(f)
    rank = step + "/rank-00000.nrlc"
    data = open(rank, "rb").read()
    at = manifest["files"][0]["index"]
    kind = rng.random()
    if kind < 0.4:
        index = dump(mutate(rng, json.loads(data[at:])), rng).encode("utf-8", "surrogatepass")
        put(rank, data[:at] + index)
        manifest["files"][0].update(size=at + len(index), xxh3=xxh3_128(index))
    elif kind < 0.5:
        header = bytearray(data[:64])
        header[rng.randint(0, 63)] ^= 1 << rng.randint(0, 7)
        put(rank, bytes(header) + data[64:])
    if kind >= 0.5 or rng.random() < 0.2:
        manifest = mutate(rng, manifest)
    manifest.pop("xxh3", None)
    text = ",\n " + dump(manifest, rng)[1:]
    text = '{\n "xxh3": "' + xxh3_128(('"' + text).encode("utf-8", "surrogatepass")) + '"' + text
    put(step + "/manifest.json", text, rng)
    put("train.jsonl", open(WEIGHT + "/run.jsonl", "rb").read())
    return [rng.choice((
        [NRL, "checkpoint", "inspect", step], [NRL, "checkpoint", "verify", "out"],
        [NRL, "checkpoint", "diff", "out/checkpoints/step-00000001", "out/checkpoints/step-00000002"],
        [NRL, "run", "out/config.yaml", "data.train=train.jsonl", "out=out", "resume=auto", "checkpoint.fallback=previous"],
        [NRL, "resume", "out", "data.train=train.jsonl"], [NRL, "export", step, "x"], [NRL, "sample", step, "--prompt", "a"],
        [NRL, "eval", "out"], [NRL, "run", "out/config.yaml", "data.train=train.jsonl", "out=o2", "resume=" + step]))]


CALLS = ["run:train()", "run:evaluate()", "run:save()", "run:export('x')", "run:stop('enough')", "run:set_lr(V)", "run.lr = V",
         "run:sample{prompts = V, max_tokens = V}", "run:sample{prompts = {'a'}, temperature = V, top_p = V, max_tokens = 4}",
         "run:close()", "run:profile(V)", "run.state.x = V", "run.state[V] = V", "for e in run:steps() do run:evaluate() end", "run:finish()",
         "nrl.json.encode(V, V)", "nrl.json.decode(V)", "nrl.read_jsonl(V)", "nrl.write_jsonl('x.jsonl', V)", "nrl.config(V)", "nrl.list(V)",
         "nrl.open(V, V)", "nrl.gradcheck('l', V)", "nrl.where(V, V, V)", "error(V)", "collectgarbage()", "run:evaluate(V)",
         "run:on('step', function(e) C end)", "run:on('eval', function(e) C end)", "run:on(V, V)", "run[V] = V", "local r = run[V]",
         "coroutine.wrap(function() C coroutine.yield(V) end)()", "setmetatable(run.state, {__index = function() C end})",
         "nrl.tokenizer_train{texts = V, vocab_size = V, out = 'tok'}", "run.train(V)", "getmetatable(run).__gc(run)",
         "getmetatable(run).__index = V", "print(run.step, run.total_steps, run.out)", "run:on('save', function(e) run:save() end)"]
LUA = ["nil", "true", "{}", "{1, 2, 3}", "{a = 1}", "'x'", "''", "'../x'", "('x'):rep(1000)", "0", "-1", "1e308", "0/0", "math.mininteger",
       "math.maxinteger", "print", "run", "nrl.null", "function() end", "coroutine.create(print)", "'\\0\\27[31m\\255'", "2^53", "{{}}", "nrl"]
TENSORS = ["b:logps()", "b:mask()", "b:weights()", "b:entropy()", "b:seq_sum(T)", "(T + T)", "(T * V)", "(T / T)", "(T ^ V)", "T:exp()", "T:log()",
           "T:sum()", "T:mean()", "T:detach()", "T:softmax()", "T:clamp(V, V)", "T:min(T)", "T:item()", "b:extra(V)", "b:count(V)", "b:ref_logps()",
           "b:chosen(T)", "-T", "T:shape()", "#T", "b:base_loss()", "nrl.where(T, T, T)", "T:gt(0)", "T:pow(V)", "V"]


def lua_call(rng, depth=0):
    text = rng.choice(CALLS)
    while "C" in re.findall(r"\bC\b", text):
        text = re.sub(r"\bC\b", lambda m: lua_call(rng, depth + 1) if depth < 2 else "", text, count=1)
    text = re.sub(r"\bV\b", lambda m: rng.choice(LUA), text)
    return f"pcall(function() {text} end);" if rng.random() < 0.4 else text + ";"


def lua_tensor(rng, depth=0):
    text = rng.choice(TENSORS if depth < 4 else TENSORS[:3])
    text = re.sub(r"\bT\b", lambda m: lua_tensor(rng, depth + 1), text)
    return re.sub(r"\bV\b", lambda m: rng.choice(LUA), text)


def scripts(rng):
    loss = rng.choice(("-(b:logps() * b:mask()):sum()", lua_tensor(rng), lua_tensor(rng) + ":sum()"))
    weight = rng.choice(("b:count 'answer_tokens'", "1", rng.choice(LUA), "(run and run:evaluate() or 1)"))
    text = f"""local nrl = require "nrl"
local run
local name = nrl.loss {{ name = "l", needs = {{"logps"}}, weight = function(b) return {weight} end,
  loss = function(b) {lua_call(rng) if rng.random() < 0.2 else ''} return {loss} end }}
local cfg = nrl.config "config.yaml"
{"cfg.algorithm = name" if rng.random() < 0.6 else ""}
run = nrl.open(cfg)
{chr(10).join(lua_call(rng) for _ in range(rng.randint(1, 6)))}
run:train()
"""
    put("s.lua", text)
    put("train.jsonl", rows_of(lambda: ids_row(rng), 8))
    put("config.yaml", dump({
        "model": {"path": MODEL}, "data": {"train": "train.jsonl", "eval": "train.jsonl", "max_length": 64}, "algorithm": "sft",
        "train": {"steps": 2, "global_batch": 4, "micro_batch_tokens": 128}, "optimizer": {"name": "adamw", "lr": 1e-3},
        "script": {"loss_instructions": 1000000, "loss_memory_mb": 64}, "out": "out", "backend": {"name": "cpu", "threads": 1}}))
    return [[NRL, "run", "s.lua"]]


# ---- inputs other than those of a run: configs of other trainers, machines, clusters, GGUF files, records ----

def lines_changed(rng, text):
    """Some lines of YAML with another value, another place, or gone."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        kind = rng.randint(0, 5)
        key = re.match(r"( *(?:- )?[A-Za-z_.]+:)", lines[at])
        if kind <= 2 and key:
            lines[at] = key[1] + " " + write(value(rng), None)
        elif kind == 3:
            lines[at] = rng.choice((" ", "  ", "\t", "- ", "#", "? ")) + lines[at]
        elif kind == 4:
            del lines[at:at + rng.choice((1, 1, 5))]
            lines = lines or [""]
        else:
            lines[at:at] = [rng.choice(lines)] * rng.choice((1, 1, 300))
    return "\n".join(lines)


def migrations(rng):
    folder = SOURCE + "/tests/data/migrate/"
    name = rng.choice([n for n in sorted(os.listdir(folder)) if not n.endswith(".expected")])
    with open(folder + name, encoding="utf-8") as f:
        put(name, lines_changed(rng, f.read()), rng)
    put("chat.jsonl", rows_of(lambda: ROWS[0][1](rng), 8))
    info = {"small_chat": {"file_name": "chat.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}},
            "small_pairs": {"file_name": "chat.jsonl", "ranking": True}}
    os.mkdir("lf")
    put("lf/dataset_info.json", dump(mutate(rng, info) if rng.random() < 0.4 else info), rng)
    return [[NRL, "migrate", name, "-o", "made.yaml", *(["--json"] if rng.random() < 0.3 else [])]]


CLUSTER = {"format": 1, "cluster": {"ranks_per_node": 4, "links": 4, "inside": {"alpha": 5e-6, "beta": 5e-12},
                                    "between": {"alpha": 1.5e-5, "beta": 2e-11}}}


def machines(rng):
    """Predictions from a file of measurements of unknown origin."""
    with open(WEIGHT + "/machine.json", encoding="utf-8") as f:
        tree = json.load(f)
    if rng.random() < 0.5:
        tree = {**CLUSTER, **tree} if rng.random() < 0.5 else {**tree, **CLUSTER}
    calls = tree.get("calls")
    for _ in range(rng.randint(0, 3)):
        sample = rng.choice(calls)
        key = rng.choice(list(sample))
        sample[key] = [value(rng) for _ in range(3)] if key == "dims" and rng.random() < 0.7 else value(rng)
    if rng.random() < 0.5:
        others = mutate(rng, {k: v for k, v in tree.items() if k != "calls"})
        tree = {**others, "calls": calls} if isinstance(others, dict) else others
    put("machine.json", dump(tree, rng), rng)
    put("train.jsonl", open(WEIGHT + "/run.jsonl", "rb").read())
    words = [NRL, "plan", "../../../../base.yaml", "data.train=train.jsonl", "--machine", "machine.json"]
    return [words + rng.choice(([], ["--json"], ["--ranks", "2"], ["--ranks", "4,8"]))]


JOB = {"nodes": 2, "gpus_per_node": 4, "time": "1-12", "partition": "gpu", "environment": {"A": "x y", "N": 3},
       "setup": ["module load cuda"], "type": "slurm", "image": "a/b:1", "name": "job", "options": ["--constraint=a"],
       "groups": {"judge": {"nodes": 2, "ranks_per_node": 3, "command": "serve"}, "trainer": {"ranks": [4, 8, 8], "memory": "200G"}},
       "provider": {"type": "aws", "region": "r", "machine": "m"}, "resources": {"A100": 1}, "requeue": True, "save_before": 120}


def clusters(rng):
    section = copy.deepcopy(JOB)
    section["type"] = rng.choice(("slurm", "kubernetes", "ray"))
    for key in ("groups", "provider", "resources", "nodes", "image", "options"):
        if rng.random() < 0.5:
            del section[key]
    tree = {"model": {"path": MODEL}, "data": {"train": "train.jsonl"}, "out": "out", "cluster": mutate(rng, section)}
    put("config.yaml", dump(tree, rng) if rng.random() < 0.5 else yaml(tree), rng)
    return [[NRL, "cluster", rng.choice(("script", "script", "autoscaler", "status")), "config.yaml"]]


def streams(rng):
    """data.streaming over files with a mistake in the middle."""
    make = rng.choice([m for a, m in ROWS if a == "sft"])
    made = [dump(make(rng), rng) for _ in range(40)]
    for _ in range(rng.randint(0, 2)):
        made[rng.randrange(len(made))] = dump(mutate(rng, make(rng)), rng)
    text = "[" + ",\n".join(made) + "]" if rng.random() < 0.3 else "\n".join(made) + "\n"
    data = spoil(rng, text.encode("utf-8", "surrogatepass"))
    name = "train.jsonl"
    if rng.random() < 0.3:
        name, data = "train.jsonl.gz", spoil(rng, gzip.compress(data))
    put(name, data)
    small_config(name, data={"streaming": True, "shuffle_buffer": rng.choice((8, 16, 1000))}, checkpoint={"every": 1, "export": "none"})
    words = [NRL, "run", "config.yaml", "out=out", THREADS]
    return [words + ["train.steps=3", "schedule=constant"], words + ["train.steps=8", "schedule=constant", "resume=auto", "checkpoint.mismatch=warn"]]


def gguf(rng):
    data = bytearray(open(WEIGHT + "/spoken/model/model.gguf", "rb").read())
    head = 24000  # metadata and the places of tensors
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = min(rng.choice((rng.randrange(64), rng.randrange(head), rng.randrange(len(data)))), len(data) - 1)
        kind = rng.randint(0, 3)
        if kind == 0:
            data[at:at + 8] = struct.pack("<Q", rng.choice((0, 1, 255, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)))
        elif kind == 1:
            data[at] ^= 1 << rng.randint(0, 7)
        elif kind == 2:
            data[at:at + rng.choice((1, 4, 8, 100))] = b""
        else:
            data = data[:max(1, at)]
        if len(data) < 16:
            break
    put("m.gguf", bytes(data))
    return [rng.choice(([NRL, "export", "m.gguf", "x", "--format", "hf"], [NRL, "sample", "m.gguf", "--prompt", "a", "--max-tokens", "2"]))]


def records(rng):
    """A run of unknown origin, read by `nrl report` and `nrl checkpoint`."""
    os.makedirs("r/checkpoints")
    with open(WEIGHT + "/run/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    for _ in range(rng.randint(0, 2)):
        at = rng.randrange(len(lines))
        lines[at:at] = [mutate(rng, lines[at])] * rng.choice((1, 1, 1000))
    put("r/metrics.jsonl", "\n".join(dump(line) for line in lines) + "\n", rng)
    with open(WEIGHT + "/run/config.yaml", encoding="utf-8") as f:
        put("r/config.yaml", lines_changed(rng, f.read()), rng)
    return [[NRL, "report", "r", "-o", "report.html"]]


def additions(rng):
    """Tokens that a config adds to a vocabulary."""
    words = ["<think>", {"token": "</think>", "special": True}, "a", " ", "<tool>\n", "\u00e9\u0301"]
    put("train.jsonl", rows_of(lambda: ROWS[0][1](rng), 8))
    small_config(model={"add_tokens": mutate(rng, rng.sample(words, rng.randint(1, 5))),
                        "pad_vocab_to_multiple_of": rng.choice((1, 64, 0, -1, 2**40))})
    return [small_run("sft"), [NRL, "check", "config.yaml", "out=other"]]


# ---- peers ----

def text_of(rng):
    key = rng.choice((b"/", b"/init/", b"init/", b"/0//gloo/0/0", b"/nrl/failed", b"/ckpt/1/begin", rng.randbytes(9), b"x" * 4000))
    size = len(key) if rng.random() < 0.8 else rng.choice((0, 1, 2**20, 2**31, 2**63, 2**64 - 1))
    return struct.pack("<Q", size) + key


def request(rng):
    """One to the store, whole or not."""
    n = struct.pack("<q", rng.choice((0, 1, 2, 1000, 2**31, -1, 2**62)))
    kind = rng.randint(0, 19)
    body = {0: struct.pack("<I", rng.choice((0x3C85F7CE, 0))), 1: text_of(rng) + text_of(rng), 2: text_of(rng) * 3, 3: text_of(rng),
            4: text_of(rng) + n, 5: n + text_of(rng), 6: n + text_of(rng), 8: text_of(rng), 9: text_of(rng) * 2,
            10: n + text_of(rng) * 2, 11: n + text_of(rng) * 4, 13: n[:4]}.get(kind, text_of(rng) + n)
    data = bytes([kind if rng.random() < 0.95 else rng.randint(0, 255)]) + body
    return data if rng.random() < 0.7 else data[:rng.randint(0, len(data))]


def attack(rng, port):
    """A connection that has sent its data and stays open."""
    s = socket.socket()
    s.settimeout(0.1)
    try:
        s.connect(("127.0.0.1", port))
        hello = b"\0" + struct.pack("<I", 0x3C85F7CE)
        data = rng.choice((lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", lambda: rng.randbytes(rng.randint(1, 3000)), lambda: b"",
                           lambda: hello + b"".join(request(rng) for _ in range(rng.randint(1, 30))),
                           lambda: hello[:rng.randint(0, 4)], lambda: b"\x16\x03\x01" + rng.randbytes(200),
                           lambda: struct.pack("<q", rng.randint(-1, 3)) + rng.randbytes(60)))()
        s.sendall(data)
        if rng.random() < 0.3:
            s.recv(100)
        if rng.random() < 0.3:
            s.close()
        elif rng.random() < 0.2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
    except OSError:
        pass
    return s


def listening(pids):
    """TCP ports on which these processes listen."""
    inodes = set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
                inodes.update(re.findall(r"socket:\[(\d+)\]", link))
        except OSError:
            pass
    ports = []
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.append(int(words[1].split(":")[1], 16))
    return ports


def peers(rng):
    """Unknown peers at the ports of a rank that waits for another one, or of two that train."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    put("train.jsonl", rows_of(lambda: ids_row(rng), 8))
    put("config.yaml", dump(dict(BASE, out="out", lora=None) | {"eval": {"every": 0}}).replace('"lora": null, ', ""))
    n = rng.choice((1, 2))
    commands = []
    for r in range(n):
        commands.append([NRL, "run", "config.yaml", THREADS, "launch.timeout_init=2", "launch.timeout_step=3", "train.steps=60",
                         "train.epochs=0", "checkpoint.every=20", "eval.every=0", "out=out", rng.choice(("parallel=ddp", "parallel=fsdp"))
                         if r == 0 else commands[0][-1]])
    commands_env = [dict(RANK=str(r), WORLD_SIZE="2", LOCAL_RANK=str(r), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(port)) for r in range(n)]
    together = Together(commands, commands_env, rng)
    together.limit_s = OPEN_LIMIT_S
    if rng.random() < 0.5:
        together.all_succeed = n == 2 # peers without the secret must have no effect
        together.limit_s = LIMIT_S
        for environment in commands_env:
            environment["NRL_JOB_SECRET"] = "8d0f3c5e7a1b9264c3d5e6f708192a3b"
    return together


class Together:
    """Commands that run at the same time, while unknown peers connect."""

    def __init__(self, commands, environments, rng):
        self.commands, self.environments, self.rng = commands, environments, rng
        self.open = []
        self.all_succeed, self.limit_s = False, LIMIT_S

    def meanwhile(self, pids):
        for port in listening(pids):
            if len(self.open) < 300:
                self.open.append(attack(self.rng, port))

    def end(self):
        for s in self.open:
            s.close()


KINDS = [config, options, rows, tokenizer, templates, safetensors, manifests, scripts, migrations, machines, clusters, streams, gguf, records,
         additions, peers]
SHARES = [3, 4, 4, 3, 4, 4, 4, 3, 2, 2, 2, 2, 3, 1, 2, 1] # peers take seconds
if os.environ.get("NRL_CAMPAIGN_KINDS"):
    KINDS = [k for k in KINDS if k.__name__ in os.environ["NRL_CAMPAIGN_KINDS"].split()]
    SHARES = [1] * len(KINDS)


# ---- one try ----

def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESSES, MAX_ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (512 << 20, 512 << 20))


class Process:
    def __init__(self, words, environment, number):
        self.words, self.names = words, (f"stdout.{number}", f"stderr.{number}")
        out, err = (open(name, "wb") for name in self.names)
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=limits,
                                        start_new_session=True, env={**os.environ, **environment})
        out.close()
        err.close()
        self.code = None

    def poll(self):
        if self.code is None:
            pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.code, self.used = os.waitstatus_to_exitcode(status), used
                self.process.returncode = self.code
        return self.code is not None

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        while not self.poll():
            time.sleep(0.001)

    def wrong(self):
        """Which rule it broke, or None."""
        out, err = (open(name, "rb").read(4 << 20) for name in self.names)
        if self.code < 0:
            return f"ended by signal {-self.code}"
        if self.code not in CODES:
            return f"exit code {self.code}"
        planned = re.search(rb"(?m)^memory +([0-9.]+) MiB", out)  # a config may request a large model; the plan then contains its memory
        if self.used.ru_maxrss * 1024 > MAX_RESIDENT + (float(planned[1]) * 2**20 if planned else 0):
            return f"{self.used.ru_maxrss >> 10} MiB of memory"
        if self.code and not re.search(rb"(?m)^error: ?\S", err):
            return f"exit code {self.code} without an error's text"
        for name, text in (("error", err), ("output", out)):
            control = re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", text)
            # output of a model or tokenizer for programs is not escaped
            if control and not (name == "output" and self.words[1] in ("tokenizer", "sample")):
                return f"control characters in its {name}: {text[max(0, control.start() - 60):control.end() + 20]!r}"
        return None


def run_together(together):
    processes = [Process(w, e, i) for i, (w, e) in enumerate(zip(together.commands, together.environments))]
    begin = time.monotonic()
    while not all([p.poll() for p in processes]):
        if time.monotonic() - begin > together.limit_s:
            for p in processes:
                p.poll() or p.kill()
            return processes, f"did not end within {together.limit_s} s"
        together.meanwhile([p.process.pid for p in processes])
        time.sleep(0.002)
    together.end()
    wrong = next((p.wrong() for p in processes if p.wrong()), None)
    if not wrong and together.all_succeed and any(p.code for p in processes):
        wrong = f"strangers made ranks that share a secret fail: exit codes {[p.code for p in processes]}"
    return processes, wrong


def attempt(seed, repeated=False):
    """None, or what is wrong; and what was run."""
    rng = random.Random(seed)
    make = rng.choices(KINDS, SHARES)[0]
    folder = WEIGHT + "/a/b/c/try" # some of the input goes up
    shutil.rmtree(WEIGHT + "/a", ignore_errors=True)
    os.makedirs(folder)
    os.chdir(folder)
    made = make(rng)
    groups = [made] if isinstance(made, Together) else [Together([w], [{}], rng) for w in made]
    for group in groups:
        if not isinstance(made, Together):
            group.meanwhile = lambda pids: None
        processes, wrong = run_together(group)
        for p in processes:
            count(make.__name__, p.code)
        if wrong and wrong.startswith("did not end") and not repeated:
            return attempt(seed, True) # once more, as the machine may have been busy
        if wrong:
            words = "\n  ".join(" ".join(p.words) for p in processes)
            tail = "".join(open(n, encoding="utf-8", errors="backslashreplace").read()[-1500:] for p in processes for n in p.names[1:])
            return f"{make.__name__}: {wrong}\n  {words}\n{tail}"
    return None


codes = {}


def count(kind, code):
    codes.setdefault(kind, {}).setdefault(code, 0)
    codes[kind][code] += 1


def prepare():
    """A run whose checkpoints are forged later."""
    os.makedirs(WEIGHT, exist_ok=True)
    os.chdir(WEIGHT)
    rng = random.Random(0)
    put("run.jsonl", rows_of(lambda: ids_row(rng), 8))
    put("base.yaml", dump({
        "model": {"path": MODEL}, "data": {"train": "run.jsonl", "max_length": 64}, "algorithm": "sft",
        "train": {"steps": 2, "global_batch": 4, "micro_batch_tokens": 128}, "optimizer": {"name": "adamw", "lr": 1e-3},
        "checkpoint": {"every": 1}, "out": "run", "backend": {"name": "cpu", "threads": 1}}))
    done = subprocess.run([NRL, "run", "base.yaml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(done.stdout.decode(errors="replace"))
    put("train.jsonl", rows_of(lambda: ROWS[0][1](rng), 8))
    small_config()
    for words in (["plan", "base.yaml", "--save-machine", "machine.json"],
                  ["run", "config.yaml", "checkpoint.export=last", "checkpoint.export_format=gguf", "out=spoken", THREADS]):
        done = subprocess.run([NRL, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            sys.exit(done.stdout.decode(errors="replace"))
    for table in json.loads(subprocess.check_output([NRL, "describe", "--json"])):
        TABLES[table["name"]] = table["options"]


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    prepare()
    failed = 0
    for seed in range(SEED, SEED + N):
        wrong = attempt(seed)
        if not wrong:
            continue
        failed += 1
        print(f"failed: hostile with seed {seed}: {wrong}", flush=True)
        if KEEP:
            shutil.copytree(WEIGHT + "/a/b/c/try", f"{KEEP}/hostile-{seed}", dirs_exist_ok=True)
    for kind, seen in sorted(codes.items()):
        print(f"{kind}: " + ", ".join(f"{n} x {code}" for code, n in sorted(seen.items())))
    print(f"hostile: {N} tried, {failed} failed, seed {SEED}")
    sys.exit(1 if failed else 0)


main()
