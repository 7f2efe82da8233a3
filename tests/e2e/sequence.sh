#!/bin/sh
# sequence.sh: sequence parallel (`tensor: {sequence: true}`): 30 steps have the losses and gradient norms of one rank, for
# families with grouped heads, head norms, biases, attention that stays whole, learned positions, experts; alone and with
# ddp, fsdp and stages; with shared key/value heads; with dropout, noise, adapters, preferences, 16 bits, recomputed
# activations, more ranks than tokens. ranks_activations.sh measures the activations.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
rows 64 >train.jsonl
rows 16 >eval.jsonl
half='parallel={tensor: {size: 2, sequence: true}}'
quarter='parallel={tensor: {size: 4, sequence: true}}'
both='parallel={data: fsdp, tensor: {size: 2, sequence: true}}'
stages='parallel={pipeline: 2, tensor: {size: 2, sequence: true}}'
same='debug={every: 4}'

for model in llama llama3 qwen2 qwen3 phi3 gemma3_text gpt2; do
    experiment "eval: {every: 15}" | sed "s|models/llama|models/$model|" >config.yaml
    set -- train.steps=30 data.eval=eval.jsonl checkpoint.every=0 checkpoint.export=none optimizer.clip_norm=0.5
    # the keys' biases of gpt2 have no gradient but noise, which a small epsilon makes steps of
    [ $model = gpt2 ] && set -- "$@" optimizer.eps=1e-3
    alone $model "$@"
    ranks 2 $model-2 $exact "$half" "$same" "$@"
done
ranks 4 gpt2-4 $exact "$both" "$same" "$@"
ranks 2 whole $exact 'parallel={tensor: {size: 2, sequence: true, vocabulary: false}}' "$same" "$@"
alone noise train.neftune_alpha=5 "$@"
ranks 2 noise-2 $exact "$half" "$same" train.neftune_alpha=5 "$@"

set -- train.steps=8 data.eval=eval.jsonl checkpoint.every=0 checkpoint.export=none
experiment "eval: {every: 4}" | sed "s|models/llama|models/qwen3|" >config.yaml
alone qwen3 "$@"
ranks 4 kv $exact "$quarter" "$same" "$@"
ranks 4 kv-plain $exact parallel.tensor=4 "$same" "$@"
ranks 4 fsdp $exact "$both" "$same" "$@"
ranks 4 ddp $exact 'parallel={data: ddp, tensor: {size: 2, sequence: true}}' "$same" "$@"
ranks 4 stages $exact "$stages" "$same" "$@"
ranks 2 recomputed $exact "$half" "$same" train.activation_checkpointing=all "$@"
alone muon optimizer.name=muon "$@"
ranks 4 muon-kv $exact "$quarter" "$same" optimizer.name=muon "$@"
alone bf16 train.precision=bf16 "$@"
ranks 2 bf16 $bf16_unit "$half" "$same" train.precision=bf16 "$@"
ranks 4 halves $bf16_unit "$both" train.precision=bf16 train.master=split16 train.gradients=bf16 "$@"
for dora in false true; do
    lora="lora.rank=4 lora.alpha=8 lora.dropout=0.1 lora.targets=all-linear lora.dora=$dora optimizer.lr=1e-2"
    # shellcheck disable=SC2086
    alone lora $lora "$@"
    # shellcheck disable=SC2086
    ranks 2 lora-2 $exact "$half" "$same" $lora "$@"
    # shellcheck disable=SC2086
    ranks 4 lora-kv $exact "$quarter" "$same" $lora "$@"
done
# ---- preferences with an online reference and one from its file, labels ----
for algorithm in kto dpo; do # the rows of dpo are used below
    kind=pref
    [ $algorithm = kto ] && kind=kto
    preferences $kind $algorithm >config.yaml
    alone $algorithm train.micro_batch_tokens=1024
    ranks 2 $algorithm-2 $exact "$half" "$same" train.micro_batch_tokens=1024
    ranks 4 $algorithm-4 $exact "$both" "$same" train.micro_batch_tokens=1024
done
alone dpo
ranks 4 dpo-stages $exact "$stages"
rm -rf cache
ranks 2 cached $exact "$half" algorithm.reference=cached

experiment "eval: {every: 4}" | sed "s|models/llama|models/qwen3|" >config.yaml
# samples of one token: a rank has none
echo '{"input_ids": [5, 7], "labels": [5, 7]}' >short.jsonl
set -- "$@" optimizer.lr=1e-6 # the loss of one sample stays above its roundings
alone short "$@" data.train=short.jsonl train.global_batch=1
ranks 4 short-4 $exact "$quarter" "$same" "$@" data.train=short.jsonl train.global_batch=1

# ---- exchanges that overlap with products give the same bits as exchanges that do not ----
overlaps() { # overlaps RANKS PARALLEL ARGUMENT...
    n=$1
    parallel=$2
    shift 2
    for overlap in true false; do
        run 0 launch -n "$n" -- run config.yaml out="overlap-$overlap" overwrite=true checkpoint.export=last \
            parallel="$(echo "$parallel" | sed "s/tensor: {/&overlap: $overlap, /")" "$@"
    done
    is "numbers of $parallel $*" "$(numbers overlap-true/metrics.jsonl)" "$(numbers overlap-false/metrics.jsonl)"
    for file in model adapter_model; do
        [ ! -f overlap-true/model/$file.safetensors ] ||
            cmp overlap-true/model/$file.safetensors overlap-false/model/$file.safetensors || failed=1
    done
}
set -- train.steps=4 checkpoint.every=0
for model in llama gpt2 qwen3; do
    experiment | sed "s|models/llama|models/$model|" >config.yaml
    overlaps 2 '{tensor: {size: 2, sequence: true}}' "$@"
    overlaps 2 '{tensor: {size: 2}}' "$@"
done
overlaps 4 '{pipeline: {size: 2, schedule: zero_bubble}, tensor: {size: 2, sequence: true}}' "$@"
overlaps 4 '{data: fsdp, tensor: {size: 2, sequence: true}}' train.precision=bf16 train.activation_checkpointing=all "$@"
overlaps 2 '{tensor: {size: 2, sequence: true}}' lora.rank=4 lora.alpha=8 lora.dropout=0.1 lora.targets=all-linear \
    lora.dora=true "$@"
for family in mixtral gpt_oss; do
    experiment | sed "s|path: .*models/llama[^ ,}]*|path: $source/tests/data/experts/$family|" >config.yaml
    overlaps 2 '{tensor: {size: 2, sequence: true}}' data.train="$source/tests/data/experts/$family/rows.jsonl" \
        "$@"
done

exit $failed
