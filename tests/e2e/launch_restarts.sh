#!/bin/sh
# launch_restarts.sh: `nrl launch --max-restarts`: ranks that are killed at some moment start again, all of them, and the run
# ends with the numbers of a run that nothing interrupted; what another start cannot mend is not repeated.
. "$(dirname "$0")/e2e.sh"
export OMP_NUM_THREADS=1
rows 64 >train.jsonl
experiment 'parallel: ddp' | sed 's/steps: 6/steps: 40/; s/every: 2/every: 3/' >run.yaml
values() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2 \3/p' "$1/metrics.jsonl"; }
run 0 launch -n 2 -- run run.yaml out=whole -q
values whole >expected.txt
is "steps" "$(wc -l <expected.txt | tr -d ' ')" 40

# pid_of RANK: the process of $launcher with that number
pid_of() {
    for status in $(grep -ls "^PPid:[[:space:]]*$launcher\$" /proc/[0-9]*/status); do
        tr '\0' '\n' <"${status%/status}/environ" | grep -qx "NRL_RANK=$1" || continue
        basename "${status%/status}"
    done
}
# "restart N" is printed before the new ranks are there
alive() {
    pid=$(pid_of "$1")
    [ -n "$pid" ]
}
reached() { [ "$(wc -l <"$1/metrics.jsonl" 2>dd || echo 0)" -ge "$2" ]; }
# slow.lua takes its time, so that a kill hits a step
cat >slow.lua <<'LUA'
local nrl = require "nrl"
local run = nrl.open(nrl.config "run.yaml")
run:on("step", function() os.execute "sleep 0.03" end)
run:train()
LUA
# interrupted NAME FILE: killed twice, a rank each, at moments that differ from one test to the next
interrupted() {
    name=$1
    "$nrl" launch -n 2 --max-restarts 3 -- run "$2" out="$name" >out 2>err &
    launcher=$!
    for rank in 1 0; do
        await reached "$name" $((rank ? 2 + $$ % 9 : 15 + $$ % 11)) # at least one before the first checkpoint, by chance
        await alive $rank && kill -9 "$pid" 2>dd
        await grep -q "^restart $((2 - rank)) of at most 3" err
        # the rank that is killed next has recorded this restart
        [ "$name" = script ] || await grep -q "\"restart\": *$((2 - rank))," "$name/restarts.jsonl"
    done
    finished $launcher 0 "a launcher that started its ranks three times"
    values "$name" >found.txt
    cmp -s expected.txt found.txt || is "numbers of $name" "$(diff expected.txt found.txt | head -5)" "those of whole"
    has err "restart 2 of at most 3: all ranks continue from the newest checkpoint"
}
interrupted script slow.lua
sed 's/steps: 40/steps: 1000/' run.yaml >long.yaml
run 0 launch -n 2 -- run long.yaml out=whole_long -q
values whole_long >expected.txt
interrupted config long.yaml
is "restarts in the records" "$(sed -n 's/.*"restart": *\([0-9]*\).*"cause": *"\(rank [01]: signal 9\).*/\1 \2/p' config/restarts.jsonl | tr '\n' ';')" "1 rank 1: signal 9;2 rank 0: signal 9;"

# ---- a restart of `resume RUN@STEP` keeps what was saved since ----
cp -r whole_long earlier
step=$(ls earlier/checkpoints | sed -n 's/^step-0*//p' | sort -n | head -n 1)
"$nrl" launch -n 2 --max-restarts 1 -- resume earlier@"$step" train.steps=1400 >out 2>err &
launcher=$!
await reached earlier $((step + 60))
pid=$(pid_of 1)
[ -z "$pid" ] || kill -9 "$pid" 2>dd
finished $launcher 0 "a launcher of a resume"
is "restarts of a resume" "$(grep -c '^restart 1' err)" 1
is "starts at the given step" "$(grep -c "after step $step of 1,400" out)" 1
is "starts" "$(grep -c 'resume     after step .* of 1,400' out)" 2
has out "moved      "

# ---- no more than K; what is not repeated ----
cat >lost.lua <<'LUA'
if os.getenv "NRL_RANK" == "1" then
  io.stderr:write "error: lost again\nafter the error\n"
  os.execute("kill -9 " .. io.open "/proc/self/stat":read "n")
end
local nrl = require "nrl"
nrl.open(nrl.config "run.yaml", {out = "lost"}):train()
LUA
run 137 launch -n 2 --max-restarts 2 -- run lost.lua
is "restarts" "$(grep -c '^restart' err)" 2
is "the same error of each start" "$(grep -c '^.1. error: lost again' err)" 3
is "what follows it" "$(grep -c '^.1. after the error' err)" 3
run 2 launch -n 2 --max-restarts 2 -- run run.yaml out=wrong data.train=nothing.jsonl
lacks err "restart 1"
run 2 launch -n 2 --max-restarts 2 -- bench run.yaml
has err "does not train"
run 2 launch -n 2 --max-restarts 2 -- run run.yaml resume=whole
has err "expected resume=auto or none"
{ cat run.yaml; echo 'resume: whole'; } >begins.yaml
run 2 launch -n 2 --max-restarts 2 -- run begins.yaml out=begun
has err "--max-restarts: resume=whole; expected resume=auto or none"

# ---- two nodes ----
next_port
set -- --nodes 127.0.0.1:1,127.0.0.2:1 --max-restarts 2 --port "$port" -- run long.yaml out=nodes
"$nrl" launch --node-rank 0 "$@" >out.0 2>err.0 &
first=$!
"$nrl" launch --node-rank 1 "$@" >out.1 2>err.1 &
launcher=$!
await reached nodes 30
pid=$(pid_of 1)
[ -z "$pid" ] || kill -9 "$pid" 2>dd
finished $launcher 0 "the node that lost its rank"
finished $first 0 "the other node"
values nodes >found.txt
cmp -s expected.txt found.txt || is "numbers of two nodes" "$(diff expected.txt found.txt | head -5; cat err.0 err.1)" "those of whole"
has err.0 "restart 1 of at most 2"
exit $failed
