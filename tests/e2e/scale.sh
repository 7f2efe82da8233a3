#!/bin/sh
# scale.sh: `nrl plan` with several numbers of ranks: lines and JSON, a cluster in the file of measurements, the formulas
# of latency and bandwidth, the growing and the fixed batch, and mistakes. docs/scaling.md has a table that it writes.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 512 >train.jsonl
experiment >config.yaml

# cluster ALPHA BETA: nodes of 4 ranks, whose links to others take ALPHA + BETA bytes seconds
cluster() {
    cat >cluster.json <<JSON
{"format": 1, "cluster": {"ranks_per_node": 4, "links": 4,
  "inside": {"alpha": 1e-6, "beta": 1e-11}, "between": {"alpha": $1, "beta": $2}}}
JSON
}

cluster 1e-5 1e-10
run 0 plan config.yaml train.global_batch=8 --machine cluster.json --ranks 4,16 --save-machine machine.json \
    --try 'parallel={data: {name: fsdp, hybrid: true}}'
has out "ranks     memory   s a step   tokens/s  eff.       sent  messages  settings"
has out "(fastest)"
has out "parallel={data: {name: fsdp, hybrid: true}}"
has out "parallel={data: ddp, tensor: 4}"
has out "refused: parallel={experts: 4}"
has machine.json '"ranks_per_node"'
cluster 1e-5 1e-10
set -- plan config.yaml train.global_batch=8 --machine cluster.json
run 0 "$@" --as-is parallel=ddp --ranks 4,16,64 --json
truth "numbers of ranks" '#d.counts == 3 and d.counts[1].ranks == 4 and d.counts[3].nodes == 16'
truth "the batch grows with the ranks" 'd.counts[1].global_batch == 8 and d.counts[3].global_batch == 128'
truth "every number has a time" 'all(d.counts, function(c) return c.candidates[1].step_seconds > 0 end)'
truth "the first is the measure" 'd.counts[1].candidates[1].efficiency == 1 and d.counts[3].candidates[1].efficiency < 1'
truth "the links" 'd.machine.between.alpha == 1e-5 and d.machine.inside.beta == 1e-11'
# 2 (N - 1) / N of the gradients, whatever the rounding of pieces: that is, at most one element in each piece
truth "bytes of ddp" '(function()
    for _, c in ipairs(d.counts) do
      local x, n = c.candidates[1], c.ranks
      for _, k in ipairs(x.calls) do
        if k.call == "all_reduce" and math.abs(k.sent_bytes - 2 * (n - 1) / n * x.weight_bytes) > 0.03 * x.weight_bytes then return false end
      end
    end
    return true
  end)()'

# a slower link costs, with all_reduce once a step, 2 (N - 1) of its latencies more
seconds() {
    run 0 "$@" --as-is parallel=ddp --ranks 4,64 --json
    cat >seconds.lua <<'LUA'
local d = require "nrl".json.decode((io.open "out"):read "a")
for _, k in ipairs(d.counts[2].candidates[1].calls) do if k.call == "all_reduce" then io.write(("%d "):format(k.count)) end end
print(("%.9f"):format(d.counts[2].candidates[1].step_seconds))
LUA
    "$nrl" run seconds.lua
}
fast=$(seconds "$@")
cluster 2e-1 1e-10
slow=$(seconds "$@")
# besides, a step has two all_gathers of N - 1 rounds, which follow it
echo "$fast $slow" | awk '{ more = $4 - $2; expected = (2 * 63 * $1 + 2 * 63) * (2e-1 - 1e-5)
    exit !(more > 0.95 * expected && more < 1.05 * expected) }' || is "latency of 64 ranks" "$fast and $slow" "2 (N - 1) alpha for each call"

# a file with measurements is used as it is
set -- plan config.yaml train.global_batch=8 --machine machine.json
run 0 "$@" --ranks 4,8 --fixed-batch --keep parallel parallel=fsdp --json
truth "a fixed batch, and nothing is measured" 'd.counts[2].global_batch == 8 and d.machine.measured_seconds == 0'

# without a cluster, nodes are like this machine
run 0 plan config.yaml train.global_batch=8 --as-is parallel=ddp --ranks 2,8 --json
truth "links that fit the measurements" 'd.machine.between.alpha >= 0 and d.machine.inside.beta >= 0 and
    d.machine.between.alpha + d.machine.between.beta > 0 and d.counts[2].candidates[1].step_seconds > 0'

# mistakes
run 2 "$@" --ranks 8,4
has err "--ranks: '8,4': expected a number from 1 to 65536, or up to 16 ascending ones such as 8,64,1024"
run 2 "$@" --ranks 4,8 --write x.yaml
has err "--write: expected one number with --ranks"
run 2 "$@" --ranks 4,8 --auto
has err "--auto: expected one number with --ranks"
run 2 "$@" --ranks 4 --fixed-batch
has err "--fixed-batch: expected several numbers with --ranks"
sed '/^train:/s/global_batch: 4, //' config.yaml >nobatch.yaml
run 2 plan nobatch.yaml --ranks 4,8 --machine cluster.json
has err "there is no train.global_batch; expected that of 4 ranks"
echo '{"format": 1, "calls": [], "cluster": [{}]}' >wrong.json
run 2 plan config.yaml --ranks 4,8 --machine wrong.json
has err "wrong.json: cluster: expected {ranks_per_node, links, inside and between}"
sed 's/"links": 4/"lanes": 4/' cluster.json >wrong.json
run 2 plan config.yaml --ranks 4,8 --machine wrong.json
has err "wrong.json: cluster.lanes: unknown key; expected ranks_per_node, links, inside and between"
sed 's/"alpha": 1e-6, //' cluster.json >wrong.json
run 2 plan config.yaml --ranks 4,8 --machine wrong.json
has err "wrong.json: cluster.inside: expected {alpha: seconds per message, beta: seconds per byte}, at least 0"
exit $failed
