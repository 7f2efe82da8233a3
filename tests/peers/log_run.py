"""A small run with a logger, and what metrics.jsonl has of it, for the tests of loggers that have a package of their own."""
import json, math, os

CONFIG = """
model: {{path: {source}/tests/data/models/llama}}
data: {{train: train.jsonl, eval: train.jsonl, max_length: 64}}
train: {{steps: 6, global_batch: 4, micro_batch_tokens: 128}}
eval: {{every: 2}}
optimizer: {{name: adamw, lr: 1e-3}}
checkpoint: {{every: 2}}
backend: {{name: cpu, threads: 1}}
loggers: [jsonl, {logger}]
out: run
"""


def write_inputs(folder, logger):
    with open(os.path.join(folder, "run.yaml"), "w") as f:
        f.write(CONFIG.format(source=os.environ["NRL_TEST_SOURCE"], logger=logger))
    with open(os.path.join(folder, "train.jsonl"), "w") as f:
        for i in range(24):
            f.write(json.dumps({"input_ids": [3 + (i * 31 + t * t * 17) % 90 for t in range(4 + i)]}) + "\n")


def expected(path, name_of=lambda name: name):
    """name -> {(step, value)}"""
    out = {}
    with open(path) as lines:
        for line in lines:
            record = json.loads(line)
            for name, value in record.items():
                if name not in ("step", "time"):
                    out.setdefault(name_of(name), set()).add((record["step"], float(value)))
    return out


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))
