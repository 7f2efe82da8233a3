#!/bin/sh
# relaxed_ranks.sh: with train.deterministic: false the emulated GPU times its products where each rank computes for
# itself alone, and not where ranks must come to the same bits: they compute the same values, or update the same matrices.
. "$(dirname "$0")/e2e.sh"
[ -e "$NRL_TEST_BUILD/tests/emulated/backends/cuda.so" ] || { echo "skipped: no emulated cuda backend"; exit 77; }
NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/emulated:$NRL_PLUGIN_PATH
export NRL_PLUGIN_PATH

rows 4 >train.jsonl
experiment >run.yaml
set -- train.steps=1 train.global_batch=2 train.micro_batch_tokens=64 checkpoint.every=0 overwrite=true \
    train.deterministic=false 'backend={name: cuda, product_cache: kept, device: 0}' debug.every=1 collective=gloo
relaxed="deterministic: false: results may differ between runs: f32 products split along their depth"
timed() { # timed WHAT COUNT
    is "files of timed products with $1" "$(find kept -type f 2>/dev/null | wc -l)" "$2"
    rm -rf kept
}

run 0 launch -n 2 -- run run.yaml "$@" parallel=ddp
has out "$relaxed"
timed ddp 1
run 0 launch -n 2 -- run run.yaml "$@" parallel.tensor=2
has out "ranks of the axis tensor must compute some values identically"
timed tensor 0
run 0 launch -n 2 -- run run.yaml "$@" parallel=ddp optimizer.name=muon
has out "ranks must compute the updates of optimizer 'muon' identically"
timed muon 0
run 0 launch -n 2 -- run run.yaml "$@" 'parallel={data: {name: ddp, reproducible: 2}}'
has out "the shards of a batch are reproducible"
timed reproducible 0
exit $failed
