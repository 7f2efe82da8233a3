# Runs the job JOB on a Ray cluster: one actor on each machine starts `nrl launch` there. Ray's placement group selects the
# machines. When a machine is lost, all ranks end and start again from the newest checkpoint, on the machines that remain.
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

STOPPED, LOST = 75, 4  # exit codes of nrl: the state is saved; another rank was lost
INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
PR_SET_PDEATHSIG = 1


def say(text):
    print("cluster:", text, flush=True)


class Machine:
    """Runs `nrl launch` on its machine. Lives in a process of Ray's; when that dies, the launcher gets SIGTERM, and the run saves."""

    def __init__(self):
        self.process = None

    def address(self):
        return ray.util.get_node_ip_address()

    def free_port(self):
        with socket.socket() as s:
            s.bind(("", 0))
            return s.getsockname()[1]

    def run(self, command, directory, environment):
        self.process = subprocess.Popen(["sh", "-c", command], cwd=directory, env={**os.environ, **environment},
                                        preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()


class Stop(Exception):
    """The job was stopped: `nrl cluster cancel`, or Ray ends."""


def on_signal(number, frame):
    raise Stop()


TRAINER, OTHERS = JOB["groups"][0], JOB["groups"][1:]


def bundle(group, ranks):
    """The resources that Ray reserves on a machine of the group with this number of ranks."""
    out = {"CPU": ranks * group["cpus_per_rank"], **group["resources"]}
    if group["gpus"]:
        out["GPU"] = ranks
    return out


def other_bundles():
    """The groups that do not train need all of their machines."""
    return [bundle(group, n) for group in OTHERS for n in group["ranks"]]


def placeable(ranks):
    """The ranks for which there is a machine, each on its own, in addition to the machines of the other groups."""
    machines = sorted((n["Resources"] for n in ray.nodes() if n["Alive"]), key=lambda r: (r.get("GPU", 0), r.get("CPU", 0)))

    def take(wanted):
        for machine in machines:
            if all(machine.get(name, 0) >= number for name, number in wanted.items()):
                machines.remove(machine)
                return True
        return False

    for wanted in other_bundles():
        take(wanted)
    return [n for n in sorted(ranks, reverse=True) if take(bundle(TRAINER, n))]


def reserve():
    """The placement group and the ranks of its machines. Waits for all machines; after `wait_for_nodes` seconds fewer are enough."""
    everything = sorted(TRAINER["ranks"], reverse=True)
    ranks = everything
    while True:
        group = placement_group([bundle(TRAINER, n) for n in ranks] + other_bundles(), strategy="STRICT_SPREAD")
        say(f"waiting for {len(ranks)} machines with {ranks} ranks" + "".join(f", {len(g['ranks'])} of {g['name']}" for g in OTHERS))
        done, _ = ray.wait([group.ready()], timeout=JOB["wait_for_nodes"] if JOB["min_nodes"] < len(everything) else None)
        if done:
            return group, ranks
        remove_placement_group(group)
        # Ray notices a lost machine late, and a machine may be busy: after a failed attempt, one machine less is tried.
        found = placeable(everything)
        if found == ranks:
            found = found[:-1]
        ranks = found if len(found) >= JOB["min_nodes"] else everything


def record(state, starts, ranks):
    """Writes the state for `nrl cluster status` to the disk that all machines share."""
    total, free = ray.cluster_resources(), ray.available_resources()
    resources = {name: {"total": total[name], "available": free.get(name, 0),
                        "percent": round(100 * (1 - free.get(name, 0) / total[name]), 1)}
                 for name in sorted(total) if ":" not in name and "_group_" not in name and total[name] and not name.endswith("memory")}
    path = JOB["state"]
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump({"state": state, "starts": starts, "ranks": ranks, "time": time.time(), "resources": resources}, f)
    os.replace(path + ".new", path)


def start(number):
    """One start of all ranks; the exit code, or LOST."""
    group, ranks = reserve()
    everyone, waiting = [], {}
    roles = [g for g in OTHERS for _ in g["ranks"]]
    try:
        kind = ray.remote(num_cpus=0, max_concurrency=4)(Machine)
        for i in range(len(ranks) + len(roles)):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i,
                                                     placement_group_capture_child_tasks=False)
            everyone.append(kind.options(scheduling_strategy=place).remote())
        machines, others = everyone[:len(ranks)], everyone[len(ranks):]
        addresses = ray.get([m.address.remote() for m in machines])
        port = ray.get(machines[0].free_port.remote())
        nodes = ",".join(f"[{a}]:{n}" if ":" in a else f"{a}:{n}" for a, n in zip(addresses, ranks))
        say(f"start {number} on {nodes}")
        environment = {"NRL_JOB_SECRET": secrets.token_hex(32), "NRL_GROUP": TRAINER["name"], **JOB["environment"]}
        for m, role in zip(others, roles):
            m.run.remote(JOB["setup"] + role["command"], JOB["directory"], {**environment, "NRL_GROUP": role["name"]})
        waiting = {machines[i].run.remote(f"{JOB['setup']}exec {JOB['nrl']} launch --nodes {nodes} --node-rank {i} --port {port} "
                                          f"-- run {JOB['words']} resume=auto", JOB["directory"], environment): i
                   for i in range(len(ranks))}
        code = 0
        while waiting:
            record("running", number, ranks)
            done, _ = ray.wait(list(waiting), timeout=5)
            for reference in done:
                i = waiting.pop(reference)
                try:
                    got = ray.get(reference)
                except ray.exceptions.RayError as error:
                    say(f"machine {addresses[i]} was lost: {str(error).splitlines()[0]}")
                    got = LOST
                if got and code in (0, LOST):
                    code = got
        if others:
            ray.wait([m.stop.remote() for m in others], num_returns=len(others), timeout=JOB["save_before"])
        return code, ranks
    except ray.exceptions.RayError as error:
        say(f"a machine was lost: {str(error).splitlines()[0]}")
        return LOST, ranks
    except Stop:
        for m in everyone:
            m.stop.remote()
        ray.wait(list(waiting), num_returns=len(waiting), timeout=JOB["save_before"])
        raise
    finally:
        remove_placement_group(group)


def is_lost(code):
    """Whether a rank crashed or was killed, or a machine is gone."""
    return code == LOST or code >= 128 and code not in INTERRUPTED


def main():
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    os.chdir(JOB["directory"])
    ray.init(address="auto", log_to_driver=True)
    code, ranks = LOST, []
    try:
        for number in range(1 + JOB["max_restarts"]):
            code, ranks = start(number)
            if not is_lost(code):
                break
            record("lost a machine", number, ranks)
    except Stop:
        code = STOPPED
    record("finished" if code == 0 else "stopped" if code == STOPPED else f"failed with exit code {code}", number, ranks)
    say(f"exit code {code}")
    sys.exit(code)


main()
