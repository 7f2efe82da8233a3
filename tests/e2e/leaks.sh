#!/bin/sh
# leaks.sh: train.leak_check finds memory that a plugin or a script keeps in each step, and nothing else.
. "$(dirname "$0")/e2e.sh"

rows 40 >train.jsonl
experiment >run.yaml
plugins="plugins=[$NRL_TEST_BUILD/tests/plugins]"
long="train.steps=60 checkpoint.every=0"
leaks() { echo "algorithm={name: leaky, what: $1, mib: $2, once: ${3:-0}}"; }

# a plugin: tensors slowly, the heap slowly, both fast
run 0 run run.yaml $long out=a "$plugins" "$(leaks tensors 0.5)"
has err "memory leak: tensors in use after a step grow by 0.5 MiB per step"
has err "weights "
is "warnings of one leak" "$(grep -c 'memory leak' err)" 1
run 0 run run.yaml $long out=b "$plugins" "$(leaks heap 4)"
has err "memory leak: host heap in use after a step grow by "
lacks err "leak: tensors"
run 0 run run.yaml train.steps=26 checkpoint.every=0 out=c "$plugins" "$(leaks heap 40)"
has err "memory leak: host heap"

# stop, and off
run 6 run run.yaml $long out=d "$plugins" "$(leaks tensors 0.5)" train.leak_check=stop
has err "memory leak: tensors"
has err "hint:"
run 0 run run.yaml $long out=e "$plugins" "$(leaks tensors 0.5)" train.leak_check=off
lacks err "memory leak"
run 2 run run.yaml train.leak_check=often
has err "leak_check"

# the other rank's, too
run 0 launch -n 2 -- run run.yaml parallel=ddp $long out=f "$plugins" "$(leaks tensors 0.5)"
has err "memory leak: tensors"

# a script whose table grows
cat >s.lua <<'L'
local nrl = require "nrl"
local cfg = nrl.config "run.yaml"
cfg.train.steps = 60
cfg.checkpoint.every = 0
local run = nrl.open(cfg)
local seen = {}
run:on("step", function(e) seen[#seen + 1] = string.rep(tostring(e.step), 3000000 // #tostring(e.step)) end)
run:train()
L
run 0 run s.lua out=g
has err "memory leak: host heap"

# no leak: one large allocation, saves and evaluations, and samples that grow in length until the end
run 0 run run.yaml $long out=h "$plugins" "$(leaks heap 300 35)"
lacks err "memory leak"
run 0 run run.yaml train.steps=60 checkpoint.every=7 data.eval=train.jsonl eval.every=5 out=i
lacks err "memory leak"
awk 'BEGIN { for (i = 0; i < 240; i++) {
    ids = ""
    for (t = 0; t < 16 + 2 * i; t++) ids = ids (t ? ", " : "") 3 + (i * 31 + t * t * 17) % 90
    print "{\"input_ids\": [" ids "]}" } }' >growing.jsonl
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 1024/' "$source/configs/models/tiny.json" >long.json
grep -q 1024 long.json || is "the model's positions" "not set" set
run 0 run run.yaml "model={config: long.json}" data.train=growing.jsonl data.max_length=512 data.shuffle=false \
    data.packing=false train.micro_batch=1 train.global_batch=4 $long out=j "$plugins" "$(leaks workspace 0.2)"
lacks err "memory leak"
first=$(values j heap_mem_bytes | sed -n 25p) last=$(values j heap_mem_bytes | tail -n 1)
[ "$last" -gt $((first + 40000000)) ] || is "growth of the work space" "$((last - first))" "more than 40 MB"
has j/metrics.jsonl '"tensor_mem_bytes"'
has j/metrics.jsonl '"heap_mem_bytes"'

exit $failed
