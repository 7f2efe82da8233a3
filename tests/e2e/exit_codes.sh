#!/bin/sh
# exit_codes.sh: exit code 2 if a named file does not exist, 5 for a damaged checkpoint in every verb that reads it,
# and 6 for lack of memory, with `ulimit -v` in the message if that is the reason. Messages say what to type.
. "$(dirname "$0")/e2e.sh"
config=$source/configs/sft.yaml
tokenizer=$source/configs/models/tiny-tokenizer
run 0 run "$config" train.epochs=1 checkpoint.every=8 out=made "$one_thread"

for command in "sample nowhere --prompt a" "export nowhere x" "import nowhere x" "eval nowhere.yaml" "eval nowhere" "resume nowhere" \
    "checkpoint verify nowhere" "checkpoint inspect nowhere" "checkpoint diff nowhere made" "checkpoint prune nowhere --keep 1" \
    "report nowhere" "tokenizer encode nowhere --tokenizer $tokenizer" "tokenizer encode made/config.yaml --tokenizer nowhere" \
    "tokenizer train nowhere --vocab-size 300 --out tok" "plugins test nowhere.so" "describe nowhere" "nowhere" "check nowhere.yaml" \
    "bench nowhere.yaml" "profile nowhere.yaml" "run nowhere.lua" "run nowhere.yaml" "launch -n 2 -- run nowhere.yaml" \
    "run $config data.train=nowhere.jsonl out=x"; do
    # shellcheck disable=SC2086
    run 2 $command
    has err "error: "
done

newest=$(ls -d made/checkpoints/step-* | tail -n 1)
printf 'xxxx' | dd of="$newest/rank-00000.nrlc" conv=notrunc bs=1 seek=2000 2>dd
for command in "resume made" "run $config out=made resume=auto train.epochs=1" "sample made --prompt a" "export made x" "eval made" \
    "checkpoint verify made" "checkpoint diff $newest $newest" "sample $newest --prompt a"; do
    # shellcheck disable=SC2086
    run 5 $command
    has err "$newest"
done

# A run in less and less room ends well or with 6, and says whose limit it met. oneDNN crashes where it cannot have
# memory for the code that it generates; then the limit stands beside the crash.
# A sanitizer wants far more addresses than any limit leaves. In less than the first that is too small not even libraries may fit.
if (ulimit -v 4000000 && exec "$nrl" version >out 2>err); then
    code=0
    for kib in 400000 300000 200000 170000 150000 140000 130000 120000 110000 100000 90000 80000; do
        (ulimit -v $kib && exec "$nrl" run "$config" train.epochs=1 checkpoint.every=4 out=tight overwrite=true "$one_thread" >out 2>err)
        code=$?
        [ $code -eq 0 ] && continue
        # glibc ends a process itself if it cannot allocate the thread-local data of a thread or a library
        [ $code -eq 127 ] && grep -q "cannot allocate memory for thread-local data" err && code=6 && break
        # nor may a plugin that is loaded late fit
        [ $code -eq 1 ] && grep -qE "failed to map segment|[Cc]annot allocate memory" err && code=6 && break
        has err "hint: ulimit -v limits this process to $(awk "BEGIN { printf \"%.0f\", $kib / 1024 }") MiB of address space"
        [ $code -eq 139 ] || break
        has err "backend 'cpu' crashed: segmentation fault"
    done
    is "exit code within $kib KiB" $code 6
fi

# what to type
run 2 run "$config" train.steps=5 out=x
has err "train: give steps or epochs, not both: steps is 5, epochs 16"
has err "hint: on the command line, train.epochs=0 beside train.steps=5"
run 0 run "$config" train.epochs=0 train.steps=5 out=x "$one_thread"
run 2 check "$config" train.seed=1e18
has err "train.seed: 1e+18 is out of range, expected 0 to 2^53"
run 2 check "$config" checkpoint.threads=0
has err "checkpoint.threads: 0 is out of range, expected 1 to 64"
run 0 describe train
has out "0 to 2^53"
exit $failed
