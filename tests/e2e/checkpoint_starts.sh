#!/bin/sh
# checkpoint_starts.sh: a run can start from the weights of another run (model.path), or from its whole state; a
# mismatch is reported, and the run only continues if it is allowed.
. "$(dirname "$0")/e2e.sh"
rows 64 >train.jsonl
experiment >c.yaml
run 0 run c.yaml out=first

# Weights alone: as if the run's export were the model. A folder of a run is its newest checkpoint.
run 0 run c.yaml out=exported model.path=first/model
run 0 run c.yaml out=checkpointed model.path=first/checkpoints/step-00000006
run 0 run c.yaml out=latest model.path=first
has out "weights from first/checkpoints/step-00000006"
for one in checkpointed latest; do
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' exported/metrics.jsonl >a
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' $one/metrics.jsonl >b
    cmp a b || failed=1
done
run 0 run c.yaml out=ranks model.path=first parallel=fsdp train.precision=bf16
run 2 run c.yaml out=none model.path=nowhere
cp -r first broken
rm -r broken/checkpoints/*/manifest.json
run 5 run c.yaml out=none model.path=broken
has err "no complete checkpoint"

# All of its state: what differs is named, and a warning where that was asked for.
run 2 run c.yaml out=first resume=auto train.steps=8 train.seed=9
has err "seed: was 1, is now 9"
has err "checkpoint.mismatch=warn"
run 2 run c.yaml out=first resume=auto train.steps=8 schedule=cosine
has err "schedule.name: was"
run 0 run c.yaml out=first resume=auto train.steps=8 train.seed=9 checkpoint.mismatch=warn
has err "warning: the checkpoint was written by a run with other settings"
has out "after step 6 of 8"
# ---- a start that was killed while it tried for room: nothing is there that is anybody's ----
mkdir -p killed/checkpoints
: >killed/checkpoints/trial-0.tmp
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=2 eval.every=0 out=killed resume=auto
is "checkpoints after a start that was killed" "$(ls killed/checkpoints)" step-00000002
exit $failed
