#!/bin/sh
# ranks_killed.sh: on each axis of the mesh, and with each way to divide the data, a rank is killed in the middle of a run. All
# other ranks end and name it. The run that continues has the losses, norms and model of a run that was not interrupted,
# bit for bit.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 64 >train.jsonl
cat >killed.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "config.yaml")
run:on("step", function(e)
  if nrl.rank == 1 and e.step == 5 and not io.open "was_killed" then
    io.open("was_killed", "w"):close()
    os.execute "kill -9 $PPID"
  end
end)
run:train()
LUA

# killed N PARALLEL: rank 1 of N is killed after step 5 of 8
killed() {
    rm -rf whole cut
    : >was_killed # not this time
    set -- "$1" "parallel=$2" train.steps=8 checkpoint.keep=9
    n=$1
    shift
    run 0 launch -n "$n" -- run killed.lua out=whole "$@"
    numbers whole/metrics.jsonl >expected.txt
    is "steps with $1" "$(wc -l <expected.txt | tr -d ' ')" 8
    rm was_killed
    run 137 launch -n "$n" --grace 1 -- run killed.lua out=cut "$@"
    has err "rank 1"
    run 0 launch -n "$n" -- run killed.lua out=cut "$@" resume=auto
    has out "resume     after step "
    compare cut 0
    cmp whole/model/model.safetensors cut/model/model.safetensors || is "the model with $1" "another" "the same"
}

experiment | sed "s|models/llama|models/qwen3|" >config.yaml
killed 2 ddp
killed 2 '{data: {name: ddp, sync_every: 3}}'
killed 2 '{data: {name: ddp, reproducible: 4}}'
killed 2 fsdp
killed 2 '{data: {name: fsdp, shard: grads}}'
killed 4 '{data: {name: fsdp, shard_size: 2}}'
killed 2 '{tensor: 2}'
killed 2 '{tensor: {size: 2, sequence: true}}'
killed 2 '{context: 2}'
killed 3 '{context: {size: 3, kind: ring}}'
killed 2 '{pipeline: {size: 2, schedule: interleaved}}'
killed 4 '{data: fsdp, pipeline: {size: 2, schedule: zero_bubble}}'
experiment | sed "s|path: .*models/llama|path: $source/tests/data/experts/qwen3_moe|" >config.yaml
for _ in 1 2 3 4; do cat "$source/tests/data/experts/qwen3_moe/rows.jsonl"; done >train.jsonl
killed 2 '{experts: 2}'
killed 4 '{data: fsdp, experts: 2}'
exit $failed
