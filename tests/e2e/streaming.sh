#!/bin/sh
# streaming.sh: data.streaming reads the rows while the run goes on. It trains on the batches of an indexed data set if
# the buffer holds all rows, goes on after a kill with the same bits, in files that can be entered in the middle and in
# others, takes the same steps on two ranks, reads pipes, and needs memory that does not depend on the size of the file.
. "$(dirname "$0")/e2e.sh"

rows 300 >train.jsonl
experiment >config.yaml
stream() {
    run 0 run config.yaml data.streaming=true data.shuffle_buffer=64 schedule=constant checkpoint.every=1000 "$@"
}
same() {
    is "losses of $2" "$(values "$2" loss | cksum)" "$(values "$1" loss | cksum)"
    is "epochs of $2" "$(values "$2" epoch | cksum)" "$(values "$1" epoch | cksum)"
}

# a buffer that holds all: the numbers of the token cache, which is not written
run 0 run config.yaml out=indexed train.steps=160
run 0 run config.yaml out=all train.steps=160 data.streaming=true
has out "streaming  data.train is read during training"
has out "the number of rows is unknown; 10,000 samples are shuffled at a time"
same indexed all
[ ! -e all/cache ] || is "the cache of a stream" there absent

# a small one: 300 rows are four windows of 64 and one of 44, after which the next pass begins
gzip -k train.jsonl
{ echo '['; sed '$!s/$/,/' train.jsonl; echo ']'; } >train.json
mkdir files
split -l 70 --additional-suffix=.jsonl train.jsonl files/
stream out=whole train.steps=160
is "epoch after the first pass" "$(values whole epoch | sed -n 75p)" 1
is "epoch after 160 steps" "$(values whole epoch | sed -n 160p)" 2.1333333333333333
for data in train.jsonl train.jsonl.gz train.json files; do
    rm -rf cut
    stream out=cut train.steps=70 data.train=$data # in the last window of the first pass
    run 0 resume cut train.steps=118                # in the second one of the second
    run 0 resume cut train.steps=160
    same whole cut
    is "the model of $data" "$(cksum <cut/model/model.safetensors)" "$(cksum <whole/model/model.safetensors)"
done
rows 1000 >long.jsonl # several ranges of the reader
gzip -k long.jsonl
for data in long.jsonl long.jsonl.gz; do
    stream out=$data.run train.steps=190 data.train=$data
    run 0 resume $data.run train.steps=200
    case $data in
    *.gz) has out "long.jsonl.gz is read again from its beginning, because nrl cannot seek in it" ;;
    *) lacks out "read again" ;;
    esac
done
same long.jsonl.run long.jsonl.gz.run
stream out=long train.steps=200 data.train=long.jsonl
same long long.jsonl.run

# killed at some moment
run 0 run config.yaml data.streaming=true data.shuffle_buffer=64 schedule=constant out=killed train.steps=20 checkpoint.every=5
"$nrl" resume killed train.steps=100000 checkpoint.every=7 checkpoint.keep=0 >out 2>err &
pid=$!
await test -e killed/checkpoints/step-00000028
kill -9 $pid
wait $pid 2>dd
last=$(basename "$(find killed/checkpoints -name 'step-*[0-9]' -prune | sort | tail -n 1)" | sed 's/step-0*//')
run 0 resume killed train.steps=$((last + 100)) checkpoint.every=0
stream out=spared train.steps=$((last + 100))
is "losses after a kill" "$(values killed loss | tail -n 99 | cksum)" "$(values spared loss | tail -n 99 | cksum)"

# two ranks: the same global batches
run 0 launch -n 2 -- run config.yaml data.streaming=true data.shuffle_buffer=64 schedule=constant out=ranks train.steps=160
values whole loss >expected.txt
values ranks loss >found.txt
near found.txt expected.txt 160 1e-5
run 0 resume ranks train.steps=170
run 0 resume whole train.steps=170
values whole loss >expected.txt
values ranks loss >found.txt
near found.txt expected.txt 170 1e-5

# pipes: read once; a resumed run is given the same rows
for step in 30 60; do
    rm -rf piped
    gzip -dc train.jsonl.gz | "$nrl" run config.yaml data.train=- data.streaming=true data.shuffle_buffer=64 \
        schedule=constant out=piped train.steps=$step >out 2>err || failed=1
    gzip -dc train.jsonl.gz | "$nrl" resume piped train.steps=160 >out 2>err || failed=1
    has out "the pipe of data.train has ended"
    is "steps of a pipe" "$(values piped loss | wc -l)" 75
    is "losses of a pipe" "$(values piped loss | cksum)" "$(values whole loss | head -n 75 | cksum)"
