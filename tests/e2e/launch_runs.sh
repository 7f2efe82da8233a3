#!/bin/sh
# launch_runs.sh: training under `nrl launch`: which rank prints, the effects of a lost rank, a signal and a failure
# before the ranks have joined, and two nodes. Other tests check the numbers.
. "$(dirname "$0")/e2e.sh"
export OMP_NUM_THREADS=1
rows 32 >train.jsonl
experiment 'parallel: ddp' >run.yaml
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# begin FOLDER ARGUMENT...: a run of two ranks that would take long, until it has taken some steps;
# $launcher and $ranks are its processes
begin() {
    folder=$1
    shift
    "$nrl" launch -n 2 "$@" -- run run.yaml train.steps=100000 checkpoint.every=0 checkpoint.export=none \
        out="$folder" >out 2>err &
    launcher=$!
    await test -s "$folder/metrics.jsonl"
    ranks="$(pid_of 0) $(pid_of 1)"
}
# pid_of RANK: the process of $launcher with that number
pid_of() {
    for status in $(grep -ls "^PPid:[[:space:]]*$launcher\$" /proc/[0-9]*/status); do
        tr '\0' '\n' <"${status%/status}/environ" | grep -qx "NRL_RANK=$1" || continue
        basename "${status%/status}"
    done
}
# launched EXPECTED-CODE NAME: the launcher of begin ends so, and so do its ranks
launched() {
    finished $launcher "$1" "a launcher after $2"
    for pid in $ranks; do await gone "$pid" || kill -9 "$pid"; done
}

# ---- rank 0 speaks ----
run 0 launch -n 2 -- run run.yaml out=two
has out "[0] ranks      2 ranks on 1 node (nrl launch)"
has out "[0] step 6/6"
is "lines of rank 1" "$(grep -c '^\[1\]' out)" 0
is "records of 6 steps and the export" "$(wc -l <two/metrics.jsonl | tr -d ' ')" 7
run 0 launch -n 1 -- run run.yaml parallel=auto out=one
has out "step 6/6"
lacks out "[0]"

# ---- two nodes, one machine ----
next_port
set -- --nodes 127.0.0.1:1,127.0.0.2:1 --port "$port" -- run run.yaml out=nodes
"$nrl" launch --node-rank 1 "$@" >out.1 2>err.1 &
second=$!
run 0 launch --node-rank 0 "$@"
wait $second
is "exit code of the second node" $? 0
has out "[0] ranks      2 ranks on 2 nodes (nrl launch)"
losses two >a
losses nodes >b
cmp -s a b || is "losses of two nodes" "$(tr '\n' ' ' <b)" "$(tr '\n' ' ' <a)"

# nodes of different size: the first one's says nothing about the number of nodes
next_port
set -- --nodes 127.0.0.1:1,127.0.0.2:2 --port "$port" -- run run.yaml out=uneven
"$nrl" launch --node-rank 1 "$@" >out.1 2>err.1 &
second=$!
run 0 launch --node-rank 0 "$@"
wait $second
is "exit code of the second, larger node" $? 0
has out "[0] ranks      3 ranks on 2 nodes (nrl launch)"

# ---- a rank is lost ----
begin lost
kill -9 "${ranks% *}"
launched 137 "the kill of rank 0"
has err ": rank 0 failed: signal 9 (Killed)" # says rank 1
has err "error: rank 0 failed with signal 9 (Killed)"
cat >early.lua <<'LUA'
if os.getenv "NRL_RANK" == "1" then error "not today" end
local nrl = require "nrl"
nrl.open(nrl.config "run.yaml", {out = "early"}):train()
LUA
run 2 launch -n 2 -- run early.lua
has err "[1] error: early.lua:1: not today"
has err ": rank 1 failed: exit code 2: early.lua:1: not today" # says rank 0
lacks out "[0] step"
next_port
set -- --nodes 127.0.0.1:1,127.0.0.2:1 --port "$port" -- run early.lua
"$nrl" launch --node-rank 0 "$@" >out 2>err &
first=$!
await eval 'grep -qs ":$(printf %04X $port) .* 0A " /proc/net/tcp /proc/net/tcp6' # it listens
"$nrl" launch --node-rank 1 "$@" >out.1 2>err.1
is "exit code of the node whose rank fails" $? 2
finished $first 4 "the node with the store"
has err ": rank 1 failed: exit code 2: early.lua:1: not today"

# ---- few descriptors: what lacks one is named, and nobody waits in vain for a connection ----
for n in 15 16 17 18 19 20; do
    (ulimit -n $n && timeout 400 "$nrl" launch -n 2 -- run run.yaml out=few launch.timeout_init=60 overwrite=true >out 2>err)
    code=$?
    [ $code -ne 124 ] || is "exit code with $n descriptors" 124 another
    [ $code -eq 0 ] || has err "Too many open files"
    lacks err "did not connect within"
done

# ---- signals ----
begin by_term
kill -TERM $launcher
launched 75 TERM
has err "state saved in by_term/checkpoints/step-"
begin by_int
kill -INT $launcher
launched 130 INT
has err "state saved in by_int/checkpoints/step-"
steps=$(grep -c '"loss"' by_term/metrics.jsonl)
run 0 launch -n 2 -- resume by_term train.steps=$((steps + 2))
is "steps after a resume" "$(grep -c '"loss"' by_term/metrics.jsonl)" $((steps + 2))

# ---- which config the ranks read ----
mkdir a@b
run 0 launch -n 2 -- run -q run.yaml out=a@b/run train.steps=2
run 0 launch -n 2 -- resume a@b/run train.steps=4
run 0 launch -n 2 -- resume -q a@b/run train.steps=6
run 0 launch -n 2 -- resume a@b/run@6 train.steps=8 train.micro_batch_tokens=auto
has err "auto       train.micro_batch_tokens="
is "steps of resumes" "$(losses a@b/run | wc -l | tr -d " ")" 8
run 0 launch -- run -q run.yaml out=listed train.steps=1 'launch.nodes=[{address: 127.0.0.1, slots: 2}]'
next_port
for rank in 0 1; do # one that waits for the other: rank 1 has no store even
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$nrl" run run.yaml out=alone.$rank >out 2>err &
    launcher=$!
    await grep -q '^SigCgt:.*[4-7c-f]...$' /proc/$launcher/status # it catches TERM
    kill -TERM $launcher
    ranks=$launcher
    launched 75 "TERM while joining"
    has err "received signal 15 before"
done
begin by_kill
kill -9 $launcher
launched 137 "the kill of the launcher"
exit $failed
