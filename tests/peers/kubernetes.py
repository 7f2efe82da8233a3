"""kubernetes.py NRL: the manifests that `nrl cluster script` writes are valid by the schemas of Kubernetes (kubernetes-validate)."""
import os
import subprocess
import sys
import tempfile

try:
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

for section, nodes in ((FULL, 3), (SMALL, 1)):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(BASE + section)
        text = subprocess.run([sys.argv[1], "cluster", "script", path], check=True, capture_output=True, text=True).stdout
    service, job = list(yaml.safe_load_all(text))
    for document in (service, job):
        kubernetes_validate.validate(document, "1.31", strict=True)
    assert service["spec"]["clusterIP"] == "None"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == nodes
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"][2]
    name = job["metadata"]["name"]
    assert all(f"{name}-{i}.{name}:" in command for i in range(nodes)), command
    print(name, "valid")
