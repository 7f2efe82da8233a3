#!/bin/sh
# other_names.sh: names of other trainers, their values and verbs are answered by what nrl calls them; each answer names
# something that exists.
. "$(dirname "$0")/e2e.sh"

list=$source/cli/data/other-names.txt
rows 8 >train.jsonl
experiment >run.yaml

# ---- every key that the list names exists ----
sed -n 's/^[a-z0-9_]*  *\([a-z_.]*\)$/\1/p; s/^[^#]*it is \([a-z_]*\.[a-z_]*\) here.*/\1/p' "$list" | sort -u >keys.txt
while read -r key; do
    case $key in *.name) key=${key%.name} ;; esac
    "$nrl" describe "$key" >out 2>err && ! grep -q "is not a key" out && continue
    is "$key of other-names.txt" "$(cat err)" "an option"
done <keys.txt
[ "$(wc -l <keys.txt)" -gt 40 ] || is "keys of other-names.txt" "$(wc -l <keys.txt)" "more than 40"
is "words that are listed twice" "$(sed -n 's/^\([^# ]*\) .*/\1/p' "$list" | sort | uniq -d)" ""

# ---- and every component ----
echo '{"prompt_input_ids": [3, 4], "chosen_input_ids": [5, 7], "rejected_input_ids": [6, 8]}' >pairs.jsonl
sed -n 's/^algorithm=[a-z]*  *it is \({.*}\) here.*/\1/p' "$list" >components.txt
while read -r component; do
    data=train.jsonl
    case $component in *dpo*) data=pairs.jsonl ;; esac
    run 0 check run.yaml out=other data.train=$data "algorithm=$component"
done <components.txt
[ "$(wc -l <components.txt)" -gt 8 ] || is "components of other-names.txt" "$(wc -l <components.txt)" "more than 8"

# ---- all at once, with what is found in files ----
cat >bad.yaml <<'YAML'
model: {path: nowhere, load_in_4bit: true}
base_model: x
data: {train: nothing.jsonl, cutoff_len: 64, dataset_text_field: t}
train: {steps: 6, gradient_accumulation_steps: 4, precision: bfloat16, Per-Device-Train-Batch-Size: 3}
optimizer: {name: adamw, lr: 1e-3, momentum: 0.9}
algorithm: orpo
beta: 0.1
schedule: cosine_with_warmup
load_best_model_at_end: true
packing: true
out: other
YAML
run 2 check bad.yaml
has err "error: 15 mistakes in the config"
for text in "bad.yaml:1:9: model 'nowhere': no such directory" \
    "model.load_in_4bit: unknown key; it is adapter.base here, nf4" \
    "base_model: unknown key; it is model.path here" \
    "data.train: nothing.jsonl: No such file or directory" \
    "data.cutoff_len: unknown key; it is data.max_length here" \
    "data.dataset_text_field: unknown key; data.columns renames the column" \
    "train.gradient_accumulation_steps: unknown key; it follows here from train.global_batch" \
    "train.Per-Device-Train-Batch-Size: unknown key; it is train.global_batch here" \
    "train.precision: 'bfloat16' is not one of: fp32, bf16, fp16, fp8; it is bf16 here" \
    "optimizer.momentum: unknown key; optimizer.momentum is an option of muon, sam, sgd" \
    "algorithm: no algorithm 'orpo'; it is {name: dpo, loss: orpo} here" \
    "beta: unknown key; it is algorithm.beta here" \
    "no schedule 'cosine_with_warmup'; it is cosine here" \
    "load_best_model_at_end: unknown key; checkpoint.export=best" \
    "packing: unknown key; it is data.packing here"; do
    has err "$text"
done
run 2 check run.yaml out=other optimizer.lrr=1e-3 train.precision=fp12
has err "2 mistakes"
run 2 check run.yaml out=other data.eval=train.jsonl eval.every=2 checkpoint.metric=eval_acuracy
has err "checkpoint.metric: 'eval_acuracy' is not a metric of evaluations; expected one of: "

