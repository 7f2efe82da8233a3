-- Teaches a small model to add: makes its own problems, tokenizer and model, trains, and counts the
-- exact answers to problems it has never seen, before and after.
--   nrl run scripts/quickstart.lua                      a new model, about a minute on two cores
--   nrl run scripts/quickstart.lua model.path=DIR       a model of yours (Hugging Face directory)
local nrl = require "nrl"

local here = arg[0]:match "^.*/" or "./"
local cfg = nrl.config(here .. "../configs/quickstart.yaml")
local out = nrl.args.out or cfg.out
local SMALLEST, LARGEST, HELD_OUT = 10, 99, 1000

---- problems

local names = {"Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry"}
local things = {"apples", "books", "coins", "marbles", "pens", "shells"}

local function pick(list) return list[math.random(#list)] end

local function problem(a, b)
  local thing = pick(things)
  return {
    prompt = ("%s has %d %s and gets %d more. How many %s now?"):format(pick(names), a, thing, b, thing),
    completion = " " .. a + b,
  }
end

local function shuffle(list)
  for i = #list, 2, -1 do
    local j = math.random(i)
    list[i], list[j] = list[j], list[i]
  end
end

-- Both orders of a pair of numbers go to the same side: 3 + 4 does not give 4 + 3 away.
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

-- The share that one and the same answer to everything would get right.
local function best_constant(rows)
  local count, most = {}, 0
  for _, row in ipairs(rows) do
    count[row.completion] = (count[row.completion] or 0) + 1
    most = math.max(most, count[row.completion])
  end
  return most / #rows
end

---- a model of about a million parameters

local function make_model(folder, train)
  local texts = {}
  for i, row in ipairs(train) do texts[i] = row.prompt .. row.completion end
  nrl.tokenizer_train{texts = texts, vocab_size = 512, pattern = "qwen2", special = {"<|endoftext|>"},
                      out = folder}
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

---- exact matches

local function score(run, rows, when)
  local prompts = {}
  for i, row in ipairs(rows) do prompts[i] = row.prompt end
  local answers, right = run:sample{prompts = prompts, max_tokens = 6, temperature = 0}, 0
  for i, row in ipairs(rows) do
    if answers[i] == row.completion then right = right + 1 end
  end
  print(("%s training: %d of %d right (%.1f %%)"):format(when, right, #rows, 100 * right / #rows))
  for i = 1, 3 do print(("  %s  ->%s"):format(prompts[i], answers[i]:gsub("%c", "."):sub(1, 40))) end
end

---- the experiment

local train, test = make_problems()
nrl.write_jsonl(out .. "/data/train.jsonl", train)
nrl.write_jsonl(out .. "/data/test.jsonl", test)
print(("%d problems to train on, %d held out; in both: %d; best constant answer: %.1f %%")
      :format(#train, #test, overlap(train, test), 100 * best_constant(test)))

cfg.data.train, cfg.data.eval = out .. "/data/train.jsonl", out .. "/data/test.jsonl"
if nrl.args["model.path"] then -- a trained model: gentler and shorter
  cfg.model = {path = nrl.args["model.path"]}
  cfg.optimizer.lr, cfg.train.steps = 5e-5, 100
else
  cfg.model = make_model(out .. "/start", train)
end

local run = nrl.open(cfg)
score(run, test, "before")
local clock, start = os.clock(), os.time()
run:train()
print(("trained in %d s (%.0f s of processor time)"):format(os.time() - start, os.clock() - clock))
score(run, test, "after")
run:export(out .. "/model")
