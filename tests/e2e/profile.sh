#!/bin/sh
# profile.sh: regions of scripts, timelines of one and two ranks, tensors by place.
. "$(dirname "$0")/e2e.sh"

rows 16 >train.jsonl
experiment >run.yaml

# trace FILE LUA: an expression over the events of a timeline; of(track, name) lists slices
trace() {
    cat >trace.lua <<LUA
local nrl = require "nrl"
local d = nrl.json.decode(io.open("$1"):read "a")
local e = d.traceEvents
local function of(track, name, rank)
  local list = {}
  for _, x in ipairs(e) do
    if x.cat == track and (not name or x.name == name) and (not rank or x.pid == rank) then list[#list + 1] = x end
  end
  return list
end
-- slices of one thread nest, as the format wants it; times are in microseconds with three decimals
local threads = {}
for _, x in ipairs(e) do
  assert(x.ph == "X" or x.ph == "M" or x.ph == "C", x.ph)
  if x.ph == "X" then
    assert(x.dur >= 0 and x.name and x.cat)
    local key = x.pid .. ":" .. x.tid
    threads[key] = threads[key] or {}
    table.insert(threads[key], x)
  end
end
for key, list in pairs(threads) do
  local open = {}
  for _, x in ipairs(list) do
    while #open > 0 and open[#open] <= x.ts + 0.0015 do table.remove(open) end
    assert(#open == 0 or x.ts + x.dur <= open[#open] + 0.0015, key .. " " .. x.name)
    table.insert(open, x.ts + x.dur)
  end
end
local function inside(x, y) return x.ts >= y.ts - 0.0015 and x.ts + x.dur <= y.ts + y.dur + 0.0015 end
-- the clock of rank 1 is known within half of its round trip
local off = 1e6 * ((d.otherData.clock_round_trip_s or {})[2] or 0) / 2 + 0.0015
local function meet(x, y) return x.ts <= y.ts + y.dur + off and y.ts <= x.ts + x.dur + off end
os.exit(($2) and 0 or 1)
LUA
    "$nrl" run trace.lua >why 2>&1 || is "timeline $1" "not so: $2 $(tail -n 3 why)" so
    rm -f trace.lua why
}

# a timeline of one rank: what the table counts is there
run 0 profile run.yaml --steps 2 --trace t.json
has out "timeline in t.json"
lacks out "time by region"
run 0 profile run.yaml --steps 2 --trace t.json --json
truth "no regions" 'd.regions == nil and d.memory_profile == nil'
trace t.json '#of("steps") == 2 and of("steps")[1].name == "step 3" and of("steps")[2].name == "step 4"'
trace t.json '#of("phases", "forward") >= 2 and #of("phases", "update") >= 2 and #of("units", "layers.0") >= 4'
trace t.json 'inside(of("phases", "update")[1], of("steps")[1])'
cp run.yaml mine.yaml
run 2 profile mine.yaml --steps 2 --trace mine.yaml
has err "--trace: 'mine.yaml' exists, and is not a timeline"
cmp run.yaml mine.yaml || is "a file of the user" replaced kept
trace t.json '(function() for _, x in ipairs(of("operations")) do
    if not (inside(x, of("steps")[1]) or inside(x, of("steps")[2])) then return false end end return #of("operations") > 100 end)()'
trace t.json '(function() local n = 0 for _, x in ipairs(e) do if x.ph == "C" and x.args.bytes > 0 then n = n + 1 end end
    return n == #of("operations") end)()'

# tracks of a run that writes its output: saves, evaluations, data
rows 4 >eval.jsonl
run 0 profile run.yaml --steps 4 --trace o.json --output out=o checkpoint.every=2 data.eval=eval.jsonl eval.every=2
[ -f o/metrics.jsonl ] || is "records of --output" missing there
[ -d o/checkpoints/step-00000004 ] || is "the checkpoint of --output" missing there
trace o.json '#of("steps", "evaluation") == 2 and #of("steps", "save") == 2'
trace o.json '#of("checkpoint", "write") >= 1 and #of("data", "build micro-batches") >= 1'
[ -e exp ] && is "a directory of a profile without --output" there none

# regions of a script, around a whole run and inside a loss
cat >s.lua <<'L'
local nrl = require "nrl"
local cfg = nrl.config "run.yaml"
cfg.algorithm = nrl.loss{
  name = "mine", needs = {"logps"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b)
    return nrl.region("the loss", function(batch)
      local w = nrl.region("mask", batch.mask, batch)
      return nrl.region("sum", function() return -(batch:logps() * w):sum() end)
    end, b)
  end,
}
local a, b = nrl.region("values", function(...) return ... end, 1, 2)
assert(a == 1 and b == 2)
local ok, why = pcall(nrl.region, "fails", function() error "on purpose" end)
assert(not ok and why:find "on purpose")
local run = nrl.open(cfg)
run:on("step", function() nrl.region("hook", function() end) end)
run:train()
print "the script went on"
L
run 0 profile s.lua --steps 2 --json --trace l.json
has out "the script went on"
truth "regions nest" '#d.regions == 4 and d.regions[1].region == "hook" and d.regions[2].region == "the loss" and
    d.regions[2].depth == 0 and d.regions[3].region == "mask" and d.regions[3].depth == 1 and d.regions[4].region == "sum" and
    d.regions[4].parent == 1'
truth "regions have times" 'd.regions[2].seconds_a_step >= d.regions[3].seconds_a_step + d.regions[4].seconds_a_step and
    d.regions[4].busy_share > 0 and d.regions[2].calls_a_step >= 1 and d.profile.profiled_steps == 2'
trace l.json 'inside(of("regions", "sum")[1], of("regions", "the loss")[1])'
run 0 profile s.lua --steps 2
has out "time by region"
has out "    mask "
run 0 run s.lua out=plain
run 2 profile s.lua --steps 50
has err "are needed"
sed 's/nrl.region("hook", function() end)/run:save()/' s.lua >saves.lua
run 2 profile saves.lua --steps 2
has err "cannot save: this run does not write an output directory"
has err "hint: nrl profile --output enables it"
run 2 --no-scripts profile s.lua --steps 2
has err "scripts are disabled"
run 2 profile train.jsonl
has err "expected a config, FILE.yaml, or a script"

# ranges of NVTX, for a tool that it loads
if [ -e "$NRL_TEST_BUILD/tests/nvtx/fake_nvtx.so" ]; then
    NVTX_INJECTION64_PATH=$NRL_TEST_BUILD/tests/nvtx/fake_nvtx.so FAKE_NVTX_LOG=$work/ranges run 0 profile s.lua --steps 2
    for range in "push the loss" "push mask" "start step" "start forward" "start update" pop; do has ranges "$range"; done
    is "ranges that end" "$(grep -c '^push' ranges)" "$(grep -c '^pop' ranges)"
    is "ranges of steps and phases that end" "$(grep -c '^start' ranges)" "$(grep -c '^end' ranges)"
fi

# tensors by place
run 0 profile run.yaml --steps 2 --memory --json
truth "the peak is that of its places and of what was held" '(function() local n = d.memory_profile.held_bytes
    for _, s in ipairs(d.memory_profile.sites) do n = n + s.peak_bytes end return n == d.memory_profile.peak_bytes end)()'
truth "kinds add up" '(function() local n = 0 for _, b in pairs(d.memory_profile.at_peak) do n = n + b end
    return n == d.memory_profile.peak_bytes end)()'
