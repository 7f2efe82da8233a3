#!/bin/sh
# metrics.sh: plugins of every kind report metrics under names of their own, over all ranks. A name that two plugins
# have, and an optimizer that takes the rows of the algorithm, are errors.
. "$(dirname "$0")/e2e.sh"
NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/plugins
export NRL_PLUGIN_PATH
rows 12 >train.jsonl
experiment >config.yaml

# value STEP NAME: from the records of the run
value() {
    sed -n "s|^{\"step\": *$1,.*\"$2\": *\([^,}]*\).*|\1|p" result/metrics.jsonl
}

run 0 run config.yaml 'optimizer={name: meter, lr: 1e-3}' 'loggers=[meter, jsonl]' checkpoint.every=0 train.steps=3
slices=$(value 1 slices) # reported after the backward, in the record of its own step
is "slices in step 2" "$(value 2 slices)" "$slices"
is "slices in step 3" "$(value 3 slices)" "$slices"
is "records that the logger reports" "$(value 3 logged)" 1
[ "${slices:-0}" -gt 0 ] || is "slices" "$slices" "some"
[ -n "$(value 3 master_square_sum)" ] || is "the sum of squares" none some
one=$(value 3 master_square_sum)

# Every rank of the axis updates every parameter, and rank 0 alone has loggers.
run 0 launch -n 2 -- run config.yaml 'optimizer={name: meter, lr: 1e-3}' 'loggers=[meter, jsonl]' checkpoint.every=0 \
    train.steps=3 parallel=ddp overwrite=true
is "slices of two ranks" "$(value 3 slices)" $((2 * slices))
is "records of rank 0" "$(value 3 logged)" 1
run 0 launch -n 2 -- run config.yaml 'optimizer={name: meter, lr: 1e-3}' 'loggers=[meter, jsonl]' checkpoint.every=0 \
    train.steps=3 parallel=fsdp overwrite=true
awk -v a="$one" -v b="$(value 3 master_square_sum)" 'BEGIN { exit !(a - b < 1e-4 * a && b - a < 1e-4 * a) }' ||
    is "the sum of squares over shards" "$(value 3 master_square_sum)" "$one"

run 1 run config.yaml 'optimizer={name: meter, lr: 1e-3, confused: true}' checkpoint.every=0 overwrite=true
has err "nrl_metric_add is called outside a loss; expected nrl_metric_report"
run 1 run config.yaml 'optimizer={name: meter, lr: 1e-3}' 'loggers=[jsonl, meter_twin]' checkpoint.every=0 overwrite=true
has err "logger 'meter_twin': metric 'slices' is declared twice, also by another plugin of this run"
exit $failed
