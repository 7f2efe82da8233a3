#!/bin/sh
# grpo.sh: the losses, gradient norms and metrics of GRPO are those of PyTorch and of TRL's loss function on the same
# completions (tests/data/grpo), also with several updates on each, for every division of the work; rewards of several
# functions and of a reward model are those of transformers; a resumed run samples and trains as an uninterrupted one;
# evaluations have rewards; mistakes in the functions of rewards name their line and the row.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
data=$source/tests/data

# Absolute, of fp32 after up to 8 updates, next to PyTorch in fp64: advantages have the sum 0, so losses are small
# differences of large numbers.
recorded=2e-5
seen=

# values NAME FIELD: that number of each training record
values() {
    sed -n '/"grad_norm"/s|.*"'"$2"'": *\([^,}]*\).*|\1|p' "$1/metrics.jsonl"
}

# near FOUND EXPECTED NAME: files of as many numbers
near() {
    paste "$1" "$2" | awk -v room="$recorded" -v all="$(wc -l <"$2")" '
        { d = ($1 - $2) / ($2 > 1 ? $2 : 1); if (d < 0) d = -d; if (d > worst) worst = d; n += NF == 2 }
        END { if (n != all || n < 8 || worst > room) { printf "%d numbers, off by %g, expected %g\n", n, worst, room; exit 1 } }' && return
    echo "in $3"
    failed=1
}

cat >cases.lua <<LUA
local nrl = require "nrl"
local i = 0
for _, file in ipairs { "grpo", "trl", "rewards" } do for _, case in ipairs(nrl.json.decode(io.open("$data/grpo/" .. file .. ".json"):read "a").cases) do
  i = i + 1
  local function write(name, text) io.open(name .. i, "w"):write(text, "\n"):close() end
  write("config", (case.config:gsub("TESTS", "$data")))
  write("losses", table.concat(case.losses, "\n"))
  write("norms", table.concat(case.grad_norms, "\n"))
  write("completions", table.concat(case.completions, "\n"))
  for name, numbers in pairs(case.fields or {}) do write((name:gsub("/", "_")) .. "_of_", table.concat(numbers, "\n")) end
end end
LUA
run 0 run cases.lua
i=1
while [ -f "config$i" ]; do
    mv "config$i" "c$i.yaml"
    ROLLOUTS=rollouts run 0 run "c$i.yaml" out="run$i" checkpoint.every=4
    sed 's/.*"completion": \[\([^]]*\)\].*/\1/; s/,//g' rollouts >found
    rm rollouts
    cmp -s found "completions$i" || is "completions of case $i" "others" "those that make_grpo.py recorded"
    values "run$i" loss >found
    near found "losses$i" "the losses of case $i"
    values "run$i" grad_norm >found
    near found "norms$i" "the gradient norms of case $i"
    for field in entropy kl clip_ratio/region_mean cispo_clip_ratio reward reward_std rewards/even/mean rewards/even/std \
        rewards/short/mean rewards/short/std rewards/model/mean rewards/model/std; do
        expected=$(echo "$field" | tr / _)_of_$i
        [ -f "$expected" ] || continue
        values "run$i" "$field" >found
        near found "$expected" "$field of case $i"
    done
    i=$((i + 1))
done
is "cases" "$((i - 1))" 15
[ "$(sort -u clip_ratio_region_mean_of_7)" != 0 ] || is "clipped ratios" none some

for change in train.micro_batch_tokens=32 'train.micro_batch=2 data.packing=false'; do
    run 0 run c1.yaml out=other overwrite=true $change
    values other loss >found
    near found losses1 "the losses with $change"
done
for strategy in ddp fsdp '{tensor: 2}' '{pipeline: 2}' '{data: fsdp, tensor: 2}' fsdp; do
    n=2
    # the second time on more ranks than prompts: one of three has nothing to generate
    [ "$strategy" = '{data: fsdp, tensor: 2}' ] && n=4
    [ "$strategy $seen" = "fsdp yes" ] && n=3
    [ "$strategy" = fsdp ] && seen=yes
    run 0 launch -n $n -- run c1.yaml out=other overwrite=true "parallel=$strategy"
    values other loss >found
    near found losses1 "the losses of $n ranks with $strategy"
    is "rewards on $n ranks with $strategy" "$(values other reward | head -n 3)" "$(values run1 reward | head -n 3)"
