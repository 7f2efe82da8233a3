-- Teaches a small model to add, then to be brief: creates problems, a tokenizer and a model, fine-tunes it,
-- trains on preferences, and counts correct and brief answers to held-out problems.
--   nrl run scripts/quickstart.lua                      a new model, about a minute on two cores
--   nrl run scripts/quickstart.lua model.path=DIR       your own model (a Hugging Face directory)
local nrl = require "nrl"

local here = arg[0]:match "^.*/" or "./"
local cfg = nrl.config(here .. "../configs/quickstart.yaml")
local out = nrl.args.out or cfg.out
local SMALLEST, LARGEST, HELD_OUT = 10, 99, 1000
local WORDY = 0.75 -- the share of answers in the training data that go on after the number

---- problems

local names = {"Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry"}
local things = {"apples", "books", "coins", "marbles", "pens", "shells"}

local function pick(list) return list[math.random(#list)] end

-- A problem with two correct answers: only the number, and the number with superfluous words.
local function problem(a, b)
  local name, thing = pick(names), pick(things)
  return {
    prompt = ("%s has %d %s and gets %d more. How many %s now?"):format(name, a, thing, b, thing),
    brief = (" %d"):format(a + b),
    wordy = (" %d %s in all, %s."):format(a + b, thing, name),
  }
end

local function shuffle(list)
  for i = #list, 2, -1 do
    local j = math.random(i)
    list[i], list[j] = list[j], list[i]
  end
end

-- Both orders of a pair of numbers are in the same set, so that 3 + 4 does not reveal 4 + 3.
local function make_problems()
  local pairs_of_numbers, train, test = {}, {}, {}
  for a = SMALLEST, LARGEST do
    for b = a, LARGEST do pairs_of_numbers[#pairs_of_numbers + 1] = {a, b} end
  end
  shuffle(pairs_of_numbers)
  for _, pair in ipairs(pairs_of_numbers) do
    local a, b = pair[1], pair[2]
    local side = #test < HELD_OUT and test or train
    side[#side + 1] = problem(a, b)
    if a ~= b then side[#side + 1] = problem(b, a) end
  end
  shuffle(train)
  shuffle(test)
  while #test > HELD_OUT do test[#test] = nil end
  return train, test
end

-- Problems of `test` whose two numbers, in any order, are in `train`.
local function overlap(train, test)
  local function key(row)
    local a, b = row.prompt:match "(%d+).-(%d+)"
    return math.min(a, b) .. " " .. math.max(a, b)
  end
  local seen, n = {}, 0
  for _, row in ipairs(train) do seen[key(row)] = true end
  for _, row in ipairs(test) do if seen[key(row)] then n = n + 1 end end
  return n
end

-- The share of problems that the best constant answer solves.
local function best_constant(rows)
  local count, most = {}, 0
  for _, row in ipairs(rows) do
    count[row.brief] = (count[row.brief] or 0) + 1
    most = math.max(most, count[row.brief])
  end
  return most / #rows
end

local function to_finetune(rows)
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = {prompt = row.prompt, completion = math.random() < WORDY and row.wordy or row.brief}
  end
  return out
end

local function to_prefer(rows)
  local out = {}
  for i, row in ipairs(rows) do out[i] = {prompt = row.prompt, chosen = row.brief, rejected = row.wordy} end
  return out
end

---- a model of about a million parameters

local function make_model(folder, train)
  local texts = {}
  for i, row in ipairs(train) do texts[i] = row.prompt .. row.wordy end
  nrl.tokenizer_train{texts = texts, vocab_size = 512, pattern = "qwen2", special = {"<|endoftext|>"},
                      out = folder, overwrite = true}
  local file = assert(io.open(folder .. "/config.json", "w"))
  file:write(nrl.json.encode({
    architectures = {"LlamaForCausalLM"}, model_type = "llama", torch_dtype = "float32",
    vocab_size = 512, hidden_size = 192, intermediate_size = 512, num_hidden_layers = 2,
    num_attention_heads = 6, num_key_value_heads = 6, max_position_embeddings = 128,
    rms_norm_eps = 1e-5, rope_theta = 100.0, hidden_act = "silu", initializer_range = 0.05,
    tie_word_embeddings = false, bos_token_id = 0, eos_token_id = 0,
  }, 2), "\n")
  file:close()
  return {config = folder .. "/config.json", tokenizer = folder}
end

---- scoring

-- Right: the number in the answer is the sum. A win: right, and nothing follows the number.
local function score(run, rows, when)
  local prompts, right, wins = {}, 0, 0
  for i, row in ipairs(rows) do prompts[i] = row.prompt end
  local answers = run:sample{prompts = prompts, max_tokens = 12, temperature = 0}
  for i, row in ipairs(rows) do
    if answers[i]:match "^ %d+" == row.brief then right = right + 1 end
    if answers[i] == row.brief then wins = wins + 1 end
  end
  print(("%s: %d of %d right (%.1f %%), %d right and brief (win rate %.1f %%)")
        :format(when, right, #rows, 100 * right / #rows, wins, 100 * wins / #rows))
  for i = 1, 3 do print(("  %s  ->%s"):format(prompts[i], answers[i]:gsub("%c", "."):sub(1, 40))) end
end

local function timed(run, what)
  local clock, start = os.clock(), os.time()
  run:train()
  print(("%s in %d s (%.0f s of processor time)"):format(what, os.time() - start, os.clock() - clock))
end

---- fine-tuning

local train, test = make_problems()
local data = out .. "/data/"
nrl.write_jsonl(data .. "train.jsonl", to_finetune(train))
nrl.write_jsonl(data .. "test.jsonl", to_finetune(test))
print(("%d problems to train on, %d held out; in both: %d; best constant answer: %.1f %%")
      :format(#train, #test, overlap(train, test), 100 * best_constant(test)))

cfg.data.train, cfg.data.eval = data .. "train.jsonl", data .. "test.jsonl"
if nrl.args["model.path"] then -- a trained model: gentler and shorter
  cfg.model = {path = nrl.args["model.path"]}
  cfg.optimizer.lr, cfg.train.steps = 5e-5, 100
else
  cfg.model = make_model(out .. "/start", train)
end

local run = nrl.open(cfg)
score(run, test, "before training")
timed(run, "trained")
score(run, test, "after training")
run:close()

---- preferences: the brief one of two correct answers

nrl.write_jsonl(data .. "pairs.jsonl", to_prefer(train))
nrl.write_jsonl(data .. "test_pairs.jsonl", to_prefer(test))
cfg.data.train, cfg.data.eval = data .. "pairs.jsonl", data .. "test_pairs.jsonl"
-- sft in addition to sigmoid: a preference for early ends alone would also end numbers early
cfg.algorithm = {name = "dpo", loss = {"sigmoid", "sft"}, beta = 0.1}
cfg.optimizer.lr, cfg.train.steps = 5e-5, 100
cfg.schedule.warmup_steps = 10
cfg.loggers[1].every = 20

run = nrl.open(cfg, {out = out .. "/preferred", model = out .. "/model"})
timed(run, "preferences trained")
local e = run:evaluate()
print(("held-out pairs: %.1f %% ranked right, margin %.2f")
      :format(100 * e["eval_rewards/accuracies"], e["eval_rewards/margins"]))
score(run, test, "after preferences")
