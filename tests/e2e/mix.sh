#!/bin/sh
# mix.sh: several entries share an epoch by their sizes (data.mix), several sets of evaluation data have values of their
# own, long rows are split, and `out` may not lie in a directory of data; resumes and ranks take the same steps.
. "$(dirname "$0")/e2e.sh"

config=$source/configs/sft.yaml
train() {
    run 0 run "$config" eval.every=3 train.epochs=0 train.steps=6 schedule=constant checkpoint.every=3 "$one_thread" "$@"
}
losses() { grep -o '"[a-z_]*loss": *[0-9.e+-]*' "$1/metrics.jsonl"; }
texts() { # texts FROM TO
    i=$1
    while [ $i -lt $2 ]; do
        printf '{"text": "This is story number %d."}\n' $i
        i=$((i + 1))
    done
}
texts 0 80 >big.jsonl
texts 100 120 >small.jsonl
texts 200 216 >other.jsonl

set -- 'data.train=[big.jsonl, small.jsonl]' 'data.mix={power: 0.5, even: true}' train.global_batch=6
run 0 check "$config" "$@" data.eval= eval.every=0
has out "big.jsonl: 80 samples, 67 per epoch, 4.02 per step"
has out "small.jsonl: 20 samples, 33 per epoch, 1.98 per step"
run 2 check "$config" 'data.train=[big.jsonl, {path: small.jsonl, weight: 0.02}]' data.eval= eval.every=0
has err "weight 0.02 of small.jsonl takes none of its 20 samples, expected at least 0.025"
run 2 check "$config" data.mix=0.5 data.eval= eval.every=0
has err "data.mix"
run 2 check "$config" 'data.mix={powr: 0.5}' data.eval= eval.every=0
has err "did you mean 'power'"

set -- "$@" 'data.eval={held: 0.1, other: other.jsonl}' checkpoint.metric=eval_other_loss
train "$@" out=whole
for name in eval_loss eval_held_loss eval_other_loss eval_other_tokens; do
    has whole/metrics.jsonl "\"$name\""
done
has out "held"
train "$@" out=cut train.steps=3
run 0 resume cut train.steps=6
is "the losses of a resumed run" "$(losses cut)" "$(losses whole)"
run 2 resume cut train.steps=9 'data.mix={power: 1, even: true}'
has err "data.mix"
run 0 launch -n 2 -- run "$config" eval.every=3 train.epochs=0 train.steps=6 schedule=constant "$one_thread" "$@" out=ranks
for name in ranks whole; do losses $name | sed 's/.*: *//' >$name.txt; done
near ranks.txt whole.txt "$(wc -l <whole.txt)" 1e-5
# a set has the loss that it has alone
run 0 eval whole 'data.eval={other: other.jsonl}' --json
grep -o '"eval_other_loss": *[0-9.]*' out >alone
run 0 eval whole data.eval=other.jsonl checkpoint.metric=eval_loss --json
is "the loss of a set" "$(sed 's/_other//' alone)" "$(grep -o '"eval_loss": *[0-9.]*' out)"
run 2 run "$config" "$@" checkpoint.metric=eval_others_loss out=unknown
has err "expected one of: eval_loss, eval_held_loss, eval_other_loss"
run 2 check "$config" 'data.eval={a.b: other.jsonl}'
has err "'a.b': the name of a set can contain letters"
run 2 check "$config" 'data.eval={a: 0.1, b: 0.2}'
has err "only one set can be held out"

# long rows
i=0
while [ $i -lt 8 ]; do
    printf '{"text": "%s"}\n' "$(seq -s ' ' $i 90)"
    i=$((i + 1))
