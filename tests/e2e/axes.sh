#!/bin/sh
# axes.sh: a mesh of several axes. The strategy on the axis tensor divides nothing (plugins/copies.c), so ranks with
# the same data coordinate take the same batches and count once, and 2 x 2 ranks have the numbers of one rank.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 64 >train.jsonl
rows 24 >eval.jsonl
experiment >config.yaml
cat >>config.yaml <<YAML
plugins: $NRL_TEST_BUILD/tests/plugins
loggers: [console, jsonl]
YAML
set -- train.steps=8 data.eval=eval.jsonl eval.every=4
copies='tensor: {name: copies, size: 2}'

run 0 run config.yaml out=alone "$@"
numbers alone/metrics.jsonl >expected.txt
# what is said of ddp where the config says nothing of the axis data
run 0 launch -n 2 -- run config.yaml out=said "$@"
has out "[0] parallel   ddp, the default for 2 ranks"
run 0 launch -n 4 -- run config.yaml out=said overwrite=true "parallel={$copies}" "$@"
has out "[0] parallel   ddp, the default for the axis data, size 2 (4 ranks in all)"
is "records" "$(wc -l <expected.txt | tr -d ' ')" 10
ranks 2 tensor $exact "parallel={$copies}" "$@"
ranks 4 tensor-ddp $exact "parallel={$copies}" debug=true "$@"
ranks 4 tensor-fsdp $exact "parallel={data: fsdp, $copies}" "$@"
ranks 4 lifted $exact parallel=fsdp parallel.tensor.name=copies parallel.tensor.size=2 "$@"

# what the axes say of themselves, and the resolved config read again
run 0 check config.yaml out=planned "parallel={data: {name: fsdp, size: 3}, $copies}"
has out "6 ranks, not joined"
has out "parallel   copies: the same on all"
has out "full shard over 3 ranks"
run 0 launch -n 4 -- run config.yaml out=whole "parallel={data: fsdp, $copies}" "$@"
numbers whole/metrics.jsonl >expected.txt
cp -r whole parts
rm -rf parts/checkpoints/step-0000000[68]
run 0 launch -n 4 -- resume parts
compare parts 0

# sizes that do not fit, axes without a strategy, strategies of another axis
run 2 launch -n 3 -- run config.yaml out=bad "parallel={$copies}"
has err "command line: parallel: tensor 2 requires a multiple of 2 ranks, but there are 3"
has err "hint: nrl launch -n 2 -- run FILE"
run 2 launch -n 2 -- run config.yaml out=bad "parallel={data: 2, $copies}"
has err "parallel: data 2 x tensor 2 requires 4 ranks, but there are 2"
run 2 launch -n 4 -- run config.yaml out=bad "parallel={data: none, $copies}"
has err "parallel: none, but there are 2 ranks"
run 2 run config.yaml out=bad 'parallel={tensor: {name: ddp, size: 2}}'
has err "parallel.tensor: 'ddp' is a strategy of the axis 'data', expected a strategy of the axis tensor"
run 2 run config.yaml out=bad 'parallel=copies'
has err "parallel: 'copies' is a strategy of the axis 'tensor', expected a strategy of the axis data"
run 2 launch -n 4 -- run config.yaml out=bad "parallel={data: {name: ddp, sync_every: 2}, $copies}"
has err "cannot be combined with axes other than data: 2 of 4 ranks are on this axis"

# a collective of devices beside a backend of the host: told before anything is started
run 2 check config.yaml out=bad collective=nccl
has err "collective: 'nccl' requires a backend with streams, but backend '$backend' computes on the host: expected gloo"
run 2 launch -n 2 -- run config.yaml out=bad collective=nccl
has err "collective: 'nccl' requires a backend with streams"
exit $failed
