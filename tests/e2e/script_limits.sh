#!/bin/sh
# script_limits.sh: a loss that never ends or takes all memory is stopped, and the error has its line; hooks and
# losses of a sandboxed run have no access outside of Lua.
. "$(dirname "$0")/e2e.sh"

cat >head.lua <<E2
local nrl = require "nrl"
local config = "$source/configs/sft.yaml"
local function tokens(b) return b:count "answer_tokens" end
local function sft(b) return -(b:logps() * b:mask()):sum() end
E2

# every loss below is one line long, and the error names it
{
    cat head.lua
    cat <<'E2'
local n = 0
local function stops(text, limits, loss, weight)
  n = n + 1
  local cfg = nrl.config(config)
  cfg.algorithm = nrl.loss {name = "stops" .. n, needs = {"logps"}, weight = weight or tokens, loss = loss}
  cfg.script = limits
  local run <close> = nrl.open(cfg, {quiet = true, out = "stops" .. n})
  local line = debug.getinfo(weight or loss, "S").linedefined
  local ok, found = pcall(run.train, run)
  text = ("limits.lua:%d: this loss takes %s"):format(line, text)
  assert(not ok and found:find(text, 1, true), text .. " / " .. tostring(found))
end
local short, small = {loss_instructions = 1000000}, {loss_memory_mb = 16}
stops("too long: more than 1000000 Lua", short, function(b) while true do end end)
stops("too long", short, function(b) while true do pcall(function() while true do end end) end end)
stops("too long", short, sft, function(b) while true do end end)
stops("too long", short, function(b) coroutine.wrap(function() while true do end end)() end)
stops("more than 16 MiB", small, function(b) local t = {} while true do t[#t + 1] = {} end end)
stops("more than 16 MiB", small, function(b) local t = {} while true do t[#t + 1] = 1 end end)
stops("more than 16 MiB", small, function(b) local s = "x" while true do s = s .. s end end)
stops("more than 16 MiB", small, function(b) return ("x"):rep(1 << 26) end)
stops("more than 16 MiB", small, function(b) local x = b:logps() while true do x = x + x end end)

-- what a loss may throw away as it goes is no hog, and the script itself has no such limit
local big = {}
for i = 1, 1 << 20 do big[i] = {i} end
local cfg = nrl.config(config)
cfg.script, cfg.algorithm = small, nrl.loss {name = "busy", needs = {"logps"}, weight = tokens, loss = function(b)
  for i = 1, 1 << 18 do local t = {i, i, i, i} end
  return sft(b)
end}
local run <close> = nrl.open(cfg, {quiet = true, out = "busy"})
for i = 1, 2 do run:steps()(run) end
print "all as expected"
E2
} >limits.lua
run 0 run limits.lua "$one_thread"
has out "all as expected"

# the config says which runs are sandboxed; what is taken away comes back, also after an error
{
    cat head.lua
    cat <<'E2'
local outward = {"os", "io", "debug", "package", "require", "load", "loadfile", "dofile"}
local function present()
  local n = 0
  for _, name in ipairs(outward) do if _G[name] ~= nil then n = n + 1 end end
  return n
end
local function try(sandbox, expected)
  local seen = {}
  local function note() seen[#seen + 1] = present() end
  local cfg = nrl.config(config)
  cfg.script = {sandbox = sandbox}
  cfg.algorithm = nrl.loss {name = "noting" .. tostring(sandbox), needs = {"logps"},
    weight = function(b) note() return tokens(b) end,
    loss = function(b) note() return sft(b) end, step_end = note}
  local run <close> = nrl.open(cfg, {quiet = true, out = "sandbox-" .. tostring(sandbox)})
  for _, event in ipairs {"step", "eval", "save"} do run:on(event, note) end
  run:on("step", function(e)
    note()
    if e.step == 1 then run:evaluate() end -- a hook in a hook
    note()
    if e.step == 2 then error "as planned" end
  end)
  local ok, found = pcall(run.train, run)
  assert(not ok and found:find "as planned", found)
  assert(#seen > 10)
  for i, n in ipairs(seen) do assert(n == expected, ("call %d sees %d"):format(i, n)) end
  assert(present() == #outward)
end
try(true, 0)
try(false, #outward)
try(nil, #outward)
print "all as expected"
E2
} >sandbox.lua
run 0 run sandbox.lua "$one_thread"
has out "all as expected"

cat >os.lua <<E2
local nrl = require "nrl"
local run = nrl.open(nrl.config "$source/configs/sft.yaml")
run:on("step", function(e)
  os.remove "something"
end)
run:train()
E2
run 2 run os.lua out=os script.sandbox=true "$one_thread"
has err "os.lua:4: attempt to index a nil value (global 'os')"
run 2 run os.lua out=os2 script.loss_memory=1 "$one_thread"
has err "did you mean 'loss_memory_mb'?"
exit $failed
