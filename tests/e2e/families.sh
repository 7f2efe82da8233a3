#!/bin/sh
# families.sh: complete runs of models whose files or layers differ from Llama's: one matrix for queries, keys and
# values (phi3); more norms, weights around 0, two kinds of layers (gemma3_text).
. "$(dirname "$0")/e2e.sh"

rows 24 >train.jsonl
for family in phi3 gemma3_text; do
    experiment | sed "s#models/llama#models/$family#" >run.yaml
    run 0 run run.yaml out=$family
    has out "model      $family, "
    numbers $family/metrics.jsonl >expected.txt
    run 0 run run.yaml out=again train.activation_checkpointing=all overwrite=true
    is "numbers of $family with activations computed again" "$(numbers again/metrics.jsonl)" "$(cat expected.txt)"
    OMP_NUM_THREADS=1 run 0 launch -n 2 -- run run.yaml out=shared parallel=fsdp overwrite=true
    compare shared 2e-6
    run 0 export $family exported --overwrite
    cmp exported/model.safetensors $family/model/model.safetensors || is "weights of $family exported" other "the run's"
    run 0 import exported imported
    run 0 export imported back --overwrite
    cmp exported/model.safetensors back/model.safetensors || is "weights of $family imported" other "the exported"
    rm -rf imported
done
exit $failed
