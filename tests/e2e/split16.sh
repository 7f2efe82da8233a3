#!/bin/sh
# split16.sh: a run with split masters (train.master: split16) is bit-identical to one with fp32 masters: losses,
# norms, weights, moments; on one rank and on several, for every division; and each resumes from the other's
# checkpoint. Incompatible options are reported.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
train: {steps: 50, global_batch: 8, micro_batch_tokens: 128, seed: 3, precision: bf16}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
loggers: [console, jsonl]
$one_thread_yaml
YAML

# same NAME OTHER: two runs with the same numbers in their records and in their last checkpoint
same() {
    numbers "$1/metrics.jsonl" >a
    numbers "$2/metrics.jsonl" >b
    is "steps of $2" "$(wc -l <b)" "$(wc -l <a)"
    cmp a b || failed=1
    run 0 checkpoint diff "$1"/checkpoints/step-* "$2"/checkpoints/step-*
    has out "0 tensors differ"
    cmp "$1/model/model.safetensors" "$2/model/model.safetensors" || failed=1
}

run 0 run config.yaml out=plain
has out "(18 bytes a parameter)"
run 0 run config.yaml out=split train.master=split16
has out "(16 bytes a parameter)"
same plain split
run 0 check config.yaml out=unused train.master=split16
has out "(16 bytes a parameter)"
run 0 run config.yaml out=single train.master=split16 parallel=fsdp
same plain single

# With bf16 gradients a run needs 14 bytes a parameter, and fp32 room for one unit; losses stay near.
small="train.gradients=bf16 train.master=split16"
numbers plain/metrics.jsonl >expected.txt
run 0 run config.yaml out=small $small
has out "gradients in bf16; 0.2 MiB of them are the fp32 sums of one unit"
compare small $bf16_unit
short_form_ends

# A stop in the middle, and the other encoding from there on.
for way in "fp32 split16" "split16 fp32" "split16 split16"; do
    out="$(echo "$way" | tr ' ' -)"
    run 0 run config.yaml "out=$out" train.steps=20 train.master="${way% *}" checkpoint.export=none
    run 0 run config.yaml "out=$out" resume=auto train.master="${way#* }" checkpoint.mismatch=warn
    rm -rf "$out"/checkpoints/step-00000020
    same plain "$out"
done

# Several ranks.
for how in ddp fsdp '{data: {name: fsdp, shard: grads}}' '{data: {name: fsdp, shard: optimizer}}'; do
    rm -rf whole halves
    run 0 launch -n 2 -- run config.yaml out=whole train.steps=10 debug=true "parallel=$how"
    run 0 launch -n 2 -- run config.yaml out=halves train.steps=10 debug=true "parallel=$how" train.master=split16
    same whole halves
done
for how in ddp fsdp '{data: {name: fsdp, shard: grads, replicas: 2}}'; do
    ranks 4 many $bf16_unit "parallel=$how" debug=true $small
done
run 2 launch -n 2 -- run config.yaml out=none $small 'parallel={data: {name: fsdp, shard: optimizer}}'
has err "expected shard: grads or full"
run 2 launch -n 2 -- run config.yaml out=none $small 'parallel={data: {name: ddp, compress: topk}}'
has err "expected compress: none"
run 2 run config.yaml out=none train.gradients=bf16 train.precision=fp32
has err "train.gradients: bf16 requires train.precision: bf16"

run 2 run config.yaml out=none train.master=split16 train.precision=fp32
has err "requires train.precision: bf16"
run 2 launch -n 2 -- run config.yaml out=none train.master=split16 'parallel={data: {name: ddp, sync_every: 2}}'
has err "cannot average weights (sync_every) with train.master: split16"
exit $failed
