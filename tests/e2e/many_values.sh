#!/bin/sh
# many_values.sh: hundreds of metrics of a loss reach every logger and every hook; two metrics with the same name are
# an error.
. "$(dirname "$0")/e2e.sh"
{
    echo "local config = \"$source/configs/sft.yaml\""
    cat <<'LUA'
local nrl = require "nrl"
local function open(name, metrics, loss)
  local cfg = nrl.config(config)
  cfg.train.epochs, cfg.train.steps, cfg.eval.every = nil, 1, 1
  cfg.algorithm = nrl.loss {name = name, needs = {"logps"}, metrics = metrics,
    weight = function(b) return b:count "answer_tokens" end, loss = loss}
  return nrl.open(cfg, {out = name, quiet = true})
end
local N, metrics = 300, {}
for i = 1, N do metrics[("m%03d"):format(i)] = "mean" end
local run = open("many", metrics, function(b)
  for i = 1, N do b:metric(("m%03d"):format(i), i * b:count "answer_tokens", b:count "answer_tokens") end
  return -(b:logps() * b:mask()):sum()
end)
local heard = {}
for _, event in ipairs {"step", "eval"} do run:on(event, function(e) heard[event] = e end) end
run:train()
for i = 1, N do
  assert(heard.step[("m%03d"):format(i)] == i, "a step's event")
  assert(heard.eval[("eval_m%03d"):format(i)] == i, "an evaluation's event")
end
local records = nrl.read_jsonl "many/metrics.jsonl"
for i = 1, N do
  assert(records[1][("m%03d"):format(i)] == i, "a step's record")
  assert(records[2][("eval_m%03d"):format(i)] == i, "an evaluation's record")
end
assert(records[1].mem_bytes and records[2].eval_tokens)

local function refused(text, metrics)
  local ok, why = pcall(open, "refused" .. #text, metrics, function(b) return b:logps():sum() end)
  assert(not ok and why:find(text, 1, true), why)
end
refused("metric 'loss' has the name of the run's own metric 'loss'", {loss = "mean"})
refused("metric 'eval_loss' has the name of the run's own metric 'eval_loss'", {eval_loss = "mean"})
local too_many = {}
for i = 1, 5000 do too_many["x" .. i] = "mean" end
refused("has more than 4095 metrics: 'x", too_many)
print "all as expected"
LUA
} >many.lua
run 0 run many.lua "$one_thread"
has out "all as expected"
exit $failed
