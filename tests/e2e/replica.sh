#!/bin/sh
# replica.sh: an axis from outside the tree (examples/replica, built against an installed copy) combined with those of
# the tree. A copy is a replica of hybrid sharding, so equal divisions give bit-identical runs.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 64 >train.jsonl
rows 24 >eval.jsonl
cmake --install "$NRL_TEST_BUILD" --prefix "$work/nrl" >log 2>&1 || { cat log; exit 1; }
cp -r "$source/examples/replica" example
cmake -S example -B built -DCMAKE_PREFIX_PATH="$work/nrl" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >log 2>&1 &&
    cmake --build built >>log 2>&1 || { cat log; exit 1; }
nrl=$work/nrl/bin/nrl
unset LD_LIBRARY_PATH NRL_PLUGIN_PATH
run 0 plugins test built/plugins/parallel/replica.so

experiment >config.yaml
set -- train.steps=8 data.eval=eval.jsonl eval.every=4
here="plugins=[$work/built/plugins]"
run 0 run config.yaml out=alone "$@"
numbers alone/metrics.jsonl >expected.txt
is "records" "$(wc -l <expected.txt | tr -d ' ')" 10

# the same numbers as one rank, to the order of sums
ranks 2 replica $exact "parallel={replica: 2}" "$here" "$@"
ranks 4 replica-ddp $exact "parallel={replica: 2}" "$here" debug=true "$@"
ranks 4 replica-fsdp $exact "parallel={data: fsdp, replica: 2}" "$here" debug=true "$@"
ranks 4 replica-tensor $exact parallel.tensor=2 parallel.replica=2 "$here" debug=true "$@"
ranks 4 replica-pipeline $exact "parallel={pipeline: 2, replica: 2}" "$here" "$@"
ranks 8 all $exact "parallel={replica: 2, data: fsdp, tensor: 2}" "$here" "$@"

# same NAME OTHER: metrics of two runs are equal to the bit
same() {
    numbers "$1/metrics.jsonl" >one.txt
    numbers "$2/metrics.jsonl" >two.txt
    cmp one.txt two.txt || failed=1
}
# two copies and two ranks that sum: the same additions
run 0 launch -n 2 -- run config.yaml out=two-ddp parallel=ddp "$@"
run 0 launch -n 2 -- run config.yaml out=two-replica "parallel={replica: 2}" "$here" "$@"
same two-ddp two-replica
# hybrid sharding, by one strategy and by two
for n in 4 8; do
    tensor=$([ $n = 8 ] && echo ', tensor: 2')
    run 0 launch -n $n -- run config.yaml out=hybrid-$n "parallel={data: {name: fsdp, replicas: 2}$tensor}" "$@"
    run 0 launch -n $n -- run config.yaml out=composed-$n "parallel={data: fsdp, replica: 2$tensor}" "$here" "$@"
    same hybrid-$n composed-$n
done

# a checkpoint of that mesh goes on from its config alone
numbers composed-4/metrics.jsonl >expected.txt
rm -rf composed-4/checkpoints/step-0000000[68]
run 0 launch -n 4 -- resume composed-4
compare composed-4 0

# what is said of it
run 0 check config.yaml out=planned "parallel={data: {name: fsdp, size: 2}, replica: 2}" "$here"
has out "4 ranks, not joined"
has out "replica: 2 copies, gradients summed once per step"
run 2 launch -n 3 -- run config.yaml out=bad "parallel={replica: 2}" "$here"
has err "parallel: replica 2 requires a multiple of 2 ranks, but there are 3"
run 2 run config.yaml out=bad "parallel={replica: 2}"
has err "parallel.replica: not an axis (pipeline, data, experts, context, tensor); expected {AXIS: STRATEGY}, or for an option {name: STRATEGY"
run 2 run config.yaml out=bad "parallel={replica: 2, tensor: 2}"
has err "parallel.replica: unknown key; expected one of: pipeline, data, experts, context, tensor"
run 0 run config.yaml out=by-path "parallel={replica: 1}" "$here" "$@"
NRL_PLUGIN_PATH=$work/built/plugins run 0 launch -n 2 -- run config.yaml out=by-variable "parallel={replica: 2}" "$@"
NRL_PLUGIN_PATH=$work/built/plugins run 0 describe parallel
has out "replica"
exit $failed
