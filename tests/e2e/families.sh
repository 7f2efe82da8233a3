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

# f32 sums of some hundred products, in another order than PyTorch's
norms=10
for family in glm glm4 ernie4_5 exaone4 hunyuan_v1_dense arcee; do
    recorded=$source/tests/data/families/$family
    { recorded_steps "$recorded" && echo "$one_thread_yaml"; } >"$family.yaml"
    step_values "$recorded/expected.json" >want.txt
    run 0 run "$family.yaml" out=$family
    near_recorded $family 2e-6
    run 0 launch -n 2 -- run "$family.yaml" out=$family.columns 'parallel={tensor: {size: 2, sequence: true}}'
    near_recorded $family.columns 2e-6
    run 0 launch -n 2 -- run "$family.yaml" out=$family.context 'parallel={context: {size: 2, kind: ring}}'
    near_recorded $family.context 2e-6
    run 0 launch -n 2 -- run "$family.yaml" out=$family.stages 'parallel={data: fsdp, pipeline: 2}'
    near_recorded $family.stages 2e-6
    run 0 export $family exported --overwrite
    cmp exported/model.safetensors $family/model/model.safetensors || is "weights of $family exported" other "the run's"
done

# A model of texts and images: its language model is trained, and what is left out is said once a run.
if command -v python3 >/dev/null; then
    cp -r phi3/model whole
    python3 - <<'PY'
import json, struct
config = json.load(open("whole/config.json"))
json.dump({"model_type": "llava", "text_config": config}, open("whole/config.json", "w"))
data = open("whole/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
names = json.loads(data[8:8 + size])
header = json.dumps({k if k == "__metadata__" else "language_model." + k: v for k, v in names.items()}).encode()
header += b" " * (-len(header) % 8)
open("whole/model.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + data[8 + size:])
PY
    experiment | sed "s#^model:.*#model: {path: whole}#" >run.yaml
    run 0 run run.yaml out=language train.steps=2
    is "lines about what is left out" "$(grep -c "a vision-language model" err)" 1
fi
exit $failed
