#!/bin/sh
# collectives.sh CMAKE CC: the collective that `nrl plugins new` writes is built against the package alone and passes its suite.
# Two ranks that use it train exactly as with gloo, stages too, 4 ranks in groups train too, a killed rank ends the run, and no shared memory
# is left.
. "$(dirname "$0")/installed.sh"
ls /dev/shm >before

run 0 plugins new collective shared shared
build shared shared/build
export NRL_PLUGIN_PATH=$work/shared/build/plugins

# train RANKS COLLECTIVE WORD...: three steps; their losses and norms in the file `numbers`
train() {
    ranks=$1 collective=$2
    shift 2
    run 0 launch -n "$ranks" -- run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=3 eval.every=0 \
        checkpoint.every=0 "$one_thread" "loggers=[jsonl]" out=trained overwrite=true collective="$collective" "$@"
    grep -o '"\(loss\|grad_norm\)": *[0-9][^,}]*' trained/metrics.jsonl >numbers
    is "numbers of $ranks ranks with $collective" "$(grep -c . numbers)" 6
}

# Sums of two numbers do not depend on the order, so that the two collectives agree in every bit.
for strategy in ddp fsdp '{pipeline: 2}' '{pipeline: {size: 2, schedule: zero_bubble, stages_per_rank: 2}}'; do
    train 2 gloo "parallel=$strategy"
    mv numbers of_gloo
    mv trained/model/model.safetensors of_gloo.safetensors
    train 2 shared "parallel=$strategy"
    is "$strategy through shared memory" "$(cat numbers)" "$(cat of_gloo)"
    cmp trained/model/model.safetensors of_gloo.safetensors || is "weights of $strategy" different equal
done
train 4 shared 'parallel={data: {name: fsdp, shard_size: 2}}'
train 4 shared 'parallel={data: ddp, pipeline: {size: 2, schedule: interleaved}}'

cat >killed.lua <<LUA
local nrl = require "nrl"
local run = nrl.open(nrl.config "$prefix/share/nrl/configs/sft.yaml")
run:on("step", function(e) if nrl.rank == 1 and e.step == 2 then os.execute "kill -KILL \$PPID" end end)
run:train()
LUA
run 137 launch -n 2 -- run killed.lua train.epochs=0 train.steps=1000 eval.every=0 checkpoint.every=0 "$one_thread" \
    collective=shared out=killed
has err "rank 1 failed: signal 9 (Killed)"

run 2 launch -n 2 -- run "$prefix/share/nrl/configs/sft.yaml" "$one_thread" out=refused collective=sharde
has err "did you mean 'shared'"
# What other programs use meanwhile goes away, and what was left before this test does not count.
nothing_is_left() { ! ls /dev/shm | grep -E '^nrl-[0-9a-f]{16}$' | grep -qvxFf before; }
await nothing_is_left || is "shared memory" "$(ls /dev/shm)" none
exit $failed
