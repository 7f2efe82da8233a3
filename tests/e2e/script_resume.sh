#!/bin/sh
# script_resume.sh: a scripted run that is told to stop saves, exits with 75, and goes on with the same
# losses and its own state.
. "$(dirname "$0")/e2e.sh"

cat >long.lua <<E2
local nrl = require "nrl"
local run = nrl.open(nrl.config "$source/configs/sft.yaml")
run.state.seen = run.state.seen or 0
print("starts with", run.state.seen)
run:on("step", function(e)
  run.state.seen = run.state.seen + 1
  if e.step == tonumber(arg[1]) then os.execute("kill -TERM " .. arg[2]) end
end)
run:train()
print("ends with", run.state.seen)
E2
settings="train.epochs=2 checkpoint.every=1000 eval.every=0"
losses() { sed 's/.*"loss": *\([^,}]*\).*/\1/' "$1/metrics.jsonl"; }

run 0 run long.lua 0 0 out=whole $settings "$one_thread"
has out "ends with	32"

# the script's own process gets the signal at step 9
sh -c 'exec "$0" run long.lua 9 $$ out=cut '"$settings"' "$1"' "$nrl" "$one_thread" >out 2>err
is "exit code after SIGTERM" $? 75
has err "step 9"
run 0 run long.lua 0 0 out=cut resume=auto $settings "$one_thread"
has out "starts with	9"
has out "ends with	32"
losses whole >a
losses cut >b
cmp a b || is "losses after resuming" different equal
exit $failed
