#!/bin/sh
# reward.sh: reward models have the losses of TRL over 20 steps (tests/data/reward), for every division of the work; an export
# is the class of transformers and is opened again; a resumed run has the numbers of an uninterrupted one.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
data=$source/tests/data/reward

recorded=2e-5 # both compute in fp32; after 20 updates
norms=1e-4    # sums in another order

cat >config.yaml <<YAML
model: {path: $data/model}
data: {train: $data/pairs.jsonl, eval: $data/pairs.jsonl, max_length: 32, shuffle: false, cache: cache, extra: [margin]}
algorithm: {name: reward}
train: {steps: 20, global_batch: 4, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 2e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, clip_norm: 0}
schedule: {name: constant}
checkpoint: {every: 10, export: last}
loggers: [jsonl]
YAML

cat >cases.lua <<LUA
local nrl = require "nrl"
for i, case in ipairs(nrl.json.decode(io.open("$data/reward.json"):read "a").cases) do
  local words = {"algorithm.name=reward"}
  for key, value in pairs(case.options) do
    if key == "lora" then words[#words + 1] = "lora.use=$data/adapter"
    elseif key == "margin" then words[#words + 1] = "algorithm.margin=margin"
    else words[#words + 1] = "algorithm." .. key .. "=" .. tostring(value) end
  end
  io.open("case" .. i, "w"):write(table.concat(words, " "), "\n"):close()
  for _, field in ipairs {"losses", "accuracies"} do
    io.open(field .. i, "w"):write(table.concat(case[field], "\n"), "\n"):close()
  end
end
LUA
run 0 run cases.lua

i=1
while [ -f "case$i" ]; do
    echo "== $(cat "case$i")"
    run 0 run config.yaml $(cat "case$i") out="run$i"
    values "run$i" loss >found
    near found "losses$i" 20 $recorded
    values "run$i" rewards/accuracies >found
    near found "accuracies$i" 20 1e-4
    i=$((i + 1))
done
is "cases" "$((i - 1))" 4

for i in 3 4; do
    run 0 run config.yaml $(cat "case$i") out=other overwrite=true train.micro_batch_tokens=64 train.activation_checkpointing=all
    values other loss >found
    near found "losses$i" 20 $recorded
    values "run$i" grad_norm >norms
    for strategy in ddp fsdp '{tensor: 2}' '{tensor: {size: 2, sequence: true}}' '{context: 2}' '{context: {size: 2, kind: ring}}'; do
        run 0 launch -n 2 -- run config.yaml $(cat "case$i") out=other overwrite=true "parallel=$strategy"
        values other loss >found
        near found "losses$i" 20 $recorded
        values other grad_norm >found
        near found norms 20 $norms
    done
    cp -r "run$i" again && rm -r again/checkpoints/step-00000020
    run 0 run config.yaml $(cat "case$i") out=again resume=auto
    for field in loss grad_norm; do
        values "run$i" $field >whole
        values again $field >found
        is "$field of a resumed run" "$(cat found)" "$(cat whole)"
    done
    rm -r again
done

# a micro-batch of too few tokens to be divided
echo '{"prompt_input_ids": [3], "chosen_input_ids": [40, 59], "rejected_input_ids": [34], "margin": 0}' >pair.jsonl
set -- config.yaml $(cat case3) data.train=pair.jsonl data.eval=null data.packing=false train.global_batch=1 train.micro_batch=1 \
    train.micro_batch_tokens=null checkpoint.every=0 checkpoint.export=none
run 0 run "$@" out=one
run 0 launch -n 4 -- run "$@" out=four 'parallel={context: {size: 4, kind: ring}}'
for field in loss grad_norm; do
    values one $field >whole
    values four $field >found
    near found whole 20 $norms
done

# an export is the class of transformers; a run's checkpoint and both exports score alike
grep -q '"LlamaForSequenceClassification"' run3/model/config.json || is "class" "$(cat run3/model/config.json)" LlamaForSequenceClassification
for i in 3 4; do
    run 0 export "run$i" "exported$i"
    is "exports of run$i" "$(cmp "exported$i/model.safetensors" "run$i/model/model.safetensors" && echo same)" same
    run 0 eval config.yaml $(sed 's/lora.use=[^ ]*//' "case$i") model.path="exported$i" out=none --json
    sed -n 's/.*"eval_rewards\/accuracies": *\([^,}]*\).*/\1/p' out >scored
    [ -s scored ] || is "accuracy of an evaluation" "$(cat out)" "eval_rewards/accuracies"
    run 0 run config.yaml $(sed 's/lora.use=[^ ]*//' "case$i") model.path="exported$i" out=next overwrite=true train.steps=1
done

run 2 check config.yaml algorithm=dpo model.path=exported3 out=new
has err "score head instead of an output layer"
run 0 export run4 adapter --adapter
grep -q 'base_model.model.score.weight' adapter/adapter_model.safetensors || is "score in adapter" none one
has adapter/adapter_config.json '"SEQ_CLS"'

# the adapter with its trained score goes on where the run stood
run 0 run config.yaml $(sed 's/lora.use=[^ ]*//' case4) lora.use=adapter out=next overwrite=true train.steps=1
values next loss >adapted
run 0 run config.yaml $(sed 's/lora.use=[^ ]*//' case4) model.path=exported4 out=next overwrite=true train.steps=1
values next loss >merged
paste adapted merged | awk '{ d = $1 - $2; exit !(d < 1e-5 && d > -1e-5) }' || is "loss with the adapter" "$(cat adapted)" "$(cat merged)"
run 2 run config.yaml algorithm=sft data.train="$source/tests/data/objectives/rows.jsonl" data.eval=null data.extra=null \
    model.path="$source/tests/data/models/llama" lora.use=adapter out=new
has err "tensor 'score.weight' belongs to a module that was trained in full, but this run does not train it"

# a loss in Lua on top of it is the same; there are no logits to sample from
cat >base.lua <<'LUA'
local nrl = require "nrl"
local name = nrl.loss {name = "as_reward", base = "reward",
  weight = function(b) return b:base_weight() end, loss = function(b) return b:base_loss() end}
local cfg = nrl.config "config.yaml"
for _, algorithm in ipairs {"reward", name} do
  cfg.algorithm = algorithm
  local run <close> = nrl.open(cfg, {quiet = true, out = "lua_" .. algorithm})
  run:train()
  local ok, problem = pcall(run.sample, run, {prompts = {"a"}})
  assert(not ok and tostring(problem):find("cannot sample: the model has a score", 1, true), problem)
end
local ok, problem = pcall(nrl.gradcheck, name)
assert(not ok and tostring(problem):find("it has parameters of its own", 1, true), problem)
LUA
run 0 run base.lua train.steps=5 checkpoint.every=0 checkpoint.export=none
is "losses of a loss in Lua" "$(values lua_as_reward loss)" "$(values lua_reward loss)"
[ -n "$(values lua_reward loss)" ] || is "losses" none some

# a language model gets a new score; its output layer is dropped
run 0 run config.yaml model.path="$source/tests/data/models/llama" algorithm.pad_token_id=0 out=new train.steps=1 loggers=[console]
has out "'score.weight' is new"
# the class of transformers, where there is one
run 0 run config.yaml model.path="$source/tests/data/models/gemma3_text" algorithm.pad_token_id=0 out=gemma3 train.steps=1
has gemma3/model/config.json '"Gemma3TextForSequenceClassification"'
cat >small.jsonl <<ROWS
{"prompt_input_ids": [3, 20, 7], "chosen_input_ids": [40, 9], "rejected_input_ids": [34, 5], "margin": 0}
ROWS
run 0 run config.yaml model.path="$source/tests/data/families/ernie4_5" algorithm.pad_token_id=0 out=ernie train.steps=1 data.train=small.jsonl data.eval=null train.global_batch=1
has err "transformers has no class Ernie4_5ForSequenceClassification: only nrl can load reward models of model_type ernie4_5"
run 2 check config.yaml model.path="$source/tests/data/models/llama" out=new2
has err "hint: algorithm.pad_token_id"
run 2 check config.yaml algorithm=dpo out=new2
has err "algorithm 'dpo' reads logits, but the model has a score head instead of an output layer"
run 2 run config.yaml model.path="$source/tests/data/models/llama" out=new3 data.extra= "algorithm={name: dpo, reference_model: $data/model}"
has err "it has a score head instead of an output layer; expected a language model"
# The new matrix decays in the run that makes it, and in one that goes on from its export.
command -v python3 >dd || { echo "skipped: the decay of the score head: no python3"; exit $failed; }
norm() {
    python3 - "$1/model/model.safetensors" <<'END'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
t = json.loads(b[8:8 + n])["score.weight"]
v = struct.unpack("<%df" % ((t["data_offsets"][1] - t["data_offsets"][0]) // 4), b[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
print(sum(x * x for x in v) ** 0.5)
END
}
run 0 run config.yaml model.path="$source/tests/data/models/llama" algorithm.pad_token_id=0 out=made train.steps=2 checkpoint.export_dtype=f32
run 0 run config.yaml model.path=made/model algorithm.pad_token_id=0 out=decayed train.steps=2 optimizer.weight_decay=100 checkpoint.export_dtype=f32
echo "$(norm made) $(norm decayed)" | awk '{ exit !($2 < 0.8 * $1 && $2 > 0) }' ||
    is "norm of the score head" "$(norm made) $(norm decayed)" "a smaller one after a decay of 0.2 twice"
exit $failed
