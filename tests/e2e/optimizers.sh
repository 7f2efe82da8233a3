#!/bin/sh
# optimizers.sh: a run with each optimizer has the losses of one rank for every division of parameters and
# states. A resumed run has the numbers of an uninterrupted one: bit-identical on the same ranks and with another
# strategy that adds in the same order, otherwise up to the order of sums.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# What losses may differ by where sums are in another order. Signs turn where a running mean is next to 0 (lion): the
# step is of full size there, and the loss hardly depends on it.
order=1e-5
signs=5e-5
bits=1e-14 # losses are equal to the bit; norms add shares of ranks in another order, in double

last=$(printf 'step-%08d' "$n_steps")

# continued NAME N TOLERANCE ARGUMENT...: the run `whole` from its middle on
continued() {
    name=$1 n=$2 room=$3
    shift 3
    rm -rf "$name" && cp -r whole "$name" && rm -rf "$name"/checkpoints/$last
    run 0 launch -n "$n" -- run config.yaml out="$name" resume=auto checkpoint.keep=9 "$@"
    has out "resume     after step $((n_steps / 2)) of $n_steps"
    compare "$name" "$room"
}

# same NAME: its last checkpoint has the weights and states of `whole`
same() {
    run 0 checkpoint diff whole/checkpoints/$last "$1"/checkpoints/$last
    has out "0 tensors differ"
}

# optimizer TOLERANCE "NAME OPTIONS": the tests of one
optimizer() {
    allowed=$1
    shift
    echo "== $1"
    cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
train: {steps: $n_steps, global_batch: 8, micro_batch_tokens: 256, seed: 3}
optimizer: {name: $1, clip_norm: 0.5}
checkpoint: {every: $((n_steps / 2)), export: none}
loggers: [console, jsonl]
$one_thread_yaml
YAML
    rm -rf whole single
    one single
    ranks 2 ddp $allowed parallel=ddp
    ranks 2 tensor $allowed parallel.tensor=2
    run 0 launch -n 2 -- run config.yaml out=whole parallel=fsdp checkpoint.keep=9
    compare whole $allowed
    numbers whole/metrics.jsonl >expected.txt
    continued again 2 0 parallel=fsdp
    same again
    continued ddp 2 $bits parallel=ddp
    same ddp
    continued one 1 $allowed
    continued tensor 2 $allowed parallel.tensor=2
    continued three 3 $allowed parallel=fsdp
}

optimizer $order "sgd, lr: 1e-1, weight_decay: 1e-2"
optimizer $order "sgd, lr: 1e-1, momentum: 0.9, nesterov: true"
optimizer $signs "lion, lr: 3e-4, weight_decay: 0.1"
optimizer $order "adafactor, lr: 1e-2, weight_decay: 0.1"

# encoded NAME ARGUMENT...: on 2 ranks of fsdp, to the bit: masters in halves, and gathered from bf16 gradients
encoded() {
    name=$1
    shift
    for master in fp32 split16; do
        run 0 launch -n 2 -- run config.yaml "out=$name-$master" "train.master=$master" train.precision=bf16 \
            parallel=fsdp overwrite=true "$@"
    done
    run 0 checkpoint diff "$name-fp32"/checkpoints/$last "$name-split16"/checkpoints/$last
    has out "0 tensors differ"
    rm -rf "$name-fp32" "$name-split16"
}

# More axes, and encodings, of what is gathered: whole matrices and blocks.
for each in "muon, lr: 1e-3, weight_decay: 0.1" "adamw8bit, lr: 1e-3, weight_decay: 0.1"; do
    case $each in muon*) optimizer $order "$each" ;; *) optimizer $signs "$each" ;; esac
    one alone checkpoint.every=0 overwrite=true
    ranks 4 both $allowed 'parallel={data: fsdp, tensor: 2}'
    ranks 4 hybrid $allowed 'parallel={data: {name: fsdp, shard_size: 2}}'
    ranks 2 stages $allowed parallel.pipeline=2
    encoded halves
    encoded gradients train.gradients=bf16
done

# Ranks that step alone keep their states in slots.
run 2 launch -n 2 -- run config.yaml out=alone overwrite=true 'parallel={data: {name: ddp, sync_every: 2}}'
has err "optimizer 'adamw8bit' does not support sync_every"
sed 's/name: adamw8bit, lr: 1e-3/name: sgd, lr: 1e-2/' config.yaml >sgd.yaml
run 0 launch -n 2 -- run sgd.yaml out=alone overwrite=true 'parallel={data: {name: ddp, sync_every: 2}}'

# What is held is told, in a check too.
run 0 check config.yaml out=checked
has out "optimizer 0.5"
run 0 check config.yaml out=checked optimizer.name=adafactor optimizer.weight_decay=0
has out "(8.1 bytes a parameter)"
run 0 check sgd.yaml out=checked optimizer.momentum=0
has out "optimizer 0 bytes"

# Another optimizer's states are not taken for its own.
run 2 run config.yaml out=whole resume=auto optimizer.name=lion checkpoint.mismatch=warn train.steps=$((n_steps + 1))
has err "do not exist in this run"

# Numbers of the instance come back, and states have a version.
NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/plugins
export NRL_PLUGIN_PATH
sed 's/name: adamw8bit, lr: 1e-3, weight_decay: 0.1/name: tally, lr: 1e-3/' config.yaml >tally.yaml
run 0 run tally.yaml out=whole overwrite=true checkpoint.keep=9
rm -rf again && cp -r whole again && rm -rf again/checkpoints/$last
run 0 run tally.yaml out=again resume=auto checkpoint.keep=9
same again
sed 's/name: tally, lr: 1e-3/name: adamw, lr: 1e-3/' tally.yaml >adamw.yaml
run 2 run adamw.yaml out=whole resume=auto checkpoint.mismatch=warn train.steps=$((n_steps + 1))
has err "cannot read the states of optimizer 'adamw': version is 1, expected 0"
exit $failed
