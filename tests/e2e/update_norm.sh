#!/bin/sh
# update_norm.sh: the norm of updates in records: that of plain gradient descent is known, and ranks do not change it.
. "$(dirname "$0")/e2e.sh"

rows 16 >train.jsonl
experiment >run.yaml
sgd="optimizer={name: sgd, lr: 0.01, momentum: 0, weight_decay: 0, clip_norm: 0}"
common="train.steps=21 checkpoint.every=0 schedule=constant"

# column RUN NAME: step and value of the records that have it
column() { sed -n 's|.*"step": *\([0-9]*\),.*"'"$2"'": *\([^,}]*\).*|\1 \2|p' "$1/metrics.jsonl"; }
steps() { column "$1" update_norm | sed 's/ .*//' | tr '\n' ' '; }

run 0 run run.yaml $common "$sgd" out=sgd
is "records with a norm" "$(steps sgd)" "10 20 21 "
run 0 run run.yaml $common "$sgd" out=cut checkpoint.every=9 train.steps=9
run 0 resume cut train.steps=12
is "records with a norm after a resume" "$(steps cut)" "9 10 12 "
column sgd grad_norm | sed -n '10p;20p;21p' | awk '{ printf "%.9g\n", 0.01 * $2 }' >want
column sgd update_norm | sed 's/.* //' >found
near found want 3 2e-5 # f32 weights round what they add

# the same on two ranks, whole and divided, and where an optimizer needs whole matrices
for optimizer in adamw muon; do
    run 0 run run.yaml $common "optimizer={name: $optimizer, lr: 1e-3}" out=$optimizer
    column $optimizer update_norm | sed 's/.* //' >want
    is "records of $optimizer" "$(steps $optimizer)" "10 20 21 "
    for strategy in ddp fsdp tensor; do
        where="parallel=$strategy"
        [ $strategy = tensor ] && where="parallel={tensor: 2}"
        run 0 launch -n 2 -- run run.yaml $common "optimizer={name: $optimizer, lr: 1e-3}" out=$optimizer-$strategy "$where"
        column $optimizer-$strategy update_norm | sed 's/.* //' >found
        near found want 3 1e-3
    done
done

# other encodings of masters, and a step that is skipped
run 0 run run.yaml $common train.precision=bf16 train.master=split16 out=split
run 0 run run.yaml $common train.precision=bf16 out=wide
column split update_norm | sed 's/.* //' >found
column wide update_norm | sed 's/.* //' >want
near found want 3 1e-6

exit $failed