done
cp -r run1 again && rm -r again/checkpoints/step-00000008
run 0 run c1.yaml out=again resume=auto checkpoint.every=4
for field in loss grad_norm reward; do
    is "$field of a resumed run" "$(values again $field)" "$(values run1 $field)"
done

# The contents of the rewards belong to the run: a resume notices another function and another reward model.
mkdir given && cp -r "$data/grpo/rewards.lua" "$data/reward/model" given
given="c15.yaml out=rewarded algorithm.reward=given/rewards.lua algorithm.reward_model=given/model checkpoint.every=4"
run 0 run $given train.steps=4
echo >>given/rewards.lua
run 2 run $given resume=auto
has err "  algorithm.reward: was "
lacks err "algorithm.reward_model: was "
cp "$data/grpo/rewards.lua" given
printf '\125' | dd of=given/model/model.safetensors bs=1 seek="$(($(wc -c <given/model/model.safetensors) - 3))" conv=notrunc 2>dd
run 2 run $given resume=auto
has err "  algorithm.reward_model: was "
lacks err "algorithm.reward: was "
run 0 run $given resume=auto checkpoint.mismatch=warn
has err "  algorithm.reward_model: was "

# Several rewards are the same on several ranks, each of which has the whole reward model. A weight of 0 only records.
for strategy in ddp fsdp '{tensor: 2}'; do
    run 0 launch -n 2 -- run c15.yaml out=other overwrite=true "parallel=$strategy"
    for field in loss rewards/model/mean rewards/model/std rewards/even/std; do
        values run15 $field >expected
        values other $field >found
        near found expected "$field of 2 ranks with $strategy"
    done
done
run 0 run c15.yaml out=even overwrite=true 'algorithm.reward_weights={short: 0, model: 0}'
is "the reward of one reward" "$(values even reward)" "$(values even rewards/even/mean)"
run 0 run c15.yaml out=parts algorithm.steps_per_generation=2 checkpoint.every=3
cp -r parts later && rm -r later/checkpoints/step-0000000[68]
run 0 run c15.yaml out=later resume=auto algorithm.steps_per_generation=2 checkpoint.every=3
for field in loss rewards/model/std; do
    is "$field of a run with several rewards that was resumed in a batch" "$(values later $field | head -n 8)" "$(values parts $field)"
done
mv later later_parts
cp -r parts fewer && rm -r fewer/checkpoints/step-0000000[68]
run 2 run c15.yaml out=fewer resume=auto checkpoint.mismatch=warn algorithm.steps_per_generation=2 \
    algorithm.reward_model= 'algorithm.reward_weights={}'
has err "the completions of the checkpoint have 3 rewards, but the config has 2"

# Several steps on the completions of a batch: a run that stops among them goes on with the same bits, whatever number of
# ranks it had; every division of the work trains on the same parts.
several='algorithm.steps_per_generation=2 algorithm.num_iterations=2 train.steps=12 train.global_batch=4 checkpoint.every=5'
run 0 run c1.yaml out=several $several
near_losses() {
    values several loss >losses
    values "$1" loss >found
    near found losses "the losses of $2"
}
for strategy in ddp fsdp '{tensor: 2}' '{pipeline: 2}'; do
    run 0 launch -n 2 -- run c1.yaml out=two overwrite=true $several "parallel=$strategy"
    near_losses two "several steps on 2 ranks with $strategy"
done
for from in several two; do
    cp -r $from later && rm -r later/checkpoints/step-00000010 later/checkpoints/step-00000012
    run 0 run c1.yaml out=later resume=auto $several
    [ $from = two ] || is "losses of a run that was resumed among several steps" "$(values later loss)" "$(values several loss)"
    near_losses later "a run that was resumed among several steps of $from"
    rm -r later
