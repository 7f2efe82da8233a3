#!/bin/sh
# script_loss.sh: training with a loss in Lua is bit-identical to the plugin; its mistakes are detected and named.
. "$(dirname "$0")/e2e.sh"

cat >same.lua <<E2
local nrl = require "nrl"
local name = nrl.loss {name = "as_sft", needs = {"logps"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b) return -(b:logps() * b:mask()):sum() end}
for _, algorithm in ipairs {"sft", name} do
  local cfg = nrl.config "$source/configs/sft.yaml"
  cfg.algorithm, cfg.data.train_on = algorithm, "all"
  cfg.train.global_batch = 24 -- several micro-batches
  local run <close> = nrl.open(cfg, {quiet = true, out = algorithm})
  run:profile(true)
  run:train()
  local calls = {}
  for _, row in ipairs(run:profile()) do calls[row.op] = row.calls end
  assert(calls.gemm > 0 and calls["loss (host)"] > 0)
end
E2
run 0 run same.lua train.epochs=2 checkpoint.every=0 eval.every=0 "$one_thread"
for algorithm in sft as_sft; do
    sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' $algorithm/metrics.jsonl >$algorithm.txt
done
[ -s sft.txt ] || is "losses of the plugin" none some
cmp sft.txt as_sft.txt || is "losses in Lua and in C" different equal

run 0 run "$source/scripts/custom_loss.lua" out=focal train.epochs=2 "$one_thread"
has out "gradients agree"
has focal/metrics.jsonl '"probability"'

# definitions that pass the check of gradients, and definitions that do not
cat >check.lua <<'E2'
local nrl = require "nrl"
local function sft(b) return -(b:logps() * b:mask()):sum() end
local function tokens(b) return b:count "answer_tokens" end
local good = {
  {name = "dpo", needs = {"logps", "ref_logps", "pairs"}, metrics = {["rewards/margins"] = "mean"},
   weight = function(b) return b:count "pairs" end,
   loss = function(b)
     local r = b:seq_sum((b:logps() - b:ref_logps()) * b:mask())
     local margin = 0.1 * (b:chosen(r) - b:rejected(r))
     b:metric("rewards/margins", margin)
     return -margin:log_sigmoid():sum()
   end},
  {name = "two", needs = {"logps", "pairs"}, terms = 2,
   weight = function(b) return {b:count "pairs", tokens(b)} end,
   loss = function(b)
     local s = b:seq_sum(b:logps() * b:mask())
     return {(1 - (b:chosen(s) - b:rejected(s)) / 4):softplus():sum(), sft(b)}
   end},
  {name = "score", needs = {"logps"}, weight = function(b) return b:count "sequences" end,
   loss = function(b) return -(b:seq_sum(b:logps() * b:mask()) * b:extra "score"):exp():sum() end},
  {name = "ops", needs = {"logps", "entropy"}, weight = tokens, loss = function(b)
     local x = b:logps()
     local y = (x:square() + 2) ^ 1.5 - 3 / (x - 1) + x:exp():log1p() * b:entropy():detach()
     return nrl.where(x:gt(-1.5123), y, x:abs():sqrt()):sum() + x:tanh():clamp(-2, 2):max(-0.9):sum() * 0.5
   end},
}
for _, definition in ipairs(good) do nrl.gradcheck(nrl.loss(definition), {extra = {"score"}}) end

local n = 0
local function bad(text, loss, weight)
  n = n + 1
  local name = nrl.loss {name = "bad" .. n, needs = {"logps"}, weight = weight or tokens, loss = loss}
  local ok, found = pcall(nrl.gradcheck, name)
  assert(not ok and found:find(text, 1, true), text .. " / " .. tostring(found))
end
bad("expected a sum over examples", function(b) return -(b:logps() * b:mask()):mean() end)
bad("differences of the loss give", function(b) return (b:logps() * b:logps():detach()):sum() end)
bad("check.lua:40: a tensor has no elements", function(b)
  local x, sum = b:logps(), 0
  for i = 1, #x do sum = sum + x[i] end
  return sum
end)
bad("takes too long", function(b) while true do end end)
bad("found tensor [21]", function(b) return b:logps() end)
bad("a loss must return tensors, found a number", function(b) return 1 end)
bad("expected 1 results", function(b) return {sft(b), sft(b)} end)
local kept
bad("belongs to an earlier step", function(b) kept = kept or b:logps() return (kept * 2):sum() end)
bad("before any forward", sft, function(b) return b:logps() end)
bad("a weight must be a number of 0 or more, found -1", sft, function(b) return -1 end)
bad("a is [21] of f32, b is [6]", function(b) return (b:logps() * b:seq_sum(b:logps())):sum() end)
bad("this batch has no pairs", function(b) return b:chosen(b:seq_sum(b:logps())):sum() end)
bad("no column 'ref_logprobs'", function(b) return b:extra "ref_logprobs" end)
bad("no operation 'sums'", function(b) return b:logps():sums() end)
bad("no metric 'x'", function(b) b:metric("x", 1) return sft(b) end)
local function refused(text, definition)
  local ok, found = pcall(nrl.loss, definition)
  assert(not ok and found:find(text, 1, true), text .. " / " .. tostring(found))
