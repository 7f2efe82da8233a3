#!/bin/sh
# script_failures.sh: errors in a script have its line and the exit code of their cause.
. "$(dirname "$0")/e2e.sh"
config=$source/configs/sft.yaml

# script NAME: reads the script's text from standard input
script() {
    { echo "local nrl = require 'nrl'"; echo "local cfg = nrl.config '$config'"; cat; } >"$1"
}

run 2 run nowhere.lua
has err "nowhere.lua"
run 2 run "$config" optimizer.lr 5e-6
has err "key=value"

echo "local x = nil .. 'a'" | script mistake.lua
run 2 run mistake.lua
has err "mistake.lua:3: attempt to concatenate"

# all mistakes of a config, those of the file with its place, those of the script with its name
script config.lua <<'E2'
cfg.optimizer.learning_rate, cfg.train.epochs = 1, -3
local run = nrl.open(cfg)
E2
run 2 run config.lua out=a
has err "config.lua:4: "
has err "learning_rate"
has err "train.epochs"

# a hook's error stops the run, with its line
script hook.lua <<'E2'
local run = nrl.open(cfg)
run:on("step", function(e)
  if e.step == 2 then error "this is enough" end
end)
run:train()
E2
run 2 run hook.lua out=hook "$one_thread"
has err "hook.lua:5: this is enough"
is "steps before the error" "$(wc -l <hook/metrics.jsonl)" 2

# codes of causes, and of the script's own choice
script data.lua <<'E2'
nrl.write_jsonl("bad.jsonl", {{messages = "none"}})
cfg.data.train = "bad.jsonl"
nrl.open(cfg)
E2
run 65 run data.lua out=b
has err "bad.jsonl"
printf 'os.exit(nrl.exit.diverged)\n' | script code.lua
run 3 run code.lua
printf 'nrl.open(cfg)\nnrl.open(cfg)\n' | script twice.lua
run 2 run twice.lua out=twice "$one_thread"
has err "twice.lua:4: "
has err "another run is writing to 'twice'"
# a run that ended before its first step leaves nothing that its next start would have to replace
printf 'nrl.open(cfg)\nerror "mine"\n' | script early.lua
run 2 run early.lua out=early "$one_thread"
run 0 run "$config" out=early "$one_thread" train.epochs=0 train.steps=1
run 2 run "$config" out=early "$one_thread" train.epochs=0 train.steps=1
has err "out: 'early' already contains a run"
printf 'cfg.train.epochs, cfg.train.steps = 0, 1\nnrl.open(cfg):train()\nnrl.open(cfg):close()\n' | script again.lua
run 2 run again.lua out=again "$one_thread"
has err "again.lua:5: out: 'again' already contains a run that this script has opened before"
has err 'hint: nrl.open(config, {out = "again-2"})'

# a value that the records of the run have already is not written a second time
script names.lua <<'E2'
cfg.train.epochs, cfg.train.steps = 0, 2
local run = nrl.open(cfg)
run:on("step", function(e)
  run:report("loss", 1)
  run:report("mine", 2)
end)
run:train()
E2
run 0 run names.lua out=names "$one_thread" "loggers=[jsonl]"
is "records with a loss" "$(grep -c '"loss"' names/metrics.jsonl)" "$(grep -c '"grad_norm"' names/metrics.jsonl)"
is "records of another name" "$(grep -c '"mine"' names/metrics.jsonl)" "$(grep -c '"grad_norm"' names/metrics.jsonl)"
is "warnings of the name" "$(grep -c "'loss' is already a metric of the run; the reported value is not written" err)" 1
has err "hint: report it under another name, such as 'my_loss'"

# a name means one thing: a loss of the script may not be called like a plugin
script clash.lua <<'E2'
local function one() return 1 end
cfg.algorithm = nrl.loss {name = "sft", needs = {"logps"}, weight = one, loss = one}
nrl.open(cfg)
E2
run 2 run clash.lua out=clash
has err "clash.lua:5: "
has err "'sft' is both a loss of the script and a plugin"
has err "/algorithms/sft.so"
exit $failed
