#!/bin/sh
# launch_elastic.sh: `nrl launch --nodes MIN:MAX`: a run goes on with fewer machines after one is lost, and with more when one
# has come; with `reproducible` the numbers are those of one rank that nothing interrupted.
. "$(dirname "$0")/e2e.sh"
export OMP_NUM_THREADS=1
rows 64 >train.jsonl
experiment 'parallel: {data: {name: fsdp, reproducible: 4}}' | sed 's/steps: 6/steps: 3000/; s/every: 2/every: 50/' >run.yaml
losses() { values "$1" loss; }
run 0 run run.yaml out=whole -q
losses whole >expected.txt
is "steps" "$(wc -l <expected.txt | tr -d ' ')" 3000

next_port
meeting=$port
next_port # that of the ranks
node() {
    exec "$nrl" launch --nodes 1:2 -n 2 --address 127.0.0.1 --port "$meeting" --join-wait 15 --max-restarts 5 -- run run.yaml out=elastic \
        >"out.$1" 2>"err.$1"
}
reached() { [ "$(wc -l <elastic/metrics.jsonl 2>dd || echo 0)" -ge "$1" ]; }
(node 0) &
first=$!
await grep -q "^waiting for the launchers of 1 to 2 machines" err.0
(node 1) &
second=$!
await grep -q "^start 0: node 1 of 2, ranks 2 to 3 of 4" err.1
await reached 200
kill -9 $second # and with it its ranks
wait $second 2>dd
await grep -q "^start 1: node 0 of 1, ranks 0 to 1 of 2" err.0
at=$(wc -l <elastic/metrics.jsonl)
await reached $((at + 100))
(node 2) & # comes while the run goes on with one machine
third=$!
await grep -q "^waiting at 127.0.0.1:$meeting for the next start" err.2
for status in $(grep -ls "^PPid:[[:space:]]*$first\$" /proc/[0-9]*/status); do
    tr '\0' '\n' <"${status%/status}/environ" | grep -qx NRL_RANK=1 || continue
    pid=${status%/status}
    kill -9 "${pid#/proc/}"
done
await grep -q "^start 2: node 1 of 2, ranks 2 to 3 of 4" err.2
(node 3) & # has come too late
fourth=$!
for pid in $first $third $fourth; do finished $pid 0 "a launcher of an elastic run"; done
has err.3 "the run of the launchers at 127.0.0.1:$meeting has ended"
losses elastic >found.txt
cmp -s expected.txt found.txt || is "losses" "$(diff expected.txt found.txt | head -4; tail -n 3 err.*)" "those of one rank"
is "restarts in the records" "$(grep -c '"cause"' elastic/restarts.jsonl)" 2
has err.0 "restart 2 of at most 5"

# ---- mistakes ----
run 2 launch --nodes 2:1 -n 1 --address 127.0.0.1 -- run run.yaml
has err "--nodes: got '1'; expected a number from 2 to"
run 2 launch --nodes 1:2 -n 1 -- run run.yaml
has err "--nodes 1:2: expected -n N (ranks of this machine), --address HOST"
run 2 launch -n 1 --join-wait 3 -- run run.yaml
has err "--join-wait: expected only with --nodes MIN:MAX"
"$nrl" launch --nodes 2:4 -n 1 --address 127.0.0.1 --port "$meeting" -- run run.yaml out=alone >out 2>err &
alone=$!
await grep -q "^waiting for the launchers of 2 to 4 machines" err
kill $alone
finished $alone 75 "a launcher that waits and is told to end"
exit $failed
