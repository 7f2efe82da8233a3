#!/bin/sh
# sampling.sh: the output of `nrl sample`: the prompt and its continuation, greedy or sampled, for one prompt or a
# file.
. "$(dirname "$0")/e2e.sh"

# A tokenizer of Llama's kind, which drops the blank that a text begins with: letters, with and without one.
golden model
awk 'BEGIN {
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocab = "\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2, \"▁\": 3"
    for (i = 1; i <= 26; i++) {
        c = substr(letters, i, 1)
        vocab = vocab ", \"" c "\": " 3 + i ", \"▁" c "\": " 29 + i
        merges = merges (i > 1 ? ", " : "") "\"▁ " c "\""
    }
    blank = "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"first\", \"split\": true}"
    print "{\"pre_tokenizer\": " blank ", \"decoder\": " blank ", \"added_tokens\": [],"
    print "\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab "}, \"merges\": [" merges "]}}"
}' >model/tokenizer.json

# text ARGUMENT...: what the prompt "a b" is continued with
text() {
    run 0 sample model --prompt 'a b' --json "$@"
    sed -n 's/.*"text":"\([^"]*\)".*/\1/p' out
}

run 0 sample model --prompt 'a b' --max-tokens 12
greedy=$(cat out)
is "greedy, as one text" "$greedy" "a b o j o jh q yd r yd v"
is "the same behind the prompt" "a b$(text --max-tokens 12)" "$greedy"
has out '"prompt":"a b"'
has out '"tokens":12'
has err "backend cpu, weights f32"

hot=$(text --temperature 5 --seed 1)
is "drawn with the same seed" "$(text --temperature 5 --seed 1)" "$hot"
[ "$(text --temperature 5 --seed 2)" != "$hot" ] || is "drawn with another seed" "$hot" "another text"
is "drawn of the likeliest alone" "a b$(text --temperature 5 --top-p 1e-6 --max-tokens 12)" "$greedy"

printf 'c d\r\n\na b\n' >prompts
run 0 sample model --file prompts --max-tokens 12
is "lines of two prompts" "$(wc -l <out)" 2
is "the second" "$(tail -n 1 out)" "$greedy"
: >empty
run 65 sample model --file empty
has err "empty: it contains no prompt"
run 2 sample model --prompt a --top-p 2
has err "--top-p: '2': expected a number from 1e-06 to 1"
run 2 sample model --prompt a --max-tokens 0
has err "--max-tokens: '0': expected a number from 1 to 1000000"
run 2 sample model --prompt a --template chatlm
has err "unknown template 'chatlm'; expected one of: chatml"

# Limits of the choice: each of them alone leaves only the likeliest token; a penalty changes what greedy choice repeats.
for limit in "--top-k 1" "--min-p 1"; do
    is "drawn with $limit" "a b$(text --temperature 5 $limit --max-tokens 12)" "$greedy"
done
[ "$(text --max-tokens 12 --repetition-penalty 5)" != "$(text --max-tokens 12)" ] || is "penalised" same another

# Without --max-tokens a text ends at the 64 positions of the model; a number that does not fit is an error.
long=$(printf 'a %.0s' $(seq 60))
run 0 sample model --prompt "$long" --json
grep -qE '"tokens":3[,}]' out || is "a text up to the context" "$(cat out)" "3 tokens"
run 2 sample model --prompt "$long" --max-tokens 64
has err "exceeds the 64 positions of the model"

# A stop text ends a text before it, with and without tokens shown as they come; the rest is as without it.
is "stopped" "$(text --max-tokens 12 --stop 'jh q' --stop zz)" " o j o "
run 0 sample model --prompt 'a b' --max-tokens 12 --stop 'jh q'
is "stopped while it is shown" "$(cat out)" "a b o j o "
is "not stopped" "$(text --max-tokens 12 --stop 'jh x')" "${greedy#a b}"

