#!/bin/sh
# folders.sh: folders and patterns in data.train stand for their files, each read by its plugin, in the order of their names;
# a run continues with them; a file that is added is another data set; no file is an error.
. "$(dirname "$0")/e2e.sh"

rows 16 >all.jsonl
experiment >run.yaml
mkdir -p parts/b
sed -n 1,5p all.jsonl >parts/a.jsonl
sed -n 6,9p all.jsonl | gzip -c >parts/b/1.jsonl.gz
{ echo 'input_ids;labels'; sed -n '10,16{s/{"input_ids": //;s/, "labels": /;/;s/}$//;p}' all.jsonl; } >parts/b/2.csv
echo 'not data' >parts/README.md
numbers() { grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl"; }

one='data.train=[parts/a.jsonl, parts/b/1.jsonl.gz, {path: parts/b/2.csv, reader: {name: csv, delimiter: ";"}}]'
run 0 run run.yaml data.train=all.jsonl out=all
run 0 run run.yaml "$one" out=one
is "losses of the parts" "$(numbers one)" "$(numbers all)"
sed -i 's/;/\t/' parts/b/2.csv && mv parts/b/2.csv parts/b/2.tsv
run 0 run run.yaml data.train=parts out=folder
is "losses of the folder" "$(numbers folder)" "$(numbers all)"
run 0 run run.yaml 'data.train=[parts/*.jsonl, "parts/b/[12]*"]' out=pattern data.workers=3
is "losses of patterns" "$(numbers pattern)" "$(numbers all)"
run 0 check run.yaml 'data.train={path: "parts/b/*.gz", weight: 2}'
has out "4 samples"

run 0 run run.yaml data.train=parts out=kept train.steps=2
run 0 resume kept train.steps=4
cp parts/a.jsonl parts/z.jsonl
run 2 resume kept train.steps=6
has err "data"
rm parts/z.jsonl

# files of several splits
lacks err "other splits"
mkdir -p splits/data
cp parts/a.jsonl splits/data/train-00000-of-00001.jsonl
cp parts/a.jsonl splits/data/test-00000-of-00001.jsonl
run 0 check run.yaml data.train=splits
has err "reads all files of 'splits', those of the training split (/data/train-00000-of-00001.jsonl) and of other splits (/data/test-"
is "warnings" "$(grep -c "other splits" err)" 1
run 0 check run.yaml 'data.train=splits/data/train*'
lacks err "other splits"

mkdir empty
run 2 check run.yaml data.train=empty
has err "data.train: 'empty': the directory has no files to read"
run 2 check run.yaml 'data.train=parts/*.parquet'
has err "data.train: no file matches 'parts/*.parquet'"
echo 'prompt' >parts/c.bin
run 65 check run.yaml data.train=parts
has err "parts/c.bin:1:1: expected { (JSONL)"
rm parts/c.bin
exit $failed
