#!/bin/sh
# resume_compared.sh: a run only continues from a checkpoint with equal settings. The error names every option that
# changes the numbers with both values, unless checkpoint.mismatch=warn; other options may change; layers that the run
# does not have are never dropped.
. "$(dirname "$0")/e2e.sh"
rows 64 >train.jsonl
experiment 'schedule: {name: cosine, warmup_steps: 1}' >c.yaml
run 0 run c.yaml out=first train.precision=bf16

# the value of a variable of the environment stays out of every file, and does not count as a difference
NRL_TEST_TOKEN=hunter2
export NRL_TEST_TOKEN
run 0 run c.yaml out=hidden 'name=run-${env:NRL_TEST_TOKEN}' train.steps=3
run 0 run c.yaml out=hidden 'name=run-${env:NRL_TEST_TOKEN}' resume=auto checkpoint.mismatch=warn
grep -rl hunter2 hidden err && is "files with a secret" some none
has hidden/config.yaml 'run-${env:NRL_TEST_TOKEN}'

# differs OPTION TEXT: the option alone ends a resume, in these words; with a warning it goes on
n=0
differs() {
    n=$((n + 1))
    cp -r first "second-$n"
    run 2 run c.yaml out="second-$n" resume=auto train.precision=bf16 "$1"
    has err "resuming from second-$n/checkpoints/step-00000006: the checkpoint was written by a run with other settings:"
    has err "  $2"
    is "differences of $1" "$(grep -c ': was .*, is now ' err)" "${3:-1}"
    run 0 run c.yaml out="second-$n" resume=auto train.precision=bf16 "$1" checkpoint.mismatch=warn
    has err "warning: the checkpoint was written by a run with other settings:"
    has err "  $2"
}
differs algorithm.loss=dft 'algorithm.loss: was "nll", is now "dft"'
differs algorithm.reduce=sequence 'algorithm.reduce: was "token", is now "sequence"'
differs algorithm.prompt_weight=0.5 'algorithm.prompt_weight: was 0.0, is now 0.5'
differs optimizer.lr=2e-3 'optimizer.lr: was 0.001, is now 0.002'
differs 'optimizer.betas=[0.9, 0.95]' 'optimizer.betas: was [0.9, 0.999], is now [0.9, 0.95]'
differs optimizer.clip_norm=5 'optimizer.clip_norm: was 1.0, is now 5.0'
differs train.precision=fp32 'train.precision: was "bf16", is now "fp32"'
differs train.gradients=bf16 'train.gradients: was "fp32", is now "bf16"'
differs train.global_batch=8 'train.global_batch: was 4, is now 8'
differs train.seed=9 'train.seed: was 1, is now 9'
differs data.shuffle=false 'data.shuffle: was true, is now false'
differs data.last_batch=drop 'data.last_batch: was "keep", is now "drop"'
differs data.max_length=48 'data.max_length: was 64, is now 48'
differs schedule.warmup_steps=2 'schedule.warmup_steps: was 1, is now 2'
differs schedule.name=linear 'schedule.name: was "cosine", is now "linear"'
differs checkpoint.metric=eval_accuracy 'checkpoint.metric: was "eval_loss", is now "eval_accuracy"'
head -n 63 train.jsonl >fewer.jsonl
differs data.train=fewer.jsonl 'data: was ["'

# ---- the model: what it computes, and how many layers it has ----
# model NAME SED: the model with another config.json
model() {
    rm -rf "$1"
    golden "$1"
    sed "$2" "$1/config.json" >config.new && mv config.new "$1/config.json"
}
model rope 's/"rope_theta": 10000.0/"rope_theta": 500000.0/'
differs model.path=rope 'config.json: rope_parameters.rope_theta: was 10000.0, is now 500000.0'
model copied 's/"transformers_version": "[^"]*"/"transformers_version": "9.9"/'
cp -r first third
run 0 run c.yaml out=third resume=auto train.precision=bf16 model.path=copied
model shallow 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
random="model.path=null model.config=shallow/config.json"
# shellcheck disable=SC2086
run 2 run c.yaml out=third resume=auto train.precision=bf16 $random
has err 'config.json: num_hidden_layers: was 2, is now 1'
# shellcheck disable=SC2086
run 2 run c.yaml out=third resume=auto train.precision=bf16 $random checkpoint.mismatch=warn
has err "do not exist in this run (first: weight of 'model.layers.1."

# ---- what a loss is measured against: the reference's weights, wherever they lie ----
awk 'BEGIN { for (i = 0; i < 16; i++) print "{\"prompt_input_ids\": [5, " 3 + i "], \"chosen_input_ids\": [7, " 4 + i \
    "], \"rejected_input_ids\": [9, " 5 + i "]}" }' >pairs.jsonl
pairs="data.train=pairs.jsonl algorithm.name=dpo algorithm.check_initial_loss=false"
golden same && golden other
printf 'x' | dd of=other/model.safetensors conv=notrunc bs=1 seek=40000 2>dd
# shellcheck disable=SC2086
run 0 run c.yaml out=pairs $pairs algorithm.reference_model="$source/tests/data/models/llama"
# shellcheck disable=SC2086
run 0 run c.yaml out=pairs resume=auto $pairs algorithm.reference_model=same
# shellcheck disable=SC2086
run 2 run c.yaml out=pairs resume=auto $pairs algorithm.reference_model=other
has err '  reference: was "'
is "differences of another reference" "$(grep -c ': was .*, is now ' err)" 1

# ---- how long: free, but where the rates depend on it; the error says what to give ----
cp -r first longer
run 2 resume longer train.steps=8
has err 'train.steps: was 6, is now 8: with schedule cosine, step 7 would have the rate '
has err 'checkpoint.mismatch=warn continues with the current settings'
run 0 resume longer train.steps=8 checkpoint.mismatch=warn
has out "after step 6 of 8"
experiment 'schedule: {name: constant_with_warmup, warmup_steps: 2}' >level.yaml
run 0 run level.yaml out=level
run 0 resume level train.steps=8
has out "after step 6 of 8"

# ---- free: files that moved, speed, placement, what is watched ----
mkdir moved && cp -r "$source/tests/data/models/llama" moved/llama && cp train.jsonl moved/rows.jsonl
cp -r first fourth
run 0 run c.yaml out=fourth resume=auto train.precision=bf16 model.path=moved/llama data.train=moved/rows.jsonl \
    train.micro_batch_tokens=64 data.packing=false train.activation_checkpointing=all train.master=split16 \
    train.logits_mb=1 checkpoint.every=3 eval.every=1 data.eval=moved/rows.jsonl train.nan=skip name=other debug=true
lacks err "other settings"
has out "resume     after step 6 of 6"

# ---- which is which ----
run 0 describe train.seed
has out "on resume: compared with the checkpoint's"
run 0 describe train
has out "on resume: these must equal the checkpoint's: global_batch, precision, loss_scale, fp8, gradients, trainable, freeze, neftune_alpha, logits, seed; the others may change"
run 0 describe adamw
has out "on resume: all must equal"
# ---- an entry of data.train that is given as a map ----
seq -s ' ' 100 200 >story.txt
set -- "$source/configs/sft.yaml" "$one_thread" train.epochs=0 data.eval= eval.every=0 schedule=constant data.max_length=256
run 0 run "$@" out=story train.steps=2 data.train=story.txt
run 2 run "$@" out=story train.steps=4 resume=auto 'data.train={path: story.txt, reader: {name: txt, chunk: 40}}'
has err "data.train.reader: was unset, is now {"
exit $failed
