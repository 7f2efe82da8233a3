# transformers.sh - sourced by tests with arguments CMAKE CC that compare an installed example of a model with numbers of
# transformers: $golden is a directory with the model, rows.jsonl and expected.json, $example the example, and $names the
# values of each of three steps. Builds the example, compares its logits, and leaves golden.yaml and want.txt.
. "$(dirname "$0")/installed.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
golden=$source/tests/data/$golden

build "$prefix/share/nrl/examples/$example" "$example"
export NRL_PLUGIN_PATH="$work/$example/plugins"

# f32 sums of some hundred products, in another order than PyTorch's; a norm adds up the errors of all gradients, which
# begin with weights that differ after the first step
LOGIT_ERROR=2e-5 VALUE_ERROR=2e-6 NORM_ERROR=1e-5
"$cc" -std=c11 -Wall -Wextra -Werror -I"$prefix/include" "$source/tests/abi/logits.c" -o logits \
    -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lnrl-inference -lnrl || exit 1
ids=$(sed 's/.*"ids": \[\[\([^]]*\)\].*/\1/' "$golden/expected.json" | tr -d ,)
# shellcheck disable=SC2086
./logits "$golden" "$NRL_PLUGIN_PATH" $ids | tr ' ' '\n' >got.txt
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
values() { # values FILE: the values of each step
    for name in $names; do
        { tr '{' '\n' <"$1"; echo; } | sed -n "s/.*\"$name\": *\([0-9.e-]*\).*/$name \1/p"
    done
}
values "$golden/expected.json" >want.txt
near() { # near NAME: the run of that name has the values of want.txt
    values "$1/metrics.jsonl" >found.txt
    is "number of values of $1" "$(wc -l <found.txt | tr -d ' ')" $((3 * $(echo "$names" | wc -w)))
    paste found.txt want.txt | awk -v room=$VALUE_ERROR -v norm=$NORM_ERROR '
        { d = ($2 - $4) / $4; r = /norm/ ? norm : room; if (d > r || d < -r) bad++ } END { exit bad > 0 }' ||
        is "values of $1" "$(cat found.txt)" "$(cat want.txt)"
}
