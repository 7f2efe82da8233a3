#!/bin/sh
# checkpoint_verbs.sh: nrl checkpoint inspect, verify, diff and prune; resuming a run whose newest checkpoint is
# damaged; export from a checkpoint.
. "$(dirname "$0")/e2e.sh"
settings="train.epochs=0 train.steps=6 eval.every=0 checkpoint.every=2 checkpoint.keep=0"

# shellcheck disable=SC2086
train() {
    code=$1
    shift
    run "$code" run "$source/configs/sft.yaml" $settings "$one_thread" "$@"
}

damage() {
    printf 'xxxx' | dd of="$1" conv=notrunc bs=1 seek="$2" 2>/dev/null
}

train 0 out=first
last=first/checkpoints/step-00000006

# ---- inspect ----
run 0 checkpoint inspect first
has out "$last"
has out "step        6"
has out "1 rank"
has out "exp_avg_sq "
has out "model.embed_tokens.weight"
run 0 checkpoint inspect $last --json
cat >inspected.lua <<'LUA'
local nrl = require "nrl"
local c = nrl.json.decode(io.open("inspected"):read "a")
assert(c.step == 6 and c.world == 1 and c.nrl and c.config.train.steps == 6, c.step)
local slots = {}
for _, t in ipairs(c.tensors) do
  assert(t.stored <= t.bytes, t.name)
  slots[#slots + 1] = not slots[t.slot] and t.slot or nil
  slots[t.slot] = true
end
table.sort(slots)
assert(table.concat(slots, " ") == "exp_avg exp_avg_sq weight", table.concat(slots, " "))
LUA
mv out inspected
run 0 run inspected.lua
run 2 checkpoint inspect nowhere
run 2 checkpoint
run 2 checkpoint inspekt first
has err "did you mean 'inspect'?"

# ---- the metric, which is that of the checkpoint and not the best one of the run ----
# of STEP...: the metric that each of these checkpoints shows is that of its evaluation
shows_metric() {
    for step in "$@"; do
        value=$(sed -n "s|.*\"step\": *$step,.*\"$metric\": *\([^,}]*\).*|\1|p" ranked/metrics.jsonl)
        run 0 checkpoint inspect "ranked@$step"
        has out "metric      $metric $(printf %g "$value")"
        run 0 checkpoint inspect "ranked@$step" --json
        truth "$metric as JSON" "near(d.metric, $value)"
    done
}
# the first evaluation is the best one: of a loss that should be large, and of rewards and log-probs that fall
for how in loss:max rewards/chosen:auto logps/chosen:auto; do
    metric=eval_${how%:*}
    run 0 run "$source/configs/dpo.yaml" "$one_thread" optimizer.lr=1e-3 train.epochs=0 train.steps=9 eval.every=3 checkpoint.every=3 \
        checkpoint.keep=0 checkpoint.metric="$metric" checkpoint.metric_mode="${how#*:}" overwrite=true out=ranked
    has out "at step 3"
    shows_metric 3 6 9
done
rm -r ranked/checkpoints/step-00000003 # the sign is that of the best value
shows_metric 6 9
# rewards that change their sign after the best step: its manifest tells that larger is better
metric=eval_rewards/chosen
run 0 run "$source/configs/dpo.yaml" "$one_thread" 'algorithm.loss=[sigmoid, sft]' optimizer.lr=1e-2 train.epochs=0 train.steps=3 eval.every=1 \
    checkpoint.every=1 checkpoint.keep=0 checkpoint.metric="$metric" overwrite=true out=ranked
shows_metric 1 2 3

# ---- verify ----
run 0 checkpoint verify first
is "whole ones" "$(grep -c ': whole, ' out)" 3
cp -r first damaged
damage damaged/checkpoints/step-00000006/rank-00000.nrlc 20000
run 5 checkpoint verify damaged
has out "damaged: damaged/checkpoints/step-00000006/rank-00000.nrlc: weight of 'model."
is "whole ones" "$(grep -c ': whole, ' out)" 2
run 5 checkpoint verify damaged --json
has out '"whole": false'

# ---- a run and a damaged newest one ----
cp -r damaged other
train 5 out=damaged resume=auto train.steps=8 checkpoint.mismatch=warn
has err "is damaged near byte"
has err "checkpoint.fallback=previous"
train 0 out=damaged resume=auto train.steps=8 checkpoint.mismatch=warn checkpoint.fallback=previous
has err "warning: skipped a damaged checkpoint: resuming from damaged/checkpoints/step-00000006: "
has out "resume     after step 4 of 8"
run 0 checkpoint verify damaged # the damaged one was written again
train 0 out=whole train.steps=8
cp -r first again && rm -rf again/checkpoints/step-00000006
train 0 out=again resume=auto train.steps=8 checkpoint.mismatch=warn
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
is "losses after the fallback" "$(losses damaged | tail -n 4)" "$(losses again | tail -n 4)"
for step in 2 4; do damage other/checkpoints/step-0000000$step/rank-00000.nrlc 20000; done
train 5 out=other resume=auto train.steps=8 checkpoint.mismatch=warn checkpoint.fallback=previous
has err "contains no complete checkpoint"

# ---- diff ----
run 0 checkpoint diff $last $last
has out "0 tensors differ"
run 0 checkpoint diff first whole/checkpoints/step-00000006
has out "train.steps: 6 and 8"
has out "exp_avg of model.embed_tokens.weight: differs by at most "
run 0 checkpoint diff $last first/checkpoints/step-00000004 --json
cat >compared.lua <<'LUA'
local nrl = require "nrl"
local d = nrl.json.decode(io.open("compared"):read "a")
assert(#d.tensors > 0)
for _, t in ipairs(d.tensors) do assert(0 < t.max_abs and t.max_abs < 1, t.max_abs) end
LUA
mv out compared
run 0 run compared.lua
run 0 import "$source/tests/data/models/llama" imported
run 0 checkpoint diff first imported
has out "only in the first"
run 2 checkpoint diff first

# ---- export, straight from the files ----
run 0 export first model
cmp model/model.safetensors first/model/model.safetensors || failed=1
run 0 export $last model-bf16 --dtype bf16
damage first/checkpoints/step-00000004/rank-00000.nrlc 20000
run 5 export first/checkpoints/step-00000004 model-damaged
[ -e model-damaged ] && is "an export of damage" there absent

# ---- prune ----
run 2 checkpoint prune first
run 2 checkpoint prune nowhere --keep 1
run 0 checkpoint prune first --keep 2
has out "removed first/checkpoints/step-00000002"
is "what is left" "$(ls first/checkpoints | tr '\n' ' ')" "step-00000004 step-00000006 "
run 0 checkpoint prune first --keep 2 --json
has out '"removed": []'
exit $failed
