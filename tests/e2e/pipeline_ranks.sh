#!/bin/sh
# pipeline_ranks.sh: any other ranks continue from a checkpoint of stages, and stages from a checkpoint of others,
# with the same losses; the exported model is complete. If a stage is killed or its loss fails, all others end and
# name it.
. "$(dirname "$0")/e2e.sh"
export OMP_NUM_THREADS=1
rows 64 >train.jsonl
experiment >config.yaml
echo 'loggers: [console, jsonl]' >>config.yaml
set -- train.steps=12 checkpoint.every=6 checkpoint.keep=0 train.micro_batch_tokens=64

stages='parallel={data: ddp, pipeline: 2}'
sharded='parallel={data: fsdp, pipeline: 2}'
loss() { sed -n 's/.*"step": 12,.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# near NAME: its last loss is that of one rank
near() {
    echo "$(loss "$1") $expected_loss" | awk '{ d = $1 - $2; exit NF < 2 || d * d > 1e-12 * $2 * $2 }' ||
        is "last loss of $1" "$(loss "$1")" "$expected_loss"
}
# continued FROM NAME N PARALLEL: the run FROM from its middle on, by N ranks
continued() {
    rm -rf "$2"
    cp -r "$1" "$2" && rm -rf "$2/checkpoints/step-00000012" "$2/model"
    run 0 launch -n "$3" -- run config.yaml resume=auto out="$2" train.steps=12 checkpoint.every=6 checkpoint.keep=0 \
        train.micro_batch_tokens=64 "$4"
    has out "resume     after step 6 of 12"
    near "$2"
}

run 0 run config.yaml out=alone "$@"
expected_loss=$(loss alone)
run 0 launch -n 4 -- run config.yaml out=stages "$@" "$stages"
run 0 launch -n 4 -- run config.yaml out=sharded "$@" "$sharded"
near stages
near sharded
continued stages a 1 parallel=none
continued stages b 2 parallel=ddp
continued sharded c 2 parallel=fsdp
continued sharded d 4 parallel.pipeline=4
continued alone e 4 parallel.pipeline=4
continued e f 4 "$sharded"
continued stages g 4 "$stages"
is "loss of as many stages" "$(loss g)" "$(loss stages)"

# another schedule, and stages that go around the ranks twice
zero='parallel={data: ddp, pipeline: {size: 2, schedule: zero_bubble}}'
around='parallel={data: fsdp, pipeline: {size: 2, schedule: interleaved}}'
continued stages zero 4 "$zero"
is "loss with gradients of weights later" "$(loss zero)" "$(loss stages)"
continued stages around 4 "$around"
continued around two 2 'parallel={pipeline: {size: 2, schedule: zero_bubble, stages_per_rank: 2}}'
continued two one 1 parallel=none
continued one again 2 'parallel={pipeline: {size: 2, schedule: interleaved}}'
for name in stages sharded d around two again; do
    # weights differ where gradients were summed in another order
    is "files of the model of $name" "$(ls $name/model | tr '\n' ' ')" "$(ls alone/model | tr '\n' ' ')"
    is "size of the model of $name" "$(wc -c <$name/model/model.safetensors)" "$(wc -c <alone/model/model.safetensors)"
    run 0 eval config.yaml model.path=$name/model data.eval=train.jsonl out=eval-$name
done

# ---- a stage is lost ----
# pid_of RANK: the process of $launcher with that number
pid_of() {
    for status in $(grep -ls "^PPid:[[:space:]]*$launcher\$" /proc/[0-9]*/status); do
        tr '\0' '\n' <"${status%/status}/environ" | grep -qx "NRL_RANK=$1" || continue
        basename "${status%/status}"
    done
}
# lost RANK N PARALLEL: of N ranks, this one is killed
lost() {
    "$nrl" launch -n "$2" -- run config.yaml out="lost-$1-$2" train.steps=100000 train.micro_batch_tokens=64 \
        checkpoint.every=0 "$3" >out 2>err &
    launcher=$!
    await test -s "lost-$1-$2/metrics.jsonl"
    kill -9 "$(pid_of "$1")"
    finished $launcher 137 "a launcher whose rank $1 was killed"
    has err "rank $1"
}
for rank in 0 1 2; do
    lost $rank 3 parallel.pipeline=3
done
lost 1 2 'parallel={pipeline: {size: 2, schedule: zero_bubble, stages_per_rank: 2}}'

# ---- a stage fails: the last one, whose loss is NaN or an error of a script ----
cat >fails.lua <<'E2'
local nrl = require "nrl"
local calls = 0
local loss = nrl.loss {name = "fails", needs = {"logps"}, weight = function(b) return b:count "answer_tokens" end,
  loss = function(b)
    calls = calls + 1
    if calls == 9 then error "no more of this" end
    return -(b:logps() * b:mask()):sum()
  end}
local cfg = nrl.config "config.yaml"
cfg.algorithm = loss
nrl.open(cfg):train()
E2
"$nrl" launch -n 3 -- run fails.lua out=fails train.steps=1000 train.micro_batch_tokens=64 parallel.pipeline=3 >out 2>err &
finished $! 2 "a loss that fails on the last stage"
has err "no more of this"
run 3 launch -n 2 -- run config.yaml out=diverges train.steps=50 optimizer.lr=1000 optimizer.clip_norm=0 train.precision=fp16 train.loss_scale=1 parallel.pipeline=2
has err "gradient norm"
exit $failed
