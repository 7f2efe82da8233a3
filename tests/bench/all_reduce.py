#!/usr/bin/env python3
"""all_reduce of two processes on this machine: the gloo plugin beside Debian's libgloo, and with --python beside
torch.distributed's gloo. One JSON object; a table for readers goes to stderr.

Each round runs every program once, in turn; a program makes all sizes one after the other (f32, sum, in place, a
barrier before each call) and tells its median call. What is reported are medians over rounds. `bf16` is nrl's time for
as many elements in half the bytes: what a bf16 wire costs."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

INTEROP = Path(__file__).resolve().parent.parent / "interop"
SIZES = [("4 B", 1, 300), ("4 KB", 1 << 10, 300), ("1 MB", 1 << 18, 60), ("25 MB", 25 << 18, 8), ("256 MB", 1 << 26, 3)]


def run_pair(commands, log):
    """Both ranks' commands; rank 0's times by (dtype, count)."""
    env = dict(os.environ, OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=log, text=True, env=env) for c in commands]
    outputs = [r.communicate(timeout=300)[0] for r in ranks]
    if any(r.returncode for r in ranks):
        log.seek(0)
        raise SystemExit("a rank failed: " + log.read())
    rows = [line.split() for line in outputs[0].splitlines() if line.startswith("time ")]
    return {(dtype, int(count)): float(seconds) for _, dtype, count, seconds in rows}


def commands_of(program, args, work, turn):
    build = Path(args.nrl).resolve().parent.parent
    if program == "torch":
        port = work / f"port{turn}"
        return [[args.python, str(INTEROP / "torch_rank.py"), str(r), "2", ("serve:" if r == 0 else "file:") + str(port),
                 str(work / "f32.list")] for r in range(2)]
    store = work / f"store{turn}"
    store.mkdir()
    if program == "libgloo":
        return [[str(build / "tests/gloo_rank"), str(r), "2", str(store), str(work / "f32.list")] for r in range(2)]
    return [[str(build / "tests/nrl_rank"), str(r), "2", str(store), str(work / "nrl.list"), "address=127.0.0.1",
             *args.option] for r in range(2)]


def measure(args, programs, sizes):
    times = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        work = Path(folder)
        f32 = [f"time f32 sum {count} {max(1, calls // args.shorter)}\n" for _, count, calls in sizes]
        (work / "f32.list").write_text("".join(f32))
        (work / "nrl.list").write_text("".join(f32 + [line.replace("f32", "bf16") for line in f32]))
        for turn in range(args.repeats):
            for program in programs:
                for key, seconds in run_pair(commands_of(program, args, work, f"{program}{turn}"), log).items():
                    times.setdefault((program, *key), []).append(seconds)
    return {key: statistics.median(values) for key, values in times.items()}


def report(medians, programs, sizes):
    rows = []
    for name, count, _ in sizes:
        nrl = medians["nrl", "f32", count]
        row = {"size": name, "bytes": 4 * count, "nrl_ms": nrl * 1e3, "bf16_ms": medians["nrl", "bf16", count] * 1e3,
               "bf16_speedup": nrl / medians["nrl", "bf16", count]}
        for other in programs[1:]:
            row[other + "_ms"] = medians[other, "f32", count] * 1e3
            row[other + "_over_nrl"] = medians[other, "f32", count] / nrl
        rows.append(row)
    names = list(rows[0])
    print("  ".join(f"{n:>17}" for n in names), file=sys.stderr)
    for row in rows:
        print("  ".join(f"{v:>17}" if isinstance(v, (str, int)) else f"{v:17.3f}" for v in row.values()), file=sys.stderr)
    return {k.replace(" ", "_"): v for k, v in (("bench", "all_reduce"), ("ranks", 2), ("programs", programs), ("rows", rows))}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nrl", help="the program; its build has the ranks' programs")
    p.add_argument("--repeats", type=int, default=7, help="rounds")
    p.add_argument("--most", type=int, default=256, help="largest size in MB")
    p.add_argument("--shorter", type=int, default=1, help="divides the number of calls")
    p.add_argument("--python", default="", help="a python with torch: its gloo too")
    p.add_argument("--option", action="append", default=[], help="of the plugin, name=value")
    args = p.parse_args()
    build = Path(args.nrl).resolve().parent.parent
    os.environ.setdefault("NRL_PLUGIN_PATH", str(build / "lib/nrl"))
    programs = ["nrl"]
    if (build / "tests/gloo_rank").exists():
        programs.append("libgloo")
    else:
        print("skipped: libgloo (built without libgloo-dev)", file=sys.stderr)
    if args.python:
        programs.append("torch")
    sizes = [s for s in SIZES if s[1] * 4 <= args.most << 20]
    print(json.dumps(report(measure(args, programs, sizes), programs, sizes)))


if __name__ == "__main__":
    main()