end
refused("did you mean 'logps'?", {name = "x", needs = {"logp"}, weight = tokens, loss = sft})
refused("weight: expected a function", {name = "x", loss = sft})
refused("loss 'bad1' is already defined", {name = "bad1", weight = tokens, loss = sft})
refused("metrics: m: expected mean", {name = "x", weight = tokens, loss = sft, metrics = {m = "median"}})
-- numbers beside a mask of any value: infinite and NaN are not 0
nrl.gradcheck(nrl.loss {name = "where", needs = {"logps"}, weight = tokens, loss = function(b)
  local infinite = (b:logps():detach() * 0):log()
  local nan = infinite - infinite
  assert(nrl.where(infinite, 2, 3):sum():item() == 2 * #infinite)
  assert(nrl.where(nan, 2, 3):sum():item() == 2 * #infinite)
  assert(nrl.where(infinite:exp(), 2, 3):sum():item() == 3 * #infinite)
  return -(nrl.where(infinite, b:logps(), 1) * nrl.where(nan, 2, 1) * b:mask()):sum()
end})
print "all as expected"
E2
run 0 run check.lua
has out "all as expected"

# which values of a metric are better is said by the script, and asked for where it is needed
directed() {
    cat >directed.lua <<E2
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.algorithm = nrl.loss {name = "sure", needs = {"logps"}, metrics = {sure = $1},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b)
    b:metric("sure", (b:logps():detach():exp() * b:mask()):sum(), b:count "answer_tokens")
    return -(b:logps() * b:mask()):sum()
  end}
local run <close> = nrl.open(cfg)
run:train()
E2
}
for better in smaller larger; do
    directed "{reduce = \"mean\", better = \"$better\"}"
    run 0 run directed.lua out=$better train.epochs=2 eval.every=4 checkpoint.metric=eval_sure "$one_thread"
    [ $better = smaller ] && order=-rg || order=-g
    want=$(sed -n 's|.*"step": *\([0-9]*\),.*"eval_sure": *\([^,}]*\).*|\2 \1|p' $better/metrics.jsonl | sort $order | tail -n 1)
    has out "; best eval_sure $(printf %.4f "${want% *}") at step ${want#* }"
done
directed '"mean"'
run 2 run directed.lua out=neither eval.every=4 checkpoint.metric=eval_sure
has err "does not declare whether a smaller or a larger 'eval_sure' is better"
directed '{reduce = "mean", better = "bigger"}'
run 2 run directed.lua out=neither
has err "metrics: sure: better: expected smaller or larger"
directed '{reduce = "mean", mode = "max"}'
run 2 run directed.lua out=neither
has err "metrics: sure: unknown key 'mode'; expected reduce or better"

# a loss that builds on a plugin's: as it is, to the last bit; with a term of its own, beside others
cat >base.lua <<E2
local nrl = require "nrl"
local function same(b) return b:base_weight() end
local function loss(b) return b:base_loss() end
nrl.loss {name = "as_sft", base = "sft", weight = same, loss = loss}
nrl.loss {name = "as_dpo", base = {name = "dpo", beta = 0.1}, weight = same, loss = loss}
nrl.loss {name = "even", base = "dpo", metrics = {gap = "mean"}, weight = same, loss = function(b)
  local sums = b:base_loss() -- pairs, answer tokens, ...: the terms of dpo
  local mean = b:seq_sum(b:logps() * b:mask()) / b:seq_sum(b:mask())
  local gap = b:chosen(mean) - b:rejected(mean)
  b:metric("gap", gap)
  sums[1] = sums[1] + 0.1 * (1 - gap):softplus():sum()
  return sums
end}
nrl.loss {name = "unsure", base = "sft", needs = {"entropy"}, weight = same, loss = function(b)
  return b:base_loss() - 0.01 * (b:entropy() * b:mask()):sum()
end}
for _, name in ipairs {"as_sft", "as_dpo", "even", "unsure"} do nrl.gradcheck(name) end
for _, algorithm in ipairs {"sft", "as_sft", "unsure", "dpo", "as_dpo", "even"} do
  local pairs = algorithm:find "dpo" or algorithm == "even"
  local cfg = nrl.config("$source/configs/" .. (pairs and "dpo" or "sft") .. ".yaml")
  cfg.algorithm = algorithm
  local run <close> = nrl.open(cfg, {quiet = true, out = "base/" .. algorithm})
  run:train()
end
local n = 0
local function refused(text, definition) -- by what uses the loss: only then the base is opened
  n = n + 1
  definition.name, definition.weight, definition.loss = "wrong" .. n, same, loss
  local ok, found = pcall(nrl.gradcheck, nrl.loss(definition))
  assert(not ok and found:find(text, 1, true), text .. " / " .. tostring(found))
end
refused("did you mean 'beta'?", {base = {name = "dpo", bet = 1}})
refused("did you mean 'dpo'?", {base = "dpoo"})
refused("terms: got 1, but its base has 4", {base = "dpo", terms = 1})
refused("base: expected a word or a map", {base = {"sft"}})
refused("found a map without it", {base = {}})
refused("the base dpo needs whole batches", {base = "dpo", tokenwise = true})
refused("this loss has no base", {})
local cfg = nrl.config "$source/configs/dpo.yaml"
cfg.algorithm = nrl.loss {name = "short", base = "dpo", terms = 1, weight = same, loss = loss}
local ok, found = pcall(nrl.open, cfg, {quiet = true, out = "base/short"})
assert(not ok and found == "loss 'short': terms: got 1, but its base has 4", found)
print "all as expected"
E2
run 0 run base.lua train.epochs=1 checkpoint.every=0 eval.every=0 "$one_thread"
has out "all as expected"
for algorithm in sft dpo; do
    for name in $algorithm as_$algorithm; do
        sed 's/"time":[^,]*,//; s/"[a-z_]*_per_s":[^,]*,//; s/"mfu".*"comm_fraction":[^,}]*//; s/"[a-z_]*_s":[^,}]*,*//g; s/"[a-z_]*\(mem\|cpu\)[a-z_]*":[^,}]*,*//g' "base/$name/metrics.jsonl" >$name.txt
    done
    [ -s $algorithm.txt ] || is "records of the plugin" none some
    cmp $algorithm.txt as_$algorithm.txt || is "$algorithm by itself and as a base" different equal
done
has base/even/metrics.jsonl '"gap"'
has base/even/metrics.jsonl '"rewards/margins"'

# each run has an instance of the base of its own, with the parameters and the running mean of that run
cat >own.lua <<E2
local nrl = require "nrl"
local function weight(b) return b:base_weight() end
local function loss(b) return b:base_loss() end
nrl.loss {name = "scored", base = {name = "reward", pad_token_id = 0}, weight = weight, loss = loss}
nrl.loss {name = "shifted", base = {name = "dpo", loss = "bco_pair", bco_shift = true}, weight = weight, loss = loss}
for _, name in ipairs {"scored", "shifted"} do
  local cfg = nrl.config "$source/configs/dpo.yaml"
  cfg.algorithm = name
  local first = nrl.open(cfg, {quiet = true, out = name .. 1})
  local second = nrl.open(cfg, {quiet = true, out = name .. 2})
  second:train()
  second:close()
  first:train()
  first:close()
end
E2
run 0 run own.lua train.epochs=1 checkpoint.every=0 eval.every=0 "$one_thread"
for name in scored shifted; do
    for i in 1 2; do
        sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' $name$i/metrics.jsonl >$name$i.txt
    done
    [ -s ${name}1.txt ] || is "losses of $name" none some
    cmp ${name}1.txt ${name}2.txt || is "$name in two runs that are open at once" different equal
done

# an error in a loss or a weight ends the run with the line of the script
cat >fails.lua <<E2
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.algorithm = nrl.loss {name = "fails", needs = {"logps"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b)
    return b:logps() + nil
  end}
nrl.open(cfg):train()
E2
run 2 run fails.lua out=fails "$one_thread"
has err "fails.lua:6: "
sed -i 's/return b:count.*/return b:counts() end,/; s/ + nil/:sum()/' fails.lua
run 2 run fails.lua out=fails2 "$one_thread"
has err "fails.lua:4: "
exit $failed
