#!/bin/sh
# closed_output.sh: every verb fails if standard output cannot be written, with exit code 7 on a full disk and 1 if
# the reader is gone; the files that a verb writes are complete nevertheless.
. "$(dirname "$0")/e2e.sh"
[ -c /dev/full ] || { echo "skipped: there is no /dev/full"; exit 77; }
rows 8 >train.jsonl
cp train.jsonl eval.jsonl
experiment | sed 's/data: {train: train.jsonl,/data: {train: train.jsonl, eval: eval.jsonl,/' >run.yaml
echo 'print(("a line"):rep(10000))' >print.lua
run 0 run "$source/configs/sft.yaml" train.epochs=1 out=made "$one_thread"
printf 'some text\n' >text
sft=$NRL_TEST_BUILD/lib/nrl/algorithms/sft.so
tokenizer=$source/configs/models/tiny-tokenizer
n=0

# unheard COMMAND: with a full disk, and with a pipe that nobody reads; %n is another number each time
unheard() {
    for to in full:7 pipe:1; do
        n=$((n + 1))
        command=$(echo "$1" | sed "s/%n/$n/g")
        if [ ${to%:*} = full ]; then
            # shellcheck disable=SC2086
            "$nrl" $command >/dev/full 2>err
            code=$?
        else
            mkfifo closed
            { exec 3<>closed && exec 4>closed && exec 3<&-; } # a writing end alone
            # shellcheck disable=SC2086
            "$nrl" $command >&4 2>err 4>&-
            code=$?
            exec 4>&-
            rm -f closed
        fi
        is "exit code of nrl $command > $to" $code "${to#*:}"
        has err "standard output"
    done
}
for command in help "run --help" version "version --json" env describe "describe lua" "describe --json" plugins "plugins --json" \
    "plugins test $sft" "plugins new algorithm mine mine%n" "check run.yaml" "run run.yaml out=out%n" "run print.lua" \
    "launch -n 2 -- run run.yaml out=out%n" "launch -n 1 -- env" "eval run.yaml" "eval run.yaml --json" "bench run.yaml --steps 1" \
    "profile run.yaml --steps 1" "sample made --prompt a" "export made model%n" "import made/model start%n" "report made" \
    "checkpoint inspect made" "checkpoint verify made" "checkpoint diff made made" "checkpoint prune made --keep 9" \
    "tokenizer encode text --tokenizer $tokenizer" "tokenizer train text --vocab-size 300 --out tok%n" "resume made"; do
    unheard "$command"
done
for folder in out[0-9]*; do
    is "records of $folder" "$(grep -c '"loss"' "$folder/metrics.jsonl")" 6
    [ -d "$folder/model" ] || is "model of $folder" missing there
done

# -o writes into a pipe, or a device, and does not take its place
mkfifo page
cat page >found &
run 0 report made -o page
wait $!
[ -p page ] || is "a pipe after a report" "a file" "a pipe"
has found "</html>"
exit $failed
