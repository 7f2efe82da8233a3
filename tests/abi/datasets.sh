#!/bin/sh
# datasets.sh CMAKE CC: builds the installed example of a dataset against the package alone and runs its suite. A run
# that trains on its files has the loss of the same rows in JSON, for any number of workers; errors name file and
# line; token caches and a resume detect another reader or option.
. "$(dirname "$0")/installed.sh"

build "$prefix/share/nrl/examples/stanzas" stanzas 2
export NRL_PLUGIN_PATH=$work/stanzas/plugins
run 0 describe stanzas
has out "separator"
run 0 plugins
has out "datasets"

# the same rows three times
i=0
while [ $i -lt 40 ]; do
    printf 'prompt: question %d, of "many"\n with a second line\ncompletion:  answer %d\n\n' $i $i >>rows.stanzas
    printf '{"prompt": "question %d, of \\"many\\"\\nwith a second line", "completion": " answer %d"}\n' $i $i >>rows.jsonl
    i=$((i + 1))
done
sed 's/^$/-/' rows.stanzas >rows.txt

config=$prefix/share/nrl/configs/sft.yaml
train() {
    run 0 run "$config" data.eval= eval.every=0 train.epochs=0 train.steps=3 checkpoint.every=0 "$one_thread" "$@"
}
loss() { grep -o '"loss":[0-9.e+-]*' "$1/metrics.jsonl"; }
train data.train=rows.jsonl out=json
train data.train=rows.stanzas out=one
train data.train=rows.stanzas data.workers=3 out=three
train 'data.train={path: rows.txt, reader: {name: stanzas, separator: "-"}}' out=txt
[ -n "$(loss json)" ] || is "losses" "none" "three"
for other in one three txt; do
    is "the losses of $other" "$(loss $other)" "$(loss json)"
done

# several parts, each by its own reader
run 0 check "$config" 'data.train=[rows.stanzas, {path: rows.jsonl, weight: 2}]' data.eval= eval.every=0
has out "80 "

# mistakes
run 2 check "$config" 'data.train={path: rows.stanzas, reader: stanza}' data.eval= eval.every=0
has err "did you mean 'stanzas'"
run 2 check "$config" 'data.train={path: rows.stanzas, reader: {name: stanzas, seperator: x}}' data.eval= eval.every=0
has err "did you mean 'separator'"
run 2 check "$config" 'data.train={path: rows.stanzas, reader: {name: stanzas, separator: "a:"}}' data.eval= eval.every=0
has err "expected a line without a colon"
run 2 check "$config" data.train=none.stanzas data.eval= eval.every=0
has err "none.stanzas: No such file or directory"
run 65 check "$config" 'data.train={path: rows.stanzas, reader: jsonl}' data.eval= eval.every=0
has err "rows.stanzas:1:1: expected { (JSONL)"
bad() {
    printf "$1" >bad.stanzas
    run 65 check "$config" data.train=bad.stanzas data.eval= eval.every=0
    has err "$2"
}
bad 'prompt: a\ncompletion: b\n\nc\n' "bad.stanzas:4: expected KEY: VALUE"
bad 'prompt: a\ncompletion: b\nprompt: c\n' "bad.stanzas:3: the key 'prompt' is already in this row"
bad 'prompt: a\n b\ncompletion: \377\n' "bad.stanzas:3: the key or its value is not valid UTF-8"
bad 'prompt: a\n\000\n' "bad.stanzas:2: the line has a NUL character"
bad 'question: a\n' "bad.stanzas:1: no row format has these keys: question"
bad '' "bad.stanzas: the file contains no rows"

# caches and checkpoints know who read
keep() {
    code=$1
    shift
    run "$code" run "$config" data.eval= eval.every=0 train.epochs=0 schedule=constant "$one_thread" out=kept data.cache=cache "$@"
}
keep 0 data.train=rows.stanzas train.steps=2 checkpoint.every=2
is "caches" "$(ls cache | grep -c 'tokens$')" 1
run 0 run "$config" data.eval= eval.every=0 train.epochs=0 train.steps=1 checkpoint.every=0 "$one_thread" out=other data.cache=cache \
    'data.train={path: rows.txt, reader: {name: stanzas, separator: "-"}}'
is "caches of another option" "$(ls cache | grep -c 'tokens$')" 2
keep 2 data.train=rows.jsonl train.steps=4 checkpoint.every=2 resume=auto
has err 'data plugins: was ["stanzas 1.0"], is now ["jsonl 0.1"]'
keep 0 data.train=rows.stanzas train.steps=4 checkpoint.every=2 resume=auto
exit $failed
