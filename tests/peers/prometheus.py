"""prometheus.py NRL: Debian's Prometheus scrapes a run with the logger prometheus; every value that it has stored is one
of metrics.jsonl at that step. The run does not notice that the server comes, dies and returns. Skipped (77) where
there is no program prometheus."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from log_run import expected, write_inputs

MOST_SECONDS = 120
NAMES = ("loss", "grad_norm", "lr", "step_s")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def stored(port, query):
    """[(time, value)] of the only series"""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:
        return []
    assert len(result) <= 1, result
    return [(at, float(value)) for at, value in result[0]["values"]] if result else []


def serve(folder, port):
    return subprocess.Popen(["prometheus", "--config.file=" + os.path.join(folder, "prometheus.yml"),
                             "--storage.tsdb.path=" + os.path.join(folder, "store"),
                             f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def wait_for_samples(port, n, run):
    end = time.time() + MOST_SECONDS
    while len(set(value for _, value in stored(port, "nrl_step[10m]"))) < n:
        assert time.time() < end and run.poll() is None, "waited in vain for samples"
        time.sleep(0.2)


def main(nrl):
    if not shutil.which("prometheus"):
        print("skipped: there is no program prometheus (Debian: prometheus)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        run_port, port = free_port(), free_port()
        write_inputs(folder, "{name: prometheus, port: %d}" % run_port)
        with open(os.path.join(folder, "prometheus.yml"), "w") as f:
            f.write("scrape_configs: [{job_name: nrl, scrape_interval: 200ms, scrape_timeout: 200ms, "
                    "static_configs: [{targets: ['127.0.0.1:%d']}]}]\n" % run_port)
        run = subprocess.Popen([nrl, "run", "run.yaml", "train.steps=1000000", "eval.every=0", "checkpoint.every=0"],
                               cwd=folder, stdout=subprocess.DEVNULL)
        server = serve(folder, port)
        try:
            wait_for_samples(port, 10, run)
            server.kill()
            server.wait()
            server = serve(folder, port)
            wait_for_samples(port, 20, run)
            found = {name: dict(stored(port, f"nrl_{name}[10m]")) for name in NAMES + ("step",)}
        finally:
            server.kill()
            server.wait()
            run.send_signal(signal.SIGINT)
            code = run.wait(60)
        assert code == 130, code
        known = expected(os.path.join(folder, "run", "metrics.jsonl"))
        for name in NAMES:
            assert len(found[name]) >= 20, (name, len(found[name]))
            for at, value in found[name].items():
                assert (int(found["step"][at]), value) in known[name], (name, found["step"][at], value)
        print(f"{len(found['step'])} scrapes, {len(NAMES)} values each, all as in metrics.jsonl")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
