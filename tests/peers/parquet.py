"""Tables that pyarrow and datasets wrote train to the losses of the same rows in JSON: Parquet, Arrow files and streams,
folders of save_to_disk; nested messages, dictionaries, several row groups and workers. Damaged files are errors.

usage: parquet.py (paths come from NRL_TEST_BUILD and NRL_TEST_SOURCE)
"""
import json, os, re, subprocess, sys, tempfile

try:
    import pyarrow as pa
    import pyarrow.feather, pyarrow.parquet
except ImportError:
    print("skipped: this Python has no pyarrow")
    sys.exit(77)
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OMP_NUM_THREADS="1")
nrl = os.path.join(os.environ["NRL_TEST_BUILD"], "bin/nrl")
plugin = os.path.join(os.environ["NRL_TEST_BUILD"], "lib/nrl/datasets/parquet.so")
config = os.path.join(os.environ["NRL_TEST_SOURCE"], "configs/sft.yaml")
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)

rows = [{"messages": [{"role": "user", "content": f"question {i} ü\n"}, {"role": "assistant", "content": f"answer {i % 7}"}],
         "score": i / 4, "n": i} for i in range(2500)]
with open("rows.jsonl", "w") as f:
    f.writelines(json.dumps(row) + "\n" for row in rows)
table = pa.Table.from_pylist(rows)


