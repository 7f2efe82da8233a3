#!/bin/sh
# terminal.sh: colours are for terminals, and not for users who set NO_COLOR to anything.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
experiment 'train: {steps: 2, global_batch: 4}' | grep -v 'steps: 6' >run.yaml
escape=$(printf '\033')

# colours: how many changes of colour a run shows on a terminal of its own
colours() {
    script -qec "'$nrl' run run.yaml overwrite=true" typescript >dd 2>&1 || is "exit code on a terminal" $? 0
    grep -o "$escape\[[0-9;]*m" typescript | wc -l
}

shown=$(colours)
[ "$shown" -gt 0 ] || is "colours on a terminal" "$shown" "some"
NO_COLOR=1
export NO_COLOR
is "colours with NO_COLOR" "$(colours)" 0
grep -q "step *2/2" typescript || is "the line of the last step" missing there
NO_COLOR=
is "colours with an empty NO_COLOR" "$(colours)" "$shown"
unset NO_COLOR
run 0 run run.yaml overwrite=true
is "colours in a file" "$(grep -c "$escape" out)" 0
exit $failed
