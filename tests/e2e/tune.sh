#!/bin/sh
# tune.sh: `nrl tune` doubles train.micro_batch_tokens until a size lacks memory, bisects, and ends with the fastest and
# the largest size that ran; mistakes in the config end it with their text.
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

run 0 tune config.yaml --steps 1 --from 16 --to 128 --json
has out '"outcome": "too small"'
run 6 "$@" "backend={name: $backend, threads: 1$cpu_options, memory_limit: 100KiB}"
has err "no size of micro-batches ran: memory of"
run 2 "$@" train.seeed=1
has err "train.seeed"
run 2 tune config.yaml --from 10 --to 5
has err "is above --to 5"
run 2 tune
exit $failed
