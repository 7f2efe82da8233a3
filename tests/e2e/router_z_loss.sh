#!/bin/sh
# router_z_loss.sh: the z-loss of a router (router_z_loss_coef). Loss, z-loss and gradient norm of three steps are those of
# PyTorch in float64 (tests/data/experts/make_z_loss.py), with recomputed layers too; ranks that divide the experts, layers,
# features or tokens have those of one rank.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
step_names='loss router_z_loss grad_norm'

# on N NAME PARALLEL: as one rank
on() {
    run 0 launch -n "$1" -- run config.yaml out="$2" overwrite=true parallel="$3"
    near_recorded "$2" $exact
}

for family in qwen3_moe mixtral olmoe gpt_oss; do
    golden=$source/tests/data/experts/$family
    mkdir $family
    ln -s "$golden/model.safetensors" $family
    sed 's/^{/{ "router_z_loss_coef": 0.1,/' "$golden/config.json" >$family/config.json
    cat >config.yaml <<YAML
model: {path: $family}
data: {train: $golden/rows.jsonl, max_length: 64, shuffle: false, cache: $family.cache}
train: {steps: 3, global_batch: 2, micro_batch_tokens: 64}
optimizer: {name: sgd, lr: 0.05, weight_decay: 0, momentum: 0, clip_norm: 0}
schedule: constant
checkpoint: {every: 0, export: none}
loggers: [jsonl]
$one_thread_yaml
YAML
    step_values "$golden/z_loss.json" >want.txt
    run 0 run config.yaml out=one overwrite=true
    # Of float64. The gradient of gpt_oss has norm 10 and the rate is high: a step enlarges what rounding did before it.
    near_recorded one $([ $family = gpt_oss ] && echo 3e-6 || echo $exact)
    step_values one/metrics.jsonl >alone.txt
    run 0 run config.yaml out=again train.activation_checkpointing=all overwrite=true
    is "values with recomputed layers of $family" "$(step_values again/metrics.jsonl)" "$(cat alone.txt)"
    mv alone.txt want.txt
    on 2 stages '{pipeline: 2}'
    on 2 columns '{tensor: 2}'
    on 2 tokens '{tensor: {size: 2, sequence: true}}'
    # Each row on its own, since a balance loss is one of each micro-batch; the z-loss is not.
    run 0 run config.yaml out=rows data.packing=false train.micro_batch=1 overwrite=true
    step_values rows/metrics.jsonl >want.txt
    on 2 experts '{experts: 2}'
    on 2 ddp ddp
    run 0 run config.yaml out=four data.packing=false train.micro_batch=1 train.global_batch=4 overwrite=true
    step_values four/metrics.jsonl >want.txt
    [ $family = mixtral ] && continue # of 6 experts
    run 0 launch -n 4 -- run config.yaml out=experts4 overwrite=true parallel.experts=4 train.global_batch=4
    near_recorded experts4 $exact
done

# An evaluation has the term too, and a coefficient is 0 or more.
run 0 run config.yaml out=eval overwrite=true data.eval="$golden/rows.jsonl" eval.every=3
has eval/metrics.jsonl '"eval_router_z_loss"'
sed -i 's/"router_z_loss_coef": 0.1/"router_z_loss_coef": -1/' gpt_oss/config.json
run 65 run config.yaml out=refused
has err "'router_z_loss_coef' is -1; expected 0 or more"
# Means over tokens count the prompt of a pair for both answers, whatever data.prefix_sharing says.
sed -i 's/"router_z_loss_coef": -1/"router_z_loss_coef": 0.1/' gpt_oss/config.json
echo '{"prompt_input_ids": [3, 20, 7, 9, 11, 13], "chosen_input_ids": [40, 9], "rejected_input_ids": [34, 5, 8]}' >pairs.jsonl
for shared in true false; do
    run 0 run config.yaml out=shared_$shared algorithm=dpo data.train=pairs.jsonl train.global_batch=1 train.steps=2 data.prefix_sharing=$shared
    step_values shared_$shared/metrics.jsonl >$shared.txt
done
is "values with shared prompts" "$(cat true.txt)" "$(cat false.txt)"
exit $failed