# Several texts of one prompt.
run 0 sample model --prompt 'a b' --n 3 --temperature 5 --max-tokens 12 --json
is "texts of --n" "$(sort -u out | wc -l)" 3

echo 'a b c d e f' >rows.txt
printf '{"text": "a b c"}\n{"text": "d e"}\n' >texts.jsonl
# Conversations and prompts in JSON lines, from a file and from the standard input.
printf '%s\n' '{"messages": [{"role": "user", "content": "a b"}]}' '{"prompt": "c d"}' >rows.jsonl
run 0 sample model --file rows.jsonl --template plain --max-tokens 6 --json
rows=$(cat out)
has out '"prompt":"a b"'
is "rows of the standard input" "$("$nrl" sample model --file - --template plain --max-tokens 6 --json <rows.jsonl)" "$rows"
is "the same, named by -" "$("$nrl" sample model - --template plain --max-tokens 6 --json <rows.jsonl)" "$rows"
run 2 sample model - --file rows.jsonl
has err "expected only one of --file FILE and -"
run 0 eval model --text rows.txt --json
cut -d, -f4- out | tr -d ' ' >by_file
"$nrl" eval model --text - --json <rows.txt >out 2>err
is "scores of the standard input" "$(cut -d, -f4- out | tr -d ' ' | sed 's/"text":"-"/"text":"rows.txt"/')" "$(cat by_file)"
"$nrl" eval model --text - <texts.jsonl >out 2>err
has out "documents                2"
run 0 sample model --prompt 'a b' --template plain --max-tokens 6 --json
is "a row of messages and the same prompt" "$(head -n 1 out)" "$(echo "$rows" | head -n 1)"
run 0 sample model --prompt 'a b' --template plain --system 'be brief' --max-tokens 6 --json
echo '{"text": "a"}' >odd.jsonl
run 65 sample model --file odd.jsonl
has err 'odd.jsonl:1: expected "messages", a list of messages, or "prompt", a text'
echo '{"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}' >answered.jsonl
run 0 sample model --file answered.jsonl --template plain --max-tokens 6 --json
is "a conversation with its answer" "$(cat out)" "$(echo "$rows" | head -n 1)"
run 2 sample model --prompt a --n 0
has err "--n: '0': expected a number from 1 to 10000"

# nrl chat: an answer to each line, with the lines before as context; commands.
printf '%s\n' 'a b' '/save talk.jsonl' 'c d' '/reset' 'a b' '/save talk.jsonl' |
    "$nrl" chat model --template plain --temperature 0 --max-tokens 6 >talk 2>err || is "nrl chat" failed good
is "the first answer, and that after /reset" "$(sed -n 3p talk)" "$(sed -n 1p talk)"
[ "$(sed -n 2p talk)" != "$(sed -n 1p talk)" ] || is "the second answer" same another
is "conversations saved" "$(wc -l <talk.jsonl)" 2
is "lines about them" "$(grep -c "^saved 2 messages to 'talk.jsonl'$" err)" 2
has talk.jsonl '{"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": '
echo /nonsense | "$nrl" chat model --template plain >talk 2>err && is "an unknown command" good failed
has err "unknown command '/nonsense'"

# on a terminal, a message that cannot be answered leaves the conversation
if command -v script >/dev/null; then
    printf '%s\n' 'a b' '/save good.jsonl' "$(seq 1000 | tr '\n' ' ')" '/save kept.jsonl' /quit >lines
    script -qec "'$nrl' chat model --template plain --temperature 0 --max-tokens 6" typescript <lines >dd 2>&1
    has typescript "positions of the model"
    is "a conversation after a message without an answer" "$(cat kept.jsonl)" "$(cat good.jsonl)"
fi

# weights that are not finite give no text
cp -r model broken
printf '\377\377\377\377' | dd of=broken/model.safetensors bs=1 seek=$(($(wc -c <broken/model.safetensors) - 4)) conv=notrunc 2>dd
run 65 sample broken --prompt a --max-tokens 4
has err "cannot choose a token: the logit of token"
exit $failed
