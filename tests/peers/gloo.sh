#!/bin/sh
# gloo.sh PYTHON: groups of nrl and torch.distributed ranks (gloo, dialect tcp23), where either side serves the store.
# Every rank checks its results, and sums that depend on their order are bit-identical everywhere.
set -u
python=$1
interop=$NRL_TEST_SOURCE/tests/interop
. "$interop/mix.sh"
export GLOO_SOCKET_IFNAME=lo

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

# The first of a group holds the store.
prepare() { rm -f "$work/port"; }

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

mix torch torch
mix torch nrl
mix nrl torch
mix nrl torch torch
mix torch nrl nrl
exit $failed
