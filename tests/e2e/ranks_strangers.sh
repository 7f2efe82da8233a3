#!/bin/sh
# ranks_strangers.sh: processes of other jobs that connect to the store of a run: ranks of a second job on the same
# port, with and without an id, and a second launcher. They end, and the run continues.
. "$(dirname "$0")/e2e.sh"
export OMP_NUM_THREADS=1
rows 32 >train.jsonl
experiment 'parallel: ddp' >run.yaml

# last_time FOLDER: of its last whole record, in Unix seconds
last_time() { sed -n 's/.*"time": *\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
# decided FOLDER SECOND PID: the run has taken steps after that second, or has ended
decided() { [ "$(last_time "$1")" -gt "$2" ] || gone "$3"; }
# goes_on FOLDER PID...: the run there takes steps for three more beats, and stops as it is asked to
goes_on() {
    folder=$1
    shift
    await decided "$folder" $(($(date +%s) + 3)) "$1"
    kill -TERM "$@"
    for pid in "$@"; do finished "$pid" 75 "a run that strangers met"; done
}
long="train.steps=100000 checkpoint.every=0 checkpoint.export=none launch.timeout_init=20"

# ---- two jobs on one port: without an id the number is taken, with ids the store is another job's ----
for ids in no own; do
    next_port
    one= two=
    [ $ids = no ] || one=TORCHELASTIC_RUN_ID=one two=TORCHELASTIC_RUN_ID=two
    # shellcheck disable=SC2086
    { hand 0 $one -- run.yaml $long out=first.$ids >out0 2>err0 & } && first=$!
    # shellcheck disable=SC2086
    { hand 1 $one -- run.yaml $long out=first.$ids >out1 2>err1 & } && second=$!
    await test -s first.$ids/metrics.jsonl
    # shellcheck disable=SC2086
    (hand 1 $two -- run.yaml $long train.seed=7 out=late >out 2>err)
    is "exit code of rank 1 of a second job, $ids ids" $? 2
    if [ $ids = no ]; then has err "rank 1 already exists: process $second on "
    else has err "belongs to job 'one', but this rank belongs to job 'two'"; fi
    # shellcheck disable=SC2086
    (hand 0 $two -- run.yaml $long out=late >out 2>err)
    is "exit code of rank 0 of a second job, $ids ids" $? 2
    has err "port $port is in use on this machine"
    goes_on first.$ids $first $second
    is "what the first job says of it, $ids ids" "$(cat err0 err1 | grep -v 'saved\|^hint')" ""
done

# ---- a second launcher of node 1 ----
next_port
begin_node() { exec "$nrl" launch --nodes 127.0.0.1:1,127.0.0.2:1 --port "$port" --node-rank "$1" -- run run.yaml $long "$2"; }
begin_node 0 out=nodes >out0 2>err0 &
first=$!
begin_node 1 out=nodes >out1 2>err1 &
second=$!
await test -s nodes/metrics.jsonl
(begin_node 1 out=late >out 2>err)
is "exit code of a second launcher of node 1" $? 2
has err "rank 1 already exists"
goes_on nodes $first $second
exit $failed
