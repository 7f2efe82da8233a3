#!/bin/sh
# bad_input_rows.sh: mistakes in a data file; `nrl check` reports each with its message and exit code and leaves no
# files behind.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
experiment >run.yaml

# check CODE FILE WORDS...: a config whose data is FILE.
check() {
    expected=$1 file=$2
    shift 2
    run "$expected" check run.yaml "data.train=$file"
    for words in "$@"; do has err "$words"; done
    [ -e result ] && is "output after check of $file" present absent
}

# after_good ROW...: eight good rows, then these.
after_good() {
    cat train.jsonl
    printf '%s\n' "$@"
}

run 0 check run.yaml
has out "8 samples (pre-tokenized)"
has out "memory     0.4 MiB"
has out "ok: no mistakes found, nothing was trained"
grep "^train data" out >facts.plain

# ---- one row is wrong ----
{ cat train.jsonl; printf '{"input_ids": [3, 4, 5], "lab'; } >cut.jsonl
check 65 cut.jsonl "cut.jsonl:9:29: " "the file ends in this line, without a line end; it may be truncated"
after_good '{"input_ids": [3, 4,, 5]}' '{"input_ids": [6, 7, 8]}' >invalid.jsonl
check 65 invalid.jsonl "invalid.jsonl:9:21: expected a value: text in double quotes, a number, true, false, null, '[' or '{', found ','"
after_good '{"labels": [3, 4, 5]}' >missing.jsonl
check 65 missing.jsonl "missing.jsonl:9: no key 'input_ids', which every row of this file requires" \
    "found: labels"
after_good '{"input_ids": "abc"}' >text.jsonl
check 65 text.jsonl "text.jsonl:9: key 'input_ids': expected a list of token ids, found text"
after_good '{"input_ids": [3, 4, "x"]}' >id.jsonl
check 65 id.jsonl "id.jsonl:9: ids[2]: expected a token id"
after_good '{"input_ids": [3, 96, 5]}' >vocabulary.jsonl
check 65 vocabulary.jsonl "vocabulary.jsonl:9: token 1 has id 96" "outside the model's vocabulary of 96"
after_good '{"input_ids": [3, 4, 5], "labels": [3, 4]}' >labels.jsonl
check 65 labels.jsonl "labels.jsonl:9: labels has 2 entries and input_ids has 3"
after_good '{"input_ids": [3, 4, 5], "labels": [3, 4, 6]}' >other.jsonl
check 65 other.jsonl "other.jsonl:9: labels[2] is neither -100 nor the token at this position (5)"
after_good '[3, 4]' >list.jsonl
check 65 list.jsonl "list.jsonl:9: expected a row {...}, found list"
{ cat train.jsonl; printf '{"input_ids": [3, 4], "note": "\377"}\n'; } >latin1.jsonl
check 65 latin1.jsonl "latin1.jsonl:9:31: unable to decode byte 0xff"
{ cat train.jsonl; printf '{"input_ids": [3, 4], "a\000b": 1}\n'; } >nul.jsonl
check 65 nul.jsonl "nul.jsonl:9:24: control character 0x0"
after_good '{"input_ids": [3, 4, 5], "input_ids": [3]}' >twice.jsonl
check 65 twice.jsonl "twice.jsonl:9:36: expected each key once, found '\"input_ids\"'"

# ---- the file is wrong ----
: >empty.jsonl
check 65 empty.jsonl "empty.jsonl: the file is empty, expected rows"
printf '\n \n' >blank.jsonl
check 65 blank.jsonl "blank.jsonl: the file is empty, expected rows"
check 2 nowhere.jsonl "data.train: nowhere.jsonl: No such file or directory"
mkdir empty
check 2 empty "data.train: 'empty': the directory has no files to read"
check 2 'empty/*.jsonl' "data.train: no file matches 'empty/*.jsonl'"
mkfifo pipe
check 2 pipe "data.train: pipe: not a regular file" "hint: data are read when the run starts and when it is resumed"
check 2 /dev/zero "data.train: /dev/zero: not a regular file"
printf 'PAR1....' >table.jsonl
check 65 table.jsonl "table.jsonl: a Parquet file; expected JSONL or a JSON array in UTF-8"
printf 'prompt,answer\n1,2\n' >table
check 65 table "table:1:1: expected { (JSONL) or [ (a JSON array of rows)"
gzip -c train.jsonl | head -c 100 >cut.jsonl.gz
check 65 cut.jsonl.gz "cut.jsonl.gz: the gzip data ends early" "the file is truncated"
for packer in zstd xz; do
    command -v $packer >/dev/null || { echo "skipped: rows packed by $packer: it is not installed"; continue; }
    $packer -qc train.jsonl >packed.$packer.jsonl
    head -c 100 packed.$packer.jsonl >cut.$packer.jsonl
    check 65 cut.$packer.jsonl "cut.$packer.jsonl: the $packer data ends early, at byte 100" "the file is truncated"
