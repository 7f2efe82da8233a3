"""crash_states.py NRL WEIGHT N SEED: records runs that save and export (record.c), builds states of the disk that a
crash at any moment may leave (disk_model.py), and continues the run from each of them.

For every state:

- `nrl run ... resume=auto` (or `nrl resume`) must end with exit code 0. It continues from the newest complete
  checkpoint, which is the last one that was reported as saved, or a later one.
- The losses after it, and the exported model, must be those of the uninterrupted run: bit for bit with the same
  number of ranks, otherwise within ROOM.
- An export that was reported must be complete; before the report it is as it was before, or complete, or missing.

A state that fails prints its seed: N = 1 and that seed repeat it, on another recording of the same run.
NRL_CAMPAIGN_KEEP=FOLDER keeps such states. NRL_CAMPAIGN_DROP_SYNCS=1 replays as if no fsync had been called: then
many states must fail, otherwise this campaign detects nothing.
"""
import collections
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys

import disk_model

NRL, WEIGHT, N, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
RECORD = os.path.join(os.path.dirname(NRL), "../tests/campaigns/record")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROP_SYNCS = bool(os.environ.get("NRL_CAMPAIGN_DROP_SYNCS"))
KEEP = os.environ.get("NRL_CAMPAIGN_KEEP")
STEPS = 6
ROOM = 1e-5           # relative: sums over ranks in another order, over a few steps of fp32
LIMIT_S = 120         # of one command; a resume takes a tenth of a second
SAME_RANKS_EVERY = 16 # one in this many states of several ranks continues on as many ranks, the others on one

CONFIG = """\
model: {path: %s/tests/data/models/llama}
data: {train: train.jsonl, eval: eval.jsonl, max_length: 64}
name: run
train: {steps: %d, global_batch: 4, micro_batch_tokens: 128}
optimizer: {name: adamw, lr: 1e-3}
checkpoint: {every: 2, keep: 2, keep_best: 1}
eval: {every: 2}
backend: {name: cpu, threads: 1}
loggers: [{name: console, every: 1000}, jsonl]
""" % (SOURCE, STEPS)

Scenario = collections.namedtuple("Scenario", "name ranks prepare record options")
Scenario.__doc__ = """`prepare` and `record` are lists of nrl's arguments; {out} is the folder that is recorded.
`options` are those of the run, for the resume too."""

RUN = ["run", "config.yaml", "out={out}"]
LORA = ["lora.rank=4"]
SCENARIOS = [
    Scenario("one rank", 1, [], [RUN], ["checkpoint.async=false"]),
    Scenario("async", 1, [], [RUN], []),
    Scenario("ddp", 2, [], [RUN], ["parallel=ddp"]),
    Scenario("fsdp", 2, [], [RUN], ["parallel=fsdp"]),
    # a run that continues from its own checkpoint of step 2 and saves existing steps again
    Scenario("again", 1, [RUN], [RUN + ["resume={out}/checkpoints/step-00000004"]], ["checkpoint.keep=0"]),
    Scenario("fsdp again", 2, [RUN], [RUN + ["resume={out}/checkpoints/step-00000004"]],
             ["parallel=fsdp", "checkpoint.keep=0"]),
    # metrics are cut, a checkpoint is written, one is removed, the model is exported over the one there is
    Scenario("resumed", 1, [RUN + ["train.steps=4"]], [RUN + ["resume=auto"]], []),
    # a run in the place of another one, whose checkpoints it must never take for its own
    Scenario("overwrite", 1, [RUN + ["train.seed=2"]], [RUN + ["overwrite=true"]], []),
    Scenario("lora", 1, [], [RUN], LORA),
    # the reference's log-probs are computed once, into a file
    Scenario("dpo", 1, [], [RUN], ["data={train: pairs.jsonl, eval: pairs.jsonl, max_length: 64}",
                                   "algorithm={name: dpo, reference: cached}"]),
    # verbs that export, onto nothing and over the model of another step
    Scenario("export", 1, [RUN + ["checkpoint.keep=0"], ["export", "{out}/checkpoints/step-00000002", "{out}/other"]],
             [["export", "{out}", "{out}/new"], ["export", "{out}", "{out}/other", "--overwrite"]], []),
    Scenario("adapters", 1, [RUN + ["checkpoint.keep=0"],
                             ["export", "{out}/checkpoints/step-00000002", "{out}/other", "--adapter"]],
             [["export", "{out}", "{out}/other", "--adapter", "--overwrite"]], LORA),
]


