#!/bin/sh
# out_lost.sh: an output directory, a log or standard descriptors that disappear during a run: nothing is written to
# other places, missing records are counted, and files are created again if possible.
. "$(dirname "$0")/e2e.sh"

rows 32 >train.jsonl
experiment >run.yaml

# between LUA: script.lua, a run that does LUA after each step
between() {
    cat >script.lua <<LUA
local nrl = require "nrl"
local c = nrl.config "run.yaml"
local out = arg[1]
local r = nrl.open(c, {out = out})
r:on("step", function(e) $1 end)
r:train()
LUA
}
steps() { sed -n 's/^{"step": \([0-9]*\),.*"grad_norm".*/\1/p' "$1" | tr "\n" " "; }

# ---- a log that is removed, and one that cannot be written for a while ----
between 'if e.step == 3 then os.remove(out .. "/metrics.jsonl") end'
run 0 run script.lua removed
has err "warning: removed/metrics.jsonl was removed or replaced during the run; 3 records are lost"
is "steps after a log was removed" "$(steps removed/metrics.jsonl)" "4 5 6 "

between 'local log = out .. "/metrics.jsonl"
  if e.step == 2 then os.rename(log, out .. "/aside"); os.execute("mkdir " .. log) end
  if e.step == 5 then os.remove(log) end'
run 0 run script.lua while
is "steps before" "$(steps while/aside)" "1 2 "
is "steps after" "$(steps while/metrics.jsonl)" "6 "
has err "warning: logger 'jsonl' failed; the next record is tried again: while/metrics.jsonl: Is a directory"
has err "warning: logger 'jsonl' works again; 3 records are missing"
has err "warning: 3 records of this run are missing in logger 'jsonl'"
is "times it is told" "$(grep -c "failed; the next record is tried" err)" 1

between 'if e.step == 3 then os.execute("rm -r " .. out .. "/tensorboard") end'
run 0 run script.lua boards 'loggers=[tensorboard]'
has err "was removed or replaced during the run; 3 records are lost"
is "event files" "$(ls boards/tensorboard | wc -l)" 1

run 0 run run.yaml out=boards overwrite=true 'loggers=[jsonl]'
has err "warning: 'boards/tensorboard' of an earlier run was not removed"

# ---- a log that is not the run's to write ----
mkdir own && echo mine >own/metrics.jsonl
run 2 run run.yaml out=own
has err "logger 'jsonl': out: cannot write 'own/metrics.jsonl': it already exists and was not written by a run"
is "a user's file" "$(cat own/metrics.jsonl)" mine
run 0 run run.yaml out=read
cp train.jsonl read/rows.jsonl
run 2 run run.yaml out=read overwrite=true data.train=read/rows.jsonl 'loggers=[{name: jsonl, file: rows.jsonl}]'
has err "cannot replace 'read/rows.jsonl': it is read as data.train"
run 2 run run.yaml out=read overwrite=true 'loggers=[{name: jsonl, file: rows.jsonl}]'
has err "cannot write 'read/rows.jsonl': it already exists and was not written by a run"
is "records of the run that stays" "$(steps read/metrics.jsonl)" "1 2 3 4 5 6 "
cmp -s train.jsonl read/rows.jsonl || is "the rows that a log would have replaced" other "as they were"

for name in config.yaml checkpoints model cache .nrl-run; do
    run 2 run run.yaml out=named "loggers=[{name: jsonl, file: $name}]"
    has err "out: '$name' is a file of the run itself"
    [ -e "named/metrics.jsonl" ] && is "a log" there absent
done
run 2 report removed -o removed/metrics.jsonl
has err "cannot replace 'removed/metrics.jsonl': it is read as a run"

# ---- the folder is gone, or another run has its name ----
between 'if e.step == 3 then os.rename(out, out .. ".moved") end'
run 1 run script.lua gone checkpoint.async=false
has err "out: 'gone' was removed during the run"
[ -e gone ] && is "a folder that was moved away" "made again" "left alone"
is "checkpoints in the moved one" "$(ls gone.moved/checkpoints)" step-00000002
run 0 run script.lua gone2 checkpoint.every=0 checkpoint.export=none
has err "warning: 3 records of this run are missing in logger 'jsonl'"

between "if e.step == 3 then
    os.rename(out, out .. '.moved')
    os.execute(\"'$nrl' run run.yaml out=\" .. out .. ' >second.out 2>&1; cp -r ' .. out .. ' second; mkdir ' .. out .. '/checkpoints/step-00000004.tmp')
  end"
for how in checkpoint.on_error=stop checkpoint.on_error=warn; do
    rm -rf taken taken.moved second
    run 1 run script.lua taken checkpoint.async=false $how
    has err "out: 'taken' was replaced by another directory during the run"
    rmdir taken/checkpoints/step-00000004.tmp || is "a save of the second run" gone "left alone"
    diff -r taken second >differences || is "what the second run wrote" changed "as it was"
done

# on two ranks, each of which learns it
(await test -s two/metrics.jsonl && mv two two.moved && mkdir two) &
watch=$!
run 1 launch -n 2 -- run run.yaml out=two train.steps=100000 checkpoint.export=none
has err "out: 'two' was "
has err " during the run"
wait $watch
is "files in the new folder" "$(ls -A two)" ""

# how many records of steps; whether there is anything but records
whole() {
    grep -qv '^{"step": [^{}]*}$' quiet/metrics.jsonl && echo "broken: $(cat quiet/metrics.jsonl)" && return
    echo "$(grep -c '"grad_norm"' quiet/metrics.jsonl), all whole"
}

# ---- closed descriptors: a file that a run opens never gets the number of one ----
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
    rm -rf quiet
    eval "\"\$nrl\" run run.yaml out=quiet $closed" >out 2>err
    is "records of a run with $closed" "$(whole)" "6, all whole"
    lacks quiet/config.yaml "step 1/6"
    rm -rf quiet
    eval "\"\$nrl\" launch -n 2 -- run run.yaml out=quiet $closed" >out 2>err
    is "records of two ranks with $closed" "$(whole)" "6, all whole"
    run 0 checkpoint verify quiet
done
exit $failed