done
printf 'PK\003\004' >sheet.xlsx
check 65 sheet.xlsx "sheet.xlsx: a zip file; expected JSONL" "pandas.read_excel('sheet.xlsx').to_json('sheet.xlsx.jsonl'"
printf '{"prompt": "a", "completion": "b"}\n' >words.jsonl
check 2 words.jsonl "words.jsonl:1: rows of text require a tokenizer, but the model has none" \
    "hint: set model.tokenizer"

# one line of 50 MB: refused before it is read to its end
{ printf '{"input_ids": ['; head -c 50000000 /dev/zero | tr '\0' ' '; printf '3]}\n'; } >long.jsonl
check 65 long.jsonl "long.jsonl:1: a row of more than 16 MiB, the maximum"
rm long.jsonl

# ---- what only looks wrong ----
sed 's/$/\r/' train.jsonl >crlf.jsonl
{ printf '\357\273\277'; cat train.jsonl; } >bom.jsonl
head -c -1 train.jsonl >no_line_end.jsonl
gzip -c train.jsonl >packed.jsonl.gz
{ echo '['; sed '$!s/$/,/' train.jsonl; echo ']'; } >array.json
for file in crlf.jsonl bom.jsonl no_line_end.jsonl packed.jsonl.gz packed.*.jsonl array.json; do
    [ -e $file ] || continue
    check 0 $file
    grep "^train data" out >"facts.$file"
    cmp -s facts.plain "facts.$file" || is "facts of $file" other "those of train.jsonl"
done

# ---- rows that are omitted are counted; none left is an error ----
no_answer='{"input_ids": [5, 6, 7], "labels": [-100, -100, -100]}'
after_good "$no_answer" "$no_answer" >some.jsonl
check 0 some.jsonl "some.jsonl: 2 of 10 rows are skipped: no trained token (first: line 9)"
has out "2 rows omitted: no trained token"
echo "$no_answer" >none.jsonl
check 65 none.jsonl "none.jsonl: none of 1 rows can be trained on" "1 without a trained token"

run 65 check run.yaml data.max_length=20
has err "train.jsonl:3: 26 tokens, but data.max_length is 20"
has err "set data.overlong to drop, truncate or split"
run 0 check run.yaml data.max_length=20 data.overlong=drop
has err "rows are skipped: longer than data.max_length (first: line 3)"
has out "rows dropped: longer than data.max_length"
run 0 check run.yaml data.max_length=20 data.overlong=truncate
has err "rows are truncated to data.max_length"
has out "8 samples"
has out "rows truncated to data.max_length"
run 65 check run.yaml data.max_length=3 data.overlong=drop
has err "8 too long"
run 2 check run.yaml data.max_length=65
has err "data.max_length 65 is more than the 64 positions of the model"
sed 's/, max_length: 64//; s/, micro_batch_tokens: 128//' run.yaml >default.yaml # its default is for longer models
run 0 run default.yaml out=default train.steps=2
has out "data.max_length is 64, the positions of the model (default: 1024)"
has default/config.yaml "max_length: 64"
run 0 run default.yaml out=default resume=auto train.steps=3
run 0 resume default train.steps=4
run 2 check default.yaml out=other data.max_length=1024
has err "data.max_length 1024 is more than the 64 positions of the model"

# ---- several at once, and nothing is left behind ----
run 65 check run.yaml data.train=cut.jsonl data.eval=invalid.jsonl eval.every=2
has err "2 mistakes"
has err "cut.jsonl:9:29"
has err "invalid.jsonl:9:21"
run 65 run run.yaml data.train=cut.jsonl
has err "cut.jsonl:9:29"
[ -e result/metrics.jsonl ] && is "records of a run that did not start" present absent
is "temporary files" "$(find . -name '*.part*' -o -name '*.tmp*' -o -name '*.lock')" ""
# values that would be ignored
printf '{"instruction": "a", "output": "b", "history": "foo"}\n' >history.jsonl
run 65 check "$source/configs/sft.yaml" data.train=history.jsonl data.eval= eval.every=0
has err "history.jsonl:1: key 'history': expected a list of [question, answer], found text"
for mask in '"111"' '[1]'; do
    printf '{"input_ids": [1, 2, 3], "attention_mask": %s}\n' "$mask" >mask.jsonl
    run 65 check "$source/configs/sft.yaml" data.train=mask.jsonl data.eval= eval.every=0
    has err "mask.jsonl:1: "
done
has err "attention_mask has 1 entries and input_ids has 3; expected equal numbers"
exit $failed