done
# A stop in the middle of a batch, and before the last step that needs its completions; a config that the run wrote is read
# again; a state that is too long for a manifest.
cat >stop.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "c1.yaml")
run:on("step", function(e) if e.step == tonumber(os.getenv "STEPS") then run:stop() end end)
run:train()
LUA
for stop in 1 3 4; do
    STEPS=$stop run 0 run stop.lua out=later $several
    is "saved steps" "$(ls later/checkpoints)" step-0000000$stop
    STEPS=20 run 0 run stop.lua out=later resume=auto $several
    is "losses after a stop at step $stop" "$(values later loss)" "$(values several loss)"
    rm -rf later
done
run 0 run c1.yaml out=later $several train.steps=5 'algorithm={name: grpo, reward: '"$data/grpo/reward.lua"', group_size: 32, max_tokens: 40}' \
    algorithm.num_iterations=2 checkpoint.every=5
has later/checkpoints/step-00000005/manifest.json '"rollout": '
lacks later/checkpoints/step-00000005/manifest.json '"rollout": ['
run 0 resume later train.steps=8
run 0 run c1.yaml out=sequence $several algorithm.importance_sampling=sequence
run 0 launch -n 2 -- run c1.yaml out=two overwrite=true $several algorithm.importance_sampling=sequence parallel=fsdp
values sequence loss >losses
values two loss >found
near found losses "the losses of 2 ranks with a ratio for each completion"
# An epoch has as many times the steps; a dapo step weighs its tokens as the batch does, bnpo as the step does.
run 0 run c1.yaml out=epoch $several train.steps=0 train.epochs=1
is "steps of an epoch" "$(($(values epoch loss | wc -l) % 4))" 0
run 0 run c1.yaml out=bnpo $several algorithm.loss=bnpo
[ "$(values bnpo loss)" != "$(values several loss)" ] || is "losses of bnpo" "those of dapo" "others"

# A row that a step repeats has completions of its own each time: every sampled text is another one, on any number of ranks.
sed -n 2p "$data/objectives/rows.jsonl" >row.jsonl
ROLLOUTS=rollouts run 0 run c1.yaml out=repeated $several "data.train={path: row.jsonl, weight: 4}"
is "completions of a row that is repeated" "$(sort -u rollouts | wc -l)" "$(wc -l <rollouts)"
rm rollouts
for strategy in ddp fsdp; do
    run 0 launch -n 2 -- run c1.yaml out=two overwrite=true $several "data.train={path: row.jsonl, weight: 4}" "parallel=$strategy"
    values repeated loss >losses
    values two loss >found
    near found losses "the losses of 2 ranks with $strategy and a row that is repeated"
done

# Rows of prompts alone, as TRL has them, train as rows with an answer that no reward reads. A key that looks like the
# answer is not overlooked: rewards would compare with an empty text.
cat >length.lua <<LUA
return function(s) assert(s.answer == (os.getenv "ANSWER" or "")) return #s.completion % 7 end
LUA
preferences pref '{name: grpo, reward: length.lua, group_size: 4, max_tokens: 8}' >text.yaml
prompts=$source/configs/data/pref.jsonl
sed 's/, "chosen": .*/, "completion": "yes"}/' "$prompts" >answered.jsonl
sed 's/, "chosen": .*/}/' "$prompts" >prompts.jsonl
sed 's/, "chosen": .*/, "answer": "yes"}/' "$prompts" >answers.jsonl
ANSWER=yes run 0 run text.yaml out=answered data.train=answered.jsonl data.eval=answered.jsonl
run 0 run text.yaml out=prompts data.train=prompts.jsonl data.eval=prompts.jsonl
has out "prompt"
run 0 run text.yaml out=pairs
has err "keys that are not used: 'chosen', 'rejected'"
for out in prompts pairs; do
    is "losses of $out" "$(values $out loss)" "$(values answered loss)"
done
run 65 check text.yaml out=bad data.train=answers.jsonl
has err "answers.jsonl:1: no row format has these keys: prompt, answer; expected prompt, or prompt and completion"
has err "hint: data.columns: {completion: answer}"
sed 's/"prompt"/"question"/' prompts.jsonl >questions.jsonl
run 65 check text.yaml out=bad data.train=questions.jsonl
has err "hint: data.columns: {prompt: question}"

