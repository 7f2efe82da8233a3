#!/bin/sh
# fp8.sh - train.precision: fp8 follows bf16 for 30 steps, whole and with adapters on a quantized base, in fine-tuning
# and in preferences with a reference that shares the weights. Activation checkpointing and a resume give the same bits,
# scales included; ranks of every kind agree with one rank. What has no effect, and a backend without fp8, are refused.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# An operand of 4 bits is off by up to 2^-4 of itself, by 2^-4 / sqrt(3) on average, and a sum of products of two of them
# with random signs by sqrt(2) times that, 5 % of its size; after four layers of such sums logits, which are about 1, are
# off by 0.1, each in its own direction. A loss is the mean over some 50 tokens: 0.1 / sqrt(50), and five of these for
# the largest of 30 steps, in all runs of this test.
near=0.071
# Ranks have the same scales but for the first step, and add sums in another order: one rounding to bf16, as without fp8.
ranks_near=4e-3

losses() {
    values "$1" loss
}

# follows NAME OTHER ROOM
follows() {
    losses "$1" >a.txt
    losses "$2" >b.txt
    is "steps of $2" "$(wc -l <b.txt)" "$(wc -l <a.txt)"
    paste a.txt b.txt | awk -v name="$2" -v room="$3" '
        { d = $1 - $2; if (d < 0) d = -d; differ += d > 0; if (!(d <= room)) { print name ", step " NR ": " $0; bad = 1 } }
        END { exit bad || !NR || !differ }' || failed=1
}

# same NAME OTHER: losses and norms, bit for bit
same() {
    for field in loss grad_norm; do
        values "$1" $field >a.txt
        values "$2" $field >b.txt
        [ -s a.txt ] && cmp a.txt b.txt || is "$field of $2" "$(tr '\n' ' ' <b.txt)" "$(tr '\n' ' ' <a.txt)"
    done
}

rows 64 >train.jsonl
experiment >config.yaml
set -- checkpoint.every=0 train.steps=30
run 0 run config.yaml out=bf16 "$@" train.precision=bf16
run 0 run config.yaml out=fp8 "$@" train.precision=fp8
has out "fp8 with fp32 masters"
follows bf16 fp8 $near
run 0 run config.yaml out=current "$@" train.precision=fp8 train.fp8.recipe=current
follows bf16 current $near
run 0 run config.yaml out=short "$@" train.precision=fp8 'train.fp8={history: 1, margin: 1}'
follows bf16 short $near
run 0 run config.yaml out=block "$@" train.precision=fp8 train.fp8.recipe=block
follows bf16 block $near
run 0 run config.yaml out=again-block "$@" train.precision=fp8 train.fp8.recipe=block train.activation_checkpointing=all
same block again-block
# The first step has no history, so both recipes scale operands by their own values.
is "first loss with delayed scales" "$(losses fp8 | head -n 1)" "$(losses current | head -n 1)"
run 0 run config.yaml out=again "$@" train.precision=fp8 train.activation_checkpointing=all
same fp8 again
run 0 run config.yaml out=split "$@" train.precision=fp8 train.master=split16
same fp8 split

# ---- adapters on a quantized base; preferences ----

run 0 run config.yaml out=lora16 "$@" train.precision=bf16 'lora={rank: 4, base: nf4}'
run 0 run config.yaml out=lora8 "$@" train.precision=fp8 'lora={rank: 4, base: nf4}'
follows lora16 lora8 $near
cat >pairs.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/pref.jsonl, max_length: 128, template: chatml}
algorithm: dpo
train: {steps: 8, global_batch: 4, micro_batch_tokens: 256, seed: 3, precision: fp8}
optimizer: {name: adamw, lr: 1e-4}
checkpoint: {every: 0}
loggers: [console, jsonl]
$one_thread_yaml
YAML
# The first loss must be ln 2: policy and reference are rounded alike.
run 0 run pairs.yaml out=pairs
run 0 sample pairs/model --prompt hello --max-tokens 4
run 0 run pairs.yaml out=shared 'lora={rank: 4}'

# ---- ranks ----

set -- checkpoint.every=0 train.steps=8 train.precision=fp8
run 0 run config.yaml out=one "$@"
for parallel in ddp fsdp '{tensor: 2}' '{pipeline: 2}'; do
    rm -rf ranks
    run 0 launch -n 2 -- run config.yaml out=ranks "parallel=$parallel" debug=true "$@"
    losses one >a.txt
    losses ranks >b.txt
    near b.txt a.txt 8 $ranks_near
done

# A block of an input or a gradient is in the batch of one rank, and one of a weight may be divided.
run 0 run config.yaml out=one overwrite=true "$@" train.fp8.recipe=block
for parallel in ddp fsdp '{tensor: 2}'; do
    rm -rf ranks
    run 0 launch -n 2 -- run config.yaml out=ranks "parallel=$parallel" debug=true "$@" train.fp8.recipe=block
    losses one >a.txt
    losses ranks >b.txt
    near b.txt a.txt 8 $ranks_near
done

# With fixed shards everything is the same, scales included.
reproducible='{data: {name: ddp, reproducible: 2}}'
run 0 run config.yaml out=alone "$@" "parallel=$reproducible"
run 0 launch -n 2 -- run config.yaml out=both "$@" "parallel=$reproducible"
same alone both

# ---- resume ----

# resumed NAME COMMAND...: 12 steps in one go, and 7 and then 5
resumed() {
    name=$1
    shift
    set -- "$@" run config.yaml train.steps=12 checkpoint.every=7 checkpoint.export=none train.precision=fp8 \
        train.fp8.history=4
    run 0 "$@" out="$name"
    cp -r "$name" "$name-parts"
    rm -rf "$name-parts/checkpoints/step-00000012"
    run 0 "$@" out="$name-parts" resume=auto
    same "$name" "$name-parts"
    run 0 checkpoint diff "$name/checkpoints/step-00000012" "$name-parts/checkpoints/step-00000012"
}
resumed whole
resumed divided launch -n 2 --
manifest=whole/checkpoints/step-00000007/manifest.json
grep -q '"fp8": *{' $manifest || is "history in $manifest" absent present

# ---- mistakes ----

run 2 check config.yaml train.fp8.history=4
has err "train.fp8: has no effect without train.precision: fp8"
run 2 check config.yaml train.precision=fp8 'train.fp8={recipe: current, history: 4}'
has err "train.fp8: recipe current has no history"
run 2 check config.yaml train.precision=fp8 train.fp8.recipe=blocks
has err "train.fp8.recipe"
run 2 check config.yaml train.precision=fp8 train.fp8.history=0
has err "train.fp8.history"
mkdir only && ln -s "$NRL_TEST_BUILD/tests/conformance/wrong/backends" only/backends
run 2 run config.yaml out=bad train.precision=fp8 backend=few plugins=only
has err "train.precision: backend 'few' does not support fp8"
exit $failed
