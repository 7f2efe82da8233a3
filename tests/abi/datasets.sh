#!/bin/sh
# datasets.sh CMAKE CC: the installed example of a dataset is built against the package alone and passes its suite; a run
# trains on tables to the loss that the same rows in JSON give, whatever the number of workers; mistakes are told with file
# and line; another reader or option is another dataset to token caches and to a resume.
. "$(dirname "$0")/installed.sh"

build "$prefix/share/nrl/examples/csv" csv
export NRL_PLUGIN_PATH=$work/csv/plugins
run 0 describe csv
has out "delimiter"
run 0 plugins
has out "datasets"

# the same rows three times
i=0
printf 'prompt,completion\r\n' >rows.csv
printf 'prompt\tcompletion\n' >rows.tsv
while [ $i -lt 40 ]; do
    printf '"question %d, of ""many""\nwith a second line", answer %d\r\n' $i $i >>rows.csv
    printf '"question %d, of ""many""\nwith a second line"\t answer %d\n' $i $i >>rows.tsv
    printf '{"prompt": "question %d, of \\"many\\"\\nwith a second line", "completion": " answer %d"}\n' $i $i >>rows.jsonl
    i=$((i + 1))
done
sed 's/\t/;/' rows.tsv >rows.txt

config=$prefix/share/nrl/configs/sft.yaml
train() {
    run 0 run "$config" data.eval= eval.every=0 train.epochs=0 train.steps=3 checkpoint.every=0 "$one_thread" "$@"
}
loss() { grep -o '"loss":[0-9.e+-]*' "$1/metrics.jsonl"; }
train data.train=rows.jsonl out=json
train data.train=rows.csv out=csv_run
train data.train=rows.tsv data.workers=3 out=tsv
train 'data.train={path: rows.txt, reader: {name: csv, delimiter: ";"}}' out=txt
[ -n "$(loss json)" ] || is "losses" "none" "three"
for other in csv_run tsv txt; do
    is "the losses of $other" "$(loss $other)" "$(loss json)"
done

# several parts, each by its own reader
run 0 check "$config" 'data.train=[rows.csv, {path: rows.jsonl, weight: 2}]' data.eval= eval.every=0
has out "80 "

# mistakes
run 2 check "$config" 'data.train={path: rows.csv, reader: cvs}' data.eval= eval.every=0
has err "did you mean 'csv'"
run 2 check "$config" 'data.train={path: rows.csv, reader: {name: csv, delimeter: x}}' data.eval= eval.every=0
has err "did you mean 'delimiter'"
run 2 check "$config" 'data.train={path: rows.csv, reader: {name: csv, delimiter: ab}}' data.eval= eval.every=0
has err "expected one character"
run 2 check "$config" data.train=none.csv data.eval= eval.every=0
has err "none.csv: No such file or directory"
run 65 check "$config" 'data.train={path: rows.csv, reader: jsonl}' data.eval= eval.every=0
has err "rows.csv:1:1: expected { (JSONL)"
bad() {
    printf "$1" >bad.csv
    run 65 check "$config" data.train=bad.csv data.eval= eval.every=0
    has err "$2"
}
bad 'prompt,completion\na,b\nc\n' "bad.csv:3: a row of 1 fields, expected 2 as the first row has"
bad 'prompt,completion\n"a\n\nb",c\n"d"e,f\n' "bad.csv:5: text follows the closing quote of a field"
bad 'prompt,completion\na,"b\nc\n' "bad.csv:2: the file ends inside this quoted field"
bad 'prompt,completion\n"a\nb",c\nd,\377\n' "bad.csv:4: column 'completion' is not UTF-8"
bad 'prompt,prompt\na,b\n' "bad.csv:1: two columns have the same name"
bad 'question,answer\na,b\n' "bad.csv:2: no row format has these keys: question, answer"
bad '' "bad.csv: the file is empty"
bad 'prompt,completion\n' "bad.csv: no rows in the file"

# caches and checkpoints know who read
keep() {
    code=$1
    shift
    run "$code" run "$config" data.eval= eval.every=0 train.epochs=0 schedule=constant "$one_thread" out=kept data.cache=cache "$@"
}
keep 0 data.train=rows.csv train.steps=2 checkpoint.every=2
is "caches" "$(ls cache | grep -c 'tokens$')" 1
run 0 run "$config" data.eval= eval.every=0 train.epochs=0 train.steps=1 checkpoint.every=0 "$one_thread" out=other data.cache=cache \
    'data.train={path: rows.csv, reader: {name: csv, delimiter: ","}}'
is "caches of another option" "$(ls cache | grep -c 'tokens$')" 2
keep 2 data.train=rows.jsonl train.steps=4 checkpoint.every=2 resume=auto
has err 'data plugins: was ["csv 1.0"], is now ["jsonl 0.1"]'
keep 0 data.train=rows.csv train.steps=4 checkpoint.every=2 resume=auto
exit $failed
