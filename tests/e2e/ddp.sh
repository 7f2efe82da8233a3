#!/bin/sh
# ddp.sh: on 2, 3 and 4 ranks a run of 20 steps has the losses and gradient norms of one rank, to 1e-6 of the
# loss in fp32: fine-tuning and preferences with an on-line reference, accumulation, clipping, ranks with an empty
# micro-batch. What codecs lose stays small, a resume of what each rank keeps for itself is equal to the bit.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, eval: $2, max_length: 128, template: chatml, cache: cache}
algorithm: $3
train: {steps: 20, global_batch: $4, micro_batch_tokens: $5, seed: 3}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
eval: {every: 10}
checkpoint: {export: false}
loggers: [jsonl]
$one_thread_yaml
YAML
}

# with OPTIONS: ddp with options
with() {
    echo "parallel={data: {name: ddp, $1}}"
}
exact=1e-6 # sums of up to 1e3 f32 numbers, in another order

config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 8 128 >config.yaml
one sft
ranks 2 two $exact
ranks 4 four $exact parallel=ddp train.micro_batch_tokens=256
ranks 3 small $exact "$(with 'bucket_cap_mb: 0.05, first_bucket_mb: 0.01')"
ranks 2 recompute $exact parallel=ddp train.activation_checkpointing=all
run 0 run config.yaml out=single parallel=ddp overwrite=true && compare single 0
ranks 2 bf16 1e-3 "$(with 'compress: bf16')"
ranks 3 fp16 1e-3 "$(with 'compress: fp16')"
ranks 2 all $exact "$(with 'compress: topk, topk_ratio: 1, start_step: 0')"

# 3 samples a step on 4 ranks: somebody has nothing
config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 3 128 >config.yaml
one few
ranks 4 empty $exact "$(with 'unused: error')"
ranks 4 empty-bf16 1e-3 "$(with 'compress: bf16')"

config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" dpo 8 256 >config.yaml
one dpo
ranks 2 pairs $exact
ranks 4 more-pairs $exact parallel=ddp train.micro_batch_tokens=512

# ---- resume: what a rank keeps for itself comes back ----

rows 64 >train.jsonl
# resumed NAME OPTIONS: 8 steps in one go, and 5 (between two meetings of local steps) and then 3
resumed() {
    experiment "parallel: {data: {name: ddp, $2}}" >config.yaml
    set -- "$1" train.steps=8 checkpoint.every=5 checkpoint.export=false
    run 0 launch -n 2 -- run config.yaml out="$1-whole" "$2" "$3" "$4"
    cp -r "$1-whole" "$1-parts"
    rm -rf "$1-parts/checkpoints/step-00000008"
    run 0 launch -n 2 -- run config.yaml out="$1-parts" resume=auto "$2" "$3" "$4"
    numbers "$1-whole/metrics.jsonl" >expected.txt
    is "steps of $1" "$(wc -l <expected.txt | tr -d ' ')" 8
    compare "$1-parts" 0
}
resumed topk 'compress: topk, topk_ratio: 0.05, start_step: 2'
resumed powersgd 'compress: powersgd, start_step: 2, powersgd_rank: 2'
resumed local 'sync_every: 3'
exit $failed
