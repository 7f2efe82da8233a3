#!/bin/sh
# signals.sh: a first signal stops the run after its state is saved, or if there is no state yet; a second SIGINT or
# SIGTERM ends a process and its ranks at once, whatever they are doing.
. "$(dirname "$0")/e2e.sh"
rows 32 >train.jsonl
experiment >run.yaml

# ---- a second signal does not wait ----
# C functions that Lua's own limits do not see, and products that take long
cat >match.lua <<'LUA'
io.open("reached", "w"):close()
string.find(("a"):rep(60), ("a?"):rep(60) .. ("a"):rep(60))
LUA
cat >wide.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
 "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 96,
 "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true}
JSON
awk 'BEGIN { for (i = 0; i < 8; i++) { ids = "5"; for (t = 1; t < 16384; t++) ids = ids "," (3 + (t * 7 + i) % 90)
    print "{\"input_ids\": [" ids "], \"labels\": [" ids "]}" } }' >long.jsonl
cat >product.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config "run.yaml"
cfg.model, cfg.data, cfg.out = {config = "wide.json"}, {train = "long.jsonl", max_length = 16384}, "wide"
cfg.train = {steps = 1, global_batch = 8, micro_batch_tokens = 16384}
cfg.algorithm = nrl.loss {name = "marked", needs = {"logps"}, loss = function(b) return -b:logps():sum() end,
  weight = function(b) io.open("reached", "w"):close() return b:count "answer_tokens" end}
nrl.open(cfg):train()
LUA
cat >loop.jinja <<'JINJA'
{%- for m in messages %}{% for i in range(1000) %}{% for j in range(1000) %}{% if i < 0 %}{% endif %}{% endfor %}{% endfor %}{{ m.content }}{% endfor %}
JINJA
awk 'BEGIN { for (i = 0; i < 256; i++) print "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}" }' >chat.jsonl

# begin ARGUMENT...: a run in the background, some of which make the file `reached`
begin() {
    rm -f reached
    "$nrl" "$@" >out 2>err &
    pid=$!
}

# twice SIGNAL CODE NAME: two of them end it
twice() {
    kill "-$1" $pid
    await heard $pid
    is "$3 after the first $1" "$(gone $pid && echo gone)" ""
    kill "-$1" $pid
    finished $pid "$2" "$3 after two $1"
}
for signal in INT:130 TERM:143; do
    begin run match.lua
    await test -e reached
    twice "${signal%:*}" "${signal#*:}" "a C function of Lua"
    [ "$signal" = INT:130 ] && has err "interrupted: stopping; a second Ctrl-C ends nrl at once"
done
begin run product.lua
await test -e reached
twice TERM 143 "a product"
[ -s wide/metrics.jsonl ] && is "records of an unfinished step" some none
begin run run.yaml data.train=chat.jsonl data.template=./loop.jinja \
    model.tokenizer="$source/configs/models/tiny-tokenizer" model.config="$source/configs/models/tiny.json" \
    model.path= out=template
await test -d template/cache
kill -INT $pid # it would stop behind this row
kill -INT $pid 2>dd
finished $pid 130 "a template that loops"

# ---- a first one, while there is nothing to save ----
begin run run.yaml data.train=chat.jsonl data.template=./loop.jinja \
    model.tokenizer="$source/configs/models/tiny-tokenizer" model.config="$source/configs/models/tiny.json" \
    model.path= out=early
await test -d early/cache
kill -TERM $pid
finished $pid 75 "a run that tokenizes"
has err "error: stopped by signal 15 (Terminated) at "
[ -e early/checkpoints ] && is "checkpoints before the first step" present absent
for verb in "check run.yaml" "eval run.yaml" "bench run.yaml"; do # they save nothing: the first one ends them
    # shellcheck disable=SC2086
    begin $verb data.train=chat.jsonl data.eval=chat.jsonl data.template=./loop.jinja \
        model.tokenizer="$source/configs/models/tiny-tokenizer" model.config="$source/configs/models/tiny.json" model.path=
    await grep -q nrl "/proc/$pid/comm"
    kill -TERM $pid # a shell lets what it starts in the background ignore INT
    finished $pid 143 "nrl $verb"
done

# ---- Ctrl-C is answered before the step has ended, by one rank ----
begin run run.yaml train.steps=100000 checkpoint.every=0 checkpoint.export=none out=answered
await test -s answered/metrics.jsonl
kill -INT $pid
finished $pid 130 "a run after Ctrl-C"
is "first line about Ctrl-C" "$(head -n 1 err)" \
    "interrupted: finishing the current step; a second Ctrl-C ends nrl at once"
has err "state saved in answered/checkpoints/step-"
begin launch -n 2 -- run run.yaml train.steps=100000 checkpoint.every=0 checkpoint.export=none out=answers
await test -s answers/metrics.jsonl
kill -INT $pid
finished $pid 130 "a launch after Ctrl-C"
is "lines about Ctrl-C" "$(grep -c 'interrupted: finishing' err)" 1
has err "[0] interrupted: finishing the current step"

# ---- one request that comes twice: whoever signals all processes of a job, and a launcher beside it ----
"$nrl" launch -n 2 -- run run.yaml train.steps=100000 checkpoint.every=0 checkpoint.export=none out=job >out 2>err &
pid=$!
await test -s job/metrics.jsonl
# shellcheck disable=SC2046
(exec kill -TERM $pid $(cat /proc/$pid/task/*/children)) # a sender that is no parent of them
finished $pid 75 "a job whose processes all get TERM"
has err "state saved in job/checkpoints/step-"

# ---- ranks ----
cat >ranks.lua <<'LUA'
io.open("reached." .. os.getenv "NRL_RANK", "w"):close()
string.find(("a"):rep(60), ("a?"):rep(60) .. ("a"):rep(60))
LUA
# launched ARGUMENT...: a launch of two ranks that heed nothing
launched() {
    rm -f reached.*
    "$nrl" launch -n 2 "$@" -- run ranks.lua >out 2>err &
    pid=$!
    await test -e reached.0 && await test -e reached.1
}
for signal in INT:130 TERM:143; do
    launched
    twice "${signal%:*}" "${signal#*:}" "a launch"
done
for signal in INT:130 TERM:143 USR1:138; do
    launched --grace 1
    kill "-${signal%:*}" $pid
    finished $pid "${signal#*:}" "a launch with --grace after ${signal%:*}"
done
exit $failed
