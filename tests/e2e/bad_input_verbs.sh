#!/bin/sh
# bad_input_verbs.sh: messages of export, import, sample, eval and resume for files that are missing, exist already or
# are damaged.
. "$(dirname "$0")/e2e.sh"

rows 16 >train.jsonl
experiment >run.yaml
run 0 run run.yaml

run 2 export nowhere model
has err "model 'nowhere': no such directory"
run 2 export result model --dtype f8
has err "format 'hf' cannot write weights as 'f8'; expected f32, bf16, f16"
run 2 export result train.jsonl
has err "cannot write to train.jsonl: it is not a directory"
(ulimit -f 20 && run 7 export result model && exit $failed) || failed=1
has err "the file needs "
is "what a full disk leaves of an export" "$(find . -name 'model*' ! -path './result/*')" ""
run 0 export result model
run 2 export result model
has err "'model' already contains a model: --overwrite replaces it"
run 0 export result model --overwrite
cmp -s model/model.safetensors result/model/model.safetensors || is "exported weights" other "those of the run"

run 2 import nowhere imported
[ -e imported ] && is "folder of an import from nowhere" present absent
run 0 import model runs/imported
run 2 import model runs/imported
has err "'runs/imported' already contains a checkpoint: runs/imported/checkpoints/step-00000000"
run 0 export runs/imported again
cmp -s model/model.safetensors again/model.safetensors || is "weights after import and export" other "the same"

run 2 sample result --prompt a
has err "no tokenizer was found"
run 2 sample result
has err "expected one of --prompt TEXT and --file FILE"
run 2 sample result --prompt a --temperature cold
has err "--temperature: 'cold': expected a number from 0 to 100"
run 2 sample nowhere --prompt a

run 2 eval run.yaml
run 0 eval run.yaml data.eval=train.jsonl
has out "eval_loss"

# ---- damaged checkpoints are skipped, a named one is refused ----
last=result/checkpoints/step-00000006
cp -r result damaged
truncate -s -100 damaged/checkpoints/step-00000006/rank-00000.nrlc
run 0 resume damaged train.steps=7
has err "warning: skipped a damaged checkpoint: damaged/checkpoints/step-00000006/rank-00000.nrlc: has "
has out "resume     after step 4 of 7"
run 2 run run.yaml out=other resume=nowhere
has err "nowhere: no such checkpoint"
has err "hint: expected never, auto or the directory of a checkpoint"
run 2 checkpoint verify run.yaml
has err "run.yaml: is not a directory, expected a checkpoint"
run 2 resume run.yaml
has err "run.yaml: not a directory; expected the directory of a run"
cp -r $last manifest && sed 's/"step"/"stop"/' $last/manifest.json >manifest/manifest.json
run 5 run run.yaml out=other resume=manifest
cp -r $last data && printf 'x' | dd of=data/rank-00000.nrlc conv=notrunc bs=1 seek=200 2>dd
run 5 run run.yaml out=other resume=data
has err "data/rank-00000.nrlc"
for folder in damaged/checkpoints/*; do : >"$folder/manifest.json"; done
run 5 resume damaged
has err "'damaged' contains no complete checkpoint"
exit $failed
