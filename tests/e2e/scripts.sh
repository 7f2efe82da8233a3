#!/bin/sh
# scripts.sh: short runs of every file of scripts/ and configs/; scripts_quickstart.sh tests the quickstart in more
# detail.
. "$(dirname "$0")/e2e.sh"

# each config is accepted; the quickstart's data is made by its script
for config in "$source"/configs/*.yaml; do
    [ "$(basename "$config")" = quickstart.yaml ] && continue
    run 0 check "$config" out=checked
    has out "nothing was trained"
done
run 0 check "$source/scripts/sft.lua" out=checked
has out "nothing was trained"
has out "model      "
lacks out "step 1/"

# a config by itself
run 0 run "$source/configs/sft.yaml" out=yaml train.epochs=1 "$one_thread"
is "records of 16 steps, the last evaluation and the export" "$(wc -l <yaml/metrics.jsonl)" 18
has yaml/metrics.jsonl '"eval_loss"'

# sft.lua: trains, samples, evaluates, exports; the export can be sampled and trained again
run 0 run "$source/scripts/sft.lua" out=sft train.epochs=2 "$one_thread"
has out "step 32/32"
has out "eval loss"
for file in config.json model.safetensors tokenizer.json; do
    [ -s sft/model/$file ] || is "$file of the export" missing there
done
run 0 sample sft/model --prompt "What is" --max-tokens 4
run 0 run "$source/scripts/sft.lua" "$source/configs/sft.yaml" model.config= model.tokenizer= \
    model.path=sft/model out=again train.epochs=1 "$one_thread"
has out "weights from sft/model"

# sweep.lua: one run a rate, a table at the end
run 0 run "$source/scripts/sweep.lua" out=sweep train.epochs=1 "$one_thread"
is "lines of the sweep" "$(wc -l <out)" 7
has out "best"
[ -s sweep/lr-0.001/metrics.jsonl ] || is "the second run's records" missing there
exit $failed
