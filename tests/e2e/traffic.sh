#!/bin/sh
# traffic.sh: the bytes and messages that `nrl plan` predicts by formulas equal those that the collective counts, on every
# rank and in every step, for each strategy on 2 and 4 ranks; and the sums that docs/scaling.md states.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
header=48 # bytes, of gloo's dialect tcp23: two for a message that is sent, one for a message that is received

rows 64 >train.jsonl
experiment >config.yaml
# Times are not compared: with these links, nothing is measured between processes.
cat >machine.json <<'JSON'
{"format": 1, "cluster": {"ranks_per_node": 4, "inside": {"alpha": 1e-5, "beta": 1e-9}, "between": {"alpha": 1e-5, "beta": 1e-9}}}
JSON
cat >traffic.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "config.yaml")
local out = io.open("sent." .. nrl.rank, "w")
run:on("step", function(e) out:write(("%d %d\n"):format(e.comm_bytes, e.comm_messages)) end)
run:train()
out:close()
LUA
cat >compare.lua <<LUA
-- Lines of what differs. What an update sends without waiting for it may count in the next step: with MODE late sums over
-- the steps are compared, up to what one step sends. With MODE together bytes are compared over all ranks: what a rank
-- returns to others depends on their samples.
local nrl = require "nrl"
local mode = (io.open "mode"):read "l"
local c = nrl.json.decode((io.open "plan"):read "a").candidates[1]
local all, all_planned = 0, 0
for _, t in ipairs(c.traffic) do
  local bytes, messages, planned, planned_messages, step = 0, 0, 0, 0, 0
  for line in io.lines("sent." .. t.rank) do
    local b, m = line:match "(%d+) (%d+)"
    step = step + 1
    local sent, received = t.sent_messages[step], t.received_messages[step]
    local p = t.sent_bytes[step] + $header * (2 * sent + received)
    bytes, messages = bytes + b, messages + m
    planned, planned_messages = planned + p, planned_messages + sent
    if mode ~= "late" and (tonumber(m) ~= sent or (mode == "each" and tonumber(b) ~= p)) then
      print(("rank %d, step %d: %d bytes and %d messages, planned %d and %d"):format(t.rank, step, b, m, p, sent))
    end
  end
  if step ~= 3 then print(("rank %d: %d steps"):format(t.rank, step)) end
  if mode == "late" and (bytes > planned or bytes < planned * 2 / 3 or messages > planned_messages) then
    print(("rank %d: %d bytes and %d messages, planned %d and %d"):format(t.rank, bytes, messages, planned,
      planned_messages))
  end
  all, all_planned = all + bytes, all_planned + planned
end
if mode == "together" and all ~= all_planned then print(("%d bytes, planned %d"):format(all, all_planned)) end
LUA

# equal RANKS STRATEGY ARGUMENT...: the counters are those of the plan
equal() {
    n=$1
    strategy=$2
    shift 2
    set -- train.global_batch=16 train.steps=3 train.epochs=0 checkpoint.every=0 checkpoint.export=none "parallel=$strategy" "$@"
    run 0 plan config.yaml --as-is --json --machine machine.json --ranks "$n" "$@"
    cp out plan
    rm -f sent.*
    run 0 launch -n "$n" -- run traffic.lua out=result overwrite=true "$@"
    "$nrl" run compare.lua >differs 2>&1
    is "$n ranks, $strategy" "$(cat differs)" ""
}

# sum FIELD CALL RANKS: of rank 0 in a step, by calls of groups of so many ranks
sum() {
    cat >sum.lua <<LUA
local s = 0
local c = require "nrl".json.decode((io.open "plan"):read "a").candidates[1]
for _, x in ipairs(c.calls) do if x.call == "$2" and x.ranks == $3 then s = s + x.$1 end end
print(("%d"):format(s))
LUA
    "$nrl" run sum.lua
}

echo each >mode
for n in 2 4; do
    equal $n ddp
    equal $n '{data: {name: ddp, bucket_cap_mb: 0.02}}' train.micro_batch_tokens=64
    equal $n fsdp
    echo late >mode
    equal $n '{data: {name: fsdp, shard: grads}}'
    equal $n '{data: {name: fsdp, shard: optimizer}}'
    echo each >mode
    equal $n "{tensor: $n}"
    equal $n "{tensor: {size: $n, sequence: true}}"
    equal $n "{context: $n}"
    equal $n "{context: {size: $n, kind: ring}}"
    schedules="1f1b gpipe interleaved zero_bubble"
    [ $n = 4 ] || schedules=interleaved
    for schedule in $schedules; do
        equal $n "{pipeline: {size: 2, schedule: $schedule}, data: ddp}"
    done
done
equal 4 '{data: {name: fsdp, shard_size: 2}}'
equal 4 '{data: fsdp, tensor: {size: 2, sequence: true}}'
equal 4 '{data: fsdp, context: 2}'
# gradients of weights that come later are reduced together with those that came before them
equal 4 '{data: fsdp, pipeline: 2}' train.micro_batch_tokens=64
once=$(sum count reduce_scatter 2)
equal 4 '{data: fsdp, pipeline: {size: 2, schedule: zero_bubble}}' train.micro_batch_tokens=64
is "reductions with a split backward" "$(sum count reduce_scatter 2)" "$once"
equal 4 '{pipeline: 2, tensor: 2}'

# Every token chooses every expert, so that the bytes do not depend on what the router learned.
sed 's/"num_experts_per_tok": *[0-9]*/"num_experts_per_tok": 8/' "$source/configs/models/tiny-experts.json" >experts.json
sed 's|{path: .*llama}|{config: experts.json}|' config.yaml >experts.yaml
cp config.yaml dense.yaml
mv experts.yaml config.yaml
# Three micro-batches of four layers: a layer sums the outputs of attention and of the experts, and the gradients of what
# each of them gathered; tokens and the router's weights go to the experts, and their gradients return, in one exchange.
equal 2 '{tensor: {size: 2, sequence: true}}'
is "sums with experts and sequence parallel" "$(sum count reduce_scatter 2)" $((3 * (4 * 4 + 2)))
echo together >mode
equal 2 '{experts: 2}'
equal 4 '{experts: 2, data: fsdp}'
equal 4 '{experts: 4}'
mv dense.yaml config.yaml
echo each >mode

# ---- the formulas of docs/scaling.md: P parameters, T tokens of a rank, L = 2 layers of width D = 32, 4 bytes each ----
equal 4 ddp
weights=$(sed -n 's/.*"weight_bytes": *\([0-9]*\).*/\1/p' plan)
is "ddp: 2 (N - 1) / N P" "$(sum sent_bytes all_reduce 4)" $((2 * 3 * weights / 4))
exit $failed
