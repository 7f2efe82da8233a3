#!/bin/sh
# reference_cached.sh: cached log-probs of a reference are those that are computed in each step, also of entries with
# weights, on two ranks, of several sets of evaluation, and of pairs that are longer than micro_batch_tokens; the noise
# of NEFTune is the same with and without shared prompts, and does not look like a wrong reference.
. "$(dirname "$0")/e2e.sh"

preferences pref "{name: dpo}" >config.yaml
head -n 20 "$source/configs/data/pref.jsonl" >some.jsonl
sed -n '21,40p' "$source/configs/data/pref.jsonl" >others.jsonl
numbers() {
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*|\1 \2|p' "$1"
    for name in eval_loss eval_some_loss eval_others_loss; do
        sed -n "s|.*\"$name\": *\([^,}]*\).*|\1|p" "$1"
    done
}

# An epoch draws another half of the rows of others.jsonl than the one before it, and the rows of some.jsonl twice. Two
# ranks add in another order, which 21 steps amplify.
set -- 'data.train=[{path: some.jsonl, weight: 2}, {path: others.jsonl, weight: 0.5}]' train.steps=0 train.epochs=3 \
    'data.eval={some: some.jsonl, others: others.jsonl}' checkpoint.metric=eval_others_loss
alone online "$@" algorithm.reference=online
is "steps and evaluations" "$(wc -l <expected.txt)" "$((3 * 7 + 3 * 11))"
run 0 run config.yaml out=cached "$@" algorithm.reference=cached
compare cached $exact
ranks 2 two 5e-6 "$@" algorithm.reference=cached data.cache=other parallel=ddp

set -- data.packing=false train.micro_batch=2 train.micro_batch_tokens=64
alone unpacked "$@"
run 0 run config.yaml out=unpacked-cached "$@" algorithm.reference=cached
compare unpacked-cached $exact

set -- train.neftune_alpha=5
alone noise "$@"
run 0 run config.yaml out=apart "$@" data.prefix_sharing=false
compare apart 0
run 0 run config.yaml out=adapters "$@" 'lora={rank: 4}'
# other roundings are other values
run 0 run config.yaml out=bf16 algorithm.reference=cached train.precision=bf16 data.cache=roundings
n=$(ls roundings/ref-*.bin | wc -l)
run 0 run config.yaml out=logits algorithm.reference=cached train.precision=bf16 train.logits=bf16 data.cache=roundings
is "files of two roundings" "$(ls roundings/ref-*.bin | wc -l)" $((2 * n))
exit $failed
