#!/bin/sh
# ranks_families.sh: 30 steps of four families of models have the losses of one rank to 1e-6 and its gradient norms to 1e-5
# with ddp, each kind of shards, hybrid shards, features divided, and stages by each schedule; with `reproducible` the bits.
# sequence.sh, context.sh, context_ring.sh and expert_ranks.sh show the same for the axes that divide tokens and experts.
# NRL_TEST_FAMILIES: directories of tests/data/models, for all of them and more ranks.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
rows 64 >train.jsonl
rows 16 >eval.jsonl
set -- train.steps=30 data.eval=eval.jsonl checkpoint.every=0 checkpoint.export=none optimizer.clip_norm=0.5

for model in ${NRL_TEST_FAMILIES:-llama qwen3 gemma3_text gpt2}; do
    experiment "eval: {every: 15}" | sed "s|models/llama|models/$model|" >config.yaml
    # the keys' biases of gpt2 have no gradient but noise, which a small epsilon makes steps of
    [ $model = gpt2 ] && echo "optimizer: {name: adamw, lr: 1e-3, eps: 1e-3}" >optimizer.txt &&
        sed -i -e '/^optimizer:/{r optimizer.txt' -e 'd}' config.yaml
    alone $model "$@"
    ranks 2 $model-ddp $exact parallel=ddp "$@"
    ranks 2 $model-full $exact 'parallel={data: {name: fsdp, units: {every: 2}}}' "$@"
    ranks 2 $model-optimizer $exact 'parallel={data: {name: fsdp, shard: optimizer}}' "$@"
    ranks 2 $model-grads $exact 'parallel={data: {name: fsdp, shard: grads}}' "$@"
    ranks 4 $model-hybrid $exact 'parallel={data: {name: fsdp, shard_size: 2}}' "$@"
    ranks 2 $model-tensor $exact parallel.tensor=2 "$@"
    ranks 2 $model-1f1b $exact parallel.pipeline=2 "$@"
    ranks 2 $model-gpipe $exact 'parallel={pipeline: {size: 2, schedule: gpipe}}' "$@"
    ranks 2 $model-interleaved $exact 'parallel={pipeline: {size: 2, schedule: interleaved, stages_per_rank: 2}}' "$@"
    ranks 2 $model-zero $exact 'parallel={pipeline: {size: 2, schedule: zero_bubble}}' "$@"
    alone $model-one "$@" 'parallel={data: {name: ddp, reproducible: 4}}'
    ranks 2 $model-same 0 'parallel={data: {name: fsdp, reproducible: 4}}' "$@"
    [ -n "${NRL_TEST_FAMILIES:-}" ] || continue
    ranks 4 $model-same4 0 'parallel={data: {name: ddp, reproducible: 4}}' "$@"
    alone $model "$@"
    ranks 4 $model-all $exact 'parallel={data: fsdp, tensor: {size: 2, sequence: true}}' "$@"
    ranks 4 $model-stages $exact 'parallel={pipeline: {size: 2, schedule: zero_bubble, stages_per_rank: 2}, tensor: 2}' "$@"
    ranks 4 $model-ulysses $exact 'parallel={context: 2, data: fsdp}' "$@"
    ranks 3 $model-ring $exact 'parallel={context: {size: 3, kind: ring}}' "$@"
done
exit $failed
