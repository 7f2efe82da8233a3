#!/bin/sh
# verbs.sh: the help of the command line, and the exit codes of usage errors.
. "$(dirname "$0")/e2e.sh"

# columns FILE, lines FILE: of its widest line; how many
columns() { awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }' "$1"; }
lines() { wc -l <"$1" | tr -d ' '; }

run 2
has err "nrl run"
for help in help --help -h; do
    run 0 $help
    [ "$(lines out)" -le 24 ] || is "lines of the help page" "$(lines out)" "at most 24"
    [ "$(columns out)" -le 80 ] || is "columns of the help page" "$(columns out)" "at most 80"
done
for verb in $(sed -n 's/^  nrl \([a-z]*\) .*/\1/p' out); do
    run 0 "$verb" --help
    has out "example: nrl $verb"
    [ "$(columns out)" -le 80 ] || is "columns of the help of $verb" "$(columns out)" "at most 80"
    cp out first
    run 0 help "$verb"
    cmp -s out first || is "help of $verb" other "the same both ways"
done

run 2 descrbe
has err "error: unknown verb 'descrbe'; did you mean 'describe'?"
run 2 plugins --josn
has err "unknown flag '--josn'"
run 2 version now
has err "too many arguments"
run 2 describe nonsense
has err "there is no section, plugin or option 'nonsense'"
run 2 describe adamww
has err "did you mean 'adamw'?"

run 0 version
has out "nrl 0."
cp out version
for flag in --version -V; do
    run 0 $flag
    cmp -s out version || is "output of $flag" "$(cat out)" "$(cat version)"
done
run 0 version --json
has out '"abi": 3'
run 0 env
has out "plugin_folders"
run 0 env --json
has out '"cores":'

run 0 describe
for section in config model data train optimizer schedules/cosine checkpoint eval optimizers/adamw; do
    has out "$section - "
done
run 0 describe parallel
has out "ranks that share each layer"
has out "ranks that share the tokens of each micro-batch"
has out "ranks that share the experts"
lacks out "e+0"
has out "parallel/ddp - "
has out "parallel/fsdp - "
run 0 describe algorithm.reference
has out "[online|cached|none]"
for option in lr optimizer.lr; do
    run 0 describe $option
    is "lines about $option" "$(lines out)" 4
    has out "peak learning rate"
done
for model in llama mistral; do
    run 0 describe $model
    has out "  model_type: llama, mistral, "
done
run 0 describe cpu
has out "effect of train.deterministic: false: nothing"
run 0 describe train.deterministic
has out "equal configs give bit-identical results"
run 0 describe adamw
has out "weight_decay"
lacks out "global_batch"
run 0 describe optimizers/adamw --json
has out '"name": "eps"'
for option in lr optimizer.lr lora.base; do
    run 0 describe $option --json
    truth "the option $option as JSON" "#d.options == 1 and d.options[1].name == '${option##*.}'"
done
run 0 describe per_device_train_batch_size --json
has out '"name": "per_device_train_batch_size"'
run 0 plugins
has out "sft "
lacks out broken
run 0 plugins --json
has out '"kind": "algorithms"'
# help wherever it is asked for, and warnings also of a quiet run
run 0 run "$source/configs/sft.yaml" --help
has out "nrl run - "
run 0 tokenizer train --help
has out "nrl tokenizer - "
run 0 check "$source/configs/sft.yaml" -q optimizer.lr=0 out=quiet
has err "warning: optimizer.lr is 0"
is "standard output of a quiet check" "$(cat out)" ""
exit $failed
