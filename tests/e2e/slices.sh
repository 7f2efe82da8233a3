#!/bin/sh
# slices.sh: runs on rows that an entry selects, with and without rows that are held out for the evaluation: a resume
# goes on exactly, several ranks take the same steps, a checkpoint of another split is refused, mistakes name the place.
. "$(dirname "$0")/e2e.sh"

config=$source/configs/sft.yaml
train() {
    run 0 run "$config" eval.every=4 train.epochs=0 train.steps=8 schedule=constant checkpoint.every=4 "$one_thread" "$@"
}
losses() { grep -o '"\(eval_\)*loss": *[0-9.e+-]*' "$1/metrics.jsonl"; }

i=0
while [ $i -lt 200 ]; do
    printf '{"id": %d, "prompt": "question %d", "completion": " answer %d"}\n' $i $i $i
    i=$((i + 1))
done >rows.jsonl
sed -n 101,200p rows.jsonl >half.jsonl
train 'data.train={path: rows.jsonl, rows: "-100:"}' data.eval=0.1 out=slice
train data.train=half.jsonl data.eval=0.1 out=half
[ "$(losses slice | grep -c eval_loss)" = 2 ] || is "evaluations" "$(losses slice | grep -c eval_loss)" 2
is "the losses of a slice" "$(losses slice)" "$(losses half)"

# a resume
train 'data.train={path: rows.jsonl, rows: "-100:"}' data.eval=0.1 out=resumed train.steps=4
run 0 resume resumed train.steps=8
is "the losses of a resumed run" "$(losses resumed)" "$(losses slice)"
run 2 resume resumed train.steps=12 data.eval=0.2
has err "data"
run 2 resume resumed train.steps=12 'data.train={path: rows.jsonl, rows: "100:"}'
has err "data.train"

# several ranks: the same rows, so nearly the same losses
run 0 launch -n 2 -- run "$config" eval.every=4 train.epochs=0 train.steps=8 schedule=constant checkpoint.every=0 "$one_thread" \
    'data.train={path: rows.jsonl, rows: "-100:"}' data.eval=0.1 out=ranks
for name in ranks slice; do losses $name | sed 's/.*: *//' >$name.txt; done
near ranks.txt slice.txt "$(wc -l <slice.txt)" 1e-5

# the evaluation reads the rows that the run holds out
run 0 eval slice
has out "eval_loss"

# mistakes
wrong() {
    cat >bad.yaml <<EOF
defaults: $config
data:
  train: $1
  eval: $2
eval: {every: 0}
EOF
    run 2 check bad.yaml
    has err "$3"
}
wrong '{path: rows.jsonl, rows: 5}' null "bad.yaml:3:29: data.train: rows: expected FIRST:END"
wrong '{path: rows.jsonl, row: 0:5}' null "did you mean 'rows'"
wrong '{path: rows.jsonl, limit: 0}' null "bad.yaml:3:29: data.train.limit: "
wrong '{path: rows.jsonl, columns: [a]}' null "bad.yaml:3:29: data.columns: expected a map"
wrong '{path: rows.jsonl, columns: {promt: a}}' null "bad.yaml:3:29: data.columns: 'promt' is not a key"
wrong '{path: rows.jsonl, template: chatlm}' null "chatlm"
wrong rows.jsonl 1.5 "bad.yaml:4:3: data.eval: expected a file, a share"
wrong rows.jsonl -1 "bad.yaml:4:3: data.eval: expected a file, a share"
wrong rows.jsonl 200 "200 rows would leave none of data.train"
# the format is that of the first row that is selected
{ echo '{"version": 1}'; cat half.jsonl; } >headed.jsonl
for change in data.eval=0.2 data.eval=5 data.train.limit=10; do
    run 0 check "$config" 'data.train={path: headed.jsonl, rows: "1:"}' data.eval= eval.every=0 "$change"
done
exit $failed
