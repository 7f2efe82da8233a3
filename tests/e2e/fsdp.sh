#!/bin/sh
# fsdp.sh: whichever way parameters, gradients and states are divided over ranks, a run of 20 steps has the
# losses and gradient norms of one rank: to 1e-6 of the loss in fp32. Fine-tuning and preferences with an
# on-line reference; accumulation, clipping, activation checkpointing, evaluation.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# numbers FILE: loss and gradient norm of each step, then each evaluation's loss
numbers() {
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*|\1 \2|p; s|.*"eval_loss": *\([^,}]*\).*|\1|p' "$1"
}

# compare NAME: the run NAME gave the numbers of the last `one`. Sums over ranks are made in another order,
# in f32, which norms show more than losses
compare() {
    numbers "$1/metrics.jsonl" >found.txt
    is "records of $1" "$(wc -l <found.txt)" "$(wc -l <expected.txt)"
    paste expected.txt found.txt | awk -v name="$1" '
        function off(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (a > 0 ? a : -a) }
        { n = NF / 2; if (off($1, $(n + 1)) > 1e-6 || (n == 2 && off($2, $4) > 2e-5)) { print name ": " $0; bad = 1 } }
        END { exit bad }' || failed=1
}

# ranks N OUT ARGUMENT...: that config on N ranks
ranks() {
    n=$1
    out=$2
    shift 2
    run 0 launch -n "$n" -- run config.yaml out="$out" overwrite=true "$@"
    [ -f "$out/metrics.jsonl" ] && compare "$out"
    rm -rf "$out"
}

# one NAME ARGUMENT...: one rank, whose numbers are expected from here on
one() {
    name=$1
    shift
    run 0 run config.yaml out="$name" "$@"
    numbers "$name/metrics.jsonl" >expected.txt
    is "steps of $name" "$(grep -c ' ' expected.txt)" 20
}

# config TRAIN EVAL ALGORITHM MICRO_BATCH_TOKENS RATE
config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, eval: $2, max_length: 128, template: chatml, cache: cache}
algorithm: $3
train: {steps: 20, global_batch: 8, micro_batch_tokens: $4, seed: 3}
optimizer: {name: adamw, lr: $5, weight_decay: 0.1, clip_norm: 0.5}
eval: {every: 10}
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
ranks 2 ddp parallel=ddp
ranks 2 full parallel=fsdp
ranks 3 odd "$full"
ranks 2 grads "$(with 'shard: grads')"
ranks 3 optimizer "$(with 'shard: optimizer')"
ranks 4 hybrid "$(with 'shard_size: 2')"
ranks 4 replicas "$(with 'shard: grads, replicas: 2')"
ranks 2 pairs "$(with 'units: {every: 2}, prefetch: 2')"
ranks 2 large "$(with 'units: {min_params: 60000}, prefetch: 0')"
ranks 2 recompute parallel=fsdp train.activation_checkpointing=all
run 0 run config.yaml out=single parallel=fsdp overwrite=true && compare single

config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" dpo 512 1e-4 >config.yaml
one dpo
ranks 2 full parallel=fsdp
ranks 4 hybrid "$(with 'shard_size: 2')" 'train.activation_checkpointing={every: 2}'
ranks 2 optimizer "$(with 'shard: optimizer')"
exit $failed
