#!/bin/sh
# resume_earlier.sh: `nrl resume RUN@STEP` continues from that checkpoint; later ones are moved aside, not lost.
. "$(dirname "$0")/e2e.sh"

run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=6 schedule=constant eval.every=2 checkpoint.every=2 \
    checkpoint.keep=0 checkpoint.metric_mode=max out=r
losses() { sed -n 's/.*"step": \([0-9]*\), .*"loss": \([^,]*\), "grad.*/\1 \2/p' "$1/metrics.jsonl"; }
losses r >whole

run 0 resume r@2
has out "moved      2 later checkpoints to r/checkpoints/after-00000002.1"
has out "after step 2 of 6"
losses r >again
cmp whole again || is "losses" other same
for step in 4 6; do
    [ -d r/checkpoints/after-00000002.1/step-0000000$step ] || is "the earlier step $step" missing kept
    [ -d r/checkpoints/step-0000000$step ] || is "the new step $step" missing there
done
run 0 checkpoint verify r/checkpoints/after-00000002.1/step-00000006
run 0 sample r/checkpoints/after-00000002.1/step-00000004 --prompt a --max-tokens 2
run 0 eval r/checkpoints/after-00000002.1/step-00000004
has out "after-00000002.1/step-00000004"

# the best one (metric_mode max: step 2, the largest loss), a second time
run 0 resume r@best train.steps=4
has out "to r/checkpoints/after-00000002.2"
is "steps of the run" "$(losses r | tail -n 1 | cut -d' ' -f1)" 4

# the newest one by its number: nothing is moved
run 0 resume r@4 train.steps=6
lacks out "moved"
run 0 run r/config.yaml out=r resume=r@4 train.steps=6
has out "moved      1 later checkpoint to r/checkpoints/after-00000004.1"

# mistakes move nothing
run 2 resume r@3
has err "cannot find 'r@3'"
run 2 resume r@4 optimizer.lr=1
has err "optimizer.lr"
[ -d r/checkpoints/step-00000006 ] || is "step 6 after a mistake" moved there
run 2 resume nowhere@4
has err "nowhere"

# a newest checkpoint that is damaged: another one can be resumed
# damage CHECKPOINT
damage() {
    printf 'xx' | dd of="$1/rank-00000.nrlc" bs=1 seek=3 conv=notrunc 2>dd
}
cp -r r damaged
damage damaged/checkpoints/step-00000006
run 5 resume damaged
run 0 resume damaged@4
has out "after step 4 of 6"
damage damaged/checkpoints/step-00000006
run 0 resume damaged checkpoint.fallback=previous train.steps=5 checkpoint.keep=1
has out "after step 4 of 5"
[ -d damaged/checkpoints/step-00000005 ] || is "what was saved after a fallback" "$(ls damaged/checkpoints)" step-00000005
[ -d damaged/checkpoints/after-00000004.1/step-00000006 ] || is "the damaged checkpoint" "$(ls damaged/checkpoints)" "moved aside"

# a run of a script: the command to type
cat >run.lua <<L
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.train = {steps = 2, global_batch = 8}
cfg.checkpoint.every = 1
cfg.out = "s"
nrl.open(cfg):train()
L
run 0 run run.lua "$one_thread"
run 0 resume s@1
has out "nrl run run.lua resume=s@1 out=s"
damage s/checkpoints/step-00000002
run 0 resume s
has out "nrl run run.lua resume=auto out=s"

# overwrite leaves what was moved aside
run 0 run r/config.yaml out=r resume=never overwrite=true train.steps=2
has err "after-00000002.1"
[ -d r/checkpoints/after-00000002.1/step-00000006 ] || is "what was moved aside" removed kept
exit $failed
