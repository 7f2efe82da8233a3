#!/bin/sh
# kto.sh: the config of unpaired preferences; all ways to compute its numbers agree; errors about missing or invalid
# labels name the line.
. "$(dirname "$0")/e2e.sh"

# field NAME FILE: that number of each training record
field() {
    sed -n '/"loss"/s|.*"'"$1"'": *\([^,}]*\).*|\1|p' "$2"
}

# near A B: within 1e-5 of each other, as sums in another order are after 18 steps of AdamW
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }'
}

# the config by itself: 1/2 at first, records of all metrics
run 0 run "$source/configs/kto.yaml" out=online train.epochs=2 "$one_thread"
near "$(field loss online/metrics.jsonl | head -n 1)" 0.5 || is "first loss" "$(head -n 1 online/metrics.jsonl)" 0.5
for name in rewards/chosen rewards/rejected rewards/margins logps/chosen logps/rejected kl; do
    is "records with $name" "$(field "$name" online/metrics.jsonl | wc -l)" 18
done
has online/metrics.jsonl '"eval_rewards/margins"'
awk -v m="$(field rewards/margins online/metrics.jsonl | tail -n 1)" 'BEGIN { exit !(m > 0) }' ||
    is "last margin" "$(tail -n 1 online/metrics.jsonl)" "above 0"

# cached log-probs, prompts for each side and more micro-batches change nothing that matters
for change in algorithm.reference=cached data.prefix_sharing=false train.micro_batch_tokens=1200; do
    run 0 run "$source/configs/kto.yaml" out=other overwrite=true train.epochs=2 $change "$one_thread"
    near "$(field loss online/metrics.jsonl | tail -n 1)" "$(field loss other/metrics.jsonl | tail -n 1)" ||
        is "last loss with $change" "$(tail -n 2 other/metrics.jsonl)" "$(tail -n 2 online/metrics.jsonl)"
done

# without a KL term
run 0 run "$source/configs/kto.yaml" out=apo train.epochs=1 algorithm.loss=apo_zero_unpaired "$one_thread"
lacks apo/metrics.jsonl '"kl"'

# mistakes
run 2 check "$source/configs/kto.yaml" train.global_batch=12
has err "groups of 8"
sed '3s/, "label": [a-z]*//' "$source/configs/data/kto.jsonl" >unlabelled.jsonl
run 65 check "$source/configs/kto.yaml" data.train="$work/unlabelled.jsonl"
has err "unlabelled.jsonl:3: no key 'label' or 'kto_tag'"
run 65 check "$source/configs/dpo.yaml" data.train="$source/configs/data/kto.jsonl"
has err "hint: algorithm: kto reads labels"
run 65 check "$source/configs/sft.yaml" data.train="$source/configs/data/kto.jsonl"
has err "hint: algorithm: kto reads labels"
exit $failed
