#!/bin/sh
# tensor_resume.sh: a run of 2 x 2 ranks that share layers and data resumes on any other mesh with the same numbers,
# and on its own mesh bit-identically; its export and samples are those of one rank. A lost rank is named.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 64 >train.jsonl

for model in gpt2 qwen3; do
    rm -rf whole
    experiment | sed "s|models/llama|models/$model|" >config.yaml
    run 0 launch -n 4 -- run config.yaml out=whole train.steps=8 checkpoint.keep=9 'parallel={data: fsdp, tensor: 2}'
    numbers whole/metrics.jsonl >expected.txt
    is "records" "$(wc -l <expected.txt | tr -d ' ')" 8
    continued alike 4 0 'parallel={data: fsdp, tensor: 2}'
    continued one 1 1e-5
    continued ddp 2 1e-5 parallel=ddp
    continued fsdp 2 1e-5 parallel=fsdp
    continued replicas 4 1e-5 'parallel={data: ddp, tensor: 2}'
    continued four 4 1e-5 parallel.tensor=4 # qwen3 has two key/value heads, which its ranks share
    continued tokens 2 1e-5 'parallel={tensor: {size: 2, sequence: true}}'
    run 0 checkpoint verify whole
    rm -rf back
    run 0 run config.yaml out=back train.steps=4 checkpoint.every=4 overwrite=true
    rm -rf back/checkpoints/step-0000000[123]
    run 0 launch -n 2 -- run config.yaml out=back resume=auto train.steps=8 parallel.tensor=2
    compare back 1e-5
    run 0 checkpoint diff one/checkpoints/step-00000004 alike/checkpoints/step-00000004
done

# four ranks share two key/value heads and have parts of the tokens: the same bits on their own mesh, the numbers of
# others on fewer ranks, also after one of them is killed
quarter='parallel={tensor: {size: 4, sequence: true}}'
rm -rf whole
run 0 launch -n 4 -- run config.yaml out=whole train.steps=8 checkpoint.keep=9 "$quarter"
numbers whole/metrics.jsonl >expected.txt
continued alike 4 0 "$quarter"
cmp -s whole/model/model.safetensors alike/model/model.safetensors || is "the export of four ranks" "another" "the same"
continued two 2 1e-5 parallel.tensor=2
continued one 1 1e-5
run 0 checkpoint verify whole
cat >killed.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "config.yaml"
local run = nrl.open(cfg)
run:on("step", function(e)
  if nrl.rank == 2 and e.step == 6 and not io.open "was_killed" then
    io.open("was_killed", "w"):close()
    os.execute "kill -9 $PPID"
  end
end)
run:train()
LUA
run 137 launch -n 4 --grace 1 -- run killed.lua out=killed train.steps=8 checkpoint.keep=9 "$quarter"
run 0 launch -n 4 -- run killed.lua out=killed train.steps=8 checkpoint.keep=9 "$quarter" resume=auto
compare killed 0
cmp -s whole/model/model.safetensors killed/model/model.safetensors || is "the export after a kill" "another" "the same"

# Weights that nothing has trained, cut and put together again, are those that one rank reads.
run 0 launch -n 4 -- run config.yaml out=untouched train.steps=1 optimizer.lr=0 parallel.tensor=4
run 0 run config.yaml out=same train.steps=1 optimizer.lr=0
cmp -s untouched/model/model.safetensors same/model/model.safetensors || is "untouched weights" "others" "the same"
cmp -s whole/model/config.json one/model/config.json || is "config.json of the export" "another" "the same"
cmp -s whole/model/model.safetensors alike/model/model.safetensors || is "the export" "another" "the same"

cat >die.lua <<LUA
local nrl = require "nrl"
local run = nrl.open(nrl.config "config.yaml")
run:on("step", function(e) if nrl.rank == 1 and e.step == 2 then os.execute "kill -9 \$PPID" end end)
run:train()
LUA
run 137 launch -n 2 --grace 1 -- run die.lua out=dies parallel.tensor=2
has err "rank 1"
exit $failed
