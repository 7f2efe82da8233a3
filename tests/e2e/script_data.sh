#!/bin/sh
# script_data.sh: run:set_data changes the data of a run, a resume continues with it bit for bit; run:report.
. "$(dirname "$0")/e2e.sh"

cat >run.lua <<L
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.train = {steps = 8, global_batch = 8, micro_batch_tokens = 1024, seed = 1}
cfg.checkpoint.every, cfg.checkpoint.keep = 2, 0
cfg.eval = {every = 0}
cfg.out = "r"
local run = nrl.open(cfg)
run:on("step", function(e)
  if e.step == 3 then
    run:set_data("$source/configs/data/chat_eval.jsonl")
    run:set_lr(1e-3)
  end
  if e.step == 4 then run:report("hardness", e.step / 2, {unit = "points"}) end
  if os.getenv "STOP" and e.step == 6 then run:stop "enough" end
end)
run:train()
local other = run:evaluate("$source/configs/data/chat_eval.jsonl")
assert(other.loss == other.eval_loss and other.eval_tokens > 0)
L
losses() { sed -n 's/.*"step": \([0-9]*\), .*"loss": \([^,]*\), "grad.*/\1 \2/p' "$1/metrics.jsonl"; }
run 0 run run.lua "$one_thread"
losses r >whole
is "steps" "$(wc -l <whole)" 8
has r/metrics.jsonl '"hardness": 2, "units": {"hardness": "points"}'
run 0 report r
has r/report.html 'hardness <span class="soft">[points]'

# from after the change: the script does not call set_data again
run 0 run run.lua resume=r@6 out=r "$one_thread"
losses r >again
cmp whole again || is "losses after a resume" other same
# from before it
run 0 run run.lua resume=r@2 out=r "$one_thread"
losses r >again
cmp whole again || is "losses after an earlier resume" other same
# the data is other data
run 0 run run.lua out=plain "$one_thread" data.train="$source/configs/data/chat_eval.jsonl"
[ "$(losses plain | sed -n 2p)" != "$(sed -n 2p whole)" ] || is "losses on other data" same other

# two ranks
for strategy in ddp fsdp; do
    run 0 launch -n 2 -- run run.lua out=$strategy parallel=$strategy "$one_thread"
    losses $strategy >two
    run 0 launch -n 2 -- run run.lua out=$strategy parallel=$strategy resume=$strategy@6 "$one_thread"
    losses $strategy >again
    cmp two again || is "losses of $strategy after a resume" other same
done

# data that changed since, and mistakes, which leave the run as it is
cp "$source/configs/data/chat_eval.jsonl" mine.jsonl
sed "s|$source/configs/data/chat_eval.jsonl|mine.jsonl|; s|cfg.out = .*|cfg.out = \"m\"|" run.lua >mine.lua
run 0 run mine.lua "$one_thread"
sed -i 1d mine.jsonl
run 2 run mine.lua resume=m@6 out=m "$one_thread"
has err "the data that the run set at step 3"
cat >bad.lua <<L
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.train = {steps = 2, global_batch = 8}
cfg.out = "b"
local run = nrl.open(cfg)
local function refused(train, text)
  local ok, why = pcall(run.set_data, run, train)
  assert(not ok and tostring(why):find(text, 1, true), tostring(why))
end
refused("missing.jsonl", "missing.jsonl")
refused({path = "$source/configs/data/chat_eval.jsonl", wieght = 2}, "wieght")
refused(3, "expected a file")
run:train()
assert(not pcall(run.report, run, "step", 1))
L
run 0 run bad.lua "$one_thread"
exit $failed
