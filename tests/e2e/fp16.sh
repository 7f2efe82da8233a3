#!/bin/sh
# fp16.sh - train.precision: fp16 follows fp32 for 50 steps, in fine-tuning and in preferences with an online
# reference. A scale that is too large is reduced, on two ranks exactly as on one, and a fixed scale stops the run. A
# resume is bit-identical, including the scale and the count of good steps.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# A loss passes through four layers of values that are rounded to 11 bits, a relative 2^-11 each time. That of
# preferences is a function of sums of some twenty log-probs, which do not cancel their errors: 20 times 2^-11.
near=2e-3
pairs_near=1e-2

# losses NAME, scales NAME: one line a step
losses() {
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm".*|\1|p' "$1/metrics.jsonl"
}
scales() {
    sed -n 's|.*"loss_scale": *\([^,}]*\), *"overflows": *\([^,}]*\).*|\1 \2|p' "$1/metrics.jsonl"
}

# follows NAME OTHER ROOM
follows() {
    losses "$1" >a.txt
    losses "$2" >b.txt
    is "steps of $2" "$(wc -l <b.txt)" "$(wc -l <a.txt)"
    paste a.txt b.txt | awk -v name="$2" -v room="$3" '
        { d = $1 - $2; if (d < 0) d = -d; if (!(d <= room * $1)) { print name ", step " NR ": " $0; bad = 1 } }
        END { exit bad || !NR }' || failed=1
}

# ---- beside fp32 ----

rows 64 >train.jsonl
experiment >config.yaml
run 0 run config.yaml out=fp32 train.steps=50 checkpoint.every=0
run 0 run config.yaml out=fp16 train.steps=50 checkpoint.every=0 train.precision=fp16
has out "fp16 with fp32 masters, dynamic loss scale 65536"
follows fp32 fp16 $near
is "last scale" "$(scales fp16 | tail -n 1)" "65536 0"
lacks fp32/metrics.jsonl loss_scale
run 0 run config.yaml out=static train.steps=50 checkpoint.every=0 train.precision=fp16 train.loss_scale=1024
has out "fp16 with fp32 masters, loss scale 1024"
follows fp32 static $near

cat >pairs.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/pref.jsonl, eval: $source/configs/data/pref_eval.jsonl, max_length: 128,
       template: chatml}
algorithm: dpo
train: {steps: 50, global_batch: 4, micro_batch_tokens: 256, seed: 3}
optimizer: {name: adamw, lr: 1e-4}
eval: {every: 25}
checkpoint: {every: 0}
loggers: [console, jsonl]
$one_thread_yaml
YAML
run 0 run pairs.yaml out=pairs32
run 0 run pairs.yaml out=pairs16 train.precision=fp16
follows pairs32 pairs16 $pairs_near
run 0 sample pairs16/model --prompt hello --max-tokens 4

# ---- overflow: omitted alike on one rank and on two, and recovered from ----

set -- train.precision=fp16 train.steps=40 checkpoint.every=0 'train.loss_scale={init: 1e12, growth_interval: 4}'
run 0 run config.yaml out=one "$@"
has out "skipped: a gradient is not finite in fp16; loss scale 1e+12, now 5e+11"
is "times that it is said" "$(grep -c 'skipped: a gradient' out)" 1
scales one >expected.txt
[ "$(tail -n 1 expected.txt | cut -d ' ' -f 2)" -gt 5 ] || is "overflows" "$(tail -n 1 expected.txt)" "more than 5"
for parallel in ddp fsdp; do
    run 0 launch -n 2 -- run config.yaml out=$parallel parallel=$parallel debug=true "$@"
    scales $parallel >found.txt
    cmp -s expected.txt found.txt || is "scales of $parallel" "$(tr '\n' ';' <found.txt)" "$(tr '\n' ';' <expected.txt)"
    follows one $parallel $near
done
run 0 launch -n 2 -- run config.yaml out=local 'parallel={data: {name: ddp, sync_every: 3}}' "$@"
is "overflows of local steps" "$(scales local | wc -l)" 40

# ---- a scale that stays, and a floor ----

set -- train.precision=fp16 checkpoint.every=0 overwrite=true out=bad
run 3 run config.yaml "$@" train.loss_scale=1e20
has err "train.loss_scale: dynamic"
run 3 run config.yaml "$@" train.loss_scale=1e20 train.nan=skip train.nan_limit=3
has err "3 steps in a row were skipped"
run 3 run config.yaml "$@" 'train.loss_scale={init: 1e20, min: 4e19}'
has err "the loss scale fell to 2.5e+19, below 4e+19"
run 2 check config.yaml train.loss_scale=dynamic
has err "train.loss_scale: has no effect without train.precision: fp16"
mkdir only && ln -s "$NRL_TEST_BUILD/tests/conformance/wrong/backends" only/backends
run 2 run config.yaml "$@" backend=few plugins=only
has err "train.precision: backend 'few' does not support fp16; expected fp32 or bf16"
run 0 check config.yaml out=new train.precision=fp16
has out "fp16 with fp32 masters"

# A scale so large that every gradient overflows: nothing was updated, and the run says so and fails.
run 3 run config.yaml "$@" out=never train.precision=fp16 train.steps=16 'train.loss_scale={init: 1e30}'
has out "trained    16 steps (0 updated the weights, 16 were skipped) in"
has err "none of 16 steps updated the weights"
[ ! -e never/model ] || is "weights of a run that updated none" exported absent

# ---- resume ----

# resumed NAME COMMAND...: 12 steps in one go, and 7 and then 5
resumed() {
    name=$1
    shift
    set -- "$@" run config.yaml train.steps=12 checkpoint.every=7 checkpoint.export=none \
        'train.loss_scale={init: 4e6, growth_interval: 3}' train.precision=fp16
    run 0 "$@" out="$name"
    cp -r "$name" "$name-parts"
    rm -rf "$name-parts/checkpoints/step-00000012"
    run 0 "$@" out="$name-parts" resume=auto
    losses "$name" >a.txt && scales "$name" >>a.txt
    losses "$name-parts" >b.txt && scales "$name-parts" >>b.txt
    is "records of $name" "$(wc -l <a.txt)" 24
    cmp a.txt b.txt || failed=1
    run 0 checkpoint diff "$name/checkpoints/step-00000012" "$name-parts/checkpoints/step-00000012"
}
resumed whole
resumed ranks launch -n 2 --
exit $failed
