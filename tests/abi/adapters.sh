#!/bin/sh
# adapters.sh CMAKE CC: builds the installed example of an adapter against the package alone, runs its suite, and
# trains with it: on one rank and on several, with both ways to select it, interrupted and resumed. Merged weights
# evaluate to the loss of the adapter; a resume refuses another adapter or other settings.
. "$(dirname "$0")/installed.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

build "$prefix/share/nrl/examples/ia3" ia3
export NRL_PLUGIN_PATH=$work/ia3/plugins
run 0 describe ia3
has out "modules whose inputs are scaled"

cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, eval: $source/configs/data/chat_eval.jsonl, max_length: 128, template: chatml, cache: cache}
adapter: ia3
train: {steps: 6, global_batch: 8, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 1e-2}
checkpoint: {every: 3}
eval: {every: 6}
loggers: [console, jsonl]
$one_thread_yaml
YAML

run 0 run config.yaml out=plain
has out "with merged adapters"
numbers plain/metrics.jsonl >expected.txt
is "distinct losses" "$(sort -u expected.txt | wc -l)" "$(wc -l <expected.txt)"
# 4 layers: factors of keys and values, and of the inputs of down_proj
run 0 checkpoint inspect plain
has out "model.layers.0.self_attn.k_proj.ia3_l"
has out "model.layers.3.mlp.down_proj.ia3_l"

# the section is short for the component
sed 's/^adapter: ia3/ia3: {}/' config.yaml >section.yaml
run 0 run section.yaml out=section
numbers section/metrics.jsonl | cmp - expected.txt || is "the losses of the section" others "the same"

# stopped and resumed, to the bit
run 0 run config.yaml out=stopped train.steps=3
run 0 run config.yaml out=stopped resume=auto
run 0 checkpoint diff plain/checkpoints/step-00000006 stopped/checkpoints/step-00000006
has out "0 tensors differ"
run 2 run config.yaml out=stopped resume=auto train.steps=7 'adapter={name: ia3, inputs: []}'
has err "ia3"
run 2 run config.yaml out=stopped resume=auto train.steps=7 adapter=lora
has err "adapter"

# merged weights have the loss of the adapter
run 0 eval plain
mv out evaluated
run 0 export plain merged
run 0 eval config.yaml adapter=null model.config=null model.path=merged out=none
loss_of() { awk '$1 ~ /eval_loss/ { print $2; exit }' "$1"; }
[ -n "$(loss_of evaluated)" ] || is "an evaluation" "$(cat evaluated)" "eval_loss"
awk -v a="$(loss_of evaluated)" -v b="$(loss_of out)" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    is "the loss of the merged weights" "$(loss_of out)" "$(loss_of evaluated)"

# several ranks: the parameters are divided as the weights are
ranks 2 ddp 1e-5 parallel=ddp
ranks 2 fsdp 1e-5 parallel=fsdp
ranks 2 tensor 1e-5 'parallel={data: ddp, tensor: 2}'

# mistakes
run 2 check config.yaml out=none 'adapter={name: ia3, outputs: [], inputs: []}'
has err "outputs and inputs match no linear module of this model"
run 2 check config.yaml out=none 'adapter={name: ia3, output: []}'
has err "did you mean 'outputs'"
run 2 export plain alone --adapter
has err "peft"
exit $failed
