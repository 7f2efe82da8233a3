#!/bin/sh
# pipeline_costs.sh: `costs: auto` divides a model by what its units take on this machine. A head that is dearer than all
# layers has a stage of its own, the numbers are those of one rank, and a resume keeps the division.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

rows 64 >train.jsonl
sed 's/"vocab_size": 96/"vocab_size": 24000/; s/"num_hidden_layers": 2/"num_hidden_layers": 4/' \
    "$source/tests/data/models/llama/config.json" >model.json
experiment "loggers: [console, jsonl]" | sed 's|path: [^}]*|config: model.json|; s/every: 2/every: 4, keep: 9/' >config.yaml
auto='schedule: zero_bubble, costs: auto'
# costs RUN: those in the run's config
costs() { sed -n 's/^ *costs: //p' "$1/config.yaml"; }

alone alone
run 0 launch -n 2 -- check config.yaml out=planned 'parallel={pipeline: {size: 2, balance: units}}'
has out "parallel   pipeline: 1f1b over 2 stages of 3 + 3 units"
run 0 launch -n 2 -- run config.yaml out=measured "parallel={pipeline: {size: 2, $auto}}"
has out "parallel   pipeline: zero_bubble over 2 stages of 5 + 1 units"
has err "auto       parallel.pipeline.costs=$(costs measured): "
is "lines of two ranks" "$(grep -c '^auto  ' err)" 1
is "measured units" "$(costs measured | tr -cd , | wc -c)" 5
lacks measured/config.yaml "costs: auto"
compare measured $exact
# the head takes longer than all other units
costs measured | tr -d '[]' | awk -F', ' '{ for (i = 1; i < NF; i++) sum += $i; exit !($NF > sum && $2 > 0) }' ||
    is costs "$(costs measured)" "those of an expensive head"

# with a size of micro-batches that is chosen, beside another axis, on one rank
run 0 launch -n 4 -- run config.yaml out=both train.steps=1 train.micro_batch_tokens=auto "parallel={data: ddp, pipeline: {size: 2, $auto}}"
has err "auto       parallel.pipeline.costs=$(costs both): "
has err "auto       train.micro_batch_tokens="
has out "over 2 stages of 5 + 1 units"
run 0 run config.yaml out=one train.steps=1 'parallel={pipeline: {size: 1, costs: auto}}'

# a resume keeps them, and is as if nothing had happened
run 0 launch -n 2 -- run config.yaml out=stopped train.steps=4 "parallel={pipeline: {size: 2, $auto}}"
kept=$(costs stopped)
run 0 launch -n 2 -- run config.yaml out=stopped resume=auto "parallel={pipeline: {size: 2, $auto}}"
has err "auto       parallel.pipeline.costs has the value of stopped/config.yaml, which this run continues"
is "costs after a resume" "$(costs stopped)" "$kept"
compare stopped $exact
cmp stopped/model/model.safetensors measured/model/model.safetensors || failed=1

# another machine's run is divided by what was written
run 0 plan config.yaml --ranks 2 --write planned.yaml "parallel={pipeline: {size: 2, $auto}}"
has planned.yaml "costs: ["
run 0 launch -n 2 -- check planned.yaml out=planned
has out "over 2 stages of 5 + 1 units"

# nobody measures, or nothing is to be kept
cat >script.lua <<'LUA'
local nrl = require "nrl"
local config = nrl.config "config.yaml"
config.parallel = {pipeline = {size = 2, costs = "auto"}}
nrl.open(config)
LUA
run 2 launch -n 2 -- run script.lua
has err "parallel.pipeline.costs: auto is only supported by \`nrl run FILE.yaml\` and \`nrl launch\`"
run 2 plan config.yaml --ranks 2 --as-is "parallel={pipeline: {size: 2, $auto}}"
has err "parallel.pipeline.costs: auto: there is no value to keep"
run 2 launch -n 2 -- run config.yaml out=none "parallel={pipeline: {size: 7, $auto}}"
exit $failed
