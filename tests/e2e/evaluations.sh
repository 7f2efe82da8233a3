#!/bin/sh
# evaluations.sh: consequences of evaluations: early stopping, keeping the best checkpoint, the metric by name; and
# the data of a step: weights of files, the short last batch, steps prepared in advance.
. "$(dirname "$0")/e2e.sh"

rows 32 >train.jsonl
rows 5 >eval.jsonl
experiment >run.yaml
with_eval='eval={every: 2, early_stop: 3}'

evaluations() { grep -c '"eval_loss"' "$1/metrics.jsonl"; }
steps() { grep -c '"grad_norm"' "$1/metrics.jsonl"; }
checkpoints() { (cd "$1/checkpoints" && echo *); }

# With a rate of 0 nothing gets better after the first evaluation: three more, and the run ends as it should.
run 0 run run.yaml data.eval=eval.jsonl "$with_eval" optimizer.lr=0 train.steps=100 checkpoint.keep=1 out=still
has out "stopping after step 8: evaluations did not improve (eval.early_stop)"
is "steps until the early stop" "$(steps still)" 8
is "evaluations" "$(evaluations still)" 4
is "the newest checkpoint and the best" "$(checkpoints still)" "step-00000002 step-00000008"
[ -s still/model/model.safetensors ] || is "weights of a run that stopped early" missing there

# The count goes on where a run is resumed.
run 0 run run.yaml data.eval=eval.jsonl 'eval={every: 2, early_stop: 3}' optimizer.lr=0 train.steps=6 out=cut
is "steps before the resume" "$(steps cut)" 6
run 0 resume cut train.steps=100
has out "stopping after step 8"
run 0 resume cut # it is still stopped
is "steps after a resume of a run that stopped early" "$(steps cut)" 8
run 0 resume cut eval.early_stop=4
is "steps with a larger limit" "$(steps cut)" 10
# A run that ends before an evaluation has no best step.
cat >stop.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "run.yaml")
run:on("step", function() run:stop() end)
run:train()
LUA
run 0 run stop.lua data.eval=eval.jsonl eval.every=4 checkpoint.export=best train.steps=8 out=before
has err "the last step is exported instead of the best one"
is "exported step" "$(sed -n 's/.*"exported_step": *\([0-9]*\).*/\1/p' before/metrics.jsonl)" 1

# While it gets better it goes on, and the best is the newest.
run 0 run run.yaml data.eval=train.jsonl "$with_eval" train.steps=12 checkpoint.keep=1 out=better
is "steps of a run that gets better" "$(steps better)" 12
is "checkpoints of a run that gets better" "$(checkpoints better)" "step-00000012"
run 2 run run.yaml data.eval=eval.jsonl "$with_eval" checkpoint.metric=eval_accuracy out=unknown
has err "checkpoint.metric: 'eval_accuracy' is not a metric of evaluations"
run 2 check run.yaml eval.early_stop=3
has err "eval.early_stop requires eval.every"
run 2 check run.yaml eval.every=3
has err "eval.every requires data.eval"

