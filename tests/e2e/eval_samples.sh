#!/bin/sh
# eval_samples.sh: eval.samples generates texts at each evaluation, scores them, and writes them to records and reports.
. "$(dirname "$0")/e2e.sh"

cat >prompts.jsonl <<'J'
{"messages": [{"role": "user", "content": "What is 2 plus 3?"}, {"role": "assistant", "content": "2 plus 3 is 5."}]}
{"prompt": "What is", "answer": "nothing like it"}
"Spell"
J
cat >run.yaml <<Y
defaults: $source/configs/sft.yaml
train: {epochs: 0, steps: 6}
data: {eval: null}
eval: {every: 3, samples: {prompts: prompts.jsonl, max_tokens: 6, n: 2, temperature: 1, match: number}}
$one_thread_yaml
checkpoint: {every: 3}
out: r
Y

# without data.eval, from a file; in records of their own
run 0 run run.yaml
has out "eval_exact_match"
has out "sample     "
is "records of texts" "$(grep -c '"samples": \[' r/metrics.jsonl)" 2
is "texts of a record" "$(grep '"samples"' r/metrics.jsonl | head -n 1 | grep -o '"text"' | wc -l)" 6
has r/metrics.jsonl '"answer": "2 plus 3 is 5."'
has r/metrics.jsonl '"eval_pass_at_n"'
has r/config.yaml "prompts: $work/prompts.jsonl"
run 0 report r
has r/report.html '<table class="samples" data-step="3">'
has r/report.html '<th>expected</th>'
lacks r/report.html '<figcaption>samples<'

# expected answers that are numbers, and of messages without an answer
cat >answers.jsonl <<'J'
{"prompt": "2+2=", "answer": 4}
{"messages": [{"role": "user", "content": "1+1="}], "answer": "2"}
{"messages": [{"role": "user", "content": "1+2="}, {"role": "assistant", "content": "one and two is 3"}], "completion": 3.5}
J
run 0 run run.yaml out=answers eval.samples.prompts=answers.jsonl eval.samples.n=1
for answer in 4 2 3.5; do
    is "records with the answer $answer" "$(grep -c "\"answer\": \"$answer\"" answers/metrics.jsonl)" 2
done
echo '{"prompt": "2+2=", "answer": ["4", "four"]}' >lists.jsonl
run 65 check run.yaml out=c eval.samples.prompts=lists.jsonl
has err "lists.jsonl:1:1: expected a text or a number as the answer"

# a terminal shows each text in lines that fit
if command -v script >/dev/null; then
    script -qec "stty cols 40; '$nrl' run run.yaml out=narrow" typescript >dd 2>&1
    tr '\r' '\n' <typescript | grep -A 3 '^sample ' >shown
    has shown "sample     "
    is "texts that are wider than 40 columns" "$(LC_ALL=C.UTF-8 grep -E '.{41}' shown)" ""
fi

# a resume gives the same texts, and every rank agrees on them
texts() { sed -n 's/.*"samples": //p' "$1/metrics.jsonl" | tail -n 1; }
uninterrupted=$(texts r)
run 0 resume r@3 data.workers=1
is "the texts after a resume" "$(texts r)" "$uninterrupted"
first=$(texts r)
run 0 run run.yaml out=again
is "the texts of an equal run" "$(texts again)" "$first"
for strategy in ddp fsdp; do
    run 0 launch -n 2 -- run run.yaml out=$strategy parallel=$strategy checkpoint.metric=eval_exact_match
    is "records of texts, $strategy" "$(grep -c '"samples": \[' $strategy/metrics.jsonl)" 2
done

# checkpoint.metric may use its metrics
run 0 run run.yaml out=best checkpoint.metric=eval_exact_match checkpoint.export=best eval.early_stop=1
has out "best eval_exact_match"
for change in checkpoint.export=best eval.early_stop=1; do
    run 2 check run.yaml out=none data.eval= $change
    has err "checkpoint.metric: eval_loss requires data.eval, and ${change%=*}"
done

# a checker in a script
cat >check.lua <<'L'
local nrl = require "nrl"
local cfg = nrl.config "run.yaml"
cfg.out = "lua"
cfg.checkpoint.metric = "eval_score"
local run = nrl.open(cfg)
local seen = 0
run:on("samples", function(e)
  for _, s in ipairs(e.samples) do
    assert(s.prompt and s.text and s.index >= 1 and s.index <= 3)
    seen, s.score = seen + 1, #s.text > 3
  end
end)
run:on("eval", function(e) assert(e.eval_score and e.eval_pass_at_1 == e.eval_score and e.eval_pass_at_n) end)
run:train()
assert(seen == 12, seen)
L
run 0 run check.lua
has lua/metrics.jsonl '"eval_score"'
has lua/metrics.jsonl '"score"'

# mistakes, before anything is trained
run 2 check run.yaml out=c 'eval.samples.match=exat'
has err "eval.samples"
run 2 check run.yaml out=c 'eval.samples={prompts: missing.jsonl}'
has err "missing.jsonl"
run 2 check run.yaml out=c 'eval.samples={prompts: [a], tokens: 3}'
has err "tokens"
run 2 check run.yaml out=c eval.samples.top_p=0
has err "top_p: 0 is out of range"
run 2 check run.yaml out=c eval.every=0
has err "eval.samples requires eval.every"
run 2 check run.yaml out=c checkpoint.metric=eval_exact
has err "eval_exact_match"
echo '{"text": "x"}' >odd.jsonl
run 65 check run.yaml out=c eval.samples.prompts=odd.jsonl
has err "odd.jsonl:1"
exit $failed
