#!/bin/sh
# objectives.sh: the objectives that read more than log-probs have the losses of PyTorch over 20 steps, for every division of
# the work; a resumed run has the numbers of an uninterrupted one. The numbers come from tests/data/objectives.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
data=$source/tests/data/objectives

NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/plugins
export NRL_PLUGIN_PATH

# Relative, of fp32 after up to 20 updates, next to PyTorch in fp64. KL is a difference of sums.
recorded=2e-6
# Sums in another order.
order=1e-5

# config NAME TOKENS OPTIONS: the config of a run of 20 steps
config() {
    cat >"$1.yaml" <<YAML
model: {path: $source/tests/data/models/llama}
data: {train: $data/rows.jsonl, max_length: 32, shuffle: false, cache: cache}
algorithm: {$3}
train: {steps: 20, global_batch: 4, micro_batch_tokens: $2, seed: 3}
optimizer: {name: adamw, lr: 2e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, clip_norm: 0}
schedule: {name: constant}
loggers: [jsonl]
YAML
}

cat >cases.lua <<LUA
local nrl = require "nrl"
for i, case in ipairs(nrl.json.decode(io.open("$data/objectives.json"):read "a").cases) do
  local words = {"name: " .. case.algorithm}
  for key, value in pairs(case.options) do words[#words + 1] = key .. ": " .. tostring(value) end
  if case.algorithm == "distill" or case.algorithm == "follow" then words[#words + 1] = "teacher_model: $source/tests/data/models/mistral" end
  io.open("case" .. i, "w"):write(table.concat(words, ", "), "\n"):close()
  io.open("losses" .. i, "w"):write(table.concat(case.losses, "\n"), "\n"):close()
end
LUA
run 0 run cases.lua

i=1
while [ -f "case$i" ]; do
    options=$(cat "case$i")
    echo "== $options"
    config "c$i" 256 "$options"
    run 0 run "c$i.yaml" out="run$i" checkpoint.every=10
    values "run$i" loss >found
    near found "losses$i" 20 $recorded
    i=$((i + 1))
done
is "cases" "$((i - 1))" 11

# several micro-batches and chunks of logits, and several ranks
for i in 3 6 9 10 11; do
    for change in train.micro_batch_tokens=32 train.activation_checkpointing=all; do
        run 0 run "c$i.yaml" out=other overwrite=true $change
        values other loss >found
        near found "losses$i" 20 $recorded
    done
    for strategy in ddp fsdp '{tensor: 2}'; do
        run 0 launch -n 2 -- run "c$i.yaml" out=other overwrite=true "parallel=$strategy"
        values other loss >found
        near found "losses$i" 20 $order
    done
    cp -r "run$i" again && rm -r again/checkpoints/step-00000020
    run 0 run "c$i.yaml" out=again resume=auto
    for field in loss grad_norm; do
        values "run$i" $field >whole
        values again $field >found
        is "$field of a resumed run" "$(cat found)" "$(cat whole)"
    done
    rm -r again
done

# Sampled completions in about half of the steps: the same ones on any number of ranks and after a resume, and not those
# of another seed.
config sampled 48 "name: distill, teacher_model: $source/tests/data/models/mistral, kd_ratio: 1, on_policy: 0.5,
  max_tokens: 24, top_k: 40"
run 0 run sampled.yaml out=sampled checkpoint.every=10
values sampled loss >one
lengths=$(grep -c '"completions/length"' sampled/metrics.jsonl)
[ "$lengths" -gt 4 ] && [ "$lengths" -lt 16 ] || is "steps on completions of the policy" "$lengths" "about 10"
is "steps with answers of the data" "$(grep -c '"nll"' sampled/metrics.jsonl)" $((20 - lengths))
for strategy in ddp fsdp '{tensor: 2}' '{data: fsdp, tensor: 2}'; do
    n=2
    [ "$strategy" = '{data: fsdp, tensor: 2}' ] && n=4
    run 0 launch -n $n -- run sampled.yaml out=other overwrite=true "parallel=$strategy"
    values other loss >found
    near found one 20 $order
done
cp -r sampled again && rm -r again/checkpoints/step-00000020
run 0 run sampled.yaml out=again resume=auto
for field in loss grad_norm; do
    values sampled $field >whole
    values again $field >found
    is "$field of a resumed run with sampled completions" "$(cat found)" "$(cat whole)"
done
run 0 run sampled.yaml out=other overwrite=true train.seed=4
values other loss >found
cmp -s found one && is "the losses of another seed" "the same" "others"

# What cannot be.
run 2 check sampled.yaml algorithm.kd_ratio=0.5
has err "on_policy is 0.5 with kd_ratio 0.5"
run 2 check sampled.yaml algorithm.beta=0.25
has err "only divergence: jsd uses it"
config plain 48 "name: distill, teacher_model: $source/tests/data/models/mistral"
for option in max_tokens=64 sample_temperature=0.7 top_p=0.9 top_k=8; do
    run 2 check plain.yaml algorithm.$option
    has err "${option%=*} is set, but only steps with sampled completions use it"
done
sed 's/, "labels.*/}/' "$source/tests/data/objectives/rows.jsonl" >whole.jsonl
run 2 run sampled.yaml out=other overwrite=true data.train=whole.jsonl data.train_on=all
has err "data.train_on is all, so there is no prompt to continue"
exit $failed
