#!/bin/sh
# torchrun.sh PYTHON: nrl under the torchrun of that Python: ranks from its variables, the store of its agent, and the
# losses of `nrl launch`.
torchrun=$(dirname "$1")/torchrun
. "$NRL_TEST_SOURCE/tests/e2e/e2e.sh"
[ -x "$torchrun" ] || {
    echo "skipped: no $torchrun"
    exit 77
}
unset MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=1
rows 32 >train.jsonl
experiment 'parallel: ddp' >run.yaml
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

"$torchrun" --no-python --nproc-per-node 2 "$nrl" env --json >out 2>err
is "exit code of env" $? 0
is "ranks" "$(grep -c '"launcher": "torchrun"' out)" 2
is "stores of the agent" "$(grep -c '"store_holder": "launcher"' out)" 2

"$torchrun" --no-python --nproc-per-node 2 "$nrl" run run.yaml out=by_torchrun >out 2>err
code=$?
is "exit code of a run" $code 0
[ $code -eq 0 ] || tail -n 20 out err
has out "2 ranks on 1 node (torchrun)"
run 0 launch -n 2 -- run run.yaml out=by_launch
losses by_torchrun >a
losses by_launch >b
is "steps" "$(wc -l <a | tr -d ' ')" 6
cmp -s a b || is "losses" "$(tr '\n' ' ' <a)" "$(tr '\n' ' ' <b)"

# Without an agent's store: rank 0 holds it, as when the variables are set by hand.
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "$torchrun" --no-python --nproc-per-node 2 \
    "$nrl" run run.yaml out=by_rank_0 >out 2>err
is "exit code without the agent's store" $? 0
losses by_rank_0 >a
cmp -s a b || is "losses without the agent's store" "$(tr '\n' ' ' <a)" "$(tr '\n' ' ' <b)"
exit $failed
