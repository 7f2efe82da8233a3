#!/bin/sh
# ranks_memory.sh: one of two ranks cannot allocate the plan of its steps: both end with exit code 6, and the text names
# the rank that lacked memory.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
lacks=$NRL_TEST_BUILD/tests/e2e/lacks.so
if [ ! -e "$lacks" ]; then
    echo "skipped: this build has no library to preload"
    exit 77
fi

# 24 rows a hundred thousand times are 2.4 million examples an epoch, whose order takes 4 bytes each; nothing else in
# this run is as large.
rows 24 >train.jsonl
experiment "parallel: ddp" >config.yaml
for who in 0 1; do
    next_port
    for rank in 0 1; do
        set -- --
        [ $rank = $who ] && set -- LD_PRELOAD="$lacks" NRL_LACKS_FROM=9000000 NRL_LACKS_TO=10000000 --
        (hand $rank "$@" config.yaml "data.train={path: train.jsonl, weight: 100000}") >out$rank 2>err$rank &
        eval "pid$rank=$!"
    done
    finished "$pid0" 6 "rank 0 where rank $who lacks memory"
    finished "$pid1" 6 "rank 1 where rank $who lacks memory"
    has err$who "out of memory: cannot allocate 9600000 bytes for the plan of steps"
    has err$((1 - who)) "rank $who failed: out of memory"
    rm -rf result
done
exit $failed
