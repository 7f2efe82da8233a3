#!/bin/sh
# strategies.sh: every strategy with each of its options, in a few steps, for sanitizers: losses and norms are those of one
# rank. A run that continues on other meshes has the numbers of a run on one. `costs: auto` is left to pipeline_costs.sh: it
# measures in child processes with threads, which ThreadSanitizer ends.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 24 >train.jsonl
rows 8 >eval.jsonl
experiment "eval: {every: 3}" | sed "s|models/llama|models/qwen3|; s/micro_batch_tokens: 128/micro_batch_tokens: 64/" >config.yaml
set -- train.steps=3 data.eval=eval.jsonl

# data STRATEGY OPTIONS: `parallel` with that on the axis data
data() {
    echo "parallel={data: {name: $1, $2}}"
}
# pipeline OPTIONS
pipeline() {
    echo "parallel={pipeline: {size: 2, $1}}"
}

alone one "$@"
ranks 2 ddp $exact "$(data ddp 'bucket_cap_mb: 0.01, first_bucket_mb: 0.005')" 'debug={every: 2}' "$@"
ranks 2 bf16 $bf16_unit "$(data ddp 'compress: bf16')" "$@"
ranks 2 fp16 $fp16_unit "$(data ddp 'compress: fp16')" "$@"
ranks 2 topk $exact "$(data ddp 'compress: topk, topk_ratio: 1, start_step: 0')" "$@"
ranks 2 fsdp $exact "$(data fsdp 'units: {every: 2}, prefetch: 2')" 'debug={every: 2}' "$@"
ranks 2 named $exact "$(data fsdp 'units: {begin: [layers.1]}, prefetch: 0')" train.activation_checkpointing=all "$@"
ranks 2 large $exact "$(data fsdp 'units: {min_params: 9000}, shard: optimizer')" "$@"
ranks 4 hybrid $exact "$(data fsdp 'shard_size: 2, shard: grads')" "$@"
ranks 2 narrow $fp16_unit "$(data fsdp 'reduce_dtype: fp16')" "$@"
ranks 2 disk $exact "$(data fsdp 'offload: disk')" "$@"
ranks 2 tensor $exact parallel.tensor=2 "$@"
ranks 2 sequence $exact 'parallel={tensor: {size: 2, sequence: true, overlap: true}}' 'debug={every: 2}' "$@"
ranks 4 shared $exact 'parallel={tensor: {size: 4, sequence: true, vocabulary: false}}' "$@"
ranks 2 ulysses $exact parallel.context=2 'debug={every: 2}' "$@"
ranks 3 ring $exact 'parallel={context: {size: 3, kind: ring}}' 'debug={every: 2}' "$@"
ranks 2 gpipe $exact "$(pipeline 'schedule: gpipe, balance: units')" "$@"
ranks 2 1f1b $exact "$(pipeline 'costs: [1, 2, 2, 3]')" "$@"
ranks 2 interleaved $exact "$(pipeline 'schedule: interleaved, measure: 2')" "$@"
ranks 2 zero-bubble $exact "$(pipeline 'schedule: zero_bubble, costs: [2, 1, 1, 2]')" "$@"
ranks 4 stages $exact 'parallel={data: fsdp, pipeline: {size: 2, schedule: zero_bubble, stages_per_rank: 2}}' "$@"
ranks 4 axes $exact 'parallel={context: 2, tensor: {size: 2, sequence: true}}' "$@"

# what differs from one rank: it is only run
for strategy in 'compress: powersgd, start_step: 0, powersgd_min_rate: 1' 'compress: threshold, start_step: 0' \
    'sync_every: 2, sync_states: true, outer_lr: 0.7, outer_momentum: 0.9'; do
    run 0 launch -n 2 -- run config.yaml out=other overwrite=true "$(data ddp "$strategy")" "$@"
done
alone reproducible "$(data ddp 'reproducible: 4')" "$@"
ranks 2 reproducible-2 0 "$(data ddp 'reproducible: 4')" "$@"
ranks 4 reproducible-4 0 "$(data fsdp 'reproducible: 4')" "$@"

# ---- generation, which holds gathered weights ----
cat >sample.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "sample.yaml")
run:train()
for _, text in ipairs(run:sample{prompts = {"hello", "what"}, max_tokens = 4}) do print("text " .. text) end
LUA
staged "{config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}" \
    "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 256 1e-3 >sample.yaml
run 0 launch -n 2 -- run sample.lua out=sampled parallel=fsdp train.steps=2 eval.every=0
is "texts" "$(grep -c '^\[0\] text' out)" 2

# ---- other meshes continue ----
leg() { # leg STEPS RANKS PARALLEL
    run 0 launch -n "$2" -- run config.yaml out=elastic resume=auto train.steps="$1" eval.every=0 parallel="$3"
}
alone whole train.steps=8 eval.every=0
leg 2 2 '{name: fsdp, shard: grads}'
leg 4 2 '{tensor: {size: 2, sequence: true}}'
leg 6 4 '{data: ddp, pipeline: {size: 2, schedule: interleaved}}'
leg 8 3 '{context: {size: 3, kind: ring}}'
compare elastic 1e-5

# ---- experts ----
experiment | sed "s|path: .*models/llama|config: $source/configs/models/tiny-experts.json|" >config.yaml
set -- train.steps=3 data.packing=false train.micro_batch=1 train.micro_batch_tokens=null
alone experts "$@"
ranks 2 experts-2 $exact parallel.experts=2 'debug={every: 2}' "$@"
ranks 4 experts-4 $exact 'parallel={data: fsdp, experts: 2}' "$@"
ranks 4 experts-tensor $exact 'parallel={tensor: {size: 2, sequence: true}, experts: 2}' "$@"
exit $failed
