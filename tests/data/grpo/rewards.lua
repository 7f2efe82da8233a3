-- Two rewards: the share of even tokens, and a short completion. Like reward.lua it records the samples if ROLLOUTS is set.
local file = os.getenv("ROLLOUTS") and io.open(os.getenv("ROLLOUTS"), "a")

local function even(sample)
  local n = 0
  for _, id in ipairs(sample.completion_ids) do n = n + (id % 2 == 0 and 1 or 0) end
  return n / #sample.completion_ids
end

local function short(sample)
  if file then
    file:write(string.format('{"prompt": [%s], "completion": [%s], "even": %.17g, "short": %d, "finished": %s}\n',
      table.concat(sample.prompt_ids, ", "), table.concat(sample.completion_ids, ", "), even(sample),
      -#sample.completion_ids, sample.finished))
    file:flush()
  end
  return -#sample.completion_ids
end

return {even = even, short = short}
