-- The share of even tokens. With ROLLOUTS set to a path it also records the samples, for make_grpo.py.
local file = os.getenv("ROLLOUTS") and io.open(os.getenv("ROLLOUTS"), "a")

return function(sample)
  local even = 0
  for _, id in ipairs(sample.completion_ids) do even = even + (id % 2 == 0 and 1 or 0) end
  local reward = even / #sample.completion_ids
  if file then
    file:write(string.format('{"prompt": [%s], "completion": [%s], "reward": %.17g, "finished": %s}\n',
      table.concat(sample.prompt_ids, ", "), table.concat(sample.completion_ids, ", "), reward, sample.finished))
    file:flush()
  end
  return reward
end
