#!/bin/sh
# ranks_debug.sh: `debug: true` prints the ranks and what each one gets, and finds a single bit that differs on one
# rank: the optimizer of this test flips it after update 5, in the first parameter of layer 1.
. "$(dirname "$0")/e2e.sh"
rows 64 >train.jsonl
experiment "plugins: $NRL_TEST_BUILD/tests/plugins" | sed 's/checkpoint: .*/checkpoint: {every: 0}/' >c.yaml

# debugged CODE RANKS ARGUMENT...
debugged() {
    expected=$1 n=$2
    shift 2
    OMP_NUM_THREADS=1 "$nrl" launch -n "$n" -- run c.yaml "$@" >out 2>err
    is "exit code of $*" $? "$expected"
}
debugged 0 2 out=sound 'debug={every: 3}'
has out "debug      rank 1 of 2: "
has out "debug      step 3 rank 0: "
has out "debug      step 6 rank 1: "
lacks out "debug      step 4 "

debugged 1 2 out=copies parallel=ddp optimizer.name=flip 'debug={every: 1}'
has err "the weight of 'model.layers.1."
has err "differs between rank 0 and rank 1"
# two copies of the model, each in two shards: rank 3 holds what rank 1 does
debugged 1 4 out=shards 'parallel={name: fsdp, shard_size: 2}' optimizer.name=flip 'debug={every: 1}'
has err "the weight of 'model.layers.1."
has err "differs between rank 1 and rank 3"
# what nobody looks for is not found
debugged 0 2 out=unseen parallel=ddp optimizer.name=flip
exit $failed
