#!/bin/sh
# neox.sh CMAKE CC: builds the installed example of a GPT-NeoX against the package alone. Its logits, and the loss and
# gradient norm of three steps, are those of transformers (tests/data/neox/make_neox.py), on several ranks too.
golden=neox example=gpt_neox names="loss grad_norm"
. "$(dirname "$0")/transformers.sh"
run 0 run golden.yaml out=golden
near golden
for strategy in ddp fsdp '{pipeline: 2}'; do
    run 0 launch -n 2 -- run golden.yaml out=ranks overwrite=true data.packing=false train.micro_batch=1 "parallel=$strategy"
    near ranks
done
exit $failed