def run(code, *arguments):
    done = subprocess.run([nrl, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stdout)
    return done.stdout


def losses(path, *more, n=[0]):
    n[0] += 1
    out = f"run{n[0]}"
    run(0, "run", config, f"data.train={path}", "data.eval=", "eval.every=0", "train.epochs=0", "train.steps=3",
        "checkpoint.every=0", "backend={name: cpu, threads: 1}", f"out={out}", *more)
    found = re.findall(r'"loss": *([0-9.e+-]+)', open(f"{out}/metrics.jsonl").read())
    assert len(found) == 3, found
    return found


def stream_resumes(path):
    """A stream that is entered behind its first ranges trains as one without an interruption."""
    def all_losses(out):
        return re.findall(r'"loss": *([0-9.e+-]+)', open(f"{out}/metrics.jsonl").read())

    name = path.replace(".", "_")
    stream = ("data.eval=", "eval.every=0", "train.epochs=0", "train.global_batch=64", "checkpoint.every=100",
              "data.streaming=true", "data.shuffle_buffer=128", "schedule=constant", "backend={name: cpu, threads: 1}")
    run(0, "run", config, f"data.train={path}", *stream, "train.steps=45", f"out={name}_whole")
    for steps in (10, 34):
        run(0, "run", config, f"data.train={path}", *stream, f"train.steps={steps}", f"out={name}_{steps}")
        run(0, "resume", f"{name}_{steps}", "train.steps=45")
        assert all_losses(f"{name}_{steps}") == all_losses(f"{name}_whole"), (path, steps)


def refused(code, path, text):
    out = run(code, "check", config, f"data.train={path}", "data.eval=", "eval.every=0")
    assert text in out, (path, text, out)


# Arrow's own caches grow by some 10 KB in the first thousand readings and then stay, which the suite cannot tell from a
# leak of 25 bytes a reading.
ARROW_CACHES = 32 << 10


def conforms(path=None):
    done = subprocess.run([nrl, "plugins", "test", plugin] + (["--path", path] if path else []), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert "has no tell" not in done.stdout, done.stdout
    failed = re.findall(r"^ *FAILED +(.*)\n +(.*)", done.stdout, re.M)
    for rule, why in failed:
        assert rule == "readings leave no memory behind" and int(why.split()[0]) < ARROW_CACHES, (path, done.stdout)
    assert failed or done.returncode == 0, (path, done.stdout)


expected = losses("rows.jsonl")
pa.parquet.write_table(table, "rows.parquet", row_group_size=700, compression="zstd")
pa.parquet.write_table(table, "plain.parquet", compression="none", use_dictionary=False)
pa.feather.write_feather(table, "rows.feather", compression="lz4")
with pa.OSFile("file.arrow", "wb") as f, pa.ipc.new_file(f, table.schema) as w:
    w.write_table(table, max_chunksize=300)
with pa.OSFile("stream.arrow", "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
    w.write_table(table, max_chunksize=300)
for path in ("rows.parquet", "plain.parquet", "rows.feather", "file.arrow", "stream.arrow"):
    assert losses(path) == expected, path
    assert losses(path, "data.workers=3", "data.extra=[score]") == expected, path
    conforms(path)
    stream_resumes(path)
conforms()
assert losses("'{path: rows.parquet, reader: {name: parquet, columns: [messages]}}'".strip("'")) == expected

# types
odd = pa.table({
    "prompt": pa.array(["a", "b"]).dictionary_encode(), "completion": pa.array([" c", " d"], pa.large_string()),
    "label": [True, False], "u": pa.array([2**63, 1], pa.uint64()), "day": pa.array([0, 1], pa.date32()),
    "half": pa.array([0.5, None], pa.float64()), "ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8()))})
pa.parquet.write_table(odd, "odd.parquet")
conforms("odd.parquet")
refused(65, "odd.parquet", "odd.parquet:1: a labelled row")
ids = pa.table({"input_ids": [[1, 2, 3]] * 8, "labels": [[-100, 2, 3]] * 8})
pa.parquet.write_table(ids, "ids.parquet")
run(0, "check", config, "data.train=ids.parquet", "data.eval=", "eval.every=0")

# mistakes
pa.parquet.write_table(pa.table({"text": ["a"], "image": [b"\x00"]}), "image.parquet")
refused(65, "image.parquet", "image.parquet: cannot read column 'image': values of type binary are neither texts nor numbers")
run(0, "check", config, "data.train={path: image.parquet, reader: {name: parquet, columns: [text]}}", "data.eval=",
    "eval.every=0", "train.global_batch=1")
refused(2, "{path: image.parquet, reader: {name: parquet, columns: [txt]}}", "the table has no column 'txt'")
refused(2, "none.parquet", "none.parquet: No such file or directory")
# A stream that is cut off exactly between two batches, or that only lacks the mark of its end.
ends = []
with pa.OSFile("batches.arrow", "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
    for batch in table.to_batches(max_chunksize=500):
        w.write_batch(batch)
        ends.append(f.tell())
whole = open("batches.arrow", "rb").read()
run(0, "check", config, "data.train=batches.arrow", "data.eval=", "eval.every=0")
for end in (ends[1], ends[-1]):
    open("between.arrow", "wb").write(whole[:end])
    text = run(65, "check", config, "data.train=between.arrow", "data.eval=", "eval.every=0")
    assert "between.arrow: the stream ends after byte" in text and "it is truncated" in text, text

for path in ("rows.parquet", "plain.parquet", "file.arrow", "stream.arrow", "rows.feather"):
    whole = open(path, "rb").read()
    for k in range(40):
        bad = bytearray(whole)
        if k % 2:
            del bad[len(bad) * k // 40:]
        else:
            bad[(len(bad) - 1) * k // 40] ^= 0x55
        open("bad." + path.split(".")[1], "wb").write(bad)
        name = "bad." + path.split(".")[1]
        done = subprocess.run([nrl, "check", config, f"data.train={name}", "data.eval=", "eval.every=0"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode in (0, 65), (path, k, done.returncode, done.stdout)
        assert done.returncode == 0 or name in done.stdout, (path, k, done.stdout)

try:
    import datasets
except ImportError:
    print("ok; without the package datasets, whose folders are not tested")
    sys.exit(0)
datasets.disable_progress_bars()
saved = datasets.Dataset.from_list(rows)
saved.save_to_disk("saved", num_shards=3)
assert losses("saved") == expected
assert losses("saved", "data.workers=3") == expected
conforms("saved")
stream_resumes("saved")
saved.to_parquet("hub.parquet")
assert losses("hub.parquet") == expected
datasets.DatasetDict({"train": saved, "test": saved}).save_to_disk("dict")
refused(2, "dict", "dict: a directory with several data sets: train, test; expected one of them, as in dict/train")
assert losses("dict/train") == expected
os.remove("saved/data-00001-of-00003.arrow")
refused(65, "saved", "saved/data-00001-of-00003.arrow: No such file or directory; the directory's state.json lists it")
print("ok")
