"""ray.py NRL: jobs of `nrl cluster` on a real Ray cluster: several simulated machines on this one, of which one is removed
in the middle; and the files for its autoscaler, by Ray's own schema."""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.pop(0)  # this folder has a file of the name ray
try:
    import jsonschema
    import yaml
    import ray
    from ray import autoscaler
    from ray.cluster_utils import Cluster
    import ray.dashboard.modules.job.cli  # noqa: F401: ray[default]
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

nrl = sys.argv[1]
source = os.environ["NRL_TEST_SOURCE"]
os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAY_JOB_STOP_WAIT_TIME_S"] = "60"  # for a run to save on a busy machine; the head of the cluster reads it
STEPS = 400

PROVIDERS = {
    "aws": "{type: aws, region: us-west-2, machine: p4d.24xlarge, head_machine: m5.large}",
    "gcp": "{type: gcp, region: us-west1, availability_zone: us-west1-a, project_id: mine, machine: n1-standard-2}",
    "azure": "{type: azure, location: westus2, resource_group: mine, machine: Standard_D2s_v3, ssh_user: me}",
}


def call(*words, ok=True):
    out = subprocess.run([nrl, "cluster", *words], capture_output=True, text=True, check=False)
    assert not ok or out.returncode == 0, out.stdout + out.stderr
    return out.stdout


def config(folder, section):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""defaults: {source}/configs/sft.yaml
train: {{epochs: 0, steps: {STEPS}}}
checkpoint: {{every: 20, keep: 2}}
eval: {{every: 0}}
parallel: {{data: {{name: fsdp, reproducible: 4}}}}
out: {folder}/out
cluster: {section}
""")
    return path


def schema(folder):
    with open(os.path.join(os.path.dirname(autoscaler.__file__), "ray-schema.json"), encoding="utf-8") as f:
        rules = json.load(f)
    for name, provider in PROVIDERS.items():
        section = f"{{type: ray, gpus_per_node: 1, image: 'a/b:1', setup: ['echo \"1\"'], provider: {provider}, groups: {{" \
            "trainer: {ranks: [4, 8, 16]}, judge: {nodes: 2, gpus_per_node: 0, machine: small, command: x}}}"
        scale = yaml.safe_load(call("autoscaler", config(folder, section)))
        jsonschema.validate(scale, rules)
        types = scale["available_node_types"]
        assert {k: v["max_workers"] for k, v in types.items()} == {"head": 0, "trainer": 3, "judge": 2}, types
        assert "small" in str(types["judge"]["node_config"]) and "small" not in str(types["trainer"]["node_config"]), types
        assert scale["max_workers"] == 5 and scale["provider"]["type"] == name and "machine" not in scale["provider"]
        print(f"{name}: valid by Ray's schema")


def steps(folder):
    try:
        with open(f"{folder}/out/metrics.jsonl", encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return {}
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def wait(what, seconds=240):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, "waited too long"
        time.sleep(0.5)


def cancel(folder, address):
    """A job that is cancelled saves its state."""
    where = os.path.join(folder, "cancelled")
    os.mkdir(where)
    path = config(where, f"{{type: ray, address: '{address}', directory: {where}, logs: {where}/jobs}}")
    with open(path, encoding="utf-8") as f:
        text = f.read().replace(f"steps: {STEPS}", "steps: 100000").replace("every: 20", "every: 0")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    call("submit", path)
    wait(lambda: len(steps(where)) >= 40)
    call("cancel", path)
    wait(lambda: json.loads(call("status", path, "--json"))["state"] not in ("PENDING", "RUNNING"))
    # the driver may be over before the ranks have saved
    wait(lambda: os.path.isdir(f"{where}/out/checkpoints/step-{max(steps(where)):08}"), 60)
    print("cancelled:", json.loads(call("status", path, "--json"))["state"], sorted(os.listdir(f"{where}/out/checkpoints")))


def job(folder):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": True, "dashboard_port": 0})
    try:
        address = "http://" + cluster.head_node.webui_url
        os.environ["RAY_ADDRESS"] = cluster.address
        machines = [cluster.add_node(num_cpus=n) for n in (1, 3)]
        cluster.add_node(num_cpus=1, resources={"judging": 1})
        path = config(folder, f"{{type: ray, min_nodes: 1, wait_for_nodes: 5, max_restarts: 3, address: '{address}',"
                              f" directory: {folder}, logs: {folder}/jobs, environment: {{OMP_NUM_THREADS: 1}}, groups: {{trainer: {{ranks: [1, 3]}},"
                              " judge: {resources: {judging: 1}, command: 'echo $NRL_GROUP >>judge.txt; exec sleep 1000'}}}")
        print(call("submit", path).splitlines()[0])
        wait(lambda: len(steps(folder)) >= 40 and os.path.exists(f"{folder}/jobs/out.state.json"))
        status = json.loads(call("status", path, "--json"))
        assert status["state"] == "RUNNING" and status["step"] > 0, status
        assert status["resources"]["CPU"] == {"total": 5, "available": 0, "percent": 100}, status
        print("running on 5 processors, one of them for another group:", status["resources"]["CPU"])
        with open(f"{folder}/judge.txt", encoding="utf-8") as f:
            assert f.read() == "judge\n"
        again = subprocess.run([nrl, "cluster", "submit", path], capture_output=True, text=True, check=False)
        assert again.returncode == 2 and "of this run is RUNNING" in again.stderr, again.stderr
        cluster.remove_node(machines[1], allow_graceful=False)
        print(f"removed a machine at step {max(steps(folder))}")
        wait(lambda: json.loads(call("status", path, "--json"))["state"] not in ("PENDING", "RUNNING"))
        status, logs = json.loads(call("status", path, "--json")), call("logs", path)
        assert status["state"] == "SUCCEEDED", (status, logs)
        with open(f"{folder}/judge.txt", encoding="utf-8") as f:
            assert f.read() == "judge\n" * 2  # it starts again with the ranks
        assert "was lost" in logs and "start 1 on" in logs, logs
        assert len(steps(folder)) == STEPS
        print(call("status", path).strip())
        cancel(folder, address)
        return steps(folder)
    finally:
        ray.shutdown()
        cluster.shutdown()


with tempfile.TemporaryDirectory() as folder:
    schema(folder)
    found = job(folder)
    expected = os.path.join(folder, "whole")
    os.mkdir(expected)
    subprocess.run([nrl, "run", config(expected, "{type: ray}"), "-q", "backend={name: cpu, threads: 1}"], check=True)
    assert found == steps(expected)
    print(f"{STEPS} losses on 4 ranks, then on 1: the bits of one rank that was not interrupted")
