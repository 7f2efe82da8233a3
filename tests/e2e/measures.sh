#!/bin/sh
# measures.sh: `nrl bench` and `nrl profile` say where time and memory go, and leave nothing behind.
. "$(dirname "$0")/e2e.sh"

rows 16 >train.jsonl
experiment >run.yaml

# number KEY: of the JSON in out
number() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" out; }

run 0 bench run.yaml --steps 3 --json
for key in tokens_per_s mfu step_seconds_median data_fraction parameters weight_bytes optimizer_bytes activation_bytes \
    peak_rss threads; do
    [ -n "$(number $key)" ] || is "$key of the bench" missing there
done
is "measured steps" "$(number steps)" 3
is "bytes of the optimizer, two states of f32" "$(number optimizer_bytes)" "$((2 * $(number weight_bytes)))"
run 0 bench run.yaml --steps 2
has out "tokens_per_s "

run 0 profile run.yaml --steps 2
for operation in gemm attention attention_grad norm glu rope head adamw 'outside operations'; do
    has out "$operation"
done
run 0 profile run.yaml --steps 2 --json
has out '"gflop_per_s"'
run 2 bench run.yaml --steps 0
has err "--steps"
is "files beside the config and the data" "$(ls | grep -v -e '^out$' -e '^err$' | tr '\n' ' ')" "run.yaml train.jsonl "
exit $failed
