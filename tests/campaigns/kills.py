"""kills.py NRL WEIGHT N SEED [restarts|offload]: runs of every strategy, on one to four ranks, are interrupted at any moment and continued.

INT, TERM, KILL or STOP is sent to a rank, to the launcher, or to all of them; half of the signals are sent during a save.
After STOP either CONT is sent or the other ranks give up. After every signal all processes must end in time, with a
documented exit code; earlier saves must still be complete; after an orderly stop (INT, TERM) the state must be saved. The
run is then continued, and in half of the cases interrupted again. At its end all losses and the exported model must be
bit-identical to those of the uninterrupted run.

With the word restarts the runs have four ranks, on one node or two, under `nrl launch --max-restarts`, and only ranks are killed: one
or two of them, at start-up, during a save, or at any other moment, several times per run. Or they have four nodes of one rank, and
`--nodes 2:4`: then two nodes may be lost with their launchers, and the run continues on the others. Each run must end by itself, with
the losses and the model of the uninterrupted run.

With the word offload only runs that keep data on disk are interrupted. They must end with the losses and the model of the
uninterrupted run without offload, and leave nothing in the folder of their files.

N counts signals. A failed try prints its own seed: N = 1 and that seed repeat it, at about the same moment.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

NRL, WEIGHT, N, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
NAME = sys.argv[5] if len(sys.argv) > 5 else "kills"
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEEP = os.environ.get("NRL_CAMPAIGN_KEEP")
STEPS = 120
GONE_S = 60   # five to detect a lost rank, one to leave, ten to SIGKILL (nrl launch --grace); a busy machine takes longer
RUN_S = 300

SFT = f"""\
model: {{path: {SOURCE}/tests/data/models/llama}}
data: {{train: train.jsonl, max_length: 64}}
name: run
train: {{steps: {STEPS}, global_batch: 12, micro_batch_tokens: 256}}
optimizer: {{name: adamw, lr: 1e-3}}
schedule: {{name: cosine, warmup_ratio: 0.1}}
checkpoint: {{every: 10, keep: 2}}
backend: {{name: cpu, threads: 1}}
loggers: [{{name: console, every: 1}}, jsonl]
"""
DPO = SFT.replace("train.jsonl", "pairs.jsonl").replace("schedule:", "algorithm: {name: dpo, loss: sigmoid, beta: 0.1}\nschedule:")

EXPERTS = f"model={{config: {SOURCE}/configs/models/tiny-experts.json}}"

# name: (config, ranks, options); the weight of each is the same
VARIANTS = {
    "one rank": ("sft", 1, []),
    "lora": ("sft", 1, ["lora.rank=4"]),
    "dpo": ("dpo", 1, []),
    "ddp 2": ("sft", 2, ["parallel=ddp"]),
    "ddp 3": ("sft", 3, ["parallel=ddp"]),
    "ddp 4": ("sft", 4, ["parallel=ddp"]),
    "fsdp grads 2": ("sft", 2, ["parallel={name: fsdp, shard: grads}"]),
    "fsdp optimizer 3": ("sft", 3, ["parallel={name: fsdp, shard: optimizer}"]),
    "fsdp full 2": ("sft", 2, ["parallel={name: fsdp, shard: full}"]),
    "fsdp full 4": ("sft", 4, ["parallel={name: fsdp, shard: full}"]),
    "tensor 2": ("sft", 2, ["parallel={tensor: 2}"]),
    "fsdp and tensor 4": ("sft", 4, ["parallel={data: fsdp, tensor: 2}"]),
    "hybrid 4": ("sft", 4, ["parallel={name: fsdp, shard_size: 2}"]),
    "local steps 2": ("sft", 2, ["parallel={name: ddp, sync_every: 7}"]),
    "outer steps 2": ("sft", 2, ["parallel={name: ddp, sync_every: 7, outer_lr: 0.7, outer_momentum: 0.9}"]),
    "sequence 2": ("sft", 2, ["parallel={tensor: {size: 2, sequence: true}}"]),
    "ulysses 2": ("sft", 2, ["parallel={context: 2}"]),
    "fsdp and ring 4": ("sft", 4, ["parallel={data: fsdp, context: {size: 2, kind: ring}}"]),
    "experts 2": ("sft", 2, [EXPERTS, "parallel={experts: 2}"]),
    "fsdp and experts 4": ("sft", 4, [EXPERTS, "parallel={data: fsdp, experts: 2}"]),
    "pipeline 2": ("sft", 2, ["parallel={pipeline: 2}"]),
    "interleaved 2": ("sft", 2, ["parallel={pipeline: {size: 2, schedule: interleaved}}"]),
    "fsdp and zero bubble 4": ("sft", 4, ["parallel={data: fsdp, pipeline: {size: 2, schedule: zero_bubble}}"]),
    "reproducible ddp 4": ("sft", 4, ["parallel={data: {name: ddp, reproducible: 4}}"]),
    "reproducible fsdp 4": ("sft", 4, ["parallel={data: {name: fsdp, reproducible: 4}}"]),
    "ddp and pipeline 4": ("sft", 4, ["parallel={data: ddp, pipeline: 2}"]),
    "lora fsdp 2": ("sft", 2, ["lora.rank=4", "parallel=fsdp"]),
    "dpo ddp 2": ("dpo", 2, ["parallel=ddp"]),
    "dpo lora 2": ("dpo", 2, ["lora.rank=4", "parallel=fsdp"]),
}

SHARDS = "parallel={data: {name: fsdp, offload: disk}}"
FOLDER = "elsewhere"
# name: what is added to the options of the variant of that name without the last word
OFFLOADED = {
    "one rank, optimizer": ["train.offload.optimizer=disk"],
    "one rank, activations": ["train.offload.activations=disk"],
    "one rank, shards": [SHARDS],
    "one rank, everything": ["train.offload={optimizer: disk, activations: disk}", SHARDS],
    "lora, everything": ["train.offload={optimizer: disk, activations: disk}", SHARDS],
    "dpo, everything": ["train.offload={optimizer: disk, activations: disk}", SHARDS],
    "ddp 2, optimizer": ["train.offload.optimizer=disk"],
    "fsdp full 2, everything": ["train.offload={optimizer: disk, activations: disk}",
                                "parallel={data: {name: fsdp, shard: full, offload: disk}}"],
    "fsdp optimizer 3, everything": ["train.offload={optimizer: disk, activations: disk}",
                                     "parallel={data: {name: fsdp, shard: optimizer, offload: disk}}"],
}


def without_offload(variant):
    return variant.split(",")[0]


for added_to, added in OFFLOADED.items():
    rows, ranks, options = VARIANTS[without_offload(added_to)]
    if any(o.startswith("parallel=") for o in added):
        options = [o for o in options if not o.startswith("parallel=")]
    VARIANTS[added_to] = (rows, ranks, options + added + ["train.offload.folder=" + FOLDER])


def ids(i, n):
    return [3 + (i * 31 + t * t * 17) % 90 for t in range(n)]


def prepare():
    os.makedirs(WEIGHT, exist_ok=True)
    os.chdir(WEIGHT)
    os.makedirs(FOLDER, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    with open("train.jsonl", "w", encoding="ascii") as f:
        for i in range(96):
            row = ids(i, 4 + i * 11 % 37)
            f.write('{"input_ids": %s, "labels": %s}\n' % (row, [-100] * (len(row) // 3) + row[len(row) // 3:]))
    with open("pairs.jsonl", "w", encoding="ascii") as f:
        for i in range(48):
            p, c = ids(i, 4 + i % 7), ids(i + 1, 3 + i % 5)
            f.write('{"prompt_input_ids": %s, "chosen_input_ids": %s, "rejected_input_ids": %s}\n' % (p, c, ids(i + 2, 3 + i % 4)))
    for name, text in (("sft", SFT), ("dpo", DPO)):
        with open(name + ".yaml", "w", encoding="ascii") as f:
            f.write(text)


# ---- processes ----

def parents():
    """{pid: its parent}, of all that are alive."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as f:
                    words = f.read().rsplit(")", 1)[1].split()
                if words[0] not in "ZX":
                    found[int(name)] = int(words[1])
            except OSError:
                pass
    return found


