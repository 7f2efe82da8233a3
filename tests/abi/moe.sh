#!/bin/sh
# moe.sh CMAKE CC: builds the installed example of a mixture of experts, with the library of operations, against the package
# alone, and runs its suite. Its logits, loss, router loss and gradient norm are those of transformers over three steps
# (tests/data/moe/make_moe.py), and recomputation, stages and several ranks change them as little as they should.
golden=moe example=qwen2_moe names="loss router_loss grad_norm"
. "$(dirname "$0")/transformers.sh"
run 0 run golden.yaml out=golden
near golden
run 0 run golden.yaml out=recomputed train.activation_checkpointing=all
values golden/metrics.jsonl >first.txt
values recomputed/metrics.jsonl | cmp - first.txt || is "values of recomputed layers" others "the same"
run 0 launch -n 2 -- run golden.yaml out=stages 'parallel={data: ddp, pipeline: 2}'
near stages

# The mean of products of means is computed for each micro-batch: with two of them the router loss is another, and each way
# to divide a step into the same two gives the same.
run 0 run golden.yaml out=two data.packing=false train.micro_batch=1
values two/metrics.jsonl >want.txt
run 0 launch -n 2 -- run golden.yaml out=ddp parallel=ddp
near ddp
run 0 launch -n 2 -- run golden.yaml out=fsdp parallel=fsdp
near fsdp
exit $failed
