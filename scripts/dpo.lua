-- Preference training: fine-tunes a model on good answers, then trains it to prefer them to padded ones, and
-- prints how often it ranks held-out pairs correctly.
--   nrl run scripts/dpo.lua                                       a new small model
--   nrl run scripts/dpo.lua CONFIG.yaml                           your model and pairs, no fine-tuning
--   nrl run scripts/dpo.lua CONFIG.yaml algorithm=dpo_in_lua      the loss below instead of the plugin
local nrl = require "nrl"
local here = arg[0]:match "^.*/" or "./"

nrl.loss {
  name    = "dpo_in_lua",
  needs   = {"logps", "ref_logps", "pairs"},
  metrics = {["rewards/margins"] = "mean", ["rewards/accuracies"] = "mean"},
  weight  = function(b) return b:count "pairs" end,
  loss    = function(b)
    local ratio = b:seq_sum((b:logps() - b:ref_logps()) * b:mask())
    local margin = 0.1 * (b:chosen(ratio) - b:rejected(ratio))
    b:metric("rewards/margins", margin)
    b:metric("rewards/accuracies", margin:gt(0))
    return -margin:log_sigmoid():sum()
  end,
}

local cfg = nrl.config(arg[1] or here .. "../configs/dpo.yaml")
local out = nrl.args.out or cfg.out
if not arg[1] then
  local run <close> = nrl.open(nrl.config(here .. "../configs/sft.yaml"), {out = out .. "/sft"})
  run:train()
  cfg.model = {path = run.out .. "/model"}
end

local run = nrl.open(cfg, {out = out .. "/dpo"})
run:train()
if cfg.data.eval then
  local e = run:evaluate()
  print(("held-out pairs: %.0f %% ranked right, margin %.2f"):format(100 * e["eval_rewards/accuracies"], e["eval_rewards/margins"]))
end
