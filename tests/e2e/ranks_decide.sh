#!/bin/sh
# ranks_decide.sh: all ranks decide alike on events that only one rank sees: a loss that is not a number, a hook of
# rank 0, a signal, and calls that differ.
. "$(dirname "$0")/e2e.sh"
mkdir data && rows 64 >data/train.jsonl && cp data/train.jsonl train.jsonl
experiment 'collective: gloo' | sed 's/checkpoint: .*/checkpoint: {every: 0}/' >c.yaml

# ranks N ARGUMENT...: nrl launch; output in out and err
ranks() {
    expected=$1 n=$2
    shift 2
    OMP_NUM_THREADS=1 "$nrl" launch -n "$n" -- run "$@" >out 2>err
    code=$?
    [ $code -eq "$expected" ] && return
    echo "launch -n $n run $*: exit $code, expected $expected"
    tail -n 20 out err
    failed=1
}
steps() {
    grep -c '"loss"' "$1/metrics.jsonl"
}

# A loss that is NaN on rank 1 alone, in step 3 of 6.
cat >nan.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "c.yaml"
local steps = 0
nrl.loss { name = "poisoned", needs = {"logps"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b)
    local sum = -(b:logps() * b:mask()):sum()
    steps = steps + 1
    return nrl.rank == 1 and steps == 3 and sum * (0 / 0) or sum
  end }
cfg.algorithm = "poisoned"
cfg.train.micro_batch_tokens = 512
nrl.open(cfg):train()
print "finished"
LUA
ranks 3 2 nan.lua train.nan=stop out=stopped
has err "loss nan"
ranks 0 2 nan.lua train.nan=skip out=skipped parallel=fsdp
has err "step 3 skipped"
is "how often it is said" "$(grep -c 'step 3 skipped' err)" 1
is "records of the run that leaves it out" "$(steps skipped)" 6
has out finished
is "ranks that print" "$(grep -c finished out)" 1

# A hook of every rank stops, but only rank 0's decides.
cat >stop.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "c.yaml"
local run = nrl.open(cfg)
run:on("step", function(e)
  if nrl.rank == 1 and e.step == 2 then run:stop "rank 1 wants to" end
  if nrl.rank == 0 and e.step == 4 then run:stop "rank 0 wants to" end
end)
run:train()
LUA
ranks 0 3 stop.lua out=hooks
is "steps until rank 0 stopped" "$(steps hooks)" 4

# One rank gets the signal: all save and end with the code of a run that may be resumed.
cat >signal.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "c.yaml"
cfg.train.steps = 100000
cfg.checkpoint.every = 100000
local run = nrl.open(cfg)
run:on("step", function(e)
  if nrl.rank == 1 and e.step == 5 then os.execute("kill -TERM $PPID") end
end)
run:train()
LUA
ranks 75 2 signal.lua out=signalled
has err "state saved in signalled/checkpoints/step-0000000"

# Calls that differ are an error that names both, not a hang.
cat >calls.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "c.yaml"
local run = nrl.open(cfg)
if nrl.rank == 1 then run:export "elsewhere" else run:train() end
LUA
ranks 2 2 calls.lua out=calls
has err "rank 1 called export"

# A script that fails on one rank ends the others at once.
cat >fails.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "c.yaml"
local run = nrl.open(cfg)
for e in run:steps() do
  if nrl.rank == 1 and e.step == 3 then error "rank 1 has had enough" end
end
LUA
ranks 2 2 fails.lua out=fails
has err "rank 1 has had enough"

# A script may open several runs, one after the other and at once; another number of ranks goes on from one.
cat >several.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "c.yaml"
cfg.checkpoint.every = 3
do
  local run <close> = nrl.open(cfg, {out = "several/1"})
  run:train()
end
local one, two = nrl.open(cfg, {out = "several/2"}), nrl.open(cfg, {out = "several/3"})
one:train()
two:train()
one:close()
print(two:evaluate().loss)
LUA
ranks 0 2 several.lua data.eval=train.jsonl
is "steps of the third run" "$(steps several/3)" 6
is "losses of runs that are alike" "$(grep -o '"loss":[^,]*' several/1/metrics.jsonl)" \
    "$(grep -o '"loss":[^,]*' several/3/metrics.jsonl)"
next_port
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$nrl" run several.lua data.eval=train.jsonl overwrite=true >out$rank 2>err$rank &
done
wait
is "steps of the third run, with rank 0's store" "$(steps several/3)" 6
is "what rank 0's store leaves on stderr" "$(cat err0 err1)" ""
rm -rf again && mkdir again && cp -r several/3/checkpoints several/3/config.yaml again
OMP_NUM_THREADS=1 "$nrl" run again/config.yaml out=again resume=auto >out 2>err || tail -n 20 out err
has out "nothing left to do"

# A plan needs no ranks: `nrl check` says what each of four would hold.
run 0 check c.yaml out=planned 'parallel={data: {name: fsdp, size: 4}}'
has out "4 ranks, not joined"
has out "full shard over 4 ranks"
has out "MiB a rank"
run 2 run c.yaml out=planned 'parallel={data: {name: fsdp, size: 4}}'
has err "requires 4 ranks, but there is 1"

# Another config on one rank: named with both values.
next_port
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$nrl" run c.yaml out=differ >out0 2>err0 &
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$nrl" run c.yaml out=differ train.seed=7 >out1 2>err1
code=$?
wait $!
other=$?
# whoever compares first says 2; the other may do so too, or hear that a rank has left
is "exit codes of ranks with different configs: $code $other" \
    "$(((code == 2 || other == 2) && (code == 2 || code == 4) && (other == 2 || other == 4)))" 1
has err1 'train.seed differs'
has err0 'train.seed differs'
exit $failed