# The best step is saved when it is found, also between two saves, and is what OUT/model holds where that is asked for:
# to the bit the model of a run that ends there. A few rows learned by heart make the loss on others rise from step 2 on.
tail -n 12 train.jsonl >other.jsonl
set -- data.train=eval.jsonl data.eval=other.jsonl eval.every=2 optimizer.lr=1e-2 checkpoint.every=8
exported() { sed -n 's/.*"exported_step": *\([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }
best_model() {
    name=$1
    shift
    run 0 "$@" out="$name-best" checkpoint.export=best
    has out "exported   $name-best/model: step 2 (the best, eval_loss "
    is "exported step of $name" "$(exported "$name-best")" 2
    is "checkpoints of $name" "$(checkpoints "$name-best")" "$saved"
    run 0 "$@" out="$name-two" train.steps=2
    cmp "$name-best/model/model.safetensors" "$name-two/model/model.safetensors" ||
        is "the best model of $name" other "that of a run that ends with step 2"
}
saved="step-00000002 step-00000008 step-00000010"
best_model whole run run.yaml "$@" train.steps=10
best_model bf16 run run.yaml "$@" train.steps=10 train.precision=bf16
best_model shards launch -n 2 -- run run.yaml "$@" train.steps=10 parallel=fsdp
best_model apart launch -n 2 -- run run.yaml "$@" train.steps=10 'parallel={data: {name: ddp, sync_every: 3}}'
saved="step-00000002 step-00000006"
best_model adapters run run.yaml "$@" train.steps=6 'lora={rank: 4}' train.precision=bf16
saved="step-00000002"
best_model only run run.yaml "$@" train.steps=10 checkpoint.every=0
saved="step-00000002 step-00000006"
best_model early run run.yaml "$@" train.steps=100 'eval={every: 2, early_stop: 2}'
run 0 run run.yaml "$@" train.steps=10 out=last
has out "exported   last/model: step 10 (the last)"
is "exported step" "$(exported last)" 10
is "checkpoints with a best one between two saves" "$(checkpoints last)" "step-00000002 step-00000008 step-00000010"
run 0 run run.yaml "$@" train.steps=10 out=neither checkpoint.export=none
is "exported step" "$(exported neither)" ""
[ ! -e neither/model ] || is "OUT/model without an export" there absent
# What was found before a resume counts after it, unless its checkpoint is somewhere else.
run 0 run run.yaml "$@" train.steps=6 out=parts checkpoint.export=none
run 0 run run.yaml "$@" train.steps=10 out=parts resume=auto checkpoint.export=best
cmp parts/model/model.safetensors whole-best/model/model.safetensors || is "the best model after a resume" other same
run 0 run run.yaml "$@" train.steps=10 out=elsewhere resume=whole-best/checkpoints/step-00000008 checkpoint.export=best
has err "the best step so far, 2, has no checkpoint in 'elsewhere'"
has out "exported   elsewhere/model: step 10 (the best, eval_loss "
# The two best ones are kept though the loss only rises after the first, and a best one that a script saved before it was
# evaluated.
run 0 run run.yaml "$@" train.steps=10 out=pair checkpoint.every=2 checkpoint.keep=1 checkpoint.keep_best=2
is "the two best checkpoints and the last" "$(checkpoints pair)" "step-00000002 step-00000004 step-00000010"
cat >saves.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "run.yaml")
run:on("step", function(e) if e.step % 2 == 0 then run:save() end end)
run:train()
LUA
run 0 run saves.lua "$@" train.steps=10 out=hook checkpoint.keep=1 checkpoint.export=best
has out "exported   hook/model: step 2 (the best, eval_loss "
is "the best checkpoint and the last" "$(checkpoints hook)" "step-00000002 step-00000010"
run 0 run saves.lua "$@" train.steps=10 out=hooks checkpoint.every=2 checkpoint.keep=1 checkpoint.keep_best=2
is "the two best checkpoints and the last of a script" "$(checkpoints hooks)" "step-00000002 step-00000004 step-00000010"
run 2 check run.yaml checkpoint.export=best
has err "checkpoint.export: best requires eval.every"
run 2 check run.yaml "$@" checkpoint.export=best checkpoint.keep_best=0
has err "checkpoint.export: best requires checkpoint.keep_best above 0"
set --

# An evaluation is of the data, not of its pieces: the same alone, packed, and by `nrl eval`.
number() { sed -n 's/.*"'"$1"'": *\([^,}]*\).*/\1/p' "$2"; }
eval_loss() { number eval_loss "$1/metrics.jsonl" | head -n 1; }
# close NAME FOUND EXPECTED: sums of the same numbers in another order
close() {
    awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(b > 0 && d < 1e-5 * b && d > -1e-5 * b) }' || is "$1" "$2" "close to $3"
}
run 0 run run.yaml data.eval=eval.jsonl eval.every=2 optimizer.lr=0 train.steps=2 data.packing=false train.micro_batch=1 out=alone
close "evaluated one by one" "$(eval_loss alone)" "$(eval_loss still)"
run 0 eval run.yaml data.eval=eval.jsonl --json
close "evaluated by nrl eval" "$(number eval_loss out)" "$(eval_loss still)"

# What a run has learned, as it said itself, to the bit: from its newest checkpoint, an earlier one, its model alone.
last_loss() { grep -o '"eval_loss": *[^,]*' "$1/metrics.jsonl" | tail -n 1; }
evaluates() {
    run 0 eval "$1" --json
    is "loss of nrl eval $1" "$(grep -o '"eval_loss": *[^,]*' out)" "$(last_loss "$2")"
    has out "\"weights\": \"$3"
}
learn() {
    name=$1
    shift
    run 0 run run.yaml data.eval=eval.jsonl eval.every=6 optimizer.lr=1e-2 checkpoint.every=3 out="$name" "$@"
    evaluates "$name" "$name" "$name/checkpoints/step-00000006, step 6"
}
learn learned
evaluates learned/checkpoints/step-00000006 learned "learned/checkpoints/step-00000006, step 6"
run 0 eval learned/checkpoints/step-00000003 --json
lacks out "$(last_loss learned)"
run 0 eval learned/config.yaml
has out "weights                  $source/tests/data/models/llama"
has err "warning: learned/config.yaml evaluates the initial weights of the run; \`nrl eval learned\` evaluates the trained ones"
run 0 eval learned
has out "weights                  learned/checkpoints/step-00000006, step 6"
learn small train.precision=bf16
learn adapted 'lora={rank: 2}' train.precision=bf16
awk '{ sub(/"input_ids"/, "\"prompt_input_ids\": [4], \"chosen_input_ids\""); sub(/"labels": [^]]*\]/, "\"rejected_input_ids\": [5, 6]"); print }' \
    train.jsonl >pairs.jsonl
