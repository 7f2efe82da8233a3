"""An MLflow server has every value of metrics.jsonl and the parameters of the config; also when it dies in the middle of a
run and returns, and after a resume. A server that is absent does not stop a run.

usage: log_mlflow.py NRL (skips with 77 where this Python has no mlflow)
"""
import math, os, signal, socket, subprocess, sys, tempfile, time, urllib.request

try:
    import mlflow.server  # noqa: F401
    from mlflow.tracking import MlflowClient
except ImportError:
    print("skipped: no mlflow in this Python")
    sys.exit(77)
from log_run import expected, write_inputs

# Steps 3 and 6 wait for the test.
SCRIPT = """
local nrl = require "nrl"
local run = nrl.open(nrl.config "run.yaml")
run:on("step", function(e)
  if e.step ~= 3 and e.step ~= 6 then return end
  io.open("at" .. e.step, "w"):close()
  for i = 1, 1200 do
    local f = io.open("go" .. e.step)
    if f then f:close() return end
    os.execute "sleep 0.1"
  end
end)
run:train()
"""
MOST_SECONDS = 120  # for a start of the server on a busy machine


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, is_so):
    end = time.time() + MOST_SECONDS
    while not is_so():
        assert time.time() < end, "waited in vain for " + what
        time.sleep(0.1)


def answers(url):
    try:
        return urllib.request.urlopen(url + "/health", timeout=5).status == 200
    except OSError:
        return False


def serve(folder, url, log):
    port = url.rsplit(":", 1)[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port, "--workers", "1",
         "--backend-store-uri", "sqlite:///" + os.path.join(folder, "store.db"),
         "--default-artifact-root", os.path.join(folder, "artifacts")],
        stdout=log, stderr=log, start_new_session=True)
    wait_for("the server", lambda: answers(url))
    return server


def stop(server):
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def of_server(url, name):
    client = MlflowClient(url)
    experiment = client.get_experiment_by_name("nrl")
    runs = [r for r in client.search_runs([experiment.experiment_id]) if r.info.run_name == name]
    assert len(runs) == 1, runs
    values = {}
    for key in runs[0].data.metrics:
        values[key] = {(m.step, m.value) for m in client.get_metric_history(runs[0].info.run_id, key)}
    return runs[0], values


def compare(folder, url, name):
    run, got = of_server(url, name)
    want = expected(os.path.join(folder, "run/metrics.jsonl"))
    assert got.keys() == want.keys(), got.keys() ^ want.keys()
    for key, points in want.items():
        assert sorted(s for s, _ in got[key]) == sorted(s for s, _ in points), (key, got[key], points)
        for a, b in zip(sorted(got[key]), sorted(points)):
            assert math.isclose(a[1], b[1], rel_tol=1e-12), (key, a, b)  # a database may round the last digit
    return run


def main(nrl):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "server.log"), "w") as log:
        at = lambda name: os.path.join(folder, name)
        url = "http://127.0.0.1:%d" % free_port()
        write_inputs(folder, "{name: mlflow, url: '%s'}" % url)
        with open(at("run.lua"), "w") as f:
            f.write(SCRIPT)
        server = serve(folder, url, log)
        try:
            run = subprocess.Popen([nrl, "run", "run.lua"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
            wait_for("step 3", lambda: os.path.exists(at("at3")))
            stop(server)
            open(at("go3"), "w").close()
            wait_for("step 6", lambda: os.path.exists(at("at6")))
            server = serve(folder, url, log)
            open(at("go6"), "w").close()
            errors = run.communicate(timeout=MOST_SECONDS)[1]
            assert run.returncode == 0, errors
            assert "could not be sent" not in errors and "missing" not in errors, errors
            on_server = compare(folder, url, "run")
            assert on_server.info.status == "FINISHED", on_server.info.status
            assert on_server.data.params["train.steps"] == "6", on_server.data.params
            assert on_server.data.params["optimizer.lr"] == "0.001", on_server.data.params

            done = subprocess.run([nrl, "run", "run.yaml", "resume=auto", "train.steps=8"], cwd=folder, env=environment,
                                  capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            compare(folder, url, "run")
        finally:
            stop(server)
        begun = time.time()
        done = subprocess.run([nrl, "run", "run.yaml", "out=alone"], cwd=folder, env=environment, capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        assert "could not be sent: %s" % url in done.stderr, done.stderr
        assert time.time() - begun < 15, "an absent server delays the end of a run"
    print("ok")


main(sys.argv[1])
