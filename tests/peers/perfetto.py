#!/usr/bin/env python3
"""Opens a timeline of `nrl profile --trace` with Perfetto's trace processor (pip: perfetto) and compares it with --json.

pip's package has no program (it downloads one from a host of its own when it is first used), and Debian has none: set
NRL_TRACE_PROCESSOR to trace_processor_shell, or have it in PATH. Without it the test checks the events against the Trace
Event Format and against --json, and is skipped if they are right.
"""
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

NRL = os.path.join(os.environ["NRL_TEST_BUILD"], "bin", "nrl")
SOURCE = os.environ["NRL_TEST_SOURCE"]
STEPS = 3
ROUNDING_US = 0.0015  # times are written with three decimals


def check_format(trace):
    """What the format asks of each kind of event; slices of a thread nest."""
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    names, slices = {}, collections.defaultdict(list)
    for e in trace["traceEvents"]:
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int) and isinstance(e["name"], str), e
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index"), e
            if e["name"] == "thread_name":
                names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] == "C":
            assert e["ts"] >= -1e9 and all(isinstance(v, (int, float)) for v in e["args"].values()), e
        else:
            assert e["ph"] == "X" and e["dur"] >= 0 and isinstance(e["cat"], str), e
            slices[e["pid"], e["tid"]].append(e)
    for thread, events in slices.items():
        assert names[thread].startswith(events[0]["cat"]), (thread, names[thread])
        ends = []
        for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= e["ts"] + ROUNDING_US:
                ends.pop()
            assert not ends or e["ts"] + e["dur"] <= ends[-1] + ROUNDING_US, (names[thread], e)
            ends.append(e["ts"] + e["dur"])
    return slices


def query(processor, path, sql):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=processor)) as tp:
        return [row.__dict__ for row in tp.query(sql)]


def main():
    processor = os.environ.get("NRL_TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        config = os.path.join(SOURCE, "configs", "sft.yaml")
        run = subprocess.run([NRL, "launch", "-n", "2", "--", "profile", config, "parallel=ddp", f"--steps={STEPS}", "--json",
                              "--trace", path], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        result = json.loads(run.stdout[run.stdout.index("{"):])
        with open(path) as f:
            trace = json.load(f)
        check_format(trace)
        own = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
        calls = collections.Counter(e["name"] for e in own if e["cat"] == "operations")
        for op in result["ops"]:
            if "calls_a_step" in op and not op.get("on_host"):
                assert calls[op["op"]] == round(op["calls_a_step"] * STEPS), op
        seconds = sum(e["dur"] for e in own if e["cat"] == "steps") * 1e-6
        assert abs(seconds - result["profile"]["seconds_a_step"] * STEPS) < 1e-3 * seconds + 1e-5, seconds
        if not processor:
            print("skipped: trace_processor_shell is not in PATH, and NRL_TRACE_PROCESSOR does not name it (pip's perfetto and Debian "
                  "do not contain it); the file has the Trace Event Format and the numbers of --json")
            return 77
        rows = query(processor, path, "select s.name as name, count(*) as n from slice s where s.category = 'operations' group by s.name")
        found = {r["name"]: r["n"] for r in rows}
        everyone = collections.Counter(e["name"] for e in trace["traceEvents"] if e.get("cat") == "operations")
        assert found == dict(everyone), (found, everyone)
        lost = query(processor, path, "select name, value from stats where severity = 'error' and value > 0")
        assert not lost, lost
        print(f"Perfetto read {sum(found.values())} operations of two ranks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
