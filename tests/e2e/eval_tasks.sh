#!/bin/sh
# eval_tasks.sh: `nrl eval SRC --task FILE` gives the log-likelihoods and scores that lm-evaluation-harness gave
# (tests/data/tasks/make_tasks.py), on rows in the public formats; mistakes.
. "$(dirname "$0")/e2e.sh"
tasks=$source/tests/data/tasks
model=${NRL_TEST_SHARED:-$source/../shared}/data/models/stories260K/hf

# ---- mistakes, found before a model is opened ----
echo '{"a": 1}' >odd.jsonl
run 65 eval nowhere --task odd.jsonl
has err "odd.jsonl: the keys of its rows do not match a task format"
: >empty.jsonl
run 65 eval nowhere --task empty.jsonl
run 2 eval nowhere --task none.jsonl
run 2 eval nowhere --task winograd=odd.jsonl
has err "no format 'winograd'; expected one of hellaswag, piqa, arc, choices, mmlu, match, gsm8k"
run 65 eval nowhere --task arc=odd.jsonl
has err "odd.jsonl:1"
has err "a row of arc needs question, choices: {text, label} and answerKey"
echo '{"prompt": "a", "choices": ["b"], "gold": 0}' >one.jsonl
run 65 eval nowhere --task one.jsonl
has err "one.jsonl:1:1: 1 choices; expected a list of 2 to 64 texts"
echo '{"prompt": "a", "choices": ["b", "c"], "gold": 2}' >gold.jsonl
run 65 eval nowhere --task gold.jsonl
has err "the right answer is not one of the 2 choices"
run 2 eval nowhere --task "$tasks/arc.jsonl" --shots 2
has err "--shots requires --examples FILE"
run 2 eval nowhere --task "$tasks/arc.jsonl" --examples "$tasks/arc_examples.jsonl"
has err "--examples requires --shots N"
run 2 eval nowhere --task "$tasks/piqa.jsonl" --shots 2 --examples "$tasks/arc_examples.jsonl"
has err "rows of arc; expected piqa"
run 65 eval nowhere --task "$tasks/arc.jsonl" --shots 3 --examples "$tasks/arc_examples.jsonl"
has err "2 examples; --shots requires 3"
run 2 eval nowhere --limit 3
has err "require --task FILE"
run 2 eval nowhere --task "$tasks/arc.jsonl" train.seed=1
run 2 eval nowhere --task "$tasks/arc.jsonl" --rows rows
[ ! -e rows ] || is "rows of a model that does not exist" kept removed
[ $failed -eq 0 ] || exit 1

# ---- a run of one's own ----
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=2 eval.every=0 out=r
echo '[{"prompt": "What is 2 plus 2?", "choices": ["4", "five"], "gold": 0}, {"prompt": "Hi", "choices": ["a", "b"], "gold": 1}]' >own.json
echo '{"prompt": "What is 2 plus 2?", "answer": "4"}' >free.jsonl
run 0 eval r@2 --task own.json --task free.jsonl --max-tokens 4 --json
truth "two tasks" "#d.tasks == 2 and d.tasks[1].questions == 2 and d.tasks[1].acc and d.tasks[2].exact_match == 0"

# A question that leaves no room for its answer loses its begin.
{
    cat free.jsonl
    printf '{"prompt": "%s What is 2 plus 2?", "answer": "4"}\n' "$(seq 1000 | tr '\n' ' ')"
} >long.jsonl
run 0 eval r@2 --task long.jsonl --max-tokens 4 --json
truth "a long question" "d.tasks[1].questions == 2 and d.tasks[1].truncated == 1"
run 2 eval r@2 --task long.jsonl --max-tokens 1024
has err "--max-tokens 1024: expected fewer than the 1024 positions of the model"

# In place of an empty prompt stands BOS, or EOS for this tokenizer, which has no BOS.
for prompt in '' '<|im_end|>'; do
    echo "{\"prompt\": \"$prompt\", \"choices\": [\"4\", \"five and six\"], \"gold\": 0}" >"empty$prompt.jsonl"
    run 0 eval r@2 --task "empty$prompt.jsonl" --rows "empty$prompt.rows"
    sed 's/.*"loglikelihoods": *\[\([^]]*\)\].*/\1/' "empty$prompt.rows" | tr -d ' ' | tr , '\n' >"empty$prompt.values"
done
near empty.values 'empty<|im_end|>.values' 2 1e-5

# Each question of mmlu follows the description of its own subject, also in a file of several subjects.
for subject in high_school_biology moral_disputes; do
    echo "{\"question\": \"Which?\", \"subject\": \"$subject\", \"choices\": [\"this\", \"that\"], \"answer\": 0}"
