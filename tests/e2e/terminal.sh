#!/bin/sh
# terminal.sh: colors are only used on terminals, and not if NO_COLOR is set; control characters in rows, files and
# templates are shown, never executed.
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

# ---- the progress bar ----
# What a terminal of so many columns shows: each line as it stands when the next one begins. A bar must be erased before.
cat >shows.lua <<'LUA'
local text, columns = io.open("typescript"):read "a", tonumber(arg[1])
local line, at = {}, 1
for c in text:gsub("\27%[%d*m", ""):gsub("^Script started.-\n", ""):gsub("\27%[K", "\0"):gmatch "." do
  if c == "\r" then at = 1
  elseif c == "\0" then for i = at, #line do line[i] = nil end
  elseif c == "\n" then print(table.concat(line)) line, at = {}, 1
  else
    if at > columns then print(table.concat(line) .. "~") line, at = {}, 1 end
    line[at] = c
    at = at + 1
  end
end
LUA
cp train.jsonl eval.jsonl
golden infinite # one weight of the final norm is infinite: every step is omitted, with a warning
at=$(($(wc -c <infinite/model.safetensors) - 4))
printf '\000\000\200\177' | dd of=infinite/model.safetensors conv=notrunc bs=1 seek=$at 2>dd
for columns in 80 40; do
    script -qec "stty cols $columns; '$nrl' run run.yaml overwrite=true train.steps=12 checkpoint.every=3 \
        data.eval=eval.jsonl eval.every=1 model.path=infinite train.nan=skip train.nan_limit=99" typescript >dd 2>&1
    is "exit code with a bar, $columns columns" $? 3
    "$nrl" run shows.lua $columns >shown.txt || is "what $columns columns show" $? 0
    is "bars that were drawn, $columns columns" "$(grep -q '%  step' typescript && echo some)" some
    is "lines with a bar, $columns columns" "$(grep -c '%  step\|\[[#-]*\]' shown.txt)" 0
    is "lines of steps that wrap, $columns columns" "$(grep -c '^ *step.*~$' shown.txt)" 0
    for line in 'saved result/checkpoints/step-00000006' 'warning: step 9 skipped' 'step  7/12  eval_loss'; do
        is "lines with $line, $columns columns" "$(grep -c "^ *$line" shown.txt)" 1
    done
done

# Lines of the plan and warnings break at spaces: only a word that is longer than the terminal goes on in its last column.
for columns in 80 60; do
    script -qec "stty cols $columns; '$nrl' run run.yaml overwrite=true" typescript >dd 2>&1
    is "exit code, $columns columns" $? 0
    "$nrl" run shows.lua $columns >shown.txt || is "what $columns columns show" $? 0
    is "lines of the plan that wrap, $columns columns" "$(grep -v '/\|^Script' shown.txt | grep -c '~$')" 0
    is "memory in the plan, $columns columns" "$(grep -c '^memory ' shown.txt)" 1
done
is "a line of the plan that goes on" "$(grep -A1 '^memory ' shown.txt | grep -c '^           [^ ]')" 1

# Of reinforcement learning, a line of 80 columns has the reward.
cp -r "$source"/configs/models . && echo 'return function(s) return 0.25 end' >reward.lua
script -qec "stty cols 80; '$nrl' run '$source/configs/sft.yaml' data.train='$source/configs/data/chat.jsonl' data.eval= eval.every=0 \
    train.epochs=0 train.steps=2 train.global_batch=2 checkpoint.every=0 checkpoint.export=none loggers=console out=rl \
    'algorithm={name: grpo, reward: reward.lua, max_tokens: 4, group_size: 2}'" typescript >dd 2>&1
is "exit code of grpo on a terminal" $? 0
"$nrl" run shows.lua 80 >shown.txt || is "what 80 columns show of grpo" $? 0
is "lines with the reward" "$(grep -c '^step [12]/2 .*  reward 0.2500 .*  eta ' shown.txt)" 2

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
