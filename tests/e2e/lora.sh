#!/bin/sh
# lora.sh: the section lora only trains adapters. The numbers are the same for any number of ranks, with recomputed
# activations, packed or not, and with dropout. Checkpoints that only contain adapters resume bit-identically;
# exports, samples and evaluations use merged weights; an online reference is the policy without adapters. Mistakes
# are reported.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, eval: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
lora: {rank: 4, alpha: 8}
train: {steps: 12, global_batch: 8, micro_batch_tokens: 128, seed: 3}
optimizer: {name: adamw, lr: 1e-2, weight_decay: 0.1, clip_norm: 0.5}
checkpoint: {every: 6}
eval: {every: 6}
loggers: [console, jsonl]
$one_thread_yaml
YAML

# ---- one rank ----

run 0 check config.yaml out=plain
has out "rank 4, alpha 8 on 28 modules; 19,456 parameters are trained (7.8 %, 76.0 KiB), 229,952 frozen (0.9 MiB)"
has out "weights 1.0 MiB, gradients 76.0 KiB, optimizer 0.1 MiB"
run 0 run config.yaml out=plain
has out "exported   plain/model: step 12 (the last), with merged adapters"
numbers plain/metrics.jsonl >expected.txt
small=$(du -sk plain/checkpoints/step-00000012 | cut -f1)
[ "$small" -lt 300 ] || { echo "a checkpoint of adapters has $small KiB"; failed=1; }

run 0 run config.yaml out=again "train.activation_checkpointing=all"
numbers again/metrics.jsonl | cmp - expected.txt || failed=1
run 0 checkpoint diff plain/checkpoints/step-00000012 again/checkpoints/step-00000012
has out "0 tensors differ"

# A stop in the middle changes no bit.
run 0 run config.yaml out=stopped train.steps=6
run 0 run config.yaml out=stopped resume=auto
run 0 checkpoint diff plain/checkpoints/step-00000012 stopped/checkpoints/step-00000012
has out "0 tensors differ"
run 0 checkpoint verify stopped
run 0 checkpoint inspect stopped
has out "lora_A.weight"

# ---- the section is short for a component ----

sed 's/^lora: {/adapter: {name: lora, /' config.yaml >component.yaml
run 0 run component.yaml out=component
numbers component/metrics.jsonl | cmp - expected.txt || failed=1
run 0 checkpoint diff plain/checkpoints/step-00000012 component/checkpoints/step-00000012
has out "0 tensors differ"
run 0 run config.yaml out=component resume=auto train.steps=13
run 0 resume component train.steps=14 lora.rank=4
run 2 resume component train.steps=15 lora.rank=8
has err "adapter.rank: was 4, is now 8"
has plain/config.yaml "name: lora"
run 2 check config.yaml out=none adapter=scaled
has err "lora: the config also has the adapter 'scaled'; expected one"
run 2 check config.yaml out=none lora=null adapter=lorra
has err "no adapter 'lorra'; did you mean 'lora'?"

# ---- several ranks ----

for how in ddp fsdp '{data: {name: fsdp, shard: grads}}' '{data: {name: fsdp, shard: optimizer}}'; do
    ranks 2 many 1e-5 "parallel=$how" debug=true
done
run 0 launch -n 2 -- run config.yaml out=two parallel=fsdp train.steps=6
run 0 run config.yaml out=two resume=auto checkpoint.mismatch=stop
numbers two/metrics.jsonl >a
is "records of two" "$(wc -l <a)" 14
run 0 launch -n 2 -- run config.yaml out=shards parallel=fsdp train.activation_checkpointing=all
run 0 export shards shards-merged
cmp shards-merged/model.safetensors shards/model/model.safetensors || failed=1

# ---- precision ----

for how in precision=bf16 "precision=bf16 train.master=split16" "precision=bf16 train.gradients=bf16" precision=fp16; do
    rm -rf precise
    run 0 run config.yaml out=precise train.$how
    run 0 export precise precise-merged --overwrite
done

# ---- dropout: by sample and position, whoever computes them ----

run 0 run config.yaml out=dropped lora.dropout=0.2
numbers dropped/metrics.jsonl >expected.txt
cmp -s expected.txt a && { echo "dropout changes nothing"; failed=1; }
run 0 run config.yaml out=dropped-again lora.dropout=0.2 train.activation_checkpointing=all
numbers dropped-again/metrics.jsonl | cmp - expected.txt || failed=1
run 0 run config.yaml out=dropped-stopped lora.dropout=0.2 train.steps=6
run 0 run config.yaml out=dropped-stopped lora.dropout=0.2 resume=auto
run 0 checkpoint diff dropped/checkpoints/step-00000012 dropped-stopped/checkpoints/step-00000012
has out "0 tensors differ"
run 0 run config.yaml out=unpacked lora.dropout=0.2 data.packing=false train.micro_batch=1
compare unpacked 1e-5
ranks 2 dropped-ranks 1e-5 lora.dropout=0.2
short_form_ends

