#!/bin/sh
# trackers.sh: the loggers mlflow and wandb, with a server and a package of this test: what MLflow refuses in a config does not
# keep metrics from it; W&B shows a run that was stopped or diverged as failed, and one run where its process ended meanwhile.
. "$(dirname "$0")/e2e.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
rows 24 >train.jsonl

# ---- wandb ----
mkdir -p packages/wandb
cat >packages/wandb/__init__.py <<'P'
import os

def end_once(name):
    if os.environ.get("ENDS") and not os.path.exists(name):
        open(name, "w").close()
        os._exit(1)

class Run:
    summary = {}
    def define_metric(self, *a, **k): pass
    def log(self, values):
        step = values["train/global_step"]
        if step == 2:
            end_once("ended-later")
        with open(os.path.join(self.out, "logged"), "a") as f:
            f.write("%s %s %d\n" % (self.id, self.resume, step))
    def finish(self, exit_code=None):
        with open(os.path.join(self.out, "ended"), "w") as f:
            f.write("%s %s" % (exit_code, self.summary.get("finished")))

def init(**options):
    end_once("ended-at-start")
    run = Run()
    run.out, run.resume = options["dir"], options.get("resume")
    run.id = options.get("id") or os.urandom(4).hex()
    return run
P
experiment "loggers: [wandb]" >run.yaml
PYTHONPATH=$work/packages
export PYTHONPATH
run 0 run run.yaml out=exported
run 0 run run.yaml out=trained checkpoint.export=none
cat >stopped.lua <<'L'
local nrl = require "nrl"
local cfg = nrl.config "run.yaml"
cfg.out = "stopped"
local run = nrl.open(cfg)
run:on("step", function(e) if e.step == 3 then error "enough" end end)
run:train()
L
"$nrl" run stopped.lua >out 2>err && is "a script with an error" good failed
run 3 run "$source/configs/sft.yaml" "$one_thread" eval.every=0 optimizer.lr=10 train.epochs=0 train.steps=8 schedule=constant \
    'loggers=[wandb]' out=diverged
for one in 'exported 0 True' 'trained 0 True' 'stopped 1 None' 'diverged 1 None'; do
    is "exit code of wandb" "${one%% *} $(cat "${one%% *}/ended")" "$one"
done

# A process that ends is started again and continues its run of W&B, not the one whose id an earlier run left in `out`.
cat >ends.lua <<'L'
local cfg = require "nrl".config "run.yaml"
cfg.out, cfg.overwrite = "ends", true
local run = require "nrl".open(cfg)
run:on("step", function(e)
  for _ = 1, e.step == 4 and 6000 or 0 do -- the run must not end before the process has
    if io.open "ended-later" then break end
    os.execute "sleep 0.05"
  end
end)
run:train()
L
run 0 run run.yaml out=ends
cp ends/wandb/nrl-run-id earlier
rm ends/logged
ENDS=1 run 0 run ends.lua
[ -e ended-at-start ] && [ -e ended-later ] || is "the process of wandb" "not ended" ended
! cmp -s earlier ends/wandb/nrl-run-id || is "the run of W&B that was overwritten" continued kept
lacks err "could not be sent"
is "runs of W&B" "$(cut -d ' ' -f 1 ends/logged | sort -u | tr '\n' ' ')" "$(cat ends/wandb/nrl-run-id) "
is "steps before and after the process ended" "$(cut -d ' ' -f 2-3 ends/logged | uniq | tr '\n' ,)" \
    "None 1,allow 2,allow 3,allow 4,allow 5,allow 6,"

# ---- mlflow ----
[ -e "$NRL_PLUGIN_PATH/loggers/mlflow.so" ] || { echo "skipped: built without libcurl"; exit $((failed ? failed : 77)); }
# A server that keeps what it gets in the file `got`, and refuses names as MLflow does, and all parameters if there is a file `strict`.
cat >server.py <<'P'
import http.server, json, os, re

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def reply(self, status, tree):
        body = json.dumps(tree).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply(200, {"experiment": {"experiment_id": "0"}})
    def do_POST(self):
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [p["key"] for p in sent.get("params", []) + sent.get("metrics", [])]
        bad = [n for n in names if not re.fullmatch(r"[/\w.\- ]*", n) or os.path.normpath(n) != n]
        if bad or ("params" in sent and os.path.exists("strict")):
            return self.reply(400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "no %s" % bad})
        with open("got", "a") as f:
            f.write("".join(n + "\n" for n in names))
        self.reply(200, {"run": {"info": {"run_id": "r"}}})

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as f:
    f.write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
P
python3 server.py &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
await test -s port
set -- run run.yaml "loggers=[{name: mlflow, url: 'http://127.0.0.1:$(cat port)'}]" "lora={rank: 2, rank_pattern: {'layers\\.0\\..*': 4}}"
run 0 "$@" out=odd
is "what mlflow reports" "$(cat err)" ""
has got "adapter.rank_pattern.layers_.0_.._"
is "losses on the server" "$(grep -c '^loss$' got)" 6
: >strict
rm got
run 0 "$@" out=refused
has err "logger 'mlflow': the server refused options of the config: "
is "losses on a server that refuses options" "$(grep -c '^loss$' got)" 6
exit $failed
