#!/bin/sh
# ranks_stopped.sh: rank 0 is stopped (as by a debugger, or a machine that hangs) while a checkpoint is written: rank
# 1, which waits for it, ends and names it.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# rank_pid NUMBER: of the launcher's children
rank_pid() {
    for pid in $(cat /proc/$launcher/task/*/children); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "NRL_RANK=$1" && echo "$pid"
    done
}

is_saving() {
    set -- result/checkpoints/step-*.tmp
    [ -e "$1" ]
}

rows 24 >train.jsonl
experiment "parallel: ddp" >config.yaml
"$nrl" launch -n 2 --grace 1 -- run config.yaml train.steps=1000000 checkpoint.every=1 loggers=jsonl >out 2>err &
launcher=$!
await is_saving
stopped=$(rank_pid 0)
kill -STOP "$stopped"
finished $launcher 4 "a launcher whose rank 0 was stopped"
has err "was lost: no heartbeat for 5 s"
await gone "$stopped"
exit $failed
