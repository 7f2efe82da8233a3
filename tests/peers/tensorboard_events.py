"""TensorBoard's own reader finds in the event files what metrics.jsonl has, of a run that was resumed from an
earlier checkpoint too: steps that were taken twice are there once.

usage: tensorboard_events.py NRL (skips with 77 where this Python has no tensorboard)
"""
import json, os, struct, subprocess, sys, tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: no tensorboard in this Python")
    sys.exit(77)

CONFIG = """
model: {{path: {source}/tests/data/models/llama}}
data: {{train: train.jsonl, eval: train.jsonl, max_length: 64}}
train: {{steps: 6, global_batch: 4, micro_batch_tokens: 128}}
eval: {{every: 2}}
optimizer: {{name: adamw, lr: 1e-3}}
checkpoint: {{every: 2}}
backend: {{name: cpu, threads: 1}}
loggers: [jsonl, tensorboard]
out: run
"""


def write_inputs(folder):
    with open(os.path.join(folder, "run.yaml"), "w") as f:
        f.write(CONFIG.format(source=os.environ["NRL_TEST_SOURCE"]))
    with open(os.path.join(folder, "train.jsonl"), "w") as f:
        for i in range(24):
            f.write(json.dumps({"input_ids": [3 + (i * 31 + t * t * 17) % 90 for t in range(4 + i)]}) + "\n")


def expected(path):
    """tag -> [(step, value)], as numbers of 32 bits."""
    out = {}
    for line in open(path):
        record = json.loads(line)
        for name, value in record.items():
            if name in ("step", "time"):
                continue
            tag = "eval/" + name[5:] if name.startswith("eval_") else "train/" + name
            out.setdefault(tag, []).append((record["step"], struct.unpack("f", struct.pack("f", float(value)))[0]))
    return out


def found(path):
    reader = EventAccumulator(path, size_guidance={"scalars": 0})
    reader.Reload()
    scalars = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    return {tag: points for tag, points in scalars.items() if points}  # of some a restart leaves nothing


def compare(folder, what):
    want = expected(os.path.join(folder, "run/metrics.jsonl"))
    got = found(os.path.join(folder, "run/tensorboard"))
    assert got.keys() == want.keys(), (what, got.keys() ^ want.keys())
    for tag in want:
        assert got[tag] == want[tag], (what, tag, got[tag], want[tag])
    print(f"{what}: {len(want)} tags, {sum(map(len, want.values()))} numbers agree")


def main(nrl):
    with tempfile.TemporaryDirectory() as folder:
        def run(*arguments):
            subprocess.run([nrl, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        write_inputs(folder)
        run("run", "run.yaml")
        compare(folder, "a run")
        run("run", "run.yaml", "resume=run/checkpoints/step-00000004", "train.steps=8")
        compare(folder, "and resumed")
        run("run", "run.yaml", "overwrite=true")
        compare(folder, "and begun again")


if __name__ == "__main__":
    main(sys.argv[1])
