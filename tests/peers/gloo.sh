#!/bin/sh
# gloo.sh PYTHON: groups of nrl and torch.distributed ranks (gloo, dialect tcp23), where either side holds the
# store: every rank checks what it gets, and sums that depend on their order have the same bits everywhere.
set -u
python=$1
interop=$NRL_TEST_SOURCE/tests/interop
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
failed=0

# torch has bf16, averages and reduce_scatter, and no all_gather of uneven shares
{
    grep -v '^all_gatherv' "$interop/ops.list"
    for reduce in sum max min product; do echo "all_reduce bf16 $reduce 101 0"; done
    echo "rough bf16 sum 30011 0"
    echo "reduce_scatter f32 sum 1 0"
    echo "reduce_scatter f32 sum 1003 0"
    echo "reduce_scatter bf16 max 77 0"
    echo "barrier - - 0 0"
} >"$work/list"

# begin PROGRAM RANK WORLD: in the place of this shell
begin() {
    store=serve:$work/port
    [ "$2" = 0 ] || store=file:$work/port
    if [ "$1" = nrl ]; then
        set -- "$NRL_TEST_BUILD/tests/nrl_rank" "$2" "$3" "$store" "$work/list" peers=gloo address=127.0.0.1
    else
        set -- "$python" "$interop/torch_rank.py" "$2" "$3" "$store" "$work/list"
    fi
    exec timeout 200 "$@"
}

# mix PROGRAM...: one a rank; the first holds the store
mix() {
    world=$# rank=0 started=
    rm -f "$work/port" "$work"/*.out
    for program; do
        begin "$program" $rank $world >"$work/$rank.out" 2>&1 &
        started="$started $!"
        rank=$((rank + 1))
    done
    good=1
    for pid in $started; do
        wait "$pid" || good=0
    done
    for rank in $(seq 0 $((world - 1))); do
        grep '^bits' "$work/$rank.out" >"$work/bits"
        [ -f "$work/bits.$world" ] || cp "$work/bits" "$work/bits.$world"
        cmp -s "$work/bits" "$work/bits.$world" || { echo "rank $rank: other bits"; good=0; }
    done
    [ $good = 1 ] && echo "$*: good" && return
    echo "$*: failed"
    tail -n 6 "$work"/?.out
    failed=1
}

mix torch torch
mix torch nrl
mix nrl torch
mix nrl torch torch
mix torch nrl nrl
exit $failed
