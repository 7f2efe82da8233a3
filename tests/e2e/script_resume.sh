#!/bin/sh
# script_resume.sh: a scripted run that is asked to stop saves, exits with 75, and resumes with the same losses and
# its own state.
. "$(dirname "$0")/e2e.sh"

cat >long.lua <<E2
local nrl = require "nrl"
local run = nrl.open(nrl.config "$source/configs/sft.yaml")
run.state.seen = run.state.seen or 0
print("starts with", run.state.seen)
run:on("step", function(e)
  run.state.seen = run.state.seen + 1
  if e.step == tonumber(arg[1]) then os.execute("kill -TERM " .. arg[2]) end
end)
run:train()
print("ends with", run.state.seen)
E2
settings="train.epochs=2 checkpoint.every=1000 eval.every=0"
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

run 0 run long.lua 0 0 out=whole $settings "$one_thread"
has out "ends with	32"

# the script's own process gets the signal at step 9
sh -c 'exec "$0" run long.lua 9 $$ out=cut '"$settings"' "$1"' "$nrl" "$one_thread" >out 2>err
is "exit code after SIGTERM" $? 75
has err "step 9"
run 0 run long.lua 0 0 out=cut resume=auto $settings "$one_thread"
has out "starts with	9"
has out "ends with	32"
losses whole >a
losses cut >b
cmp a b || is "losses after resuming" different equal

# ---- what JSON cannot hold comes back as it was; more than a checkpoint can hold is not saved ----
rows 16 >train.jsonl
experiment >tiny.yaml
cat >state.lua <<'E2'
local nrl = require "nrl"
local run = nrl.open(nrl.config "tiny.yaml", {out = "odd"})
local bytes = {}
for i = 0, 255 do bytes[#bytes + 1] = string.char(i) end
local odd = {nan = 0 / 0, inf = 1 / 0, neg = -1 / 0, zero = -0.0, small = 5e-324, big = math.mininteger,
  bytes = table.concat(bytes), word = "NaN", list = {1 / 0, "\xff", {x = 0 / 0}}, ["\xff\x01"] = 1, ["\xfe"] = 2,
  ["$number"] = "x", ["$bytes"] = {["$"] = "$$"}, ["\27[31m\127\r"] = "\0\1\27"}
local function same(a, b)
  if type(a) ~= "table" then return math.type(a) == math.type(b) and (a == b or (a ~= a and b ~= b)) and 1 / (a == 0 and a or 1) == 1 / (b == 0 and b or 1) end
  for k, v in pairs(a) do if not same(v, b[k]) then print("differs", k) return false end end
  for k in pairs(b) do if a[k] == nil then print("is new", k) return false end end
  return true
end
if run.state.odd then print("came back", same(odd, run.state.odd)) end
run.state.odd = odd
if arg[1] then run.state.large = ("\1"):rep(12 << 20) end
run:train()
E2
run 0 run state.lua
run 0 run state.lua resume=auto train.steps=8
has out "came back	true"
run 65 run state.lua large resume=auto train.steps=9
has err "cannot write odd/checkpoints/step-00000009.tmp/manifest.json: it would have "
has err "the state of 'script' has "
is "checkpoints after a state that is too large" "$(ls odd/checkpoints | tail -n 1)" step-00000008
run 0 run state.lua resume=auto train.steps=9
exit $failed
