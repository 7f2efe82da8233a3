#!/bin/sh
# mixes.sh [PROGRAM...]: groups of nrl and libgloo ranks (dialect tcp22, a folder as store): every rank checks what it
# gets, and sums that depend on their order have the bits that they have where all ranks are libgloo's.
set -u
programs=$NRL_TEST_BUILD/tests
list=$NRL_TEST_SOURCE/tests/interop/ops.list
if [ ! -x "$programs/gloo_rank" ]; then
    echo "skipped: built without libgloo (libgloo-dev)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
failed=0

# begin PROGRAM RANK WORLD: in the place of this shell
begin() {
    case $1 in
    nrl) set -- nrl_rank "$2" "$3" "$work/store" "$list" dialect=tcp22 peers=gloo address=127.0.0.1 ;;
    gloo) set -- gloo_rank "$2" "$3" "$work/store" "$list" ;;
    esac
    program=$1
    shift
    exec timeout 100 "$programs/$program" "$@"
}

# mix PROGRAM...: one a rank
mix() {
    world=$# rank=0 started=
    rm -rf "$work/store" "$work"/*.out
    mkdir "$work/store"
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
    head -n 5 "$work"/?.out
    failed=1
}

if [ $# -gt 0 ]; then
    mix "$@"
    exit $failed
fi
mix gloo gloo
mix nrl gloo
mix gloo nrl
mix gloo gloo gloo
mix nrl gloo gloo
mix gloo nrl nrl
mix nrl gloo nrl gloo
exit $failed
