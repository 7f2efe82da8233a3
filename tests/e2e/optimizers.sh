#!/bin/sh
# optimizers.sh: a run of 20 steps with each optimizer has the losses of one rank for every division of parameters and
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

# continued NAME N TOLERANCE ARGUMENT...: the run `whole` from step 10 on
continued() {
    name=$1 n=$2 room=$3
    shift 3
    rm -rf "$name" && cp -r whole "$name" && rm -rf "$name"/checkpoints/step-00000020
    run 0 launch -n "$n" -- run config.yaml out="$name" resume=auto checkpoint.keep=9 "$@"
    has out "resume     after step 10 of 20"
    compare "$name" "$room"
}

# same NAME: its last checkpoint has the weights and states of `whole`
same() {
    run 0 checkpoint diff whole/checkpoints/step-00000020 "$1"/checkpoints/step-00000020
    has out "0 tensors differ"
}

# optimizer TOLERANCE "NAME OPTIONS": the tests of one
optimizer() {
    order=$1
    shift
    echo "== $1"
    cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
train: {steps: 20, global_batch: 8, micro_batch_tokens: 256, seed: 3}
optimizer: {name: $1, clip_norm: 0.5}
checkpoint: {every: 10, export: none}
loggers: [console, jsonl]
$one_thread_yaml
YAML
    rm -rf whole single
    one single
    ranks 2 ddp $order parallel=ddp
    ranks 2 tensor $order parallel.tensor=2
    run 0 launch -n 2 -- run config.yaml out=whole parallel=fsdp checkpoint.keep=9
    compare whole $order
    numbers whole/metrics.jsonl >expected.txt
    continued again 2 0 parallel=fsdp
    same again
    continued ddp 2 $bits parallel=ddp
    same ddp
    continued one 1 $order
    continued tensor 2 $order parallel.tensor=2
    continued three 3 $order parallel=fsdp
}

optimizer $order "sgd, lr: 1e-1, weight_decay: 1e-2"
optimizer $order "sgd, lr: 1e-1, momentum: 0.9, nesterov: true"
optimizer $signs "lion, lr: 3e-4, weight_decay: 0.1"
exit $failed