done
head -n 200 train.jsonl | { expected=2; "$nrl" resume piped train.steps=160 >out 2>err && is "another pipe" accepted refused; }
has err "the rows at the position of the checkpoint, or their tokens, have changed"
mkfifo named
(cat train.jsonl && exec sleep 600) >named &
feeder=$!
"$nrl" run config.yaml data.train=named data.streaming=true data.shuffle_buffer=64 schedule=constant out=fed train.steps=160 \
    checkpoint.every=16 >out 2>err &
pid=$!
await test -e fed/checkpoints/step-00000048 # three windows; of the fourth it is not known whether it is the last one
kill -INT $pid
finished $pid 130 "a run that waits for a pipe"
kill $feeder
has err "after step 48: state saved in fed/checkpoints/step-00000048"
"$nrl" resume fed >out 2>err &
pid=$!
await grep -q "named: waiting for the rows of this pipe; a resumed run reads them again from the beginning" err
kill -INT $pid
finished $pid 130 "a resumed run that waits for a pipe"

# entries by shares, a share that is held out, and rows by number
{ head -n 40 train.jsonl; } >few.jsonl
mix='data.train=[{path: train.jsonl, weight: 3}, few.jsonl]'
run 0 check config.yaml data.streaming=true data.shuffle_buffer=64 "$mix" 'data.mix={power: 0, even: true}'
has out "train.jsonl: 48 samples of each window, 3 per step"
has out "few.jsonl: 16 samples of each window, 1 per step"
stream out=mixed train.steps=100 "$mix" 'data.mix={power: 0, even: true}'
stream out=mixed_cut train.steps=45 "$mix" 'data.mix={power: 0, even: true}'
run 0 resume mixed_cut train.steps=100
same mixed mixed_cut
is "epochs of a mixture" "$(values mixed epoch | tail -n 1)" 0
run 0 run config.yaml data.streaming=true out=held data.eval=0.2 eval.every=3
cp held/metrics.jsonl held.jsonl
run 0 run config.yaml overwrite=true out=held data.eval=0.2 eval.every=3
is "a share that is held out" "$(numbers held.jsonl | cksum)" "$(numbers held/metrics.jsonl | cksum)"
stream out=sliced train.steps=40 'data.train={path: train.jsonl, rows: "100:200"}'
stream out=sliced_cut train.steps=22 'data.train={path: train.jsonl, rows: "100:200"}'
run 0 resume sliced_cut train.steps=40
same sliced sliced_cut

# what a stream cannot know
refused() {
    run 2 check config.yaml data.streaming=true "$2" "${3-train.steps=6}"
    has err "$1"
}
refused "expected train.steps" train.steps=0 train.epochs=2
refused "power 0.5 requires the number of rows" 'data.mix={power: 0.5}'
refused "even requires power: 0" 'data.mix={even: true}'
refused "has weight 2, but data.streaming reads each row" 'data.train={path: train.jsonl, weight: 2}'
refused "limit selects from all rows" 'data.train={path: train.jsonl, limit: 9}'
refused "cannot count the rows of a file from its end" 'data.train={path: train.jsonl, rows: "-9:"}'
refused "cannot count the rows of several files" 'data.train={path: files, rows: "0:9"}'
refused "9 rows are selected from all rows" data.eval=9
refused "none are of few.jsonl, by its share" 'data.train=[few.jsonl, {path: train.jsonl, weight: 1e6}]' 'data.mix={power: 0}'
run 2 check config.yaml data.shuffle_buffer=64
has err "data.shuffle_buffer requires data.streaming: true"

# a faulty row: what was trained before it is saved, and the run goes on when the row is mended
cp train.jsonl bad.jsonl
sed -i '270s/.*/{"input_ids": [4, 5/' bad.jsonl
run 65 run config.yaml data.streaming=true data.shuffle_buffer=64 schedule=constant out=bad train.steps=160 data.train=bad.jsonl
has err "bad.jsonl:270"
has err "state saved in bad/checkpoints/step-00000048"
cp train.jsonl bad.jsonl
run 0 resume bad train.steps=160 checkpoint.mismatch=warn
is "losses beside a mended row" "$(values bad loss | cksum)" "$(values whole loss | head -n 160 | cksum)"

# memory: ten times as many rows
rows 3000 | sed p >small.jsonl
for i in 1 2 3 4 5 6 7 8 9 10; do cat small.jsonl; done >large.jsonl
peak() {
    "$nrl" run config.yaml data.streaming=true data.shuffle_buffer=2000 data.train="$1.jsonl" out="$1" train.steps="$2" \
        train.global_batch=1000 train.micro_batch_tokens=4096 checkpoint.export=none checkpoint.every=0 >out 2>err &
    pid=$!
    most=0
    while now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>dd) && [ -n "$now" ]; do
        most=$now
        sleep 0.02
    done
    wait $pid || failed=1
    echo "$most"
}
small=$(peak small 6)
large=$(peak large 60)
[ "$large" -lt $((small + 16384)) ] || is "KiB at most for ten times the rows" "$large" "those for one, $small, and 16384"
exit $failed
