"""kubernetes.py NRL: the manifests that `nrl cluster script` writes are valid by the schemas of Kubernetes (kubernetes-validate), and the
JobSet of several groups by the fields of jobset.x-k8s.io/v1alpha2, with each of its Jobs by the schema of a Job."""
import os
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BASE = """model: {path: /data/model}
data: {train: /data/train.jsonl}
train: {steps: 10}
optimizer: {name: adamw, lr: 1e-4}
out: /data/runs/SFT_1
"""
FULL = """cluster: {type: kubernetes, nodes: 3, gpus_per_node: 8, cpus_per_rank: 4, memory: 200G, time: "24:00:00", image: "a/b:1",
  namespace: training, secret: job, environment: {A: "x 'y'", N: 3, B: true}, mounts: ["claim:/data", "other:/more"],
  setup: ["echo 'hello \\"you\\"'"], directory: /data}
"""
SMALL = "cluster: {type: kubernetes, image: nrl}\n"
GROUPS = """cluster: {type: kubernetes, image: nrl, namespace: training, secret: job, gpus_per_node: 1, mounts: ["claim:/data"], groups: {
  trainer: {ranks: [4, 8, 8], memory: 200G}, judge: {nodes: 2, gpus_per_node: 0, image: "judge:2", command: "serve --port 8000"}}}
"""


def closed(required, **properties):
    """An object with these fields and no other ones."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
COUNT = {"type": "integer", "minimum": 0}
JOB_SET = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"}, kind={"const": "JobSet"},
    metadata=closed(["name"], name=NAME, namespace=NAME),
    spec=closed(
        ["replicatedJobs"],
        network=closed([], enableDNSHostnames={"type": "boolean"}, subdomain=NAME, publishNotReadyAddresses={"type": "boolean"}),
        failurePolicy=closed([], maxRestarts=COUNT),
        successPolicy=closed(["operator"], operator={"enum": ["All", "Any"]}, targetReplicatedJobs={"type": "array", "items": NAME}),
        replicatedJobs={"type": "array", "items": closed(["name", "template"], name=NAME, replicas=COUNT,
                                                         template=closed(["spec"], spec={"type": "object"}))}))


def manifest(section):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(BASE + section)
        text = subprocess.run([sys.argv[1], "cluster", "script", path], check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


for section, nodes in ((FULL, 3), (SMALL, 1)):
    service, job = manifest(section)
    for document in (service, job):
        kubernetes_validate.validate(document, "1.31", strict=True)
    assert service["spec"]["clusterIP"] == "None"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == nodes
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"][2]
    name = job["metadata"]["name"]
    assert all(f"{name}-{i}.{name}:" in command for i in range(nodes)), command
    print(name, "valid")

(jobs,) = manifest(GROUPS)
jsonschema.validate(jobs, JOB_SET)
spec, name, found = jobs["spec"], jobs["metadata"]["name"], {}
for job in spec["replicatedJobs"]:
    kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{name}-{job['name']}-0"}, **job["template"]},
                                 "1.31", strict=True)
    pod = job["template"]["spec"]["template"]["spec"]["containers"][0]
    group = {e["name"]: e.get("value") for e in pod["env"]}["NRL_GROUP"]
    limits = pod.get("resources", {}).get("limits", {})
    found[job["name"]] = (group, job["template"]["spec"]["completions"], limits.get("nvidia.com/gpu"), pod["image"], pod["command"][2])
    assert job["template"]["spec"]["backoffLimit"] == 0  # the JobSet starts all of its Jobs again
assert [(k, *v[:4]) for k, v in found.items()] == [("trainer-0", "trainer", 1, 4, "nrl"), ("trainer-1", "trainer", 2, 8, "nrl"),
                                                   ("judge", "judge", 2, None, "judge:2")], found
assert found["judge"][4] == "serve --port 8000" and '"$((JOB_COMPLETION_INDEX + 1))"' in found["trainer-1"][4]
hosts = [f"{name}-trainer-0-0-0.{name}:4", f"{name}-trainer-1-0-0.{name}:8", f"{name}-trainer-1-0-1.{name}:8"]
assert spec["network"]["subdomain"] == name and f"--nodes {','.join(hosts)} " in found["trainer-0"][4], found
assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["trainer-0", "trainer-1"]}
print(name, "with groups valid")