def children(pid):
    return [p for p, parent in parents().items() if parent == pid]


def rank_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            found = re.search(rb"(?:^|\0)NRL_RANK=(\d+)", f.read())
        return int(found[1]) if found else -1
    except OSError:
        return -1


def await_it(what, seconds):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


RANGE = "2:4"
n_ports = int.from_bytes(os.urandom(2), "little")


def next_port():
    """Another one at each call, which nobody uses now, below those that connections get."""
    global n_ports
    used = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            with open(table) as f:
                used.update(int(line.split()[1].rpartition(":")[2], 16) for line in f.readlines()[1:])
    while True:
        port = 15000 + (os.getpid() * 37 + n_ports) % 15000
        n_ports += 1
        if port not in used:
            return port


class Run:
    def __init__(self, variant, out, nodes=1, restarts=0, port=0):  # nodes 2:4 = that range, of one rank each
        config, self.n, options = VARIANTS[variant]
        words = ["run", config + ".yaml", "out=" + out, "resume=auto"] + options
        launch = ["launch"] + (["--max-restarts", str(restarts)] if restarts else [])
        if nodes == RANGE:
            commands = [launch + ["--nodes", RANGE, "-n", "1", "--address", "127.0.0.1", "--port", str(port), "--join-wait", "2", "--"] + words
                        for _ in range(self.n)]
        elif nodes > 1:
            hosts = ",".join(f"127.0.0.{i + 1}:{self.n // nodes}" for i in range(nodes))
            commands = [launch + ["--nodes", hosts, "--port", str(port), "--node-rank", str(i), "--"] + words for i in range(nodes)]
        else:
            commands = [launch + ["-n", str(self.n), "--"] + words if self.n > 1 else words]
        self.out, self.log = out, open("log", "w+", encoding="utf-8", errors="replace")
        self.launchers = [subprocess.Popen([NRL] + c, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
                          for c in commands]
        self.process = self.launchers[0]

    def ranks(self):
        """{rank: pid}; without a launcher the process is rank 0."""
        if self.n == 1:
            return {0: self.process.pid}
        return {rank_of(p): p for launcher in self.launchers for p in children(launcher.pid) if rank_of(p) >= 0}

    def nodes(self):
        """The launchers of a run of a range of nodes, in the order of their ranks."""
        if len(self.launchers) < 4:
            return []
        return [parents().get(pid) for _, pid in sorted(self.ranks().items())]

    def has_ended(self):
        return all([p.poll() is not None for p in self.launchers])

    def text(self):
        self.log.flush()
        with open("log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def kill_all(self):
        send(self, list(self.ranks().values()) + [p.pid for p in self.launchers], signal.SIGKILL)
        for p in self.launchers:
            p.wait()


def whole(variant):
    """The losses and the model of the same run, uninterrupted and without offload."""
    variant = without_offload(variant)
    out = "whole-" + variant.replace(" ", "-")
    if not os.path.isdir(out):
        run = Run(variant, out)
        if run.process.wait(RUN_S):
            sys.exit(f"{variant}: {run.text()}")
    return result(out)


def result(out):
    with open(out + "/metrics.jsonl", encoding="utf-8") as f:
        losses = [re.match(r'{"step": (\d+), .*"loss": ([^,]*), "grad_norm": ([^,]*),', line) for line in f]
    model = {}
    for name in sorted(os.listdir(out + "/model")):
        with open(f"{out}/model/{name}", "rb") as f:
            model[name] = f.read()
    return [m.groups() for m in losses if m], model


def newest(out):
    try:
        return max((int(n[5:]) for n in os.listdir(out + "/checkpoints") if re.fullmatch(r"step-\d+", n)), default=0)
    except FileNotFoundError:
        return 0


def is_saving(out):
    try:
        return any(re.fullmatch(r"step-\d+\.tmp", n) for n in os.listdir(out + "/checkpoints"))
    except FileNotFoundError:
        return False


# ---- one kill ----

SIGNALS = ("INT", "TERM", "KILL", "STOP")
# Exit codes of nrl and its launcher: an orderly stop; else the death of a rank or of the launcher, or a lost peer.
# 0: the run had ended, or continued after CONT.
EXPECTED = {"INT": {0, 130}, "TERM": {0, 75}, "KILL": {0, 4, 137, -9}, "STOP": {0, 4, 137}}


def send(run, pids, number):
    """Only to processes of this run: a process id may have been reused since."""
    sent, own = 0, [p.pid for p in run.launchers]
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
            if pid in own or parents().get(pid) in own:
                signal.pidfd_send_signal(fd, number)
                sent += 1
            os.close(fd)
        except ProcessLookupError:
            pass
    return sent


def kill_once(run, rng):
    """Sends one signal. Returns (whether the run was still alive, what was sent, what is wrong or None)."""
    name = rng.choice(SIGNALS)
    number = getattr(signal, "SIG" + name)
    target = rng.choice(("rank", "launcher", "all")) if run.n > 1 else "rank"
    victim = rng.randrange(run.n)
    what = f"SIG{name} to {'rank %d' % victim if target == 'rank' else target}"
    if not await_it(lambda: len(run.ranks()) == run.n or run.has_ended(), 60):
        return True, what, "not all ranks were started"
    time.sleep(rng.random() ** 2 * 0.6)
    if rng.random() < 0.5:
        await_it(lambda: is_saving(run.out) or run.has_ended(), 60)
        time.sleep(rng.random() * 0.01)
    ranks = run.ranks()
    launcher = [run.process.pid] if run.n > 1 else []
    pids = {"rank": [ranks[victim]] if victim in ranks else [], "launcher": launcher,
            "all": launcher + list(ranks.values())}[target]
    before = newest(run.out)
    if run.has_ended() or not send(run, pids, number):
        return False, what, None
    # the other ranks give up a rank that stays stopped; if the launcher or all ranks are stopped, none is left to do that
    if name == "STOP" and (target != "rank" or run.n == 1 or rng.random() < 0.5):
        what += ", then SIGCONT"
        time.sleep(rng.choice((0.05, 0.5)))
        send(run, pids, signal.SIGCONT)
        gone = await_it(run.has_ended, RUN_S)
    else:
        gone = await_it(run.has_ended, GONE_S)
    if not gone:
        run.kill_all()
        return True, what, f"the run did not end within {GONE_S} s"
    if not await_it(lambda: not any(os.path.exists(f"/proc/{p}") for p in ranks.values() if rank_of(p) >= 0), GONE_S):
        return True, what, f"ranks are left {GONE_S} s after their launcher"
    return True, what, check_end(run, name, target, before)


def check_end(run, name, target, before):
    code, after, text = run.process.returncode, newest(run.out), run.text()
    # a launcher that was itself ended by a signal may print nothing more
    if code not in EXPECTED[name]:
        return f"exit code {code}, expected one of {sorted(EXPECTED[name])}"
    if after < before:
        return f"the checkpoint of step {before} is gone, the newest is of {after}"
    if after:
        folder = f"{run.out}/checkpoints/step-{after:08d}"
        done = subprocess.run([NRL, "checkpoint", "verify", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            return done.stdout.decode(errors="replace")
    if name in ("INT", "TERM") and code:
        saved = re.search(r"after step (\d+): state saved", text)
        steps = [int(s) for s in re.findall(r"step +(\d+)/", text)]
        if not saved:
            # before the first step there is nothing to save
            return "an orderly stop without a saved state" if steps else None
        if after != int(saved[1]):
            return f"step {saved[1]} was said to be saved, the newest is of {after}"
        if steps and max(steps) > after:
            return f"stopped at step {after} after step {max(steps)} was done"
    return None


kills = 0
finished = 0


def attempt(seed):
    """What is wrong, or None."""
    global kills
    rng = random.Random(seed)
    variant = rng.choice(list(OFFLOADED if NAME == "offload" else VARIANTS))
    whole(variant)
    out = "cut"
    shutil.rmtree(out, ignore_errors=True)
    story = []
    while True:
        run = Run(variant, out)
        met, what, wrong = kill_once(run, rng)
        story.append(what)
        if met:
            kills += 1
        if wrong:
            return f"{variant}: {'; '.join(story)}: {wrong}\n{run.text()[-2500:]}"
        if run.process.returncode == 0 or rng.random() < 0.5 or kills >= N:
            break
    if run.process.returncode != 0:
        run = Run(variant, out)
        try:
            if run.process.wait(RUN_S):
                return f"{variant}: {'; '.join(story)}; then it did not go on: exit code {run.process.returncode}\n{run.text()[-2500:]}"
        except subprocess.TimeoutExpired:
            run.kill_all()
            return f"{variant}: {'; '.join(story)}; then it did not end within {RUN_S} s\n{run.text()[-2500:]}"
    return compare(variant, out, "; ".join(story))


def compare(variant, out, story):
    """What differs from the uninterrupted run, or None."""
    global finished
    finished += 1
    found, expected = result(out), whole(variant)
    if found[0] != expected[0]:
        first = next((i for i, (a, b) in enumerate(zip(found[0], expected[0])) if a != b), min(len(found[0]), len(expected[0])))
        return (f"{variant}: {story}: {len(found[0])} records, expected {len(expected[0])}; the first that differs: "
                f"{found[0][first:first + 1]}, expected {expected[0][first:first + 1]}")
    if found[1] != expected[1]:
        names = [n for n in sorted(found[1].keys() | expected[1].keys()) if found[1].get(n) != expected[1].get(n)]
        return f"{variant}: {story}: the exported model differs: {', '.join(names)}"
    left = [n for n in os.listdir(out + "/checkpoints") + os.listdir(out) if ".tmp" in n or ".part" in n or "offload" in n]
    left += os.listdir(FOLDER)
    return f"{variant}: {story}: left behind: {left}" if left else None


# ---- runs that restart by themselves ----

MOMENTS = ("start-up", "save", "any")
MOST_RESTARTS = 100


def kill_ranks(run, rng, before):
    """Kills one or two ranks that were started after the processes `before`. Returns (the processes of that start, what); no processes if
    the run ended before."""
    global kills
    moment = rng.choice(MOMENTS)
    await_it(lambda: (len(run.ranks()) == run.n and not before & set(run.ranks().values())) or run.has_ended(), RUN_S)
    if moment != "start-up":
        await_it(lambda: newest(run.out) > 0 or run.has_ended(), RUN_S)
    if moment == "save":
        await_it(lambda: is_saving(run.out) or run.has_ended(), 60)
    time.sleep(rng.random() * 0.01 if moment == "save" else rng.random() ** 2 * 0.6)
    ranks, nodes = run.ranks(), run.nodes()
    victims = rng.sample(sorted(ranks), min(len(ranks), rng.choice((1, 1, 2))))
    sent = send(run, [ranks[v] for v in victims], signal.SIGKILL)
    what = f"ranks {victims} at {moment}"
    if sent and len(nodes) > 2 and rng.random() < 0.5:  # not the first node, which holds the store
        sent += send(run, nodes[2:], signal.SIGKILL)
        run.n = 2
        what += " and two nodes"
    kills += sent
    return set(ranks.values()) if sent else set(), what


def attempt_restarts(seed):
    """What is wrong, or None."""
    rng = random.Random(seed)
    variant = rng.choice([name for name, row in VARIANTS.items() if row[1] == 4])
    nodes = rng.choice((1, RANGE)) if "reproducible" in variant else rng.choice((1, 2))
    whole(variant)
    out = "cut"
    shutil.rmtree(out, ignore_errors=True)
    run = Run(variant, out, nodes, MOST_RESTARTS, next_port())
    story, met = [f"{nodes} nodes"], set()
    for _ in range(rng.randint(1, 4)):
        met, what = kill_ranks(run, rng, met)
        if not met:
            break
        story.append(what)
    if not await_it(run.has_ended, RUN_S):
        text = run.text()
        run.kill_all()
        return f"{variant}: {'; '.join(story)}; then it did not end within {RUN_S} s\n{text[-2500:]}"
    codes = [p.returncode for p in run.launchers]
    if [c for c in codes if c] != [-signal.SIGKILL] * (4 - run.n):
        return f"{variant}: {'; '.join(story)}: exit codes {codes}\n{run.text()[-2500:]}"
    return compare(variant, out, "; ".join(story))


def main():
    prepare()
    failed, seed = 0, SEED
    while kills < N:
        wrong = attempt_restarts(seed) if NAME == "restarts" else attempt(seed)
        if wrong:
            failed += 1
            print(f"failed: {NAME} with seed {seed}: {wrong}", flush=True)
            if KEEP:
                shutil.copytree("cut", f"{KEEP}/{NAME}-{seed}", dirs_exist_ok=True)
        seed += 1
    print(f"runs that were finished and compared: {finished}")
    print(f"{NAME}: {kills} tried, {failed} failed, seed {SEED}")
    sys.exit(1 if failed else 0)


main()
