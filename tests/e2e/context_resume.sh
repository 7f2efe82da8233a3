#!/bin/sh
# context_resume.sh: a run of ranks that divide tokens and data resumes on any other mesh with the same numbers, and on
# its own mesh bit-identically; its export is that of one rank. A lost rank is named, and the run goes on without the
# difference.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 64 >train.jsonl

experiment | sed "s|models/llama|models/qwen3|" >config.yaml
run 0 launch -n 4 -- run config.yaml out=whole train.steps=8 checkpoint.keep=9 'parallel={data: fsdp, context: 2}'
numbers whole/metrics.jsonl >expected.txt
is "records" "$(wc -l <expected.txt | tr -d ' ')" 8
continued alike 4 0 'parallel={data: fsdp, context: 2}'
cmp -s whole/model/model.safetensors alike/model/model.safetensors || is "the export" "another" "the same"
continued one 1 1e-5
continued pair 2 1e-5 parallel.context=2
continued four 4 1e-5 parallel.context=4
continued tensor 4 1e-5 'parallel={context: 2, tensor: 2}'
rm -rf back
run 0 run config.yaml out=back train.steps=4 checkpoint.every=4 overwrite=true
run 0 launch -n 2 -- run config.yaml out=back resume=auto train.steps=8 parallel.context=2
compare back 1e-5

# ---- a lost rank ----
cat >die.lua <<LUA
local nrl = require "nrl"
local run = nrl.open(nrl.config "config.yaml")
run:on("step", function(e) if nrl.rank == 1 and e.step == 5 then os.execute "kill -9 \$PPID" end end)
run:train()
LUA
run 137 launch -n 2 --grace 1 -- run die.lua out=dies parallel.context=2 train.steps=8 checkpoint.keep=9
has err "rank 1"
run 0 launch -n 2 -- run config.yaml out=dies resume=auto parallel.context=2 train.steps=8 checkpoint.keep=9
compare dies 1e-5
exit $failed
