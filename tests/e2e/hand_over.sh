#!/bin/sh
# hand_over.sh: RUN@best and RUN@STEP wherever a run is named; the dtype of an export.
. "$(dirname "$0")/e2e.sh"

run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=6 train.precision=bf16 optimizer.lr=1e-2 \
    eval.every=2 checkpoint.every=2 checkpoint.keep=0 checkpoint.metric_mode=max out=r

# ---- a checkpoint by its step, and the best one ----
run 0 checkpoint inspect r@4
has out "r/checkpoints/step-00000004"
run 0 checkpoint inspect r@best
has out "r/checkpoints/step-00000002" # metric_mode max: the largest loss
run 0 eval r@4
has out "r/checkpoints/step-00000004, step 4"
run 0 sample r@2 --prompt "What is" --max-tokens 4
mv out at_2
run 0 sample r/checkpoints/step-00000002 --prompt "What is" --max-tokens 4
is "the text of step 2" "$(cat at_2)" "$(cat out)"
run 0 export r@2 two
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: r@2}' train.epochs=0 train.steps=1 out=from_2
has out "weights from r/checkpoints/step-00000002"
run 2 sample r@3 --prompt a
has err "cannot find 'r@3': expected RUN@best or RUN@STEP of a checkpoint that the run has"
run 2 eval r@4x
has err "cannot find 'r@4x'"
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=2 eval.every=0 checkpoint.every=2 out=plain
run 2 export plain@best best
has err "no complete checkpoint of the run has a metric"

# ---- the dtype of an export is that of the base model ----
dtype_of() {
    sed -n 's/.*"torch_dtype": "\(.*\)".*/\1/p' "$1/config.json"
}
is "dtype of a float32 base trained in bf16" "$(dtype_of r/model)" float32
is "dtype of its export" "$(dtype_of two)" float32
run 0 export r half --dtype bf16
has out "wrote half (bf16)"
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: half}' train.epochs=0 train.steps=2 out=b
is "dtype of a bf16 base trained in fp32" "$(dtype_of b/model)" bfloat16
is "size of its weights" "$(wc -c <b/model/model.safetensors)" "$(wc -c <half/model.safetensors)"
run 0 export b again
has out "wrote again (bf16)"
run 0 export half copy
has out "wrote copy (bf16)"
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: half}' train.epochs=0 train.steps=2 \
    checkpoint.export_dtype=f32 out=c
is "dtype that was asked for" "$(dtype_of c/model)" float32

exit $failed
