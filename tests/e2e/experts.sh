#!/bin/sh
# experts.sh: mixtures of experts. Loss, router loss and gradient norm of three steps are those of transformers
# (tests/data/experts/make_experts.py); recomputation, several ranks, adapters and export change them as little as they should.
. "$(dirname "$0")/e2e.sh"

# split STRATEGY...: one rank that computes each row on its own, since the balance loss is one of each micro-batch, and two
split() {
    run 0 run "$family.yaml" out="$family.rows" data.packing=false train.micro_batch=1
    step_values "$family.rows/metrics.jsonl" >want.txt
    for strategy; do
        run 0 launch -n 2 -- run "$family.yaml" out="$family.$strategy" parallel="$strategy"
        near_recorded "$family.$strategy" $exact
    done
}

for family in qwen3_moe mixtral olmoe gpt_oss; do
    golden=$source/tests/data/experts/$family
    { recorded_steps "$golden" && echo "$one_thread_yaml"; } >"$family.yaml"
    step_values "$golden/expected.json" >want.txt
    run 0 run "$family.yaml" out=$family
    near_recorded $family 2e-6 # f32 sums of some hundred products, in another order than PyTorch's
    run 0 run "$family.yaml" out=$family.recomputed train.activation_checkpointing=all
    is "values with recomputed layers" "$(step_values $family.recomputed/metrics.jsonl)" "$(step_values $family/metrics.jsonl)"
    run 0 launch -n 2 -- run "$family.yaml" out=$family.stages 'parallel={data: ddp, pipeline: 2}'
    near_recorded $family.stages $exact
    # a norm over all heads keeps attention whole, and the experts are divided all the same
    run 0 launch -n 2 -- run "$family.yaml" out=$family.columns 'parallel={data: ddp, tensor: 2}'
    near_recorded $family.columns $exact
    # the router sees the tokens of its rank, the experts those of all
    run 0 launch -n 2 -- run "$family.yaml" out=$family.tokens 'parallel={tensor: {size: 2, sequence: true}}'
    near_recorded $family.tokens $exact
    run 0 launch -n 4 -- run "$family.yaml" out=$family.both 'parallel={pipeline: 2, tensor: {size: 2, sequence: true}}'
    near_recorded $family.both $exact
    split ddp fsdp
    run 0 export $family exported --overwrite
    cmp exported/model.safetensors $family/model/model.safetensors || is "weights exported" other "the run's"
done

# the same weights with experts as MXFP4 give the same numbers, and an export has them in the plain form
mxfp4=$source/tests/data/experts/gpt_oss_mxfp4
run 0 run gpt_oss.yaml out=mxfp4 model.path="$mxfp4"
has err "4 tensors in MXFP4, such as 'model.layers.0.mlp.experts.down_proj_blocks', are dequantized"
is "values of mxfp4" "$(step_values mxfp4/metrics.jsonl)" "$(step_values gpt_oss/metrics.jsonl)"
cmp mxfp4/model/model.safetensors gpt_oss/model/model.safetensors || is "weights from mxfp4" other "the plain ones"
lacks mxfp4/model/config.json quantization_config
run 0 export "$mxfp4" from_mxfp4
run 0 export "$source/tests/data/experts/gpt_oss" from_plain
cmp from_mxfp4/model.safetensors from_plain/model.safetensors || is "mxfp4 exported" other plain


# ranks that divide the tokens do not know sinks
mkdir sinks && cp "$source/tests/data/experts/gpt_oss/model.safetensors" sinks
sed 's/"output_router_logits": true/"output_router_logits": false/' "$source/tests/data/experts/gpt_oss/config.json" >sinks/config.json
run 2 launch -n 2 -- run gpt_oss.yaml out=divided model.path=sinks parallel.context=2
has err "this model has attention sinks, so ranks cannot shard its tokens"
run 0 run gpt_oss.yaml out=nf4 model.path=sinks 'lora={rank: 2, targets: [q_proj, v_proj], base: nf4}'

family=mixtral
run 0 run mixtral.yaml out=adapted 'lora={rank: 2, targets: [w1, w2]}' optimizer.lr=0.1
run 0 export adapted adapter --adapter
has adapter/adapter_model.safetensors "block_sparse_moe.experts.5.w2.lora_A.weight"
run 0 launch -n 2 -- run mixtral.yaml out=adapted2 'lora={rank: 2, targets: [w1, w2]}' optimizer.lr=0.1 \
    'parallel={data: ddp, tensor: 2}'
step_values adapted/metrics.jsonl >want.txt
near_recorded adapted2 $exact
run 0 run gpt_oss.yaml out=attended 'lora={rank: 2, targets: [q_proj, k_proj, v_proj, o_proj]}' optimizer.lr=0.01
run 0 export attended adapter --adapter --overwrite
has adapter/adapter_model.safetensors "model.layers.1.self_attn.o_proj.lora_A.weight"
run 0 launch -n 2 -- run gpt_oss.yaml out=attended2 'lora={rank: 2, targets: [q_proj, k_proj, v_proj, o_proj]}' optimizer.lr=0.01 \
    'parallel={data: ddp, tensor: 2}'
step_values attended/metrics.jsonl >want.txt
near_recorded attended2 $exact
# peft cannot adapt the router of gpt-oss
run 0 run gpt_oss.yaml out=linear lora.rank=2 train.steps=1
run 0 export linear adapter --adapter --overwrite
has adapter/adapter_model.safetensors "model.layers.1.self_attn.o_proj.lora_A.weight"
lacks adapter/adapter_model.safetensors router
run 2 run gpt_oss.yaml out=refused 'lora.targets=[router]'
has err "a router that is not linear in peft"

# what config.json may not say
mkdir broken && cp "$source"/tests/data/experts/mixtral/model.safetensors broken
refuses() { # refuses KEY VALUE TEXT
    sed "s/\"$1\": [^,]*/\"$1\": $2/" "$source/tests/data/experts/$family/config.json" >broken/config.json
    run 65 run $family.yaml model.path=broken out=refused
    has err "$3"
}
refuses num_experts_per_tok 7 "'num_experts_per_tok' is 7; expected 1 to 6"
refuses num_local_experts 0 "'num_local_experts' is 0; expected 1 to 1024"
refuses router_jitter_noise 0.1 "router_jitter_noise is 0.1; only 0 is supported"
family=gpt_oss
refuses swiglu_limit -1 "'swiglu_limit' is -1; expected more than 0"
refuses rope_parameters 'null, "unused": {' "a model of type 'gpt_oss' needs rope_parameters or rope_scaling"
refuses tie_word_embeddings 'false, "quantization_config": {"quant_method": "fp8"}' "expected f32, bf16, f16 or mxfp4 weights"
exit $failed
