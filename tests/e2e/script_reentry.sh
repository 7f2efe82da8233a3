#!/bin/sh
# script_reentry.sh: functions of a run that a script may call from its callbacks: hooks may call nearly all, a loss
# may call none because its step is not complete; and a loss that uses another run.
. "$(dirname "$0")/e2e.sh"
{
    echo "local config = \"$source/configs/sft.yaml\""
    cat <<'LUA'
local nrl = require "nrl"
local n, run = 0, nil
local calls = {
  evaluate = function() return run:evaluate() end,
  save = function() return run:save() end,
  sample = function() return run:sample {prompts = {"a"}, max_tokens = 2} end,
  export = function() return run:export("exported" .. n) end,
  profile = function() return run:profile(true) end,
  rows = function() return run:profile() end,
  train = function() return run:train() end,
  steps = function() return run:steps()(run) end,
  finish = function() return run:finish() end,
  close = function() return run:close() end,
}
local names = {"evaluate", "save", "sample", "export", "profile", "rows", "train", "steps", "finish", "close"}
local words = {evaluate = "evaluate", save = "save", sample = "sample", export = "export",
  profile = "begin or end a profile", rows = "read a profile"}
local from_hooks = {evaluate = true, save = true, sample = true, export = true, profile = true, rows = true}

-- every call from every place, once each; what a refused one says, or "fine"
local function try(place)
  local found, left = {}, {table.unpack(names)}
  local function act()
    while #left > 0 do
      local name = table.remove(left, 1)
      local ok, why = pcall(calls[name])
      found[name] = ok and "fine" or why
    end
  end
  local function at(here, result) if place == here then act() end return result end
  n = n + 1
  local cfg = nrl.config(config)
  cfg.train.epochs, cfg.train.steps, cfg.checkpoint.every, cfg.eval.every = nil, 2, 1, 1
  cfg.algorithm = nrl.loss {name = "nested" .. n, needs = {"logps"},
    weight = function(b) return at("weight", b:count "answer_tokens") end,
    loss = function(b) at "loss" return -(b:logps() * b:mask()):sum() end,
    step_end = function() at "step_end" end}
  run = nrl.open(cfg, {out = "reentry" .. n, quiet = true})
  for _, event in ipairs {"step", "eval", "save"} do run:on(event, function() at(event .. " hook") end) end
  local last = run:train()
  run:close()
  return found, last.loss
end
local function expect(place, name, found, text)
  assert(found and found:find(text, 1, true), ("%s from %s: %s, expected %s"):format(name, place, found, text))
end

local _, plain = try "nowhere"
for _, place in ipairs {"weight", "loss", "step_end"} do
  local found, loss = try(place)
  for _, name in ipairs(names) do
    expect(place, name, found[name], words[name] and "cannot " .. words[name] .. " from a loss: its step or evaluation"
      or "cannot call run:" .. name .. " from a hook or a loss")
  end
  assert(loss == plain, "a refused call changes nothing")
end
for _, place in ipairs {"step hook", "eval hook", "save hook"} do
  local found = try(place)
  for _, name in ipairs(names) do
    expect(place, name, found[name], place == "save hook" and name == "save" and "cannot save from a save hook: "
      or from_hooks[name] and "fine" or "cannot call run:" .. name .. " from a hook or a loss")
  end
end

-- a loss that asks another run, which has a loss of the script too
local judged = {}
local function tokens(b) return b:count "answer_tokens" end
local function nll(b) return -(b:logps() * b:mask()):sum() end
local cfg = nrl.config(config)
cfg.algorithm = nrl.loss {name = "judge", needs = {"logps"}, weight = tokens, loss = nll}
local judge = nrl.open(cfg, {out = "judge", quiet = true})
cfg = nrl.config(config)
cfg.train.epochs, cfg.train.steps, cfg.eval.every = nil, 2, 0
cfg.algorithm = nrl.loss {name = "judged", needs = {"logps"}, weight = tokens, loss = function(b)
  local logps = b:logps()
  judged[#judged + 1] = judge:evaluate().loss
  return -(logps * b:mask()):sum() -- tensors of before are of this call still
end}
run = nrl.open(cfg, {out = "judged", quiet = true})
assert(run:train().loss > 0 and #judged > 0 and judged[1] == judged[#judged])
print "all as expected"
LUA
} >reentry.lua
run 0 run reentry.lua "$one_thread"
has out "all as expected"

# what is refused names the script's line
cat >line.lua <<E2
local nrl = require "nrl"
local cfg, run = nrl.config "$source/configs/sft.yaml", nil
cfg.algorithm = nrl.loss {name = "line", needs = {"logps"}, loss = function(b) return b:logps():sum() end,
  weight = function(b)
    run:evaluate()
    return 1
  end}
run = nrl.open(cfg)
run:train()
E2
run 2 run line.lua out=line "$one_thread"
has err "line.lua:5: cannot evaluate from a loss: its step or evaluation has not finished"
# a samples hook is called in the middle of an evaluation, whose values a second one would replace
cat >samples.lua <<E2
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.train.epochs, cfg.train.steps = 0, 2
cfg.eval = {every = 2, samples = {prompts = {"hello"}, max_tokens = 2}}
local run = nrl.open(cfg, {out = "samples"})
run:on("samples", function() run:evaluate() end)
run:train()
E2
run 2 run samples.lua "$one_thread"
has err "cannot evaluate from a samples hook: its evaluation is not over"
exit $failed