head -n 3 pairs.jsonl >eval_pairs.jsonl
for with in train.seed=1 'lora={rank: 2}'; do
    learn "preferred-$with" algorithm=dpo data.train=pairs.jsonl data.eval=eval_pairs.jsonl data.max_length=64 "$with"
done
OMP_NUM_THREADS=1 run 0 launch -n 2 -- eval learned parallel=fsdp --json
close "evaluated by two ranks" "$(number eval_loss out)" "$(last_loss learned | sed 's/.*: *//')"
rm -r learned/checkpoints
evaluates learned learned learned/model
rm -r adapted/checkpoints
run 2 eval adapted
has err "evaluating adapted/model: it is an exported model, but this run trains adapters (lora)"
rm -r adapted/model
run 2 eval adapted
has err "cannot evaluate 'adapted': it contains neither a complete checkpoint nor an exported model"
run 2 eval "$source/tests/data/models/llama"
has err "expected a YAML file or the directory of a run with config.yaml"
has err "hint: nrl eval FILE.yaml 'model={path: "

# A script evaluates any file as if it were data.eval, which it stays.
head -n 3 train.jsonl >other.jsonl
cat >files.lua <<LUA
local nrl = require "nrl"
local function open(eval)
  local cfg = nrl.config "run.yaml"
  cfg.data.eval = eval
  return nrl.open(cfg, {out = "files", quiet = true})
end
local run = open "eval.jsonl"
local own, other = run:evaluate().loss, run:evaluate("other.jsonl").loss
assert(own ~= other and run:evaluate(nil).loss == own)
assert(run:evaluate("other.jsonl").eval_tokens ~= run:evaluate().eval_tokens)
local ok, why = pcall(run.evaluate, run, "none.jsonl")
assert(not ok and tostring(why):find("none.jsonl", 1, true), why)
assert(not pcall(run.evaluate, run, {}))
assert(run:evaluate().loss == own)
run:on("step", function(e) if e.step == 1 then run:evaluate "other.jsonl" end end)
run:train()
run:close()
os.execute "rm -r files"
run = open "other.jsonl"
assert(run:evaluate().loss == other)
run:close()
os.execute "rm -r files"
run = open(nil) -- no data.eval
assert(run:evaluate("other.jsonl").loss == other and not pcall(run.evaluate, run))
run:close()
print "all as expected"
LUA
run 0 run files.lua
has out "all as expected"
cat >cached.lua <<LUA
local cfg = require "nrl".config "run.yaml"
cfg.data.train, cfg.algorithm = "pairs.jsonl", {name = "dpo", reference = "cached"}
require "nrl".open(cfg, {out = "cached", quiet = true}):evaluate "eval_pairs.jsonl"
LUA
run 2 run cached.lua
has err "cannot evaluate 'eval_pairs.jsonl': algorithm.reference: cached supports only data.train and data.eval"

# 32 rows in steps of 5: the last one of an epoch has two, or is omitted.
samples() { sed -n 's/^train  *\([0-9]* steps\{0,1\} of [0-9]* samples\{0,1\} ([^)]*)\).*/\1/p' out; }
run 0 run run.yaml train.steps=0 train.epochs=2 train.global_batch=5 data.last_batch=keep checkpoint.every=0 out=keep
is "steps" "$(samples)" "14 steps of 5 samples (2 epochs of 7 steps)"
run 0 run run.yaml train.steps=0 train.epochs=2 train.global_batch=5 data.last_batch=drop checkpoint.every=0 out=drop
is "steps" "$(samples)" "12 steps of 5 samples (2 epochs of 6 steps)"
is "steps taken" "$(steps drop)" 12

# Half of one file and twice the other: 16 + 10 samples.
run 0 check run.yaml 'data.train=[{path: train.jsonl, weight: 0.5}, {path: eval.jsonl, weight: 2}]' train.steps=0 \
    train.epochs=1 train.global_batch=1
