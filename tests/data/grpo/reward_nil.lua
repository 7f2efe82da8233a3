-- The reward of reward.lua, which only completions have whose first token is not a multiple of 3: at times a group has less than
-- two rewards.
local file = os.getenv("ROLLOUTS") and io.open(os.getenv("ROLLOUTS"), "a")

return function(sample)
  local even = 0
  for _, id in ipairs(sample.completion_ids) do even = even + (id % 2 == 0 and 1 or 0) end
  local reward
  if sample.completion_ids[1] % 3 ~= 0 then reward = even / #sample.completion_ids end
  if file then
    file:write(string.format('{"prompt": [%s], "completion": [%s], "reward": %s, "finished": %s}\n',
      table.concat(sample.prompt_ids, ", "), table.concat(sample.completion_ids, ", "),
      reward and string.format("%.17g", reward) or "null", sample.finished))
    file:flush()
  end
  return reward
end
