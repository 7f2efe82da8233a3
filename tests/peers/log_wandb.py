"""The package wandb reads its own offline run back: every value of metrics.jsonl, the config, and one id for a run and its
continuation. A Python without the package does not stop a run.

usage: log_wandb.py NRL (skips with 77 where this Python has no wandb)
"""
import glob, json, os, struct, subprocess, sys, tempfile

try:
    from wandb.proto import wandb_internal_pb2 as proto
except ImportError:
    print("skipped: no wandb in this Python")
    sys.exit(77)
from log_run import expected, write_inputs


def tag(name):
    return "eval/" + name[5:] if name.startswith("eval_") else "train/" + name


def scan(path):
    """The records of a .wandb file: after seven bytes, LevelDB's log format, blocks of 32 KiB of parts with a header of
    checksum, length and type (1: whole, 2: first, 3: middle, 4: last)."""
    with open(path, "rb") as f:
        data = f.read()
    assert data[:4] == b":W&B", data[:7]
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def read(path):
    """The config, and name -> {(step, value)}, of one .wandb file, with the package's own messages."""
    config, values = {}, {}
    for data in scan(path):
        record = proto.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            config.update({u.key: json.loads(u.value_json) for u in record.run.config.update})
        items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
        step = items.pop("train/global_step", None)
        for name, value in items.items():
            if not name.startswith("_"):
                values.setdefault(name, set()).add((int(step), float(value)))
    return config, values


def run(nrl, folder, *arguments, python=os.path.dirname(sys.executable)):
    path = python + ":" + os.environ["PATH"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", WANDB_MODE="offline", PATH=path)
    done = subprocess.run([nrl, *arguments], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def main(nrl):
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder, "{name: wandb, project: p, tags: 'a, b'}")
        errors = run(nrl, folder, "run", "run.yaml")
        assert "warning" not in errors, errors
        want = expected(os.path.join(folder, "run/metrics.jsonl"), tag)
        files = glob.glob(os.path.join(folder, "run/wandb/offline-run-*/run-*.wandb"))
        assert len(files) == 1, files
        config, got = read(files[0])
        assert got == want, (got, want)
        assert config["train"]["steps"] == 6 and config["optimizer"]["lr"] == 1e-3, config

        run(nrl, folder, "resume", "run", "train.steps=8")
        later = set(glob.glob(os.path.join(folder, "run/wandb/offline-run-*/run-*.wandb"))) - set(files)
        assert len(later) == 1, later
        assert os.path.basename(later.copy().pop()) == os.path.basename(files[0]), (later, files)
        _, got = read(later.pop())
        assert {step for step, _ in got["train/loss"]} == {7, 8}, got["train/loss"]

        os.mkdir(os.path.join(folder, "bin"))
        os.symlink("/bin/false", os.path.join(folder, "bin/python3"))
        errors = run(nrl, folder, "run", "run.yaml", "out=other", python=os.path.join(folder, "bin"))
        assert "7 records could not be sent" in errors or "could not be sent: the helper process has ended" in errors, errors
    print("ok")


main(sys.argv[1])
