#!/bin/sh
# bad_input_config.sh: hostile configs are refused quickly, and an error about an unknown name lists the known ones.
# config_mistakes.sh tests mistakes in known keys.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
experiment >run.yaml

# refused FILE WORDS...
refused() {
    file=$1
    shift
    run 2 check "$file"
    for words in "$@"; do has err "$words"; done
    [ "$(wc -c <err)" -lt 10000 ] || is "bytes of the error for $file" "$(wc -c <err)" "less than 10000"
}

awk 'BEGIN { print "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"
    for (i = 1; i < 12; i++) {
        printf "a%d: &a%d [", i, i
        for (k = 0; k < 10; k++) printf "%s*a%d", k ? ", " : "", i - 1
        print "]"
    } }' >bomb.yaml
refused bomb.yaml "bomb.yaml:" "alias"
{ printf 'name: '; head -c 100000000 /dev/zero | tr '\0' x; echo; } >large.yaml
refused large.yaml "large.yaml"
rm large.yaml
{ printf 'name: '; awk 'BEGIN { while (i++ < 100000) printf "[" }'; echo; } >deep.yaml
refused deep.yaml "deep.yaml:1:" "deep"
printf 'name: a\nname: b\n' >twice.yaml
refused twice.yaml "twice.yaml:2:1" "name"
printf 'name: a\000b\n' >nul.yaml
refused nul.yaml "nul.yaml:1:"
printf 'name: "\377\376"\n' >latin1.yaml
refused latin1.yaml "latin1.yaml:1:"
printf 'a: &a [*a]\n' >circle.yaml
refused circle.yaml "circle.yaml:1:"
: >empty.yaml
refused empty.yaml "model"
echo '- a' >list.yaml
refused list.yaml "list.yaml"
refused train.jsonl "train.jsonl"
awk 'BEGIN { srand(7); for (i = 0; i < 100000; i++) printf "%c", 1 + int(255 * rand()) }' >random.yaml
refused random.yaml "random.yaml"
printf 'defaults: a.yaml\n' >b.yaml
printf 'defaults: b.yaml\n' >a.yaml
refused a.yaml "a.yaml"

# names of parts
run 2 check run.yaml algorithm=stf
has err "no algorithm 'stf'"
has err "did you mean 'sft'?"
run 2 check run.yaml optimizer.name=adamv
has err "no optimizer 'adamv'"
has err "did you mean 'adamw'?"
run 2 check run.yaml backend=tpu
has err "no backend 'tpu'"
run 2 check run.yaml loggers=[jsonl,comet]
has err "no logger 'comet'"
run 2 check run.yaml 'loggers=[{name: jsonl, file: a/b}]'
has err "'a/b' is not a plain file name"
run 2 check run.yaml data.template=chatlm
has err "chatlm"
run 2 check run.yaml algorithm=../sft
has err "../sft"

# a plugin that is no shared object is told with its reason
mkdir -p own/optimizers && echo text >own/optimizers/mine.so
run 2 check run.yaml optimizer.name=mine plugins=own
has err "own/optimizers/mine.so"

# all in one go
run 2 check run.yaml optimizer.name=adamv train.stepz=5 eval.every=x loggers=consol
has err "4 mistakes in the config"

# a value, and a section, of the wrong type
run 2 check run.yaml 'checkpoint.metric=[1]'
has err "checkpoint.metric: expected text, found a list"
run 2 check run.yaml 'checkpoint=[1]'
has err "checkpoint: expected a map of options, found a list"
exit $failed