done >long.jsonl
run 65 check "$config" data.train=long.jsonl data.eval= eval.every=0
run 0 check "$config" data.train=long.jsonl data.eval= eval.every=0 data.overlong=split
has out "8 rows split into samples of data.max_length"
run 0 check "$config" 'data.train=[{path: long.jsonl, overlong: split}]' data.eval= eval.every=0
has out "8 rows split into samples of data.max_length"
run 0 check "$config" 'data.train=[{path: long.jsonl, overlong: drop, limit: 7}, {path: long.jsonl, overlong: truncate}]' data.eval= eval.every=0 \
    data.overlong=error
run 65 check "$config" 'data.train=[{path: long.jsonl, overlong: error}]' data.eval= eval.every=0 data.overlong=split
run 2 check "$config" 'data.train=[{path: long.jsonl, overlong: cut}]' data.eval= eval.every=0
has err "data.train.overlong: 'cut' is not one of: error, drop, truncate, split"
run 2 check "$source/configs/dpo.yaml" 'data.train={path: '"$source"'/configs/data/pref.jsonl, overlong: split}'
has err "overlong: split is not supported by this algorithm"
run 2 check "$source/configs/dpo.yaml" data.overlong=split
has err "data.overlong: split is not supported by this algorithm"

# the standard input as data: kept in the cache, so that the run can be resumed; refused where it cannot be
set -- train.epochs=0 data.eval= eval.every=0 loggers=jsonl checkpoint.export=none schedule=constant
run 0 run "$config" data.train=big.jsonl train.steps=4 out=by_file "$@"
run 0 run "$config" data.train=- data.cache=kept train.steps=2 out=by_input "$@" <big.jsonl
has err "of standard input as kept/stdin-"
cmp kept/stdin-*.jsonl big.jsonl || is "the rows that were kept" others "those of the input"
run 0 resume by_input train.steps=4
is "losses of rows of the standard input" "$(sed -n 's/.*"step": 4,.*"loss": \([^,]*\),.*/\1/p' by_input/metrics.jsonl)" \
    "$(sed -n 's/.*"step": 4,.*"loss": \([^,]*\),.*/\1/p' by_file/metrics.jsonl)"
run 0 check "$config" 'data.train={path: "-"}' data.cache=kept train.steps=2 "$@" <big.jsonl
mkdir beside && printf 'defaults: %s\ndata: {cache: own}\n' "$(realpath "$config")" >beside/c.yaml
run 0 check beside/c.yaml data.train=- train.steps=2 out=nothing "$@" <big.jsonl
has err "of standard input as beside/own/stdin-"
run 65 run "$config" data.train=- data.cache=kept out=nothing "$@" </dev/null
has err "data.train: standard input is empty"
run 2 launch -n 2 -- run "$config" data.train=- out=two "$@" <big.jsonl
has err "data.train: several ranks cannot share standard input"
run 2 resume by_input data.train=- <big.jsonl
has err "data.train: a resumed run does not read standard input"
run 2 check "$config" 'data.train=[-, big.jsonl]' train.steps=2 "$@" </dev/null
has err "as the only source of data.train"

# the files of a run would be data of the next one
mkdir rows && cp big.jsonl rows
run 2 run "$config" data.train=rows data.eval= eval.every=0 out=rows/run
has err "is inside 'rows', which data.train reads as a whole"
[ ! -e rows/run/config.yaml ] || is "rows/run" "written" "untouched"
run 0 check "$config" 'data.train=rows/*.jsonl' data.eval= eval.every=0 out=rows/run
# weights are shares of an epoch whatever the power
for power in 0 0.5 1; do
    run 0 check "$config" 'data.train=[big.jsonl, {path: small.jsonl, weight: 2}]' "data.mix={power: $power}" data.eval= eval.every=0
    is "samples of an epoch with power $power" "$(sed -n 's/.*samples, \([0-9]*\) per epoch.*/\1/p' out | awk '{ n += $1 } END { print n }')" 120
done
# the cache of a run is no data of the next
mkdir texts && cp big.jsonl texts
run 2 check "$config" data.train=texts data.cache=texts/cache data.eval= eval.every=0
has err "data.cache: '"
has err "which data.train reads as a whole"
exit $failed