# It learns: the reward is the share of even tokens, half of which are even at first.
run 0 run c1.yaml out=long "loggers=[console, jsonl]" train.steps=60 algorithm.group_size=8 data.eval=$data/objectives/rows.jsonl eval.every=30 \
    checkpoint.export=best checkpoint.every=30 train.global_batch=4
reward=$(values long reward | tail -n 10 | awk '{ sum += $1 } END { print sum / NR }')
awk -v r="$reward" 'BEGIN { exit !(r > 0.7) }' || is "the mean reward of the last ten steps" "$reward" "more than 0.7"
has out "(the best, eval_reward "
grep -q '"eval_reward"' long/metrics.jsonl || is "eval_reward" none some
# That is the metric of grpo: it is written to the config, may be replaced, and is that of the first of several sets.
is "the metric of checkpoints" "$(sed -n 's/^ *metric: //p' long/config.yaml)" eval_reward
two="data.eval={one: $data/objectives/rows.jsonl, two: $data/objectives/rows.jsonl}"
chosen() {
    run 0 run c1.yaml out=sets overwrite=true train.steps=1 checkpoint.every=0 "$two" "$@"
    sed -n 's/^ *metric: //p' sets/config.yaml
}
is "the metric of two sets" "$(chosen)" eval_one_reward
run 0 run c15.yaml out=even overwrite=true train.steps=1 data.eval=$data/objectives/rows.jsonl \
    eval.every=1 checkpoint.metric=eval_rewards/even/mean
grep -q '"eval_rewards/even/mean"' even/metrics.jsonl || is "the mean of a reward in evaluations" none some
cat >based.lua <<LUA
local nrl = require "nrl"
local cfg = nrl.config "c1.yaml"
cfg.algorithm.beta = 0
cfg.algorithm = nrl.loss {name = "based", base = cfg.algorithm, weight = function(b) return b:base_weight() end,
  loss = function(b) return b:base_loss() end}
nrl.open(cfg):close()
LUA
run 0 run based.lua out=based data.eval=$data/objectives/rows.jsonl
is "the metric of a loss in Lua that extends grpo" "$(sed -n 's/^ *metric: //p' based/config.yaml)" eval_reward
is "the metric that was asked for" "$(chosen checkpoint.metric=eval_loss)" eval_loss

# ---- mistakes ----
sed 's/^train: {/out: bad\ntrain: {/' c1.yaml >bad.yaml
reward() {
    printf '%s\n' "$1" >bad.lua
    run "$2" run bad.yaml out=bad overwrite=true algorithm.reward=bad.lua
}
run 2 check bad.yaml algorithm.reward=nowhere.lua
has err "reward: "
has err "nowhere.lua: No such file or directory"
echo 'os.execute("touch executed")' >stranger.lua
for verb in check run; do
    run 2 --no-scripts $verb bad.yaml overwrite=true algorithm.reward=stranger.lua
    has err "reward: cannot run"
    has err "stranger.lua': scripts are disabled (--no-scripts, NRL_NO_SCRIPTS)"
done
[ ! -e executed ] || is "a reward file with --no-scripts" executed refused
reward 'return 1' 2
has err "returns a number; expected a function of a sample that returns its reward"
reward 'return function(s) retrun 1 end' 2
has err "bad.lua:1:"
reward 'return function(s)
  return s.completion_ids.x.y
