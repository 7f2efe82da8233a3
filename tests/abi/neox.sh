#!/bin/sh
# neox.sh CMAKE CC: builds the installed example of a GPT-NeoX against the package alone. Its logits, and the loss and
# gradient norm of three steps, are those of transformers (tests/data/neox/make_neox.py), on several ranks too.
. "$(dirname "$0")/installed.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
golden=$source/tests/data/neox

build "$prefix/share/nrl/examples/gpt_neox" gpt_neox
export NRL_PLUGIN_PATH=$work/gpt_neox/plugins

# f32 sums of some hundred products, in another order than PyTorch's
LOGIT_ERROR=2e-5 VALUE_ERROR=2e-6
"$cc" -std=c11 -Wall -Wextra -Werror -I"$prefix/include" "$source/tests/abi/moe_logits.c" -o logits \
    -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lnrl-inference -lnrl || exit 1
ids=$(sed 's/.*"ids": \[\[\([^]]*\)\].*/\1/' "$golden/expected.json" | tr -d ,)
# shellcheck disable=SC2086
./logits "$golden" "$work/gpt_neox/plugins" $ids | tr ' ' '\n' >got.txt
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
values() { # values FILE: loss and grad_norm of each step
    for name in loss grad_norm; do
        { tr '{' '\n' <"$1"; echo; } | sed -n "s/.*\"$name\": *\([0-9.e-]*\).*/$name \1/p"
    done
}
values "$golden/expected.json" >want.txt
near() { # near NAME
    values "$1/metrics.jsonl" | paste - want.txt |
        awk -v room=$VALUE_ERROR '{ d = ($2 - $4) / $4; if (d > room || d < -room) bad++ } END { exit bad > 0 || NR != 6 }' ||
        is "values of $1" "$(values "$1/metrics.jsonl")" "$(cat want.txt)"
}
run 0 run golden.yaml out=golden
near golden
for strategy in ddp fsdp '{pipeline: 2}'; do
    run 0 launch -n 2 -- run golden.yaml out=ranks overwrite=true data.packing=false train.micro_batch=1 "parallel=$strategy"
    near ranks
done
exit $failed
