#!/bin/sh
# custom_ops.sh CMAKE CC: builds the installed example of a model with an operation of its own against the package alone,
# and runs its suite and the check of its gradients. Then trains it: with and without activation checkpointing, packed
# and not, on two ranks; a backend that lacks a kernel or an operation is refused when the run is opened.
. "$(dirname "$0")/installed.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

build "$prefix/share/nrl/examples/short_conv" short_conv 2
export NRL_PLUGIN_PATH=$work/short_conv/plugins

cat >config.yaml <<YAML
model: {config: $prefix/share/nrl/examples/short_conv/model.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, eval: $source/configs/data/chat_eval.jsonl, max_length: 128, template: chatml, cache: cache}
train: {steps: 6, global_batch: 8, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 1e-2}
eval: {every: 6}
loggers: [console, jsonl]
$one_thread_yaml
YAML

# the loss falls, and recomputed activations change no bit of it
run 0 run config.yaml out=plain
numbers plain/metrics.jsonl >expected.txt
losses() { sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$1"; }
awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first - 0.3) }' <<END || is "the loss" "$(losses plain/metrics.jsonl)" "falling"
$(losses plain/metrics.jsonl)
END
run 0 run config.yaml out=recomputed train.activation_checkpointing=all
numbers recomputed/metrics.jsonl | cmp - expected.txt || is "losses of recomputed activations" others "the same"
run 0 run config.yaml out=bf16 train.precision=bf16

# samples of their own micro-batches: the sums are formed in another order
run 0 run config.yaml out=unpacked data.packing=false train.micro_batch=1
near() { # near FILE: its losses are those of plain/, within what the order of sums does in six steps
    losses "$1" >other.txt
    losses plain/metrics.jsonl | paste - other.txt |
        awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) bad = 1 } END { exit bad || !NR }' ||
        is "losses of $1" "$(cat other.txt)" "$(losses plain/metrics.jsonl)"
}
near unpacked/metrics.jsonl
ranks 2 ddp 1e-5 parallel=ddp

# a backend may delegate what it lacks, kernels of plugins included, and changes no number then; without a delegate the
# run is refused before anything is written
build "$source/tests/abi/delegating" delegating 1
run 0 run config.yaml out=delegated "plugins=[$work/short_conv/plugins, $work/delegating/plugins]" backend=delegating
losses delegated/metrics.jsonl >other.txt
run 0 run config.yaml out=defaults 'backend={name: cpu}' # the delegate, which has the options' defaults
losses defaults/metrics.jsonl | cmp - other.txt || is "losses of the delegate" others "the same"
run 1 run config.yaml out=refused "plugins=[$work/short_conv/plugins, $work/delegating/plugins]" backend=lacking
has err "cannot train this model on backend 'lacking'"
has err "has no op '"
run 1 check config.yaml out=refused "plugins=[$work/short_conv/plugins, $work/delegating/plugins]" backend=lacking
has err "backend 'lacking' has no op '"
is "files of a refused run" "$(find refused -type f -size +0 | wc -l)" 0
exit $failed