# ---- in whatever section they stand, also on the command line ----
cat >sections.yaml <<'YAML'
model: {path: x}
data: {train: train.jsonl, loader: {pin_memory: true}}
optimizer: {name: adamw, lr: 1e-3}
training:
  gradient_accumulation_steps: 4
  epochs: 3
  memory: {checkpoint_ratio: 0.5, unheard_of: 1}
out: other
YAML
run 2 check sections.yaml distributed.strategy=fsdp
for text in "sections.yaml:4:1: training: unknown key" \
    "sections.yaml:5:3: training.gradient_accumulation_steps: unknown key; it follows here from train.global_batch" \
    "sections.yaml:6:3: training.epochs: unknown key; it is train.epochs here" \
    "training.memory.checkpoint_ratio: unknown key; it is train.activation_checkpointing here" \
    "data.loader.pin_memory: unknown key; batches are staged in pinned memory" \
    "command line: distributed.strategy: unknown key; it is parallel here"; do
    has err "$text"
done
lacks err unheard_of

# ---- what nrl migrate knows is known here ----
for name in trl transformers llamafactory axolotl torchtune nemo-rl generic; do
    run 0 migrate --list $name
    grep -o '`[A-Za-z0-9_.]*`' out | tr -d '`' | sed 's/.*\.//' | grep '^[a-z0-9]*_[a-z0-9_]*[a-z0-9]$' >>words.txt
done
sort -u words.txt >unique.txt
[ "$(wc -l <unique.txt)" -gt 300 ] || is "words of nrl migrate" "$(wc -l <unique.txt)" "more than 300"
"$nrl" describe >everything.txt
while read -r word; do
    grep -qi "^$word " "$list" || grep -q "[ |]$word[ |,]" everything.txt || is "$word of nrl migrate" unknown "in other-names.txt"
done <unique.txt

# ---- describe, verbs ----
run 0 describe training.gradient_accumulation_steps
has out "it follows here from train.global_batch"
run 0 describe lora_target_modules
has out "it is lora.targets here"
run 0 describe cutoff_len
has out "cutoff_len is not an option of nrl; it is data.max_length here"
has out "maximum number of tokens of a sample"
run 0 describe gradient-accumulation-steps
has out "it follows here from train.global_batch"
run 2 check run.yaml out=other algorithm=rm
has err "no algorithm 'rm'; it is reward here"
run 2 check run.yaml out=other algorithm=gkd teacher_model_name_or_path=x
has err "no algorithm 'gkd'; it is distill here"
has err "teacher_model_name_or_path: unknown key; it is algorithm.teacher_model here"
run 2 check run.yaml out=other 'parallel={cp: 2}'
has err "parallel.cp: unknown key; it is parallel.context here"
run 2 check run.yaml out=other 'parallel={data: hsdp}'
has err "no parallel strategy 'hsdp'; it is fsdp here, with hybrid: true"
run 2 check run.yaml out=other 'parallel={data: {name: fsdp, shard: 4}}'
has err "parallel.shard: '4' is not one of: full, grads, optimizer; shard_size: 4 is the number of ranks that share a copy"
run 0 describe formats
has out "prompt, chosen, rejected"
has out "formats/hf - "
run 2 train
has err "error: unknown verb 'train'; \`nrl run FILE\` trains"
run 2 sft run.yaml
has err "with \`algorithm: sft\` in the file"
# ---- keys of nrl that are asked for in the wrong section or of the wrong component ----
asked() { # KEY=VALUE TEXT
    run 2 check run.yaml out=other "$1"
    has err "$2"
}
asked eval.steps=5 "eval.steps: unknown key; it is eval.every here"
asked data.path=x "data.path: unknown key; it is data.train here"
asked model.name=x "model.name: unknown key; it is model.path here"
asked checkpoint.dir=x "checkpoint.dir: unknown key; checkpoints are written to OUT/checkpoints"
asked 'algorithm={name: sft, beta: 0.1}' "algorithm.beta: unknown key; it is an option of dpo, kto, grpo and distill"
asked parallel=tp "the axis tensor divides the width of layers: parallel={tensor: N}"
exit $failed