# ---- a section without anything in it is none, and said ----

sed 's/^lora:.*/lora:/' config.yaml >empty.yaml
run 0 check empty.yaml out=none
has err "warning: empty.yaml:3:"
has err "lora: is empty, so all weights are trained; {} selects the defaults"

# ---- another base, another kind ----

run 2 run config.yaml out=stopped resume=auto train.steps=14 lora.rank=8
has err "lora.modules: 28 of 28 differ, the first was {"
run 2 run config.yaml out=stopped resume=auto train.steps=14 lora=null
has err "it contains adapters, but this run has no section lora"
run 0 run config.yaml out=whole lora=null train.steps=2
run 2 run config.yaml out=whole resume=auto train.steps=4
has err "it contains full weights, but this run trains adapters"
run 0 run config.yaml out=on model.config=null model.path=whole/model train.steps=2
cp -r whole/model base
run 0 run config.yaml out=moved model.config=null model.path=base train.steps=2
run 0 export again other
cp other/model.safetensors base/model.safetensors
run 2 run config.yaml out=moved model.config=null model.path=base resume=auto train.steps=4
has err "base: was"
run 2 sample moved --prompt "Spell"
has err "the adapters were trained on other weights"

# ---- merged: exports, samples, evaluations, another run ----

run 0 export plain merged
cmp merged/model.safetensors plain/model/model.safetensors || failed=1
run 0 sample plain --prompt "Spell the word" --max-tokens 8
mv out sampled
run 0 sample merged --prompt "Spell the word" --max-tokens 8
cmp out sampled || failed=1
run 0 eval config.yaml model.config=null model.path=plain out=none
mv out evaluated
run 0 eval config.yaml model.config=null model.path=merged lora=null out=none
sed '/^weights/d; s/eval_seconds.*//' out >b
sed '/^weights/d; s/eval_seconds.*//' evaluated | cmp - b || failed=1
run 0 run config.yaml out=over model.config=null model.path=plain train.steps=2
run 0 export over twice
run 0 sample over --prompt "Spell the word" --max-tokens 8

# ---- as peft has it, and back ----

run 0 export plain adapter --adapter
has out "wrote adapter (an adapter, f32)"
has adapter/adapter_config.json '"r": 4'
run 2 export plain adapter --adapter
has err "already contains an adapter"
run 2 export whole adapter2 --adapter
has err "contains full weights and no adapters"
run 0 eval config.yaml lora='{use: adapter}' out=none
sed 's/eval_seconds.*//' out >a
awk 'NR == FNR { want[$1] = $2; next } $1 ~ /eval_loss/ { d = $2 - want[$1]; exit !(d < 1e-4 && d > -1e-4) }' a b || {
    echo "a peft adapter evaluates to"; cat a b; failed=1; }
run 0 run config.yaml out=used lora='{use: adapter}' train.steps=2
has out "adapters from adapter"
run 2 check config.yaml out=none lora.use=adapter lora.rank=8
has err "error: command line: lora.rank: the adapter of lora.use has its own value, 4; remove the option"
cp -r adapter misfit
sed 's/"r": 4/"r": 8/' adapter/adapter_config.json >misfit/adapter_config.json
run 65 check config.yaml out=none 'lora={use: misfit}'
has err "misfit/adapter_config.json: r of 'model.layers.0.self_attn.q_proj' is 8, but its tensors have rank 4"
run 65 sample adapter --prompt a
has err "adapter: an adapter without its model; expected a model"
run 2 check config.yaml out=none 'lora={use: adapter, targets: [q_proj]}'
has err "lora.targets: the adapter of lora.use has its own 28 modules"
run 0 run config.yaml out=used resume=auto lora='{use: adapter}' train.steps=3
run 0 resume used train.steps=4
cp -r adapter dora
sed 's/"use_dora": false/"use_dora": true/' adapter/adapter_config.json >dora/adapter_config.json
run 65 check config.yaml out=none lora='{use: dora}'
has err "use_dora is true, but"

# ---- a reference that is the policy itself ----

