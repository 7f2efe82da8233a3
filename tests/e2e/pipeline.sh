#!/bin/sh
# pipeline.sh: dividing units into stages does not change numbers: 2 and 4 stages, both schedules, more stages than
# micro-batches, combined with ddp and fsdp; fine-tuning of both models, preferences with an online reference,
# adapters, losses of scripts, evaluation and sampling in a run. Errors contain the numbers.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

data=$source/configs/data
tiny="{config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}"

# tied embeddings, on the first and the last stage
staged "$tiny" "$data/chat.jsonl" "$data/chat_eval.jsonl" sft 128 1e-3 >config.yaml
one sft
ranks 2 two $exact parallel.pipeline=2
ranks 4 four $exact parallel.pipeline=4
ranks 2 gpipe $exact 'parallel={pipeline: {size: 2, schedule: gpipe}}' train.activation_checkpointing=all
ranks 3 split $exact 'parallel={pipeline: {size: 3, split: [1, 1, 4]}}'
ranks 4 one-micro-batch $exact parallel.pipeline=4 train.micro_batch_tokens=4096
ranks 4 ddp $exact 'parallel={data: ddp, pipeline: 2}' 'debug={every: 7}'
ranks 4 fsdp $exact 'parallel={data: fsdp, pipeline: 2}' 'debug={every: 7}'
ranks 4 grads $exact 'parallel={data: {name: fsdp, shard: grads}, pipeline: 2}' 'train.activation_checkpointing={every: 2}'
ranks 4 optimizer $exact 'parallel={data: {name: fsdp, shard: optimizer, units: {every: 2}}, pipeline: {size: 2, schedule: gpipe}}'

run 0 run config.yaml out=half train.precision=bf16 train.master=split16
numbers half/metrics.jsonl >expected.txt
ranks 2 split16 $bf16_unit parallel.pipeline=2 train.precision=bf16 train.master=split16
short_form_ends

staged "$tiny" "$data/pref.jsonl" "$data/pref_eval.jsonl" dpo 512 1e-4 >config.yaml
one dpo
ranks 2 two $exact parallel.pipeline=2
ranks 4 fsdp $exact 'parallel={data: fsdp, pipeline: 2}'
ranks 3 cached $exact parallel.pipeline=3 'algorithm={name: dpo, reference: cached}'

# adapters: frozen weights have owner_stages too, and stages below the lowest adapter make no backward
staged "$tiny" "$data/chat.jsonl" "$data/chat_eval.jsonl" sft 128 1e-2 >config.yaml
echo "lora: {rank: 4, alpha: 8, dropout: 0.1}" >>config.yaml
one lora
ranks 4 lora-fsdp $exact 'parallel={data: fsdp, pipeline: 2}' 'debug={every: 7}'
run 0 launch -n 2 -- run config.yaml out=lora-staged parallel.pipeline=2
run 0 export lora-staged lora-alone
cmp lora-alone/model.safetensors lora-staged/model/model.safetensors || failed=1
sed -i "s/dropout.*/targets: [layers.3.self_attn.q_proj]}/" config.yaml
one lora-upper
ranks 4 lora-upper-4 $exact parallel.pipeline=4

# weights from a directory, on as many stages as there are units
rows 64 >train.jsonl
rows 16 >eval.jsonl
staged "{path: $source/tests/data/models/gpt2}" train.jsonl eval.jsonl sft 64 1e-3 | sed 's/max_length: 128/max_length: 48/' >config.yaml
one gpt2
ranks 4 four $exact parallel.pipeline=4
ranks 2 eval-alone $exact parallel.pipeline=2

# a loss, hooks and sampling of a script on all ranks
cat >script.lua <<E2
local nrl = require "nrl"
local loss = nrl.loss {name = "as_sft", needs = {"logps"}, metrics = {p = "mean"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b) b:metric("p", b:logps():exp()) return -(b:logps() * b:mask()):sum() end}
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.algorithm, cfg.train.micro_batch_tokens = loss, 256
local run <close> = nrl.open(cfg, {quiet = true})
run:on("step", function(e) assert(e.loss > 0 and e.p > 0) if e.step == 3 then run.lr = 1e-4 end end)
run:train()
local eval = run:evaluate()
print(("loss %.9g"):format(eval.eval_loss))
for _, text in ipairs(run:sample{prompts = {"hello", "what is this?"}, max_tokens = 12, chat = true}) do print("text " .. text) end
for _, text in ipairs(run:sample{prompts = {"hello"}, max_tokens = 12, temperature = 1, seed = 5}) do print("text " .. text) end
E2
set -- train.epochs=0 train.steps=6 checkpoint.every=0 checkpoint.export=none "$one_thread"
run 0 run script.lua out=script-1 "$@"
grep '^text' out >expected.out
sed -n 's/^loss //p' out >expected.loss
is "lines of a script" "$(wc -l <expected.out | tr -d ' ')" 3
run 0 launch -n 2 -- run script.lua out=script-2 "$@" parallel.pipeline=2
sed -n 's/^\[0\] text/text/p' out >found.out
sed -n 's/^\[0\] loss //p' out >found.loss
near found.loss expected.loss 1 1e-5
cmp expected.out found.out || is "a script on two stages" "$(cat found.out)" "$(cat expected.out)"

# what is said, and what is wrong
run 0 check config.yaml out=planned 'parallel={data: {name: ddp, size: 2}, pipeline: 2}'
has out "4 ranks, not joined"
has out "parallel   pipeline: 1f1b over 2 stages of 2 + 2 units"
has out "bubble"
sed 's/"n_layer": [0-9]*/"n_layer": 62/' "$source/tests/data/models/gpt2/config.json" >deep.json
run 0 check config.yaml out=planned parallel.pipeline=60 'model={config: deep.json}'
has out "parallel   pipeline: 1f1b over 60 stages of "
has out "+ 1 + 1 units"
run 2 check config.yaml out=planned parallel.pipeline=5
has err "cannot split the model into 5 stages: it has 4 units ('embed' to 'norm'), and each stage needs one"
run 2 check config.yaml out=planned 'parallel={pipeline: {size: 2, split: [1, 2]}}'
has err "command line: parallel strategy 'pipeline': split: the sum of units is 3; expected a list of 2 numbers of units whose sum is 4"
run 2 check config.yaml out=planned 'parallel={pipeline: {size: 2, split: [0, 4]}}'
has err "split: a stage's number of units is 0"
run 2 check config.yaml out=planned 'parallel={pipeline: {size: 2, split: halves}}'
has err "split: expected a list of 2 numbers of units"
run 2 check config.yaml out=planned 'parallel={pipeline: {size: 2, split: [9223372036854775807, 1]}}'
has err "split: the sum of units is 6"
run 2 check config.yaml out=planned 'parallel={pipeline: {size: 2, schedule: zb}}'
has err "schedule: 'zb' is not one of: 1f1b, gpipe"
exit $failed
