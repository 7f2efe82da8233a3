#!/bin/sh
# dpo.sh: the config and the script of preference training. A loss in Lua has the numbers of the plugin, all ways to
# compute reference log-probs agree, and groups of pairs stay together.
. "$(dirname "$0")/e2e.sh"

# field NAME FILE: that number of each training record
field() {
    sed -n '/"loss"/s|.*"'"$1"'": *\([^,}]*\).*|\1|p' "$2"
}

# near A B: within 1e-5 of each other, as sums in another order are after 18 steps of AdamW
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }'
}

# the config by itself: ln 2 at first, records of all metrics
run 0 run "$source/configs/dpo.yaml" out=online train.epochs=2 "$one_thread"
near "$(field loss online/metrics.jsonl | head -n 1)" 0.69314718 || is "first loss" "$(head -n 1 online/metrics.jsonl)" "ln 2"
for name in rewards/chosen rewards/rejected rewards/margins rewards/accuracies logps/chosen logps/rejected; do
    is "records with $name" "$(field "$name" online/metrics.jsonl | wc -l)" 18
done
has online/metrics.jsonl '"eval_rewards/accuracies"'

# the algorithm declares which values are better: chosen rewards that are large, rejected ones that are small
for best in 'chosen -g' 'rejected -rg'; do
    metric=rewards/${best% *}
    run 0 run "$source/configs/dpo.yaml" out=best overwrite=true train.epochs=2 eval.every=4 checkpoint.metric=eval_$metric "$one_thread"
    want=$(sed -n 's|.*"step": *\([0-9]*\),.*"eval_'$metric'": *\([^,}]*\).*|\2 \1|p' best/metrics.jsonl | sort ${best#* } | tail -n 1)
    has out "; best eval_$metric $(printf %.4f "${want% *}") at step ${want#* }"
    run 0 checkpoint inspect "best/checkpoints/step-$(printf %08d "${want#* }")"
    has out "metric      eval_$metric $(printf %g "${want% *}")"
done
run 0 run "$source/configs/dpo.yaml" out=best overwrite=true train.epochs=2 eval.every=4 checkpoint.metric=eval_rewards/chosen \
    checkpoint.metric_mode=min "$one_thread"
want=$(sed -n 's|.*"step": *\([0-9]*\),.*"eval_rewards/chosen": *\([^,}]*\).*|\2 \1|p' best/metrics.jsonl | sort -rg | tail -n 1)
has out "; best eval_rewards/chosen $(printf %.4f "${want% *}") at step ${want#* }"

# cached log-probs and more micro-batches change nothing that matters
for change in algorithm.reference=cached train.micro_batch_tokens=160; do
    run 0 run "$source/configs/dpo.yaml" out=other overwrite=true train.epochs=2 $change "$one_thread"
    near "$(field loss online/metrics.jsonl | tail -n 1)" "$(field loss other/metrics.jsonl | tail -n 1)" ||
        is "last loss with $change" "$(tail -n 2 other/metrics.jsonl)" "$(tail -n 2 online/metrics.jsonl)"
done

# sorted pairs: the same groups whatever the micro-batches
for budget in 1024 460; do
    run 0 run "$source/configs/dpo.yaml" out=aot$budget train.epochs=2 algorithm.loss=aot algorithm.aot_group=4 \
        train.micro_batch_tokens=$budget "$one_thread"
done
near "$(field loss aot1024/metrics.jsonl | tail -n 1)" "$(field loss aot460/metrics.jsonl | tail -n 1)" ||
    is "last loss of aot" "$(tail -n 2 aot460/metrics.jsonl)" "$(tail -n 2 aot1024/metrics.jsonl)"
run 2 check "$source/configs/dpo.yaml" algorithm.loss=aot train.global_batch=12
has err "groups of 8"

# a loss with a state goes on from a checkpoint of one without, if that is allowed
run 0 run "$source/configs/dpo.yaml" out=shifted train.epochs=0 train.steps=4 schedule=constant checkpoint.every=2 "$one_thread"
run 2 run "$source/configs/dpo.yaml" out=shifted resume=auto train.epochs=0 train.steps=6 schedule=constant checkpoint.every=2 \
    algorithm.loss=bco_pair algorithm.bco_shift=true "$one_thread"
run 0 run "$source/configs/dpo.yaml" out=shifted resume=auto train.epochs=0 train.steps=6 schedule=constant checkpoint.every=2 \
    algorithm.loss=bco_pair algorithm.bco_shift=true checkpoint.mismatch=warn "$one_thread"
has out "step 4"

# losses without a reference open none; a mixture has two terms
for loss in simpo cpo orpo "[sigmoid,sft]"; do
    run 0 run "$source/configs/dpo.yaml" out=free overwrite=true train.epochs=1 "algorithm.loss=$loss" "$one_thread"
    run 0 resume free # the config that the run wrote
done
run 2 check "$source/configs/dpo.yaml" algorithm.label_smoothing=0.1
has err "losses that use it: cdpo"

# the script: fine-tuning, then preferences; the loss in Lua trains to the plugin's bits
run 0 run "$source/scripts/dpo.lua" out=both train.epochs=1 "$one_thread"
has out "held-out pairs:"
for algorithm in dpo dpo_in_lua; do
    run 0 run "$source/scripts/dpo.lua" "$source/configs/dpo.yaml" model.config= model.tokenizer= \
        model.path=both/sft/model train.epochs=1 algorithm=$algorithm out=$algorithm "$one_thread"
done
for name in loss grad_norm; do
    field $name dpo/dpo/metrics.jsonl >c.txt
    field $name dpo_in_lua/dpo/metrics.jsonl >lua.txt
    is "steps" "$(wc -l <c.txt)" 9
    is "$name in Lua and in C" "$(cat lua.txt)" "$(cat c.txt)"
done
exit $failed
