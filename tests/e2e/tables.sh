#!/bin/sh
# tables.sh: runs on CSV and TSV tables have the losses of the same rows in JSON, for any number of workers,
# compression and options; the plan and each error name the file and the line.
. "$(dirname "$0")/e2e.sh"

config=$source/configs/sft.yaml
train() {
    run 0 run "$config" data.eval= eval.every=0 train.epochs=0 train.steps=3 checkpoint.every=0 "$one_thread" "$@"
}
loss() { grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl"; }

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
sed 1d rows.csv | gzip -c >names.csv.gz
train data.train=rows.jsonl out=json
train data.train=rows.csv out=csv
train data.train=rows.tsv data.workers=3 out=tsv
train 'data.train={path: rows.txt, reader: {name: csv, delimiter: ";"}}' out=txt
train 'data.train={path: names.csv.gz, reader: {name: csv, names: [prompt, completion]}}' out=names
[ -n "$(loss json)" ] || is "losses" "none" "three"
for other in csv tsv txt names; do
    is "the losses of $other" "$(loss $other)" "$(loss json)"
done

# a column of messages, and a prompt that is a number
printf 'messages,id\n"[{""role"": ""user"", ""content"": ""a""}, {""role"": ""assistant"", ""content"": ""b""}]",1\n' >chat.csv
run 0 check "$config" data.train=chat.csv data.eval= eval.every=0 train.global_batch=1
has out "messages"
has err "keys that are not used: 'id'"
printf 'prompt,completion\nan answer, the city\nWhat is the name of the city? ,the city\n' >merged.csv
run 0 check "$config" data.train=merged.csv data.eval= eval.every=0 train.global_batch=2
has err "merged.csv: 1 of 2 rows have a token that spans the end of the prompt and the beginning of the answer"
has err "(first: line 3)"
printf 'prompt,completion\n42,7\n' >numbers.csv
run 0 check "$config" data.train=numbers.csv data.eval= eval.every=0 train.global_batch=1

# labels and numbers in columns of texts
{ echo 'prompt,completion,label'; for i in 1 2 3 4; do printf 'a%d, b,True\na%d, c,False\n' $i $i; done; } >labels.csv
run 0 check "$source/configs/kto.yaml" data.train=labels.csv data.eval= eval.every=0 train.global_batch=8
run 65 check "$config" data.train=labels.csv data.eval= eval.every=0
has err "labels.csv:2: a labelled row"

# mistakes
wrong() {
    run 2 check "$config" "data.train={path: rows.csv, reader: $1}" data.eval= eval.every=0
    has err "$2"
}
wrong cvs "did you mean 'csv'"
wrong '{name: csv, delimeter: x}' "did you mean 'delimiter'"
wrong '{name: csv, delimiter: ab}' "expected one ASCII character"
wrong '{name: csv, json: [promt]}' "rows.csv: reader.json: the table has no column 'promt'"
run 2 check "$config" data.train=none.csv data.eval= eval.every=0
has err "none.csv: No such file or directory"
printf 'question;answer\n"a; b";c\n' >semicolons.csv # as spreadsheets write where numbers have a decimal comma
run 65 check "$config" data.train=semicolons.csv data.eval= eval.every=0
has err "semicolons.csv:1: the first row is one field, 'question;answer'; expected column names separated by commas"
has err 'reader: {name: csv, delimiter: ";"}}'
run 0 check "$config" 'data.train={path: semicolons.csv, reader: {name: csv, delimiter: ";"}}' data.eval= eval.every=0 \
    train.global_batch=1 'data.columns={prompt: question, completion: answer}'
bad() {
    printf "$1" >bad.csv
    run 65 check "$config" data.train=bad.csv data.eval= eval.every=0 data.workers=3
    has err "$2"
}
bad 'prompt,completion\na,b\nc\n' "bad.csv:3: a row of 1 fields, expected 2 as the first row has"
bad 'prompt,completion\n"a\n\nb",c\n"d"e,f\n' "bad.csv:5: text follows the closing quote of a field"
bad 'prompt,completion\na,"b\nc\n' "bad.csv:2: the file ends inside this quoted field"
bad 'prompt,completion\n"a\nb",c\nd,\377\n' "bad.csv:4: column 'completion' is not UTF-8"
bad 'prompt,completion\na,b\000\n' "bad.csv:2: column 'completion' contains a NUL character"
bad 'prompt,prompt\na,b\n' "bad.csv:1: two columns have the same name, 'prompt'"
bad 'messages\n"[{""role"": ]"\n' "bad.csv:2: column 'messages':1:11: "
bad 'question,answer\na,b\n' "bad.csv:2: no row format has these keys: question, answer"
bad '' "bad.csv: the file is empty"
bad 'prompt,completion\n' "bad.csv: the file contains no rows"
# The tokens of a file depend on its ending: a cache of the same bytes under another name is not taken.
printf 'text\nhello\tworld one\nplain two\n' >same.csv
cp same.csv same.tsv
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=1 data.eval= eval.every=0 data.cache=shared data.train=same.csv out=same checkpoint.export=none train.global_batch=1
run 65 check "$source/configs/sft.yaml" data.eval= eval.every=0 data.cache=shared data.train=same.tsv out=same-tsv
has err "same.tsv:2: a row of 2 fields, expected 1"
exit $failed
