#!/bin/sh
# checkpoint_starts.sh: what a run may begin with of another: its weights alone, by model.path; or all of its
# state, where a mismatch is told, and goes on only when asked to.
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
    sed 's/.*"loss": \([^,]*\),.*/\1/' exported/metrics.jsonl >a
    sed 's/.*"loss": \([^,]*\),.*/\1/' $one/metrics.jsonl >b
    cmp a b || failed=1
done
run 0 run c.yaml out=ranks model.path=first parallel=fsdp train.precision=bf16
run 2 run c.yaml out=none model.path=nowhere
cp -r first broken
rm -r broken/checkpoints/*/manifest.json
run 2 run c.yaml out=none model.path=broken
has err "no complete checkpoint"

# All of its state: what differs is named, and a warning where that was asked for.
run 2 run c.yaml out=first resume=auto train.steps=8 train.seed=9
has err "seed: was 1, is now 9"
has err "checkpoint.mismatch=warn"
run 2 run c.yaml out=first resume=auto train.steps=8 schedule=cosine
has err "schedule.name: was"
run 0 run c.yaml out=first resume=auto train.steps=8 train.seed=9 checkpoint.mismatch=warn
has err "warning: the checkpoint was made by another run"
has out "after step 6 of 8"
exit $failed
