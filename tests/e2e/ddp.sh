#!/bin/sh
# ddp.sh: on 2, 3 and 4 ranks a run of some steps has the losses and gradient norms of one rank, to 1e-6 of the loss in
# fp32: fine-tuning and preferences with an online reference, accumulation, clipping, ranks with an empty micro-batch.
# The error of codecs stays small, and a resume with state that differs between ranks is bit-identical.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, eval: $2, max_length: 128, template: chatml, cache: cache}
algorithm: $3
train: {steps: $n_steps, global_batch: $4, micro_batch_tokens: $5, seed: 3}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
eval: {every: $((n_steps / 2))}
checkpoint: {export: none}
loggers: [jsonl]
$one_thread_yaml
YAML
}

# with OPTIONS: ddp with options
with() {
    echo "parallel={data: {name: ddp, $1}}"
}

config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 8 128 >config.yaml
one sft
ranks 2 two $exact
ranks 4 four $exact parallel=ddp train.micro_batch_tokens=256
ranks 3 small $exact "$(with 'bucket_cap_mb: 0.05, first_bucket_mb: 0.01')"
ranks 2 recompute $exact parallel=ddp train.activation_checkpointing=all
run 0 run config.yaml out=single parallel=ddp overwrite=true && compare single 0
ranks 2 bf16 $bf16_unit "$(with 'compress: bf16')"
ranks 3 fp16 $fp16_unit "$(with 'compress: fp16')"
ranks 2 all $exact "$(with 'compress: topk, topk_ratio: 1, start_step: 0')"

# 3 samples a step on 4 ranks: somebody has nothing
config "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 3 128 >config.yaml
one few
ranks 4 empty $exact "$(with 'unused: error')"
ranks 4 empty-bf16 $bf16_unit "$(with 'compress: bf16')"

config "$source/configs/data/pref.jsonl" "$source/configs/data/pref_eval.jsonl" dpo 8 256 >config.yaml
one dpo
ranks 2 pairs $exact
ranks 4 more-pairs $exact parallel=ddp train.micro_batch_tokens=512
short_form_ends

# ---- resume: what a rank keeps for itself comes back ----

rows 64 >train.jsonl
# resumed NAME OPTIONS: 8 steps in one go, and 5 (between two meetings of local steps) and then 3
resumed() {
    experiment "parallel: {data: {name: ddp, $2}}" >config.yaml
    set -- "$1" train.steps=8 checkpoint.every=5 checkpoint.export=none
    run 0 launch -n 2 -- run config.yaml out="$1-whole" "$2" "$3" "$4"
    cp -r "$1-whole" "$1-parts"
    rm -rf "$1-parts/checkpoints/step-00000008"
    run 0 launch -n 2 -- run config.yaml out="$1-parts" resume=auto "$2" "$3" "$4"
    numbers "$1-whole/metrics.jsonl" >expected.txt
    is "steps of $1" "$(wc -l <expected.txt | tr -d ' ')" 8
    compare "$1-parts" 0
}
resumed topk 'compress: topk, topk_ratio: 0.05, start_step: 2'
resumed powersgd 'compress: powersgd, start_step: 2, powersgd_rank: 2'
resumed local 'sync_every: 3'
resumed outer 'sync_every: 3, outer_lr: 0.7, outer_momentum: 0.9'

# other options of ddp may begin with a state that the checkpoint lacks
for options in 'compress: powersgd, start_step: 2, powersgd_rank: 2' 'compress: topk, start_step: 0' 'sync_every: 3'; do
    experiment >config.yaml
    rm -rf other
    run 0 launch -n 2 -- run config.yaml out=other train.steps=4 checkpoint.every=2 checkpoint.export=none
    run 0 launch -n 2 -- run config.yaml out=other resume=auto train.steps=6 checkpoint.export=none "$(with "$options")"
    is "warnings with $options" "$(grep -c 'the checkpoint has no state .*: it begins anew' err)" 1
    is "steps with $options" "$(values other loss | wc -l | tr -d ' ')" 6
done
run 2 launch -n 2 -- run config.yaml out=none "$(with 'sync_every: 3, sync_states: true')" 'optimizer={name: sgd, lr: 1e-3, momentum: 0}'
has err "sync_states: has no effect here; expected with it an optimizer that has states"

# ---- local steps: between two averages the mean is evaluated, saved and exported, and training takes no notice ----

rows 16 >eval.jsonl
rows 64 | awk '{ print | (NR % 2 ? "cat >odd.jsonl" : "cat >even.jsonl") }'
cat odd.jsonl even.jsonl >train.jsonl
experiment "parallel: {data: {name: ddp, sync_every: 4}}" >config.yaml
eval_loss_of() { sed -n 's/.*"eval_loss": *\([^,}]*\).*/\1/p' "$1" | tail -n 1; }
set -- data.eval=eval.jsonl data.shuffle=false optimizer.lr=1e-2
run 0 launch -n 2 -- run config.yaml out=mean "$@" train.steps=6 eval.every=3 checkpoint.every=3
run 0 eval config.yaml model.path=mean/model data.eval=eval.jsonl --json
# the same weights in packs of another number of ranks: sums in another order, as everywhere above
awk -v a="$(eval_loss_of out)" -v b="$(eval_loss_of mean/metrics.jsonl)" -v room=$exact \
    'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (room * b) ^ 2) }' ||
    is "loss of the exported model" "$(eval_loss_of out)" "$(eval_loss_of mean/metrics.jsonl)"
run 0 export mean/checkpoints/step-00000006 saved
cmp mean/model/model.safetensors saved/model.safetensors || is "the saved and the exported model" different equal
# each rank goes on from its own weights, whoever looked at the mean: the losses are those of a run that nobody looks at
sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm".*/\1/p' mean/metrics.jsonl >expected.txt
run 0 launch -n 2 -- run config.yaml out=unseen data.shuffle=false optimizer.lr=1e-2 train.steps=6 checkpoint.every=0
is "losses of a run that nobody looks at" "$(sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm".*/\1/p' unseen/metrics.jsonl)" \
    "$(cat expected.txt)"
# a resume at a step between two averages evaluates the same mean
cp -r mean again
rm -rf again/checkpoints/step-00000006
run 0 launch -n 2 -- run config.yaml out=again "$@" train.steps=6 eval.every=3 checkpoint.every=3 resume=auto
is "evaluated after a resume" "$(eval_loss_of again/metrics.jsonl)" "$(eval_loss_of mean/metrics.jsonl)"
exit $failed
