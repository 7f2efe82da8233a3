#!/bin/sh
# logits.sh: logits in bf16 (train.logits: bf16) have the losses of fp32 logits up to a rounding, for losses of tokens and of
# pairs, on one rank and on several; kept and recomputed logits, and a resumed run, have the same bits. Options without
# effect are errors. A GPU that is used without train.precision says what bf16 would gain.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

config() { # ALGORITHM DATA
    cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/$2, max_length: 128, overlong: truncate, template: chatml, cache: cache}
algorithm: $1
train: {steps: 6, global_batch: 8, micro_batch_tokens: 256, seed: 3, precision: bf16}
optimizer: {name: adamw, lr: 1e-3, clip_norm: 0.5}
checkpoint: {every: 3, export: none}
loggers: [console, jsonl]
$one_thread_yaml
YAML
}

# same NAME OTHER: two runs with the same numbers in their records
same() {
    numbers "$1/metrics.jsonl" >a
    numbers "$2/metrics.jsonl" >b
    is "steps of $2" "$(wc -l <b)" 6
    cmp a b || failed=1
}

narrow=train.logits=bf16
config sft chat.jsonl
alone wide
run 0 run config.yaml out=narrow $narrow
compare narrow $bf16_unit
cmp -s narrow/metrics.jsonl wide/metrics.jsonl && is "logits in bf16" same rounded
run 0 run config.yaml out=resumed $narrow train.steps=3
run 2 run config.yaml out=resumed resume=auto
has err "train.logits"
run 0 run config.yaml out=resumed $narrow resume=auto
same narrow resumed
for how in "{tensor: 2}" ddp fsdp; do
    ranks 2 many $bf16_unit "parallel=$how" $narrow
done

config dpo pref.jsonl
alone wide
run 0 run config.yaml out=kept $narrow overwrite=true
has out "logits of a micro-batch: at most 0.2 MiB are kept"
compare kept $bf16_unit
run 0 run config.yaml out=again $narrow train.logits_mb=0
same kept again
ranks 2 many $bf16_unit "parallel={tensor: 2}" $narrow

run 2 run config.yaml out=none $narrow train.precision=fp32
has err "train.logits: bf16 requires train.precision: bf16"
config "{name: distill, teacher_model: $source/tests/data/models/mistral}" chat.jsonl
run 2 run config.yaml out=none $narrow
has err "train.logits: algorithm 'distill' reads complete logits in fp32; expected fp32"

emulated_cuda || exit $failed
small="train.steps=2 train.global_batch=2 data.max_length=64 train.micro_batch_tokens=128"
for kind in "sft chat.jsonl" "dpo pref.jsonl"; do
    config ${kind% *} ${kind#* }
    alone cpu $small $narrow
    run 0 run config.yaml out=cuda overwrite=true $small $narrow backend=cuda
    compare cuda $bf16_unit
    lacks err "train.precision is not set"
done
sed -i 's/, precision: bf16//' config.yaml
run 0 run config.yaml out=cuda overwrite=true $small train.steps=1 backend=cuda
has err "train.precision is not set, so this run computes in fp32"
run 0 run config.yaml out=cuda overwrite=true $small train.steps=1 train.precision=fp32 backend=cuda
lacks err "train.precision is not set"
run 0 run config.yaml out=cpu overwrite=true $small train.steps=1
lacks err "train.precision is not set"
exit $failed
