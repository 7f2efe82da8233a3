#!/bin/sh
# texts.sh: runs train on plain text to the losses that the same rows in JSON give, whatever the number of workers; JSON
# that is called .txt stays JSON; mistakes name the file and the line.
. "$(dirname "$0")/e2e.sh"

config=$source/configs/sft.yaml
train() {
    run 0 run "$config" data.eval= eval.every=0 train.epochs=0 train.steps=3 checkpoint.every=0 "$one_thread" "$@"
}
loss() { grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl"; }

i=0
while [ $i -lt 40 ]; do
    printf 'line %d of a text.\n\n' $i >>rows.txt
    printf '{"text": "line %d of a text."}\n' $i >>rows.jsonl
    i=$((i + 1))
done
cp rows.jsonl json.txt
gzip -c rows.txt >rows.md.gz
train data.train=rows.jsonl out=jsonl
train data.train=rows.txt out=txt
train data.train=rows.md.gz data.workers=3 out=md
train 'data.train={path: rows.txt, reader: {name: txt, sample_by: paragraph}}' out=paragraph
train data.train=json.txt out=json
[ -n "$(loss jsonl)" ] || is "losses" "none" "three"
for other in txt md paragraph json; do
    is "the losses of $other" "$(loss $other)" "$(loss jsonl)"
done
run 0 check "$config" 'data.train={path: rows.txt, reader: {name: txt, sample_by: document, chunk: 100, overlap: 20}}' \
    data.eval= eval.every=0 train.global_batch=2
has out "(text)"

run 2 check "$config" 'data.train={path: rows.txt, reader: {name: txt, sample_by: word}}' data.eval= eval.every=0
has err "sample_by"
run 2 check "$config" 'data.train={path: rows.txt, reader: {name: txt, overlap: 3}}' data.eval= eval.every=0
has err "overlap 3: expected at most half of chunk, which is 0"
run 2 check "$config" data.train=none.txt data.eval= eval.every=0
has err "none.txt: No such file or directory"
printf 'a\n\nb\377\n' >bad.txt
run 65 check "$config" data.train=bad.txt data.eval= eval.every=0
has err "bad.txt:3: the text is not UTF-8"
: >empty.txt
run 65 check "$config" data.train=empty.txt data.eval= eval.every=0
has err "empty.txt: the file contains no rows"
# pieces of a paragraph are the whole paragraph, also where a short line is before a long one
{ echo Title; seq -s ' ' 100 299; } >para.txt
run 0 check "$config" 'data.train={path: para.txt, reader: {name: txt, sample_by: paragraph, chunk: 60}}' data.eval= eval.every=0 --sample 99 --full
sed 's/⟦//g' out >whole
for n in $(seq 100 299); do grep -qw "$n" whole || { is "the number $n of a paragraph" lost there; break; }; done
exit $failed
