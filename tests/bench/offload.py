#!/usr/bin/env python3
"""Steps with train.offload: {optimizer: disk} against steps without, of one config, interleaved.

    tests/bench/offload.py build/release/bin/nrl configs/sft.yaml [--rounds 3] [--steps 3] [key=value ...]

Prints JSON: the median of step seconds of each, their ratio, peak memory of tensors, and the bandwidth of the disk of the
working directory, written and read past the page cache."""
import argparse
import json
import mmap
import os
import statistics
import subprocess
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


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nrl")
    p.add_argument("config")
    p.add_argument("overrides", nargs="*")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    a = p.parse_args()
    seconds, peaks = {"none": [], "disk": []}, {}
    for _ in range(a.rounds):
        for where in seconds:
            out = subprocess.run([a.nrl, "bench", a.config, *a.overrides, f"train.offload.optimizer={where}", "--steps",
                                  str(a.steps), "--json"], check=True, capture_output=True, text=True).stdout
            found = json.loads(out)
            seconds[where].append(found["step_seconds_median"])
            peaks[where] = found["memory"]["used_peak_bytes"]
    medians = {k: statistics.median(v) for k, v in seconds.items()}
    written, read = disk()
    print(json.dumps({"seconds_without": medians["none"], "seconds_disk": medians["disk"],
                      "ratio": medians["disk"] / medians["none"], "peak_bytes_without": peaks["none"],
                      "peak_bytes_disk": peaks["disk"], "disk_write_bytes_per_s": written,
                      "disk_read_bytes_per_s": read}))


if __name__ == "__main__":
    main()
