#!/usr/bin/env python3
"""Steps with each kind of offload to a file against steps without, of one config, interleaved.

    tests/bench/offload.py build/release/bin/nrl configs/sft.yaml [--rounds 3] [--steps 3] [key=value ...]

Prints JSON: for each kind the median of step seconds, its ratio to none, that ratio in each round, peak memory of tensors and
peak resident memory of the process, and the bandwidth of the disk of the working directory, written and read past the page
cache."""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZE, CHUNK = 256 << 20, 8 << 20


def disk():
    block = mmap.mmap(-1, CHUNK)  # O_DIRECT wants aligned memory
    block.write(os.urandom(CHUNK))
    with tempfile.NamedTemporaryFile(dir=".") as f:
        speeds = []
        for flags, move in ((os.O_WRONLY, lambda fd: os.write(fd, block)), (os.O_RDONLY, lambda fd: os.readv(fd, [block]))):
            fd = os.open(f.name, flags | os.O_DIRECT)
            begin = time.monotonic()
            for _ in range(SIZE // CHUNK):
                move(fd)
            os.fsync(fd)
            speeds.append(SIZE / (time.monotonic() - begin))
            os.close(fd)
    return speeds


KINDS = {
    "none": [],
    "optimizer": ["train.offload.optimizer=disk"],
    "activations": ["train.offload.activations=disk"],
    "shards": ["parallel={data: {name: fsdp, offload: disk}}"],
    "all": ["train.offload={optimizer: disk, activations: disk}", "parallel={data: {name: fsdp, offload: disk}}"],
}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nrl")
    p.add_argument("config")
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--kinds", default=",".join(KINDS), help="some of " + ", ".join(KINDS))
    a = p.parse_intermixed_args()  # key=value may stand behind the flags
    found = {kind: [] for kind in a.kinds.split(",")}
    for _ in range(a.rounds):
        for kind, runs in found.items():
            run = subprocess.run([a.nrl, "bench", a.config, *a.overrides, *KINDS[kind], "--steps", str(a.steps), "--json"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if run.returncode:
                sys.exit(f"{kind}: {run.stderr.strip()}")
            runs.append(json.loads(run.stdout))
    median = {kind: statistics.median(r["step_seconds_median"] for r in runs) for kind, runs in found.items()}
    written, read = disk()
    print(json.dumps({
        "kinds": {kind: {"seconds": median[kind], "ratio": median[kind] / median.get("none", float("nan")),
                         "ratios": [r["step_seconds_median"] / n["step_seconds_median"] for r, n in zip(runs, found.get("none", []))],
                         "tensor_peak_bytes": runs[-1]["memory"]["used_peak_bytes"], "resident_peak_bytes": runs[-1]["peak_rss"]}
                  for kind, runs in found.items()},
        "disk_write_bytes_per_s": written, "disk_read_bytes_per_s": read}))


if __name__ == "__main__":
    main()