def ids(i, n):
    return [3 + (i * 31 + t * t * 17) % 90 for t in range(n)]


def row(i):
    n = 4 + i * 11 % 37
    return '{"input_ids": %s, "labels": %s}\n' % (ids(i, n), [-100 if t < n // 3 else x for t, x in enumerate(ids(i, n))])


def command(scenario, arguments, out, ranks):
    words = [w.format(out=out) for w in arguments]
    if words[0] in ("run", "resume"):
        words += scenario.options if words[0] == "run" else []
        if ranks > 1:
            words = ["launch", "-n", str(ranks), "--"] + words
        else:
            words = [w for w in words if not w.startswith("parallel=")]
    return [NRL] + words


def call(words, **more):
    return subprocess.run(words, cwd=WEIGHT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=LIMIT_S, **more)


def call_or_end(words):
    done = call(words)
    if done.returncode == 77:
        print("skipped: this machine lets no process trace another one\n" + done.stdout)
        sys.exit(77)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def losses(out):
    """{step: text of its loss}, of whole records."""
    found = {}
    try:
        for line in open(out + "/metrics.jsonl", encoding="utf-8", errors="replace"):
            step, loss = re.match(r'{"step": (\d+),', line), re.search(r'"loss": ([^,}]*)', line)
            if step and loss:
                found[int(step[1])] = loss[1]
    except FileNotFoundError:
        pass
    return found


class Recording:
    """The events of a scenario, and what is expected after each."""

    def __init__(self, scenario):
        self.scenario = scenario
        base = os.path.join(WEIGHT, scenario.name.replace(" ", "-"))
        self.root, log = base + "/recorded", base + "/log"
        self.out = self.root + "/out"
        os.makedirs(self.root)
        for arguments in scenario.prepare:
            call_or_end(command(scenario, arguments, self.out, scenario.ranks))
        self.start = disk_model.read_tree(self.root)
        self.replaces = any("overwrite=true" in a for a in scenario.record)
        self.had = 0 if self.replaces else max(steps_of(self.start), default=0)
        self.events = []
        for arguments in scenario.record:
            call_or_end([RECORD, log, self.root] + command(scenario, arguments, self.out, scenario.ranks))
            shift = len(self.events)
            for event in disk_model.read_log(log):
                if event[0] == "sync" and DROP_SYNCS:
                    continue
                self.events.append(event[:2] + (event[2] + shift,) if event[0] == "sync" else event)
        self.end = disk_model.read_tree(self.root)
        self.reference = losses(self.out)
        self.is_run = scenario.record[0][0] == "run"
        self.reports = [(i, e[1]) for i, e in enumerate(self.events) if e[0] == "say"]
        self.calls = [i for i, e in enumerate(self.events) if e[0] not in ("write", "say")]

    def last_saved(self, crash):
        """The step of the last save that was reported before event `crash`."""
        goes_back = any("resume={out}" in w for w in self.scenario.record[0])
        step = 4 if goes_back else self.had # newer ones are about to be replaced
        for i, text in self.reports:
            for found in re.findall(r"saved \S*step-(\d+)", text):
                if i < crash:
                    step = max(step, int(found))
        return step

    def exports(self, crash):
        """[(folder's name, whether its export was reported)]"""
        said = "".join(text for i, text in self.reports if i < crash)
        names = ["out/model"] if self.is_run else [a[2].split("/", 1)[1] for a in self.scenario.record]
        names = [n if "/" in n else "out/" + n for n in names]
        return [(n, bool(re.search(r"(exported|wrote) \S*" + re.escape(n), said))) for n in names]


def steps_of(tree):
    return [int(name[5:]) for name in tree.get("out", {}).get("checkpoints", {}) if re.fullmatch(r"step-\d+", name)]


def at(tree, path):
    for name in path.split("/"):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def check_export(recording, state, crash):
    for name, reported in recording.exports(crash):
        found, before, after = at(state, name), at(recording.start, name), at(recording.end, name)
        if found == after or not reported and found == before:
            continue
        # who replaces a run has its model removed, file by file
        if recording.replaces and not reported and all(at(before, n) == b for n, b in (found or {}).items()):
            continue
        what = "is missing" if found is None else "is neither the old model nor the new one: " + str(
            {n: "old" if at(before or {}, n) == b else "new" if at(after, n) == b else "neither" for n, b in found.items()})
        return f"{name} {what}" + (", although its export was reported" if reported else "")
    return None


def near(a, b):
    return a == b or abs(float(a) - float(b)) <= ROOM * abs(float(b))


def whole_steps(out):
    text = call([NRL, "checkpoint", "verify", out]).stdout
    return [int(s) for s in re.findall(r"step-(\d+)(?:\.old)?: whole", text)]


def check_run(recording, out, crash, ranks, verb):
    """What went wrong when the run continued from this state, or None."""
    expected, whole = recording.last_saved(crash), whole_steps(out)
    if expected and not [s for s in whole if s >= expected]:
        return f"step {expected} was reported as saved, and whole are {whole}"
    arguments = ["resume", "{out}", f"train.steps={STEPS}"] if verb == "resume" else RUN + ["resume=auto"]
    done = call(command(recording.scenario, arguments, out, ranks))
    if recording.replaces and not expected and done.returncode in (0, 2, 5):
        return None # what is left of the other run is that run or is refused; the user starts again with overwrite=true
    if done.returncode:
        return f"exit code {done.returncode}\n{done.stdout}"
    from_step = re.search(r"resume +after step (\d+) of", done.stdout)
    from_step = int(from_step[1]) if from_step else 0
    if from_step < max([expected] + whole):
        return f"went on from step {from_step}, expected at least {max([expected] + whole)}\n{done.stdout}"
    found, same = losses(out), ranks == recording.scenario.ranks
    for step in range(from_step + 1, STEPS + 1):
        a, b = found.get(step), recording.reference[step]
        if a is None or (a != b if same else not near(a, b)):
            return f"the loss of step {step} is {a}, expected {b}"
    model, expected = out + "/model", at(recording.end, "out/model")
    if not os.path.isdir(model):
        return "no model was exported"
    # the card has the last numbers of metrics.jsonl, whose end a crash may lose
    found = {name: data for name, data in disk_model.read_tree(model).items() if name != "README.md"}
    if same and found != {name: data for name, data in expected.items() if name != "README.md"}:
        return "the exported model differs"
    return None


def digest(tree, h):
    if isinstance(tree, bytes):
        h.update(b"f%d " % len(tree) + tree)
        return h
    for name in sorted(tree):
        h.update(b"d" + name.encode() + b"\0")
        digest(tree[name], h)
    h.update(b"e")
    return h


class Plan:
    """A state to build; everything in it follows from its seed."""

    def __init__(self, seed, recordings):
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.recording = recordings[seed % len(recordings)]
        n = len(self.recording.events)
        # a third of the crashes are near calls that change names or sync, which are few beside the writes
        self.crash = rng.randint(0, n) if rng.random() < 0.67 else min(n, max(
            0, rng.choice(self.recording.calls) + rng.randint(-1, 2)))
        self.journal = rng.random() < 0.5
        self.style = rng.choice(("nothing", "everything", "names") + ("random",) * 17)
        self.verb = "resume" if rng.random() < 0.1 else "run"

    def __str__(self):
        events = self.recording.events
        last = " ".join(map(str, [f for f in events[self.crash - 1] if not isinstance(f, bytes)])) if self.crash else "-"
        return (f"{self.recording.scenario.name}: crash after event {self.crash} of {len(events)} ({last.strip()}), "
                f"{'journal' if self.journal else 'posix'}, {self.style}")


def check(plan, state, number):
    folder = os.path.join(WEIGHT, "state")
    shutil.rmtree(folder, ignore_errors=True)
    disk_model.write_tree(folder, state)
    wrong = check_export(plan.recording, state, plan.crash)
    scenario = plan.recording.scenario
    if not wrong and plan.recording.is_run:
        same = scenario.ranks == 1 or number % SAME_RANKS_EVERY == 0
        verb = plan.verb if steps_of(state) else "run" # nothing to resume: only `run` may begin
        try:
            wrong = check_run(plan.recording, folder + "/out", plan.crash, scenario.ranks if same else 1, verb)
        except subprocess.TimeoutExpired as e:
            wrong = f"{e.cmd} takes longer than {LIMIT_S} s"
    if not wrong:
        return True
    print(f"failed: crash-states with seed {plan.seed}: {plan}\n  {wrong}", flush=True)
    if KEEP:
        disk_model.write_tree(os.path.join(KEEP, f"crash-state-{plan.seed}"), state)
    return False


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    with open(WEIGHT + "/config.yaml", "w", encoding="utf-8") as f:
        f.write(CONFIG)
    for name, rows in (("train", range(24)), ("eval", range(24, 30))):
        with open(f"{WEIGHT}/{name}.jsonl", "w", encoding="utf-8") as f:
            f.writelines(map(row, rows))
    with open(WEIGHT + "/pairs.jsonl", "w", encoding="utf-8") as f:
        f.writelines('{"prompt_input_ids": %s, "chosen_input_ids": %s, "rejected_input_ids": %s}\n' % (
            ids(i, 4), ids(i + 1, 3 + i % 5), ids(i + 2, 5)) for i in range(24))
    scenarios = SCENARIOS if N > 1 else [SCENARIOS[SEED % len(SCENARIOS)]]
    recordings = [Recording(s) for s in scenarios]
    for r in recordings:
        print(f"{r.scenario.name}: {len(r.events)} events", flush=True)
    seen, failed, tried, drawn, same = set(), 0, 0, 0, 0
    # states are drawn in rounds, as each recording is replayed from its beginning; equal ones are tried once
    while tried < N and same < 20:
        plans = [Plan(SEED + drawn + i, recordings) for i in range(min(2000, N - tried))]
        drawn += len(plans)
        before = tried
        for recording in recordings:
            for journal in (True, False):
                disk = disk_model.Disk(recording.root, recording.start, journal)
                done = 0
                for plan in sorted((p for p in plans if p.recording is recording and p.journal == journal),
                                   key=lambda p: p.crash):
                    for done in range(done, plan.crash):
                        disk.apply(done, recording.events[done])
                    done = plan.crash
                    state = disk.crash(plan.rng, plan.style)
                    h = digest(state, hashlib.blake2b(str((recording.scenario.name, recording.last_saved(plan.crash),
                                                          recording.exports(plan.crash))).encode()))
                    if h.digest() in seen:
                        continue
                    seen.add(h.digest())
                    tried += 1
                    failed += not check(plan, state, tried)
        same = same + 1 if tried == before else 0
    print(f"crash-states: {tried} tried, {failed} failed, seed {SEED} ({drawn} drawn, the others were equal to one "
          "tried)")
    sys.exit(1 if failed or not tried else 0)


main()
