#!/bin/sh
# memory_release.sh: memory that only the longest samples needed goes back to the system a few micro-batches later, and the records
# say so.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
[ "$backend" = cpu ] || { echo "skipped: a GPU keeps such memory for reuse"; exit 77; }

sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 4096/' "$source/configs/models/tiny.json" >long.json
awk 'BEGIN { for (i = 0; i < 40; i++) {
    ids = ""
    for (t = 0; t < (i < 2 ? 2048 : 16); t++) ids = ids (t ? ", " : "") 3 + (i * 31 + t * t * 17) % 90
    print "{\"input_ids\": [" ids "]}" } }' >rows.jsonl
cat >config.yaml <<YAML
model: {config: long.json}
data: {train: rows.jsonl, max_length: 2048, shuffle: false, packing: false, cache: cache}
train: {steps: 10, global_batch: 4, micro_batch: 1, seed: 3}
optimizer: {name: adamw, lr: 1e-3}
schedule: constant
checkpoint: {every: 0, export: none}
loggers: [jsonl]
$one_thread_yaml
YAML
run 0 run config.yaml out=peak
values peak mem_bytes >resident
is "steps" "$(wc -l <resident)" 10
released=$((($(sed -n 1p resident) - $(sed -n 10p resident)) >> 20))
[ "$released" -ge 20 ] || is "MiB that went back to the system" "$released" "at least 20"
is "tensors in use, step 10" "$(values peak tensor_mem_bytes | sed -n 10p)" "$(values peak tensor_mem_bytes | sed -n 1p)"
exit $failed