end' 2
has err "reward of "
has err "rows.jsonl:1: "
has err "bad.lua:2: attempt to index a nil value"
reward 'return function(s) return "much" end' 2
has err "the reward is a string; expected a number"
reward 'return function(s) return 0/0 end' 2
has err "expected a finite number"
reward 'return {}' 2
has err "returns an empty table; expected a function of a sample that returns its reward, or a table of such functions"
reward 'return {even = 1}' 2
has err "returns a table with a number of the name 'even'; expected functions"
reward 'return {["a/b"] = function(s) return 1 end}' 2
has err "of the name 'a/b'; expected functions, with names of up to 63 letters"
reward 'return {one = function(s) return 1 end, two = function(s) return {} end}' 2
has err "reward 'two' of "
has err "the reward is a table; expected a number"
run 2 check bad.yaml algorithm.reward_weights='{two: 1}'
has err "reward_weights: there is no reward 'two', because the file returns one function without a name"
run 2 check c15.yaml out=bad overwrite=true algorithm.reward_weights='{evn: 1}'
has err "command line: algorithm 'grpo': reward_weights: there is no reward 'evn'; expected one of: even, short, model"
run 2 check c15.yaml out=bad overwrite=true algorithm.reward_weights='{even: much}'
has err "reward_weights: 'even': expected a number"
run 2 check bad.yaml algorithm.reward=
has err "there is no reward; expected reward (a Lua file) or reward_model"
run 2 check bad.yaml overwrite=true algorithm.reward_model=nowhere algorithm.reward=
has err "reward_model: "
has err "nowhere: No such file or directory"
run 2 run bad.yaml out=bad overwrite=true algorithm.reward= "algorithm.reward_model=$data/models/llama"
has err "reward_model: "
has err "it is not a reward model, but a LlamaForCausalLM"
run 0 check bad.yaml overwrite=true algorithm.reward="$data/grpo/reward.lua" algorithm.steps_per_generation=4
has err "algorithm.steps_per_generation is 4, but a batch has 2 prompts (train.global_batch): 2 of every 4 steps have nothing to train on"
run 2 check bad.yaml algorithm.reference=cached
has err "algorithm.reference: cached is not supported by algorithm 'grpo', which generates completions; expected online"
run 2 check bad.yaml algorithm.beta=0 algorithm.reference_model=elsewhere
has err "algorithm.reference_model: this loss has no reference model"
run 2 check bad.yaml algorithm.loss=cispo
has err "loss: cispo needs epsilon_high, the upper limit of the ratio"
run 2 check bad.yaml algorithm.loss=cispo algorithm.epsilon_high=5 algorithm.importance_sampling=sequence
has err "loss: cispo has one ratio per token"
run 2 check bad.yaml algorithm.loss=sapo algorithm.delta=2
has err "delta: loss sapo does not use it"
run 2 check bad.yaml algorithm.sapo_temperature_neg=2
has err "only loss sapo uses them"
# Completions without any reward teach nothing, and are warned of once.
reward 'return function(s) end' 0
is "warnings of completions without a reward" "$(grep -c "no function returned a reward for a completion of this row" err)" 1
is "rewards of completions without a reward" "$(values bad reward)" ""
# Equal rewards have nothing to teach, which is no error.
for reward in 1 0.2; do # 0.2: the mean of equal numbers is rounded
    reward "return function(s) return $reward end" 0
    is "the share of equal groups with rewards of $reward" "$(values bad frac_reward_zero_std | sort -u)" 1
done
# Of two runs in a process each has its own metrics, whichever was opened last.
cat >two.lua <<LUA
local nrl = require "nrl"
local function opened(out, length)
  local cfg = nrl.config "c1.yaml"
  cfg.algorithm.max_tokens, cfg.loggers, cfg.train.steps, cfg.out = length, {"jsonl"}, 2, out
  cfg.algorithm.reward = "lengths.lua"
  return nrl.open(cfg, {quiet = true})
end
local a, b = opened("long_one", 6), opened("short_one", 2)
a:train()
b:train()
LUA
echo 'return function(s) return #s.completion_ids end' >lengths.lua
run 0 run two.lua
for one in long_one short_one; do
    is "metrics of $one" "$(values $one reward)" "$(values $one completions/mean_length)"
    is "records of $one" "$(values $one reward | wc -l)" 2
done
run 2 check bad.yaml overwrite=true algorithm.reward="$data/grpo/reward.lua" algorithm.reference=none
has err "algorithm.reference: none is not supported by algorithm 'grpo', which generates completions; expected online"
# without a trained token there is no mean over tokens
echo 'return function(s) return 1 end' >bad.lua
run 0 run bad.yaml out=bad overwrite=true algorithm.reward=bad.lua algorithm.mask_truncated=true algorithm.max_tokens=1
lacks bad/metrics.jsonl NaN
exit $failed
