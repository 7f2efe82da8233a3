#!/bin/sh
# pipeline_schedules.sh: several stages on each rank and split backwards do not change numbers: every schedule, numbers
# of micro-batches that are not multiples of the ranks, with ddp, fsdp and tensor, four families, preferences, adapters,
# dropout, activation checkpointing and 16-bit gradients. A run is resumed with another schedule as if nothing had
# happened.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# pipeline N OPTIONS [OTHER AXES]: `parallel` with N ranks on the axis
pipeline() {
    echo "parallel={pipeline: {size: $1, $2}${3:+, $3}}"
}
interleaved='schedule: interleaved'
zero='schedule: zero_bubble'
data=$source/configs/data
tiny="{config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}"

# tied embeddings, on the first and the last rank
staged "$tiny" "$data/chat.jsonl" "$data/chat_eval.jsonl" sft 128 1e-3 >config.yaml
one sft
ranks 2 interleaved $exact "$(pipeline 2 "$interleaved")"
ranks 3 three $exact "$(pipeline 3 "$interleaved")" train.activation_checkpointing=all
ranks 2 three-each $exact "$(pipeline 2 "$interleaved, stages_per_rank: 3")" 'train.activation_checkpointing={every: 2}'
ranks 2 uneven $exact "$(pipeline 2 "$interleaved, split: [2, 1, 2, 1]")"
ranks 2 zero $exact "$(pipeline 2 "$zero")"
ranks 4 zero-recomputed $exact "$(pipeline 4 "$zero, balance: units")" train.activation_checkpointing=all
ranks 2 zero-each $exact "$(pipeline 2 "$zero, stages_per_rank: 2, costs: [0.1, 1, 1, 1, 1, 2]")"
ranks 2 one-micro-batch $exact "$(pipeline 2 "$zero, stages_per_rank: 2")" train.micro_batch_tokens=4096
for options in "$interleaved" "$zero" "$zero, stages_per_rank: 2"; do
    ranks 4 ddp $exact "$(pipeline 2 "$options" 'data: ddp')"
    ranks 4 fsdp $exact "$(pipeline 2 "$options" 'data: fsdp')" 'debug={every: 7}'
    ranks 4 optimizer $exact "$(pipeline 2 "$options" 'data: {name: fsdp, shard: optimizer, units: {every: 2}}')"
    ranks 4 tensor $exact "$(pipeline 2 "$options" 'tensor: 2')"
done

# what a run measured, another is balanced by
for options in "$zero" "$interleaved"; do
    run 0 launch -n 2 -- run config.yaml out=measured overwrite=true train.steps=4 "$(pipeline 2 "$options, measure: 3")"
    cat out err | sed -n 's/.*\(costs: \[[^]]*\]\) were measured.*/\1/p' >costs.txt
    is "lines of costs" "$(wc -l <costs.txt | tr -d ' ')" 1
    is "measured units" "$(tr -cd , <costs.txt | wc -c)" 5
    grep -q '\[0[,.]\|, 0,\|, 0]\|inf\|nan' costs.txt && grep -v '0\.' costs.txt && failed=1
    run 0 launch -n 2 -- run config.yaml out=balanced overwrite=true train.steps=2 "$(pipeline 2 "$options, $(cat costs.txt)")"
done

# gradients of weights are added in the order of micro-batches in every schedule: the same bits on the same stages
for schedule in 1f1b gpipe zero_bubble; do
    run 0 launch -n 2 -- run config.yaml out=bits-$schedule "$(pipeline 2 "schedule: $schedule")"
    numbers bits-$schedule/metrics.jsonl >$schedule.txt
    cmp 1f1b.txt $schedule.txt || failed=1
    cmp bits-1f1b/model/model.safetensors bits-$schedule/model/model.safetensors || failed=1
done

run 0 run config.yaml out=half train.precision=bf16 train.gradients=bf16
numbers half/metrics.jsonl >expected.txt
ranks 2 gradients $bf16_unit "$(pipeline 2 "$zero, stages_per_rank: 2")" train.precision=bf16 train.gradients=bf16

staged "$tiny" "$data/pref.jsonl" "$data/pref_eval.jsonl" dpo 512 1e-4 >config.yaml
one dpo
ranks 2 interleaved $exact "$(pipeline 2 "$interleaved")"
ranks 2 zero $exact "$(pipeline 2 "$zero, stages_per_rank: 2")"
ranks 4 fsdp $exact "$(pipeline 2 "$zero" 'data: fsdp')"

# adapters; the reference of preferences is then the policy without them, on its stages
echo "lora: {rank: 4, alpha: 8, dropout: 0.1}" >>config.yaml
one dpo-lora optimizer.lr=1e-2
ranks 3 interleaved $exact "$(pipeline 3 "$interleaved")" optimizer.lr=1e-2
ranks 2 zero $exact "$(pipeline 2 "$zero, stages_per_rank: 3")" optimizer.lr=1e-2
one dpo-lora-small optimizer.lr=1e-2 train.micro_batch_tokens=128
ranks 3 many-micro-batches $exact "$(pipeline 3 "$interleaved")" optimizer.lr=1e-2 train.micro_batch_tokens=128

# other families, whose weights are in directories
rows 64 >train.jsonl
rows 16 >eval.jsonl
for family in gpt2 qwen3 gemma3_text; do
    staged "{path: $source/tests/data/models/$family}" train.jsonl eval.jsonl sft 64 1e-3 |
        sed 's/max_length: 128/max_length: 48/' >config.yaml
    one $family
    ranks 2 interleaved $exact "$(pipeline 2 "$interleaved")"
    ranks 2 zero $exact "$(pipeline 2 "$zero")"
done

# what is said, and what is wrong
staged "$tiny" "$data/chat.jsonl" "$data/chat_eval.jsonl" sft 128 1e-3 >config.yaml
run 0 check config.yaml out=planned "$(pipeline 2 "$interleaved, split: [2, 1, 1, 2], costs: [1, 1, 2, 2, 1, 1]")"
has out "parallel   pipeline: interleaved over 4 stages, 2 on each rank, of 2 + 1 + 1 + 2 units"
has out "bubble: in the first step, of"
# refused OPTIONS TEXT
refused() {
    run 2 check config.yaml out=planned "$(pipeline 2 "$1")"
    has err "$2"
}
refused "stages_per_rank: 2" "stages_per_rank: schedule 1f1b has one stage on each rank; expected interleaved or zero_bubble"
refused "$interleaved, stages_per_rank: 1" "stages_per_rank: interleaved with one stage on each rank is 1f1b; expected 2"
refused "$zero, stages_per_rank: 4" "cannot split the model into 8 stages: it has 6 units ('embed' to 'norm')"
refused "$interleaved, split: [3, 3]" "split: the number of stages is 2; expected a list of 4 numbers of units whose sum is 6"
refused "costs: [1, 2]" "costs: expected a list of 6 numbers, one a unit ('embed' to 'norm')"
refused "costs: [1, 1, -1, 1, 1, 1]" "costs: the cost of unit 'layers.1' is not a number from 0"
refused "costs: [1, 1, x, 1, 1, 1]" "costs: the cost of unit 'layers.1' is not a number from 0"
exit $failed