truth "weights are a kind" 'd.memory_profile.at_peak.weights == d.memory.weight_bytes'
truth "places are known" '(function() local known, all = 0, 0 for _, s in ipairs(d.memory_profile.sites) do
    all = all + s.peak_bytes if s.op ~= "(other)" and s.unit then known = known + s.peak_bytes end end
    return known > 0.9 * all end)()'
truth "micro-batches" 'd.memory_profile.batches[1].step == 3 and d.memory_profile.batches[1].tokens > 0 and
    d.memory_profile.batches[1].longest <= d.memory_profile.batches[1].tokens and
    d.memory_profile.batches[1].peak_bytes > d.memory_profile.batches[1].begin_bytes'
run 0 profile run.yaml --steps 2 --memory
for text in "tensors at the peak" "optimizer states" "made in forward" "tensors by origin" "tensors by micro-batch"; do
    has out "$text"
done

# two ranks: one process each, on one clock; both were inside each exchange at the same time
run 0 launch -n 2 -- profile run.yaml parallel=ddp --steps 2 --trace two.json
trace two.json '#d.otherData.clock_offset_s == 2 and math.abs(d.otherData.clock_offset_s[2]) <= d.otherData.clock_round_trip_s[2] / 2 + 1e-6'
trace two.json '#of("steps", nil, 0) == 2 and #of("steps", nil, 1) == 2 and #of("communication", nil, 1) > 0'
trace two.json '(function() local a, b = of("communication", "results of the step", 0), of("communication", "results of the step", 1)
    for i, x in ipairs(a) do if not meet(x, b[i]) then return false end end return #a == 2 and #b == 2 end)()'

# wrong input
run 2 profile run.yaml --trace
has err "--trace"
run 2 profile run.yaml --steps 2 --trace nowhere/t.json
has err "cannot write nowhere/t.json"
run 2 bench run.yaml --trace t.json
has err "--trace"

exit $failed
