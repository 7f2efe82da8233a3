-- Trains the same run with three learning rates, and prints a table at the end.
--   nrl run scripts/sweep.lua [CONFIG.yaml] [key=value ...]
local nrl = require "nrl"
local here = arg[0]:match "^.*/" or "./"

local out = nrl.args.out or "runs/sweep"
local rows = {}
for _, lr in ipairs{3e-4, 1e-3, 3e-3} do
  local cfg = nrl.config(arg[1] or here .. "../configs/sft.yaml")
  cfg.optimizer.lr = lr
  local run <close> = nrl.open(cfg, {quiet = true, out = ("%s/lr-%g"):format(out, lr)})
  local last = run:train()
  rows[#rows + 1] = {lr = lr, loss = last.loss, eval_loss = run:evaluate().loss}
  print(("lr %g done"):format(lr))
end

table.sort(rows, function(a, b) return a.eval_loss < b.eval_loss end)
print(("%-10s %10s %10s"):format("lr", "loss", "eval loss"))
for i, row in ipairs(rows) do
  print(("%-10g %10.4f %10.4f%s"):format(row.lr, row.loss, row.eval_loss, i == 1 and "  best" or ""))
end