is "steps of two weighted files" "$(samples)" "26 steps of 1 sample (1 epoch of 26 steps)"
run 2 check run.yaml 'data.train=[{path: train.jsonl, weight: 0}]'
has err "weight: 0 is out of range"

# However many steps are prepared ahead, by however many threads: the same losses.
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
run 0 run run.yaml checkpoint.every=0 data.prefetch=0 out=none
for how in data.prefetch=7 data.workers=4; do
    run 0 run run.yaml checkpoint.every=0 $how out=$how
    is "losses with $how" "$(losses $how)" "$(losses none)"
done

# Two runs that start at once make one token cache.
for i in 1 2; do
    "$nrl" run run.yaml checkpoint.every=0 data.cache=shared out=side$i >out$i 2>&1 &
    eval "pid$i=$!"
done
wait "$pid1" && wait "$pid2" || is "runs side by side" failed good
is "losses of runs side by side" "$(losses side1; losses side2)" "$(losses none; losses none)"
is "files of the shared cache" "$(ls shared | wc -l)" 1

# Every name in a record has its line in docs/records.md, and the other way round, but for those of algorithms (###).
names() { sed 's/": /\n/g' "$@" | sed -n 's/.*"\([^"]*\)$/\1/p' | sort -u; }
run 0 run run.yaml train.precision=fp16 checkpoint.every=2 checkpoint.async=false out=half
OMP_NUM_THREADS=1 run 0 launch -n 2 -- run run.yaml checkpoint.every=0 out=two
names still/metrics.jsonl half/metrics.jsonl two/metrics.jsonl >written
sed -n '/^## Metrics/,/^## The plan/p' "$source/docs/records.md" | sed '/^### /,/^`/d' | sed -n 's/^| \(`[^|]*\) |.*/\1/p' | tr -d '`,' |
    tr ' ' '\n' | grep -v '^device_' | sort -u >documented
is "names in records and not documented, or the other way round" "$(diff written documented)" ""

# What an evaluation of sft says of the answers: the same on one rank and on several, by any axis.
printf '%s\n' '{"text": "What is two plus three? It is five."}' '{"text": "One and two and three."}' >texts.jsonl
run 0 run "$source/configs/sft.yaml" train.epochs=1 checkpoint.export=none data.eval=texts.jsonl eval.every=0 out=scored "$one_thread"
run 0 eval scored --json
truth "values of the answers" "math.abs(d.eval_perplexity / math.exp(d.eval_loss) - 1) < 1e-6 and
    d.eval_token_accuracy > 0 and d.eval_token_accuracy < 1 and d.eval_entropy > 0 and d.eval_bits_per_byte > 0 and
    d.eval_nll == nil and d.eval_bytes_per_token == nil"
sed 's/"eval_seconds".*//' out >one_rank
run 0 eval scored algorithm.loss=dft --json
truth "the perplexity of another loss" "d.eval_loss < 1 and d.eval_perplexity > 2"
for axis in tensor=2 pipeline=2 data=ddp; do
    run 0 launch -n 2 -- eval scored --json "parallel={${axis%=*}: ${axis#*=}}"
    sed 's/^\[0\] //' out >ranks && mv ranks out
    truth "values of the answers with $axis" "d.eval_token_accuracy > 0 and d.eval_bits_per_byte > 0"
    for key in eval_perplexity eval_entropy eval_bits_per_byte eval_token_accuracy; do
        close "$key with $axis" "$(number $key out)" "$(number $key one_rank)"
    done
done
run 0 eval "$source/configs/dpo.yaml" --json
truth "no such values of pairs" "d.eval_perplexity == nil and d.eval_loss > 0"

# Weights that are not finite: a NaN is printed without the sign that it happens to have, and no choice is the likeliest.
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=1 eval.every=0 out=finite
cp -r finite/model broken # its last tensor is the final norm
printf '\000\000\300\377' | dd of=broken/model.safetensors conv=notrunc bs=1 \
    seek=$(($(wc -c <broken/model.safetensors) - 4)) 2>dd
run 0 eval "$source/configs/sft.yaml" "$one_thread" model.config= model.path=broken
has out "eval_loss                nan nats"
lacks out "-nan"
has out "eval_token_accuracy      0"
echo "What is 2 plus 3?" >text.txt
run 0 eval broken --text text.txt
has out "loss                     nan nats"
lacks out "-nan"
echo '{"prompt": "a", "choices": ["b", "c"], "gold": 0}' >choices.jsonl
run 65 eval broken --task choices.jsonl
has err "choices.jsonl: question 1: the log-probability of choice 1 is nan; are the model's weights finite?"
run 65 sample broken --prompt a
has err "is not finite; are the model's weights finite?"
exit $failed
