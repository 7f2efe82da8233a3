#!/bin/sh
# fsdp.sh: for every division of parameters, gradients and states over ranks, a run of some steps has the losses and
# gradient norms of one rank, to 1e-6 of the loss in fp32. Fine-tuning and preferences with an online reference;
# accumulation, clipping, activation checkpointing, evaluation.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS


# config TRAIN EVAL ALGORITHM MICRO_BATCH_TOKENS RATE
config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, eval: $2, max_length: 128, template: chatml, cache: cache}
algorithm: $3
train: {steps: $n_steps, global_batch: 8, micro_batch_tokens: $4, seed: 3}
optimizer: {name: adamw, lr: $5, weight_decay: 0.1, clip_norm: 0.5}
eval: {every: $((n_steps / 2))}
loggers: [jsonl]
$one_thread_yaml
YAML
}

full='parallel={data: {name: fsdp}}'
# with OPTIONS: that, with options
with() {
    echo "parallel={data: {name: fsdp, $1}}"
}

config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 256 1e-3 >config.yaml
one sft
ranks 2 ddp $exact parallel=ddp
ranks 2 full $exact parallel=fsdp
ranks 3 odd $exact "$full"
ranks 2 grads $exact "$(with 'shard: grads')"
ranks 3 optimizer $exact "$(with 'shard: optimizer')"
ranks 4 hybrid $exact "$(with 'shard_size: 2')"
ranks 4 replicas $exact "$(with 'shard: grads, replicas: 2')"
ranks 2 pairs $exact "$(with 'units: {every: 2}, prefetch: 2')"
ranks 2 named $exact "$(with 'units: {begin: [layers.1, layers.3]}')"
run 0 check config.yaml out=planned "parallel={data: {name: fsdp, size: 2, units: {begin: [layers.1, layers.3]}}}"
has out "full shard over 2 ranks, 3 units"
run 2 check config.yaml out=planned "parallel={data: {name: fsdp, size: 2, units: {begin: [layers.9]}}}"
has err "units.begin: the model has no unit 'layers.9'; expected a name from 'embed' to 'norm'"
run 2 check config.yaml out=planned "$(with 'shard: grads, prefetch: 2')"
has err "prefetch: has no effect here; expected with it shard: full"
ranks 2 fp16 $fp16_unit "$(with 'reduce_dtype: fp16')"
ranks 4 hybrid-fp16 $fp16_unit "$(with 'reduce_dtype: fp16, shard_size: 2')"
ranks 2 large $exact "$(with 'units: {min_params: 60000}, prefetch: 0')"
ranks 2 recompute $exact parallel=fsdp train.activation_checkpointing=all
run 0 run config.yaml out=single parallel=fsdp overwrite=true && compare single $exact

# nodes of 4, 2 and 2 ranks: groups of a size that divides each
next_port
for rank in 0 1 2 3 4 5 6 7; do
    case $rank in [0-3]) local=$rank size=4 ;; [45]) local=$((rank - 4)) size=2 ;; *) local=$((rank - 6)) size=2 ;; esac
    RANK=$rank WORLD_SIZE=8 LOCAL_RANK=$local LOCAL_WORLD_SIZE=$size MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$nrl" run config.yaml out=nodes train.steps=2 "loggers=[console]" "$(with 'hybrid: true')" >"node$rank" 2>&1 &
done
wait
has node0 "full shard over 2 ranks, 4 replicas"
has node0 "trained    2 steps"

config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" dpo 512 1e-4 >config.yaml
one dpo
ranks 2 full $exact parallel=fsdp
ranks 4 hybrid $exact "$(with 'shard_size: 2')" 'train.activation_checkpointing={every: 2}'
ranks 2 optimizer $exact "$(with 'shard: optimizer')"
exit $failed
