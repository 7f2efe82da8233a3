#!/bin/sh
# elastic.sh: a run that continues on another mesh every other step, along every axis, has the order of samples, the
# global batch, the losses and the norms of one rank that is never interrupted, with each encoding of optimizer states.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 40 >train.jsonl # 10 steps an epoch: the run crosses its end twice
experiment | sed "s|models/llama|models/qwen3|; s|steps: 6, ||" >base.yaml

# leg N PARALLEL: the next two steps, on N ranks
leg() {
    steps=$((steps + 2))
    run 0 launch -n "$1" -- run config.yaml out="$name" resume=auto train.steps=$steps "parallel=$2"
    [ $steps = 2 ] || has out "resume     after step $((steps - 2)) of $steps"
}

# travels NAME TOLERANCE LINE: a run of that name, with a line of the config
travels() {
    printf 'defaults: base.yaml\n%s\n' "$3" >config.yaml
    alone "$1-alone" train.steps=24 checkpoint.every=0
    name=$1 steps=0
    leg 1 none
    leg 2 ddp
    leg 4 '{data: fsdp, tensor: 2}'
    leg 2 '{pipeline: 2}'
    leg 3 fsdp
    leg 2 '{context: 2}'
    leg 4 '{data: {name: fsdp, shard_size: 2}}'
    leg 2 '{tensor: {size: 2, sequence: true}}'
    leg 4 '{data: ddp, pipeline: {size: 2, schedule: zero_bubble}}'
    leg 2 '{name: fsdp, shard: grads}'
    leg 4 '{context: 2, tensor: 2}'
    leg 1 none
    is "steps of $name" "$(wc -l <expected.txt | tr -d ' ')" 24
    compare "$name" "$2"
    run 0 checkpoint verify "$name"
    rm -rf "$name" "$name-alone"
}

travels samples $exact "optimizer: {lr: 0}" # the weights stay, so each loss depends on the samples of its step alone
travels adamw 1e-5 ""
travels adamw8bit 5e-5 "optimizer: {name: adamw8bit, lr: 1e-3, min_8bit_size: 1}"
travels muon 1e-5 "optimizer: {name: muon, lr: 1e-3}"
travels adafactor 1e-5 "optimizer: {name: adafactor, lr: 1e-2}"
travels split16 $bf16_unit "train: {precision: bf16, master: split16}"
exit $failed
