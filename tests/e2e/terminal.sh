#!/bin/sh
# terminal.sh: colours are for terminals, and not for users who set NO_COLOR to anything; and what rows, files and
# templates say is shown there, never obeyed.
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

# ---- of others ----
quiet() { is "control characters of $1" "$(grep -c "$escape" "$2")" 0; }
printf '{"que\\u001b[31mstion": 1}\n' >keys.jsonl
run 65 check run.yaml out=other data.train=keys.jsonl
has err 'que\x1b[31mstion'
quiet "a key" err
run 2 check run.yaml out=other data.template="$escape[2Jx"
has err 'x1b[2Jx'
quiet "an argument" err
cp train.jsonl "train$escape[31m.jsonl"
sed '1s/{/{"odd\\u001b[5mkey": 1, /' train.jsonl >"odd$escape[7m.jsonl"
run 0 check run.yaml out="o$escape[7mther" data.train="odd$escape[7m.jsonl"
has err 'odd\x1b[5mkey'
has out "run 'o\\x1b[7mther'"
quiet "a warning" err
quiet "a file's name" out
printf '%s\n' 'io.write("a\27[2Jb\n")' >speak.lua
OMP_NUM_THREADS=1 script -qec "'$nrl' launch -n 2 -- run speak.lua" typescript >dd 2>&1
has typescript '[0] a\x1b[2Jb'
OMP_NUM_THREADS=1 run 0 launch -n 2 -- run speak.lua
has out "[0] a$escape[2Jb"
mkdir "st$escape[31mart" && cp -r "$source"/tests/data/models/llama/. "st$escape[31mart"
script -qec "'$nrl' eval run.yaml data.eval=train.jsonl model.path='st$escape[31mart'" typescript >dd 2>&1
has typescript 'weights                  st\x1b[31mart'
exit $failed
