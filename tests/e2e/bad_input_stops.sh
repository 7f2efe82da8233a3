#!/bin/sh
# bad_input_stops.sh: runs that end early because of numbers that are not finite, signals or a kill. State is saved if
# possible, and `nrl resume` continues as if the run had not been interrupted.
. "$(dirname "$0")/e2e.sh"

rows 32 >train.jsonl
experiment >run.yaml
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# ---- NaN policy: one weight of the final norm is infinite ----
golden infinite
at=$(($(wc -c <infinite/model.safetensors) - 4))
printf '\000\000\200\177' | dd of=infinite/model.safetensors conv=notrunc bs=1 seek=$at 2>dd
run 3 run run.yaml model.path=infinite
has err "error: step 1: loss nan, gradient norm nan"
has err "hint: nothing has been updated yet, so check the weights and the rows; train.nan: skip"
run 3 run run.yaml model.path=infinite train.nan=skip train.nan_limit=3 out=skipped
has err "warning: step 1 skipped: loss nan"
has err "warning: step 2 skipped: loss nan"
has err "step 3: loss nan, gradient norm nan: 3 steps in a row were skipped (train.nan_limit)"
has skipped/metrics.jsonl '"loss": "NaN"'
run 3 run run.yaml model.path=infinite train.nan=skip train.nan_limit=7 out=all_skipped
has err "none of 6 steps updated the weights, because each had a loss or gradient that is not finite"
is "records of skipped steps" "$(grep -c '"loss": "NaN"' all_skipped/metrics.jsonl)" 6

# ---- signals: the step is finished, its state saved ----
# stop SIGNAL CODE FOLDER: a run that would take long, stopped after its first records
stop() {
    "$nrl" run run.yaml train.steps=100000 checkpoint.every=0 checkpoint.export=none out="$3" \
        >out 2>err &
    pid=$!
    await test -s "$3/metrics.jsonl"
    kill "-$1" $pid
    finished $pid "$2" "a run after $1"
    steps=$(grep -c '"loss"' "$3/metrics.jsonl")
    has err "after step $steps: state saved in $3/checkpoints/step-"
}
run 0 run run.yaml train.steps=1000 checkpoint.every=0 checkpoint.export=none out=whole
for signal in TERM:75 USR1:75 INT:130; do
    folder=by_${signal%:*}
    stop "${signal%:*}" "${signal#*:}" "$folder"
    run 0 resume "$folder" train.steps=$((steps + 3)) checkpoint.every=1
    has out "resume     after step "
    is "steps after $signal" "$(grep -c '"loss"' "$folder/metrics.jsonl")" $((steps + 3))
    losses "$folder" | head -n 1000 >a
    losses whole | head -n "$(wc -l <a)" >b
    cmp -s a b || is "losses after $signal" other "those of a run in one piece"
done

# ---- a second SIGINT: the step is not waited for, nothing is saved ----
cat >busy.lua <<'E2'
local nrl = require "nrl"
local run = nrl.open(nrl.config "run.yaml")
run:on("step", function(e)
  io.open("reached", "w"):close()
  local t = os.time()
  while os.time() < t + 60 do end
end)
run:train()
E2
"$nrl" run busy.lua out=twice train.steps=2 checkpoint.every=0 >out 2>err &
pid=$!
await test -e reached
began=$(cut -d. -f1 /proc/uptime)
kill -INT $pid
await heard $pid
kill -INT $pid
finished $pid 130 "a run after two SIGINT"
[ $(($(cut -d. -f1 /proc/uptime) - began)) -lt 50 ] || is "end after two SIGINT" late "at once"
[ -e twice/checkpoints ] && is "checkpoint after two SIGINT" present absent

# ---- a kill: the newest complete checkpoint counts ----
"$nrl" run run.yaml train.steps=100000 checkpoint.every=5 out=killed >out 2>err &
pid=$!
# any of step 10 or later: on a fast machine step 10 itself may be pruned between two looks
saved_some() { ls killed/checkpoints | grep -qE '^step-0*[1-9][0-9]+$'; }
await saved_some
kill -9 $pid
wait $pid 2>dd
mkdir killed/checkpoints/step-99999999 # a folder without a manifest is no checkpoint
: >killed/checkpoints/step-99999999/rank-00000.nrlc
run 2 run run.yaml out=killed
has err "already contains a run"
newest=$(ls killed/checkpoints | grep -v 99999999 | grep -v tmp | tail -n 1)
run 0 resume killed train.steps="$(expr "${newest#step-}" + 2)"
has err "skipped a damaged checkpoint"
has out "saved killed/checkpoints/step-"
run 0 resume killed
has out "nothing left to do"

# ---- what cannot be resumed ----
run 2 resume nowhere
run 2 resume killed train.seed=7
has err "the checkpoint was written by a run with other settings:"
has err "seed: was 1, is now 7"
last=$(ls -d killed/checkpoints/step-0* | tail -n 1)
printf 'x' | dd of="$last/rank-00000.nrlc" conv=notrunc bs=1 seek=1000 2>dd
run 5 run run.yaml out=killed resume="$last"
has err "$last"
exit $failed
