#!/bin/sh
# families.sh: complete runs of models whose files or layers differ from Llama's: one matrix for queries, keys and
# values (phi3); more norms, weights around 0, two kinds of layers (gemma3_text). Then three steps of smaller ones, whose
# losses and gradient norms are those of transformers (tests/data/families/make_families.py), on one rank and on several.
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

# values FILE: the numbers of each step, as "name number"
values() {
    for name in loss grad_norm; do
        { tr '{' '\n' <"$1"; echo; } | sed -n "s/.*\"$name\": *\([0-9.e-]*\).*/$name \1/p"
    done
}
# near NAME: f32 sums of some hundred products, in another order than PyTorch's; norms are sums of more numbers
near() {
    values "$1/metrics.jsonl" >got.txt
    paste got.txt want.txt | awk '{ d = ($2 - $4) / $4; r = /norm/ ? 2e-5 : 2e-6; if (d > r || d < -r) bad++ }
        END { exit bad > 0 || NR != 6 }' || is "values of $1" "$(cat got.txt)" "$(cat want.txt)"
}
for family in glm glm4 ernie4_5 exaone4 hunyuan_v1_dense arcee; do
    recorded=$source/tests/data/families/$family
    cat >"$family.yaml" <<YAML
model: {path: $recorded}
data: {train: $recorded/rows.jsonl, max_length: 64, shuffle: false, cache: $family.cache}
train: {steps: 3, global_batch: 2, micro_batch_tokens: 64}
optimizer: {name: sgd, lr: 0.05, weight_decay: 0, momentum: 0, clip_norm: 0}
schedule: constant
loggers: [jsonl]
$one_thread_yaml
YAML
    values "$recorded/expected.json" >want.txt
    run 0 run "$family.yaml" out=$family
    near $family
    run 0 launch -n 2 -- run "$family.yaml" out=$family.columns 'parallel={tensor: {size: 2, sequence: true}}'
    near $family.columns
    run 0 launch -n 2 -- run "$family.yaml" out=$family.context 'parallel={context: {size: 2, kind: ring}}'
    near $family.context
    run 0 launch -n 2 -- run "$family.yaml" out=$family.stages 'parallel={data: fsdp, pipeline: 2}'
    near $family.stages
    run 0 export $family exported --overwrite
    cmp exported/model.safetensors $family/model/model.safetensors || is "weights of $family exported" other "the run's"
done
exit $failed
