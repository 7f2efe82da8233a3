#!/bin/sh
# context_experts.sh: the losses of routers, which are of all tokens of a micro-batch, on ranks that divide these. Loss,
# router loss, z-loss and norm of 30 steps are those of one rank, with both kinds of attention, other axes, recomputed
# layers and micro-batches that are too small to be divided.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
ring='{size: 2, kind: ring}'

# on N NAME PARALLEL ARGUMENT...: as one rank
on() {
    n=$1 name=$2 parallel=$3
    shift 3
    run 0 launch -n "$n" -- run config.yaml out="$name" overwrite=true parallel="$parallel" "$@"
    near_recorded "$name" $exact
}

# expect ARGUMENT...: the numbers of one rank
expect() {
    run 0 run config.yaml out=one overwrite=true "$@"
    step_values one/metrics.jsonl >want.txt
}

for family in qwen3_moe mixtral olmoe; do
    golden=$source/tests/data/experts/$family
    mkdir $family
    ln -s "$golden/model.safetensors" $family
    sed 's/^{/{ "router_z_loss_coef": 0.1,/; s/"output_router_logits": false/"output_router_logits": true/' \
        "$golden/config.json" >$family/config.json
    cat >config.yaml <<YAML
model: {path: $family}
data: {train: $golden/rows.jsonl, eval: $golden/rows.jsonl, max_length: 64, cache: $family.cache}
train: {steps: 30, global_batch: 2, micro_batch_tokens: 64}
optimizer: {name: sgd, lr: 0.005, weight_decay: 0, momentum: 0, clip_norm: 0}
schedule: constant
eval: {every: 10}
checkpoint: {every: 0, export: none}
loggers: [jsonl]
$one_thread_yaml
YAML
    step_names='loss router_loss router_z_loss grad_norm eval_loss eval_router_loss eval_router_z_loss'
    expect
    is "values of $family" "$(wc -l <want.txt | tr -d ' ')" 129
    on 2 ulysses '{context: 2}' 'debug={every: 10}'
    on 2 ring "{context: $ring}" 'debug={every: 10}'
done

on 2 recomputed "{context: $ring}" train.activation_checkpointing=all
on 4 stages '{context: 2, pipeline: 2}'
on 4 tokens '{context: 2, tensor: {size: 2, sequence: true}}'
on 4 four '{context: {size: 4, kind: ring}}'
expect lora.rank=2 lora.alpha=4
on 2 lora '{context: 2}' lora.rank=2 lora.alpha=4
# a loss that is not a sum over tokens
for i in 1 2 3 4; do
    echo "{\"prompt_input_ids\": [5, $((6 + i)), 9], \"chosen_input_ids\": [$((20 + i)), 30, 31], \"rejected_input_ids\": [$((12 + i)), 40]}"
done >pairs.jsonl
set -- algorithm=dpo data.train=pairs.jsonl data.eval=pairs.jsonl data.cache=pairs.cache
expect "$@"
on 2 dpo "{context: $ring}" "$@"
on 4 dpo-tensor '{context: 2, tensor: 2}' "$@"
# each row on its own: a rank of its own for each, and all ranks for a row of too few tokens
expect data.packing=false train.micro_batch=1
on 4 fsdp '{context: 2, data: fsdp}' data.packing=false train.micro_batch=1
echo '{"input_ids": [5, 6, 7], "labels": [5, 6, 7]}' >small.jsonl
set -- data.train=small.jsonl data.eval=small.jsonl train.global_batch=1 data.packing=false train.micro_batch=1 data.cache=small.cache
expect "$@"
on 2 whole "{context: $ring}" "$@"
exit $failed