cat >dpo.yaml <<YAML
defaults: $source/configs/dpo.yaml
model: {config: null, path: whole/model}
data: {cache: cache-dpo}
train: {epochs: 1, micro_batch_tokens: 512}
optimizer: {lr: 3e-3}
lora: {rank: 4, alpha: 8, targets: [q_proj, v_proj]}
eval: {every: 0}
checkpoint: {every: 0}
loggers: [console, jsonl]
$one_thread_yaml
YAML
run 0 run dpo.yaml out=dpo-shared
has out "reference  the policy without its adapters, a forward each step: no additional weights"
run 0 run dpo.yaml out=dpo-own algorithm.reference_model=whole/model
has out "reference  a forward each step, weights 0.9 MiB"
numbers dpo-shared/metrics.jsonl >expected.txt
numbers dpo-own/metrics.jsonl | cmp - expected.txt || failed=1
run 0 run dpo.yaml out=dpo-cached algorithm.reference=cached
compare dpo-cached $exact # its reference was computed in other micro-batches
run 0 run "$source/configs/kto.yaml" out=kto "$one_thread" lora='{rank: 4}' train.epochs=1
has out "reference  the policy without its adapters"
run 0 run dpo.yaml out=dpo-used lora='{use: adapter}' # its start is base and adapter: a copy has them merged
has out "reference  a forward each step, weights 0.9 MiB"
# With dropout the trained adapters of the start make another first loss than ln 2; fresh ones still have it.
first_loss() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl" | head -n 1 | cut -c 1-5; }
run 0 run dpo.yaml out=dpo-dropped lora='{use: adapter, dropout: 0.3}'
[ "$(first_loss dpo-dropped)" != 0.693 ] || is "first loss of trained adapters with dropout" 0.693 "another number"
run 0 run dpo.yaml out=dpo-dropped-cached lora='{use: adapter, dropout: 0.3}' algorithm.reference=cached
run 0 run dpo.yaml out=dpo-fresh lora.dropout=0.3
is "first loss of fresh adapters with dropout" "$(first_loss dpo-fresh)" 0.693
for how in ddp fsdp; do
    rm -rf dpo-ranks
    run 0 launch -n 2 -- run dpo.yaml out=dpo-ranks "parallel=$how"
    compare dpo-ranks 1e-5
done

# ---- the example ----

run 0 check "$source/configs/lora.yaml"
has out "lora       rank 16, alpha 32, dropout 0.05 on 28 modules"

# ---- scripts: one model after another, a loss of the script's own ----

cat >sweep.lua <<LUA
local nrl = require "nrl"
local cfg = nrl.config "config.yaml"
cfg.train.steps, cfg.eval = 3, nil
cfg.algorithm = nrl.loss {
  name = "focal", needs = {"logps"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b) local l = b:logps() return -((1 - l:exp()) ^ 2 * l * b:mask()):sum() end,
}
for _, rank in ipairs {2, 4} do
  cfg.lora = {rank = rank, targets = {"q_proj", "down_proj"}}
  local run = nrl.open(cfg, {out = "sweep-" .. rank, quiet = true})
  run:train()
  run:export("sweep-" .. rank .. "/again")
  assert(#run:sample {prompts = {"Spell"}, max_tokens = 4} == 1)
end
LUA
run 0 run sweep.lua
for rank in 2 4; do
    cmp sweep-$rank/again/model.safetensors sweep-$rank/model/model.safetensors || failed=1
    run 0 export sweep-$rank sweep-$rank/adapter --adapter
    has sweep-$rank/adapter/adapter_config.json "\"r\": $rank"
done

# ---- mistakes ----

run 2 check config.yaml out=none 'lora.targets=[q_proj, query]'
has err "lora.targets: no linear module has a name that ends in 'query'; those of this model: q_proj, k_proj"
run 2 check config.yaml out=none lora.targets=embed_tokens
has err "an embedding, the head, a router that is not linear in peft, or in modules_to_save: these have no adapters"
run 2 check config.yaml out=none 'lora.targets=.*attn.x'
has err "does not match the whole name of a linear module, such as model.layers.0.self_attn.q_proj"
run 2 check config.yaml out=none lora.r=4
has err "lora.r: unknown key; it is lora.rank here"
run 2 check config.yaml out=none lora_r=4
has err "lora_r: unknown key; it is lora.rank here"
run 2 check component.yaml out=none adapter.r=4
has err "adapter.r: unknown key; it is lora.rank here"
run 2 check config.yaml out=none 'lora.targets=[]'
has err "targets: an empty list, expected all-linear or names of modules"
run 2 check config.yaml out=none lora=true
has err "lora: expected a map of options"
exit $failed
