#!/bin/sh
# reproducible.sh: with `reproducible`, ddp and fsdp on 1, 2 and 4 ranks give the same bits: weights, moments and every
# number of the records that measures no time. Also for preferences, adapters with dropout, bf16 and fp16, for completions that
# the run samples itself and their rewards, and after a stop on four ranks that two continue. Wrong settings are reported. NRL_TEST_STEPS: longer runs, on up to 8 ranks.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
steps=${NRL_TEST_STEPS:-6}
half=$((steps / 2))
shards=4
[ -z "${NRL_TEST_STEPS:-}" ] || shards=8

# config TRAIN EVAL ALGORITHM MICRO_BATCH_TOKENS LINE
config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, eval: $2, max_length: 128, template: chatml, cache: $work/cache}
algorithm: $3
train: {steps: $steps, global_batch: 16, micro_batch_tokens: $4, seed: 3}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
eval: {every: $half}
checkpoint: {every: $half, keep: 0, export: none}
loggers: [console, jsonl]
$one_thread_yaml
out: refused
${5-}
YAML
}

# with NAME [OPTION...]: a strategy that divides batches into $shards shards
with() {
    echo "parallel={data: {name: $1, reproducible: $shards${2:+, $2}}}"
}

# records NAME: what does not measure time; without means over the steps of this process, and the norm of the weights
records() {
    sed -E 's/"(time|tokens_per_s|mfu|mem_bytes|mem_total_bytes|data_fraction|comm_fraction|comm_bytes|comm_messages|save_s|save_stall_s|save_snapshot_s|eval_seconds|step_s|data_s|comm_s|samples_per_s|cpu_percent|host_mem_bytes|host_mem_percent|rank_[a-z_]+|tensor_mem_bytes|heap_mem_bytes|update_norm|param_norm|grad_norm_mean)": [^,}]*(, )?//g; s/, }/}/' "$1/metrics.jsonl"
}

# same NAME: the run has the bits of the first one
same() {
    records "$1" >found.txt
    cmp expected.txt found.txt || { echo "records of $1:"; diff expected.txt found.txt | head -n 4; failed=1; }
    run 0 checkpoint diff first "$1"
    has out "0 tensors differ"
    rm -rf "$1"
}

# first ARGUMENT...: one rank, whose bits are expected from here on
first() {
    rm -rf first
    run 0 run config.yaml out=first "$(with ddp)" "$@"
    records first >expected.txt
    is "records of the first" "$(grep -c '"loss"' expected.txt)" "$steps"
}

# ranks_same N STRATEGY ARGUMENT...
ranks_same() {
    n=$1 strategy=$2
    shift 2
    run 0 launch -n "$n" -- run config.yaml out=other "$strategy" "$@"
    same other
}

config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 128 >config.yaml
first
ranks_same 2 "$(with ddp)"
ranks_same 4 "$(with ddp bucket_cap_mb:\ 0.05)"
run 0 run config.yaml out=other "$(with fsdp)" && same other
ranks_same 2 "$(with fsdp 'shard: grads')"
ranks_same 4 "$(with fsdp 'shard_size: 2')"
if [ $shards = 8 ]; then
    ranks_same 8 "$(with ddp)"
    ranks_same 8 "$(with fsdp)"
    ranks_same 8 "$(with fsdp 'replicas: 4')"
    ranks_same 2 "$(with fsdp 'shard: optimizer')" train.activation_checkpointing=all
fi

# stopped on four ranks, continued by two
run 0 launch -n 4 -- run config.yaml out=other "$(with fsdp)"
rm -rf "other/checkpoints/step-$(printf %08d "$steps")"
run 0 launch -n 2 -- run config.yaml out=other resume=auto "$(with ddp)"
has out "resume     after step $half of $steps"
same other

sed -i 's/micro_batch_tokens: 128/micro_batch_tokens: 128, precision: bf16/' config.yaml
first
ranks_same 4 "$(with fsdp)"
sed -i 's/precision: bf16/precision: fp16/' config.yaml
first
ranks_same 2 "$(with ddp)"

config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" dpo 512 \
    'lora: {rank: 4, alpha: 8, dropout: 0.1}' >config.yaml
first
ranks_same 2 "$(with ddp)"
ranks_same 4 "$(with fsdp)"

# completions: those of a shard are sampled apart, and rewards, their means and deviations are added in one order
cat >reward.lua <<'LUA'
return {even = function(s)
          local n = 0
          for _, id in ipairs(s.completion_ids) do n = n + (id % 2 == 0 and 0.1 or 0) end
          return n / 0.7
        end,
        noise = function() return math.random() end}
LUA
config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" '{name: reward, pad_token_id: 0}' 512 >config.yaml
run 0 run config.yaml out=judge train.steps=1 eval.every=0 checkpoint.export=last
grpo='{name: grpo, reward: reward.lua, reward_model: judge/model, group_size: 4, max_tokens: 12, beta: 0.05, scale_rewards: batch'
config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" "$grpo}" 256 >config.yaml
first
has expected.txt '"rewards/even/std"'
has expected.txt '"eval_reward"'
ranks_same 2 "$(with ddp)"
ranks_same 4 "$(with fsdp)"
config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" \
    '{name: distill, teacher_model: teacher/model, kd_ratio: 1, on_policy: 0.5, max_tokens: 12}' 256 >config.yaml
run 0 run config.yaml out=teacher algorithm=sft train.steps=1 eval.every=0 checkpoint.export=last
first
has expected.txt '"completions/length"'
ranks_same 4 "$(with ddp)"
if [ $shards = 8 ]; then
    config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" \
        "$grpo, steps_per_generation: 2, num_iterations: 2}" 256 >config.yaml
    first
    ranks_same 8 "$(with fsdp)"
    run 0 launch -n 4 -- run config.yaml out=other "$(with fsdp)"
    rm -rf "other/checkpoints/step-$(printf %08d "$steps")"
    run 0 launch -n 2 -- run config.yaml out=other resume=auto "$(with ddp)"
    same other
    config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" dpo 512 >config.yaml
    first
    ranks_same 8 "$(with fsdp)"
    ranks_same 4 "$(with ddp)"
    config "$source/configs/data/kto.jsonl" "$source/configs/data/kto_eval.jsonl" '{name: kto, kl_group: 4}' 1024 \
        >config.yaml
    first
    ranks_same 4 "$(with ddp)"
    ranks_same 2 "$(with fsdp)"
fi

# ---- what is refused ----

run 2 launch -n 3 -- check config.yaml "$(with ddp)"
has err "divides each batch into $shards shards, but 3 ranks"
run 2 check config.yaml 'parallel={data: {name: ddp, reproducible: 6}}'
has err "reproducible: got 6, expected a power of two"
run 2 check config.yaml 'parallel={data: {name: ddp, reproducible: 4, compress: bf16}}'
has err "reproducible: has no effect here; expected with it sync_every: 1 and compress: none"
run 2 check config.yaml 'parallel={data: {name: fsdp, reproducible: 4, reduce_dtype: bf16}}'
has err "sums in 16 bits depend on the number of ranks"
run 2 check config.yaml "$(with fsdp)" train.precision=bf16 train.gradients=bf16
has err "train.gradients: bf16 is not supported: reproducible sums"
exit $failed
