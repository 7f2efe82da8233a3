#!/bin/sh
# bad_input_slips.sh: typical mistakes of new users, such as arguments in the wrong order, flags instead of key=value,
# a run instead of a file. Messages name the position and the probable intention.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
experiment >run.yaml
run 0 run run.yaml train.steps=2

# ---- the command line ----
run 2 check
has err "missing arguments"
has err "hint: for example \`nrl check configs/sft.yaml\`; \`nrl check --help\` shows the usage"
run 2 check run.yaml 'lora={rank:4}'
has err "'lora={rank:4}': expected a space after ':' in 'rank:4'"
run 2 check run.yaml 'model={config: nowhere.json}'
has err "nowhere.json: No such file or directory; expected the config.json of a model"
run 2 run.yaml
has err "did you mean \`nrl run run.yaml\`?"
run 2 check run.yaml --optimizer.lr=1
has err "config options are key=value, without dashes"
run 2 run optimizer.lr=1 run.yaml
has err "hint: the file comes first, then key=value"
run 2 run result
has err "hint: the config of the run in this directory is result/config.yaml"
run 2 resume run.yaml
has err "hint: \`nrl run run.yaml resume=auto\`"
run 2 run run.yaml resume=nowhere out=other
has err "resuming: nowhere: no such checkpoint"
run 2 check run.yaml resume=nowhere out=other
has err "resuming: nowhere: no such checkpoint"
run 0 check run.yaml resume=result@2 out=other
run 2 export result result
has err "'result' contains a run: choose another directory for the model, such as result/model"
run 2 bench run.yaml --steps 40
has err "train.steps: the config has 6 steps, but 2 warm-up steps and 40 measured steps (--steps) are needed"

# ---- places of what is found late ----
sed 's|path: .*|path: nowhere}|' run.yaml >nowhere.yaml
run 2 check nowhere.yaml out=other
has err "nowhere.yaml:1:9: model 'nowhere': no such directory"
run 2 check run.yaml out=other model.path=result/metrics.jsonl
has err "command line: model 'result/metrics.jsonl' is a file; expected the directory of config.json and weights"
run 2 check run.yaml out=other model.path=result/nothing
has err "command line: model 'result/nothing': no such directory"
run 2 check run.yaml out=other data.max_length=99999 train.micro_batch_tokens=99999
has err "command line: data.max_length 99999 is more than the"

# ---- one mistake is told once, and without figures that mean nothing ----
run 2 check run.yaml train.steps=2.5
has err "command line: train.steps: expected a whole number, found 2.5"
lacks err "required"
run 2 check run.yaml train.global_batch=0
has err "train.global_batch: 0 is out of range, expected 1 to 2147483647"
run 2 check run.yaml 'algorithm={name: sft, bta: 1}'
has err "command line: algorithm.bta: unknown key; expected one of: loss, reduce, prompt_weight"
printf 'model:\n\tpath: x\n' >tab.yaml
run 2 check tab.yaml
has err "tab.yaml:2:1: found a tab, expected spaces: YAML does not allow tabs as indentation"
echo "Once upon a time." >train.words
run 65 check run.yaml out=other data.train=train.words
has err "hint: plain text is read from a file whose name ends in .txt; a row for each line: jq -Rc '{text: .}' FILE >rows.jsonl"
printf -- '- text: once\n' >rows.yaml
run 65 check run.yaml out=other data.train=rows.yaml
has err 'hint: YAML: python3 -c "import json, sys, yaml; '
mkdir packed && cp train.words packed && tar -cf packed.tar packed
run 65 check run.yaml out=other data.train=packed.tar
has err "packed.tar: a tar file; expected JSONL or a JSON array in UTF-8"
has err "hint: tar -xf 'packed.tar'"
printf 'text\ncaf\351\n' >latin.csv
run 65 check run.yaml out=other data.train=latin.csv
has err "hint: a file of a spreadsheet may be in WINDOWS-1252: iconv -f WINDOWS-1252 -t UTF-8 'latin.csv' >utf8.csv"

run 2 check run.yaml 'data={train: x'
has err "command line: 'data={train: x': did not find expected ',' or '}'"
run 2 check run.yaml model=
has err "command line: model: required, but not given"
lacks err "2 mistakes"
run 2 check run.yaml optimizer.betas=0.9
has err "command line: optimizer 'adamw': betas: expected a list of two numbers"
mkdir -p folder.jsonl looped
ln -sf config.json looped/config.json
run 1 check run.yaml out=other model.path=looped
has err "looped/config.json: Too many levels of symbolic links"
run 2 check run.yaml out=other data.train=folder.jsonl
has err "data.train: folder.jsonl: a directory, expected a file of rows"
echo '{}' >no_keys.jsonl
run 65 check run.yaml out=other data.train=no_keys.jsonl
has err "no_keys.jsonl:1: a row without keys; expected messages, or"
printf 'local nrl = require "nrl"\nlocal c = nrl.config "run.yaml"\nc.trian, c.out = 3, "other"\nnrl.open(c)\n' >slip.lua
run 2 run slip.lua
has err "error: slip.lua:4: trian: unknown key; did you mean 'train'?"

# ---- names of other trainers, keys of other sections, plugins that are not there ----
run 2 check run.yaml learning_rate=1 train.num_train_epochs=3 optimizer.template=plain template=plain out=other
has err "command line: learning_rate: unknown key; it is optimizer.lr here"
has err "command line: train.num_train_epochs: unknown key; it is train.epochs here"
has err "command line: template: unknown key; it is data.template here"
run 2 check run.yaml 'plugins=[nowhere]'
has err "command line: plugins: 'nowhere': no such directory"
NRL_PLUGIN_PATH=nowhere run 2 check run.yaml algorithm=mine
has err "; not a directory: nowhere"

# ---- what would show late is looked at first ----
run 2 run run.yaml out=other data.eval=train.jsonl eval.every=2 checkpoint.metric=eval_acuracy
has err "checkpoint.metric: 'eval_acuracy' is not a metric of evaluations; expected one of: eval_loss"
echo '{"prompt_input_ids": [3, 4], "chosen_input_ids": [5], "rejected_input_ids": [6]}' >pairs.jsonl
run 2 check run.yaml out=other data.train=pairs.jsonl 'algorithm={name: dpo, reference_model: nowhere}'
has err "algorithm.reference_model: model 'nowhere': no such directory"
sed 's/LlamaForCausalLM/LlamaForTokenClassification/' "$source"/tests/data/models/llama/config.json >classifier.json
sed 's|path: .*|config: classifier.json}|' run.yaml >classifier.yaml
run 65 check classifier.yaml out=other
has err "architecture 'LlamaForTokenClassification' is not a causal language model"

# ---- files that are nearly right ----
printf '{\n  "text": "a"\n}\n' >indented.json
run 65 check run.yaml out=other data.train=indented.json
has err "indented.json:1:1: "
has err "in a file that begins with {, each line is a whole row"
echo '{"question": "a", "better": "b", "worse": "c"}' >pairs.jsonl
run 65 check run.yaml out=other data.train=pairs.jsonl algorithm=dpo
has err "hint: data.columns: {chosen: better, rejected: worse, prompt: question}"

# ---- what is odd is said, and done ----
run 0 check run.yaml out=other optimizer.lr=0 train.global_batch=100
has err "warning: optimizer.lr is 0: the weights will not change"
has err "warning: train.global_batch 100 is larger than the data (8 samples): each step is a whole epoch"
lacks out "1 steps"
has out "backend    $backend"
run 0 run run.yaml out=other
has out "trained    6 steps in "
exit $failed
