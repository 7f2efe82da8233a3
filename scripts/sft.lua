-- Fine-tunes the model of a config, then evaluates, samples and exports it.
--   nrl run scripts/sft.lua [CONFIG.yaml] [key=value ...]
local nrl = require "nrl"
local here = arg[0]:match "^.*/" or "./"

local cfg = nrl.config(arg[1] or here .. "../configs/sft.yaml")
local run = nrl.open(cfg)

run:on("step", function(e)
  if e.loss > 20 then run:stop "the loss is above 20" end
end)
run:train()

local questions = {"What is 2 plus 3?", "Name the color of grass."}
local answers = run:sample{prompts = questions, max_tokens = 24, chat = true}
for i, question in ipairs(questions) do print(question, "->", answers[i]) end
if cfg.data.eval then print(("eval loss %.4f"):format(run:evaluate().loss)) end
run:export(run.out .. "/model")
