#!/bin/sh
# sampling_ranks.sh: the options of run:sample on several ranks, which agree with one rank: texts, ids, log-probs.
. "$(dirname "$0")/e2e.sh"
cat >sample.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config(os.getenv "NRL_TEST_SOURCE" .. "/configs/sft.yaml")
cfg.train.epochs, cfg.train.steps, cfg.data.eval, cfg.eval = 0, 2, nil, nil
cfg.loggers, cfg.out = {"jsonl"}, "out"
local run = nrl.open(cfg)
local logprobs = nrl.rank == 0 and io.open("logprobs", "w")
local function show(options)
  local texts, details = run:sample(options)
  for i, text in ipairs(texts) do
    local d = details[i]
    print(("%q"):format(text), d.finish, table.concat(d.ids, " "), d.top and #d.top[1])
    for t = 1, d.logprobs and #d.ids or 0 do
      assert(d.logprobs[t] <= d.top[t][1].logprob + 1e-6 and d.top[t][1].logprob >= d.top[t][2].logprob)
      print("", d.top[t][1].id)
      if logprobs then logprobs:write(("%.9g\n"):format(d.logprobs[t])) end
    end
  end
end
show {prompts = {"What is two", "Hello"}, max_tokens = 8, logprobs = 2}
show {prompts = {"What is two"}, max_tokens = 6, n = 3, logprobs = 2}
show {conversations = {{{role = "user", content = "Hello"}}}, max_tokens = 6, repetition_penalty = 3}
local text = run:sample({prompts = {"What is two"}, max_tokens = 8})[1]
show {prompts = {"What is two"}, max_tokens = 8, temperature = 3, top_k = 1, seed = 4}
show {prompts = {"What is two"}, max_tokens = 8, temperature = 1, seed = 4, n = 2}
show {prompts = {"What is two", "Hello"}, max_tokens = 8, temperature = 2, seed = 5, top_k = 5}
show {prompts = {"What is two", "Hello"}, max_tokens = 8, temperature = 2, seed = 5, top_k = 9, top_p = 0.7}
show {prompts = {"What is two", "Hello"}, max_tokens = 8, temperature = 2, seed = 5, min_p = 0.3}
assert(#text > 4)
show {prompts = {"What is two", "Hello"}, max_tokens = 8, stop = {text:sub(3, 4), "never"}}
if logprobs then logprobs:close() end
LUA
run 0 run sample.lua out=one "$one_thread"
mv logprobs expected
grep -v "^out" out >alone
is "lines of one rank" "$([ "$(wc -l <alone)" -gt 30 ] && echo enough)" enough
for axis in tensor=2 pipeline=2 data=ddp data=fsdp; do
    run 0 launch -n 2 -- run sample.lua "out=$axis" "$one_thread" "parallel={${axis%=*}: ${axis#*=}}"
    near logprobs expected "$(wc -l <expected)" 1e-4
    rm logprobs
    sed 's/^\[0\] //; /^\[1\]/d' out >together
    diff alone together >difference || {
        cat difference
        is "$axis" "another output" "that of one rank"
    }
done

# With fsdp the weights are gathered once for a call: what is sent does not depend on the number of tokens, and training goes
# on with the same bits. Without memory for that, a warning says so once.
cat >traffic.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config(os.getenv "NRL_TEST_SOURCE" .. "/configs/sft.yaml")
cfg.train.epochs, cfg.train.steps, cfg.data.eval, cfg.eval = 0, 3, nil, nil
cfg.loggers, cfg.out, cfg.parallel = {"jsonl"}, "sent", {data = {name = "fsdp", prefetch = 0}}
local run = nrl.open(cfg)
local tokens = tonumber(os.getenv "TOKENS")
run:on("step", function(e)
  print(("step %d: loss %.9g"):format(e.step, e.loss))
  if e.step == 3 then print(("bytes %d"):format(e.comm_bytes)) end
  if tokens > 0 and e.step == 2 then
    for i = 1, 2 do print(("%q"):format(run:sample({prompts = {"What is two"}, max_tokens = tokens})[1])) end
  end
end)
run:train()
LUA
sent() { # TOKENS ARGUMENT...
    TOKENS=$1
    export TOKENS
    shift
    run 0 launch -n 2 -- run traffic.lua overwrite=true "$one_thread" "$@"
    sed -n 's/^\[0\] bytes //p' out
    sed -n 's/^\[0\] step/step/p' out >losses
    cat out err >warned
}
sent 0 >without
cp losses untouched
sent 2 >few
sent 24 >many
is "bytes sent for 24 tokens instead of 2" "$(cat many)" "$(cat few)"
is "more bytes than without a text" "$([ "$(cat few)" -gt "$(cat without)" ] && echo more)" more
is "losses after a text" "$(cat losses)" "$(cat untouched)"
is "warnings" "$(grep -c "generation gathers each unit" warned)" 0
sent 24 backend.memory_limit=64MiB >always
is "more bytes with a gather for each token" "$([ "$(cat always)" -gt $((2 * $(cat many))) ] && echo more)" more
is "losses after a text" "$(cat losses)" "$(cat untouched)"
is "warnings of two texts" "$(grep -c "generation gathers each unit" warned)" 1
exit $failed
