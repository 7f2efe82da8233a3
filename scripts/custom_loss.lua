-- A loss in Lua, with the same contract as a plugin in C. It gives more weight to tokens that the model
-- finds unlikely (focal loss, Lin et al. 2017), and reports the probability of answer tokens.
--   nrl run scripts/custom_loss.lua [CONFIG.yaml] [key=value ...]
local nrl = require "nrl"
local here = arg[0]:match "^.*/" or "./"

local focal = nrl.loss {
  name    = "focal",
  needs   = {"logps"},
  metrics = {["probability"] = "mean"},
  weight  = function(b) return b:count "answer_tokens" end,
  loss    = function(b)
    local logps = b:logps()                     -- [P] one a scored token
    local p = logps:exp()
    b:metric("probability", p)
    return -((1 - p) ^ 2 * logps * b:mask()):sum()   -- a sum: the core divides by the weight
  end,
}
print(("gradients agree to %.1e"):format(nrl.gradcheck(focal)))

local cfg = nrl.config(arg[1] or here .. "../configs/sft.yaml")
cfg.algorithm, cfg.out = focal, "runs/focal"
local run = nrl.open(cfg)
local last
run:on("step", function(e) last = e end)
run:train()
print(("the answers' tokens have probability %.2f at step %d"):format(last.probability, last.step))
