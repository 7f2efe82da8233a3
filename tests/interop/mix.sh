# mix.sh - sourced by scripts that run groups of ranks of several programs: mixes.sh here, gloo.sh in tests/peers. The
# caller defines begin PROGRAM RANK WORLD, which becomes that rank within bounded time, and prepare, which creates the
# store.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
failed=0

# mix PROGRAM...: one a rank; all must succeed and print the same bits as the first group of that size
mix() {
    world=$# rank=0 started=
    rm -f "$work"/*.out
    prepare
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
