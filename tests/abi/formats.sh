#!/bin/sh
# formats.sh CMAKE CC: builds the installed example of a format against the package alone and runs its suite. A model
# that is converted from Hugging Face's files to .npy and back has the same bytes, and a run from .npy has the loss of
# a run from Hugging Face's files and exports in the format that it read.
. "$(dirname "$0")/installed.sh"

build "$prefix/share/nrl/examples/npy" npy
export NRL_PLUGIN_PATH=$work/npy/plugins

model=$source/tests/data/models/llama
run 0 describe npy
run 0 export "$model" arrays --format npy
[ -f arrays/model.norm.weight.npy ] && [ -f arrays/config.json ] || is "files of arrays" "$(ls arrays)" "arrays and config.json"
[ ! -f arrays/model.safetensors ] || is "files of arrays" "$(ls arrays)" "no others"
run 0 export arrays back --format hf
run 0 export "$model" straight
cmp back/model.safetensors straight/model.safetensors || is "weights" "others" "the same bytes"
run 0 export arrays again
[ -f again/model.norm.weight.npy ] || is "the format of an export" "$(ls again)" "as it was read"
run 2 export "$model" half --format npy --dtype bf16
has err "this format only writes f32"
run 2 export "$model" other --format peft
has err "it stores an adapter"
run 2 export "$model" other --format mpy
has err "did you mean 'npy'"

# ids: rows of tokens, as the model has no tokenizer
printf '{"input_ids":[1,2,3,4,5,6,7,8],"labels":[-100,2,3,4,5,6,7,8]}\n{"input_ids":[8,7,6,5,4,3,2,1],"labels":[-100,7,6,5,4,3,2,1]}\n' >rows.jsonl
cat >run.yaml <<END
data: {train: rows.jsonl, max_length: 16}
algorithm: sft
train: {steps: 2, global_batch: 2}
optimizer: {name: adamw, lr: 1e-2}
backend: {name: cpu, threads: 1}
checkpoint: {every: 0}
END
train() { run 0 run run.yaml "$@"; }
train model.path="$model" out=files
train model.path=arrays out=arrays_run
loss() { grep -o '"loss":[0-9.e+-]*' "$1/metrics.jsonl"; }
is "losses" "$(loss arrays_run)" "$(loss files)"
[ -f arrays_run/model/model.norm.weight.npy ] || is "the run's export" "$(ls arrays_run/model)" "arrays"
train model.path=arrays checkpoint.export_format=hf out=chosen
[ -f chosen/model/model.safetensors ] || is "the chosen export" "$(ls chosen/model)" "model.safetensors"
run 65 run run.yaml model.path=arrays model.format=hf out=forced
has err "no model.safetensors"
exit $failed
