#!/bin/sh
# objectives.sh: the objectives that read more than log-probs have the losses of PyTorch over 20 steps, for every division of
# the work; a resumed run has the numbers of an uninterrupted one. The numbers come from tests/data/objectives.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
data=$source/tests/data/objectives

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
  if case.algorithm == "distill" then words[#words + 1] = "teacher_model: $source/tests/data/models/mistral" end
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
is "cases" "$((i - 1))" 7

# several micro-batches and chunks of logits, and several ranks
for i in 3 6; do
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
exit $failed
