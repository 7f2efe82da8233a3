#!/bin/sh
# tokenizers.sh: `nrl tokenizer` trains on a text, converts text to ids and back, names the line of an error, and does
# not need more memory for a larger file.
. "$(dirname "$0")/e2e.sh"

awk 'BEGIN { for (i = 0; i < 2000; i++) print "line " i ": the quick brown fox, naïve and “quoted”\t" i * i }' >text
run 0 tokenizer train text --vocab-size 400 --special '<|im_start|>,<|im_end|>' --out tok
has out "400 tokens"
[ -s tok/tokenizer.json ] || is "tok/tokenizer.json" missing there
run 0 tokenizer encode text --tokenizer tok
mv out ids
[ "$(wc -c <ids)" -gt 2000 ] || is "bytes of ids" "$(wc -c <ids)" "more than 2000"
run 0 tokenizer decode ids --tokenizer tok
cmp -s text out || is "a text there and back" other "the same"
run 0 tokenizer train text --vocab-size 400 --special '<|im_start|>,<|im_end|>' --out again
cmp -s tok/tokenizer.json again/tokenizer.json || is "a second training" other "the same"

# rows, with what lines cannot hold; from standard input
printf '%s\n' '{"text": "two\nlines"}' '{"text": ""}' '{"text": "<|im_start|>a"}' >rows.jsonl
run 0 tokenizer encode rows.jsonl --jsonl --tokenizer tok
mv out ids.jsonl
run 0 tokenizer decode ids.jsonl --jsonl --tokenizer tok
cmp -s rows.jsonl out || is "rows there and back" "$(cat out)" "$(cat rows.jsonl)"
"$nrl" tokenizer decode - --jsonl --skip-special --tokenizer tok <ids.jsonl >out
is "the last row without special tokens" "$(tail -n 1 out)" '{"text": "a"}'

# what is wrong
run 2 tokenizer encode text
has err "--tokenizer: expected"
run 2 tokenizer learn text
has err "expected train, encode or decode"
run 2 tokenizer encode nowhere --tokenizer tok
has err "cannot read nowhere"
printf '1 2\n3 x\n' >bad
run 65 tokenizer decode bad --tokenizer tok
has err "bad:2:3: expected token ids"
echo 400 >bad
run 65 tokenizer decode bad --tokenizer tok
has err "bad:1: token id 400, expected 0 to 399"
echo '{"txt": "a"}' >bad
run 65 tokenizer encode bad --jsonl --tokenizer tok
has err 'bad:1: expected a row {"text": "..."}'
run 2 tokenizer train text --vocab-size 10 --out small
has err "10"

# One line of 100 MB, and many empty ones, in 200 MB of addresses; a sanitizer takes more for itself.
limit() { (ulimit -v 200000 && run "$@" && exit $failed) || failed=1; }
[ -z "${ASAN_OPTIONS-}" ] || exit $failed
head -c 100000000 /dev/zero | tr '\0' a >long
limit 65 tokenizer encode long --tokenizer tok
has err "long:1: the line has more than 16777216 bytes"
limit 0 tokenizer train long --vocab-size 260 --out flat
tr a '\n' <long | head -c 20000000 >lines
limit 0 tokenizer encode lines --tokenizer tok
is "lines of ids" "$(wc -l <out)" 20000000
exit $failed
