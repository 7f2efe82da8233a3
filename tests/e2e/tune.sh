#!/bin/sh
# tune.sh: `nrl tune` doubles train.micro_batch_tokens until a size lacks memory, bisects, and ends with the fastest and
# the largest size that ran, on one rank and on two; `nrl report --tune` draws them; mistakes in the config end it with their text.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

rows 64 >train.jsonl
experiment >config.yaml
set -- tune config.yaml train.global_batch=32 --from 64 --steps 1

run 0 "$@" --json
truth "sizes without a limit" 'd.trials[1].micro_batch_tokens == 64 and d.trials[2].micro_batch_tokens == 128 and
    all(d.trials, function(t) return t.outcome == "ok" and t.tokens_per_s > 0 and t.used_peak_bytes > 0 end) and
    d.largest == d.trials[#d.trials].micro_batch_tokens and d.fastest <= d.largest'
is "files of a tune" "$(ls -d result 2>dd)" ""

limit="backend={name: $backend, threads: 1$cpu_options, memory_limit: 3MiB}"
run 0 "$@" --json "$limit"
truth "sizes with a limit" 'd.largest >= 64 and all(d.trials, function(t) return t.outcome ~= "out of memory" or
    t.micro_batch_tokens > d.largest end)'
has out '"outcome": "out of memory"'
run 0 "$@" "$limit"
has out "out of memory"
has out "train.micro_batch_tokens="

# several ranks: a size ran if all of them have memory for it; the report draws what was found
run 0 "$@" --ranks 2 --json
truth "sizes of two ranks" 'd.ranks == 2 and d.trials[1].tokens_per_s > 0 and d.largest == d.trials[#d.trials].micro_batch_tokens'
run 0 "$@" --ranks 2 --json train.global_batch=64 "$limit"
truth "sizes of two ranks with a limit" 'd.largest >= 64 and all(d.trials, function(t) return t.outcome ~= "out of memory" or
    t.micro_batch_tokens > d.largest end)'
has out '"outcome": "out of memory"'
mv out sizes.json
run 0 report --tune sizes.json -o sizes.html
has sizes.html 'Sizes of micro-batches'
has sizes.html 'out of memory</td>'
has sizes.html '2 ranks: tokens/s of all'
is "plots" "$(grep -o '<svg' sizes.html | wc -l)" 2
is "sizes that ran, in both plots" "$(grep -o '<circle' sizes.html | wc -l)" "$((2 * $(grep -o '"ok"' sizes.json | wc -l)))"
is "crosses of sizes that did not" "$(grep -o '<path class="mark' sizes.html | wc -l)" "$((2 * $(grep -o '"out of memory"' sizes.json | wc -l)))"
run 0 run config.yaml
run 0 report result --tune sizes.json
has result/report.html 'Sizes of micro-batches'
has result/report.html '<figcaption>loss</figcaption>'
rm -r result
run 2 report --tune sizes.json
has err "require -o FILE"
run 65 report --tune config.yaml -o other.html
has err "config.yaml"
echo '{"trials": []}' >none.json
run 2 report --tune none.json -o other.html
has err "none.json: expected the output of \`nrl tune --json\`, with a list of trials"
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1
export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
run 2 "$@"
has err "cannot tune under torchrun: \`nrl tune\` starts the ranks of each size itself"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

run 0 tune config.yaml --steps 1 --from 16 --to 128 --json
has out '"outcome": "too small"'
run 6 "$@" "backend={name: $backend, threads: 1$cpu_options, memory_limit: 100KiB}"
has err "every size of micro-batches failed: memory of"
run 2 "$@" train.seeed=1
has err "train.seeed"
run 2 tune config.yaml --from 10 --to 5
has err "is above --to 5"
run 2 tune
exit $failed