done >subjects.jsonl
tail -n 1 subjects.jsonl >subject.jsonl
for name in subjects subject; do
    run 0 eval r@2 --task $name.jsonl --rows $name.rows
    tail -n 1 $name.rows | sed 's/.*"loglikelihoods": *\[\([^]]*\)\].*/\1/' | tr -d ' ' | tr , '\n' >$name.last
done
near subjects.last subject.last 2 1e-5
is "scores of two subjects" "$(sed 's/.*"loglikelihoods"//' subjects.rows | sort -u | wc -l)" 2

# ---- a text ----
printf '{"text": "What is"}\n\n{"text": "2 plus 2?"}\n' >two.jsonl
run 0 eval r --text two.jsonl --json
truth "two documents" "d.documents == 2 and d.bytes == 16 and near(d.perplexity, math.exp(d.loss)) and d.window > 0"
run 65 eval r --text odd.jsonl
has err 'odd.jsonl: document 1: expected a row {"text": ...}'
run 65 eval r --text empty.jsonl
run 2 eval r --text none.txt
run 2 eval r --text two.jsonl --window 100000
run 2 eval r --text two.jsonl --task own.json

# 256 MiB are the logits of 1677 tokens of a vocabulary of 40,000
sed 's/"vocab_size": 512/"vocab_size": 40000/; s/"max_position_embeddings": 1024/"max_position_embeddings": 4096/' \
    "$source/configs/models/tiny.json" >wide.json
run 0 run "$source/configs/sft.yaml" "$one_thread" "model={config: wide.json, tokenizer: $source/configs/models/tiny-tokenizer}" \
    train.epochs=0 train.steps=1 eval.every=0 checkpoint.export=none out=wide
run 0 eval wide --text two.jsonl --json
truth "a window for a large vocabulary" "d.window == 1677"
has err "warning: the window is 1677 tokens instead of 2048: the logits of a window have at most 256 MiB"
run 0 eval wide --text two.jsonl --json --window 2048
truth "a window that was asked for" "d.window == 2048"
is "what is said of it" "$(cat err)" ""

# ---- the scores of lm-evaluation-harness ----
[ -d "$model" ] || { echo "skipped: no $model"; exit 77; }
# of transformers 5.23 in f32, in the same windows; sums of 1,414 tokens
run 0 eval "$model" --text "$tasks/text.txt" --json
truth "a text" "math.abs(d.loss * d.tokens - 2754.98244) < 0.01 and d.tokens == 1414 and near(d.bits_per_byte, d.loss * d.tokens / math.log(2) / 3265) and math.abs(d.token_accuracy - 678 / 1414) < 1e-9 and math.abs(d.entropy - 1.4228558) < 1e-5"
run 0 eval "$model" --task "$tasks/arc.jsonl" --shots 2 --examples "$tasks/arc_examples.jsonl" --rows arc2.rows --json
mv out arc2.scores
for task in hellaswag arc piqa mmlu gsm8k; do
    run 0 eval "$model" --task "$tasks/$task.jsonl" --rows $task.rows --max-tokens 16 --json
    mv out $task.scores
done
cat >compare.lua <<'LUA'
local nrl = require "nrl"
local BOUND = 2e-3 -- nats of a choice: both compute in fp32 and add up to 40 log-probs, recorded with 5 decimals
local function read(name) return io.open(name):read "a" end
local recorded = nrl.json.decode(read(TASKS .. "/scores.json"))
local bad = 0
local function check(good, ...) if not good then bad = bad + 1 print(...) end end
for name, expected in pairs(recorded.tasks) do
  local scores = nrl.json.decode(read(name .. ".scores")).tasks[1]
  for key, value in pairs(expected.scores) do
    local metric, filter = key:match "^(.-),(.*)$"
    local ours = metric
    if filter ~= "none" then
      ours = metric:gsub("exact_match", filter == "strict-match" and "exact_match_strict" or "exact_match_flexible")
    end
    check(scores[ours] and math.abs(scores[ours] - value) < 1e-9, name, key, scores[ours], value)
  end
  local i = 0
  for line in io.lines(name .. ".rows") do
    i = i + 1
    local row = nrl.json.decode(line)
    for k, ll in ipairs(expected.loglikelihoods and expected.loglikelihoods[i] or {}) do
      check(math.abs(row.loglikelihoods[k] - ll) < BOUND, name, i, k, row.loglikelihoods[k], ll)
    end
    -- it decodes the new ids alone, and transformers then drops a space before the first word
    if expected.texts then check(row.text:match "^ ?(.*)$" == expected.texts[i], name, i, row.text, expected.texts[i]) end
  end
  check(i == #(expected.loglikelihoods or expected.texts), name, i)
end
os.exit(bad == 0 and 0 or 1)
LUA
sed "s#TASKS#\"$tasks\"#" compare.lua >compared.lua
run 0 run compared.lua

exit $failed
