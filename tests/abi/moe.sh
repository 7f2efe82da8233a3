#!/bin/sh
# moe.sh CMAKE CC: builds the installed example of a mixture of experts, with the library of operations, against the package
# alone, and runs its suite. Its logits, loss, router loss and gradient norm are those of transformers over three steps
# (tests/data/moe/make_moe.py), and recomputation, stages and several ranks change them as little as they should.
. "$(dirname "$0")/installed.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
golden=$source/tests/data/moe

build "$prefix/share/nrl/examples/qwen2_moe" qwen2_moe
export NRL_PLUGIN_PATH=$work/qwen2_moe/plugins

# f32 sums of some hundred products, in another order than PyTorch's
LOGIT_ERROR=2e-5 VALUE_ERROR=2e-6
"$cc" -std=c11 -Wall -Wextra -Werror -I"$prefix/include" "$source/tests/abi/moe_logits.c" -o moe_logits \
    -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lnrl-inference -lnrl || exit 1
ids=$(sed 's/.*"ids": \[\[\([^]]*\)\].*/\1/' "$golden/expected.json" | tr -d ,)
# shellcheck disable=SC2086
./moe_logits "$golden" "$work/qwen2_moe/plugins" $ids | tr ' ' '\n' >got.txt
{ sed 's/.*"logits": \[\[//; s/\]\].*//' "$golden/expected.json"; echo; } | tr -d '][ ' | tr ',' '\n' | grep . >want.txt
is "logits" "$(wc -l <got.txt)" "$(wc -l <want.txt)"
paste got.txt want.txt | awk -v room=$LOGIT_ERROR '{ d = $1 - $2; if (d > room || d < -room) bad++ } END { exit bad > 0 || NR < 100 }' ||
    is "logits" "$(paste got.txt want.txt | head -3)" "those of transformers"

cat >golden.yaml <<YAML
model: {path: $golden}
data: {train: $golden/rows.jsonl, max_length: 64, shuffle: false, cache: cache}
train: {steps: 3, global_batch: 2, micro_batch_tokens: 64}
optimizer: {name: sgd, lr: 0.05, weight_decay: 0, momentum: 0, clip_norm: 0}
schedule: constant
loggers: [jsonl]
$one_thread_yaml
YAML
values() { # values FILE: loss, router_loss and grad_norm of each step
    for name in loss router_loss grad_norm; do
        { tr '{' '\n' <"$1"; echo; } | sed -n "s/.*\"$name\": *\([0-9.e-]*\).*/$name \1/p"
    done
}
values "$golden/expected.json" >want.txt
near() { # near NAME ERROR
    values "$1/metrics.jsonl" | paste - want.txt |
        awk -v room="$2" '{ d = ($2 - $4) / $4; if (d > room || d < -room) bad++ } END { exit bad > 0 || NR != 9 }' ||
        is "values of $1" "$(values "$1/metrics.jsonl")" "$(cat want.txt)"
}
run 0 run golden.yaml out=golden
near golden $VALUE_ERROR
run 0 run golden.yaml out=recomputed train.activation_checkpointing=all
values golden/metrics.jsonl >first.txt
values recomputed/metrics.jsonl | cmp - first.txt || is "values of recomputed layers" others "the same"
run 0 launch -n 2 -- run golden.yaml out=stages 'parallel={data: ddp, pipeline: 2}'
near stages $VALUE_ERROR

# The mean of products of means is computed for each micro-batch: with two of them the router loss is another, and each way
# to divide a step into the same two gives the same.
run 0 run golden.yaml out=two data.packing=false train.micro_batch=1
values two/metrics.jsonl >want.txt
run 0 launch -n 2 -- run golden.yaml out=ddp parallel=ddp
near ddp $VALUE_ERROR
run 0 launch -n 2 -- run golden.yaml out=fsdp parallel=fsdp
near fsdp $VALUE_ERROR
exit $failed
