#!/bin/sh
# evaluations.sh: what follows from an evaluation: early stop, the best checkpoint kept, the metric by name; and
# what of the data a step sees: weights of files, the short batch at the end, steps prepared ahead.
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
has out "stopping after step 8: no better evaluation (eval.early_stop)"
is "steps until the early stop" "$(steps still)" 8
is "evaluations" "$(evaluations still)" 4
is "the newest checkpoint and the best" "$(checkpoints still)" "step-00000002 step-00000008"
[ -s still/model/model.safetensors ] || is "weights of a run that stopped early" missing there

# The count goes on where a run is resumed.
run 0 run run.yaml data.eval=eval.jsonl 'eval={every: 2, early_stop: 3}' optimizer.lr=0 train.steps=6 out=cut
is "steps before the resume" "$(steps cut)" 6
run 0 resume cut train.steps=100
has out "stopping after step 8"

# While it gets better it goes on, and the best is the newest.
run 0 run run.yaml data.eval=train.jsonl "$with_eval" train.steps=12 checkpoint.keep=1 out=better
is "steps of a run that gets better" "$(steps better)" 12
is "checkpoints of a run that gets better" "$(checkpoints better)" "step-00000012"
run 2 run run.yaml data.eval=eval.jsonl "$with_eval" checkpoint.metric=eval_accuracy out=unknown
has err "checkpoint.metric: 'eval_accuracy' is no value of an evaluation"
run 2 check run.yaml eval.early_stop=3
has err "eval.early_stop needs eval.every"
run 2 check run.yaml eval.every=3
has err "eval.every needs data.eval"

# An evaluation is of the data, not of its pieces: the same alone, packed, and by `nrl eval`.
eval_loss() { sed -n 's/.*"eval_loss": *\([0-9.]\{6\}\).*/\1/p' "$1/metrics.jsonl" | head -n 1; }
run 0 run run.yaml data.eval=eval.jsonl eval.every=2 optimizer.lr=0 train.steps=2 data.packing=false train.micro_batch=1 out=alone
is "evaluated one by one" "$(eval_loss alone)" "$(eval_loss still)"
run 0 eval run.yaml data.eval=eval.jsonl --json
has out "\"eval_loss\": $(eval_loss still)"

# 32 rows in steps of 5: the last one of an epoch has two, or is left out.
samples() { sed -n 's/^train  *\([0-9]* steps of [0-9]* samples ([^)]*)\).*/\1/p' out; }
run 0 run run.yaml train.steps=0 train.epochs=2 train.global_batch=5 data.last_batch=keep checkpoint.every=0 out=keep
is "steps" "$(samples)" "14 steps of 5 samples (2 epochs of 7 steps)"
run 0 run run.yaml train.steps=0 train.epochs=2 train.global_batch=5 data.last_batch=drop checkpoint.every=0 out=drop
is "steps" "$(samples)" "12 steps of 5 samples (2 epochs of 6 steps)"
is "steps taken" "$(steps drop)" 12

# Half of one file and twice the other: 16 + 10 samples.
run 0 check run.yaml 'data.train=[{path: train.jsonl, weight: 0.5}, {path: eval.jsonl, weight: 2}]' train.steps=0 \
    train.epochs=1 train.global_batch=1
is "steps of two weighted files" "$(samples)" "26 steps of 1 samples (1 epoch of 26 steps)"
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

# Every name in a record has its line in core/README.md, and the other way round.
names() { sed 's/": /\n/g' "$@" | sed -n 's/.*"\([^"]*\)$/\1/p' | sort -u; }
run 0 run run.yaml train.precision=fp16 checkpoint.every=2 checkpoint.async=false out=half
OMP_NUM_THREADS=1 run 0 launch -n 2 -- run run.yaml checkpoint.every=0 out=two
names still/metrics.jsonl half/metrics.jsonl two/metrics.jsonl >written
sed -n '/^## Records/,/^## [^R]/p' "$source/core/README.md" | sed -n 's/^| \(`[^|]*\) |.*/\1/p' | tr -d '`,' |
    tr ' ' '\n' | sort -u >documented
is "names in records and not documented, or the other way round" "$(diff written documented)" ""
exit $failed
