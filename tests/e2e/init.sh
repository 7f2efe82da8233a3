#!/bin/sh
# init.sh: `nrl init` writes a config that fits a model and its data, from flags or from answers; -q, -v and --sample show
# less or more of a run.
. "$(dirname "$0")/e2e.sh"

cp -r "$source"/configs .
run 0 run configs/sft.yaml train.steps=2 train.epochs=0 out=start
model=start/model

run 0 init sft.yaml --model $model --data configs/data/chat.jsonl --out runs/sft
has out "wrote sft.yaml; next:"
for line in "algorithm: sft " "  max_length: 64 " "  eval: 0.05 " "  template: auto " "  epochs: 3 "; do has sft.yaml "$line"; done
run 0 run sft.yaml -q
is "what a quiet run prints" "$(cat out err)" ""
[ -e runs/sft/model/model.safetensors ] || is "model of the run" absent present
run 2 init sft.yaml --model $model --data configs/data/chat.jsonl
has err "sft.yaml exists"
run 0 init sft.yaml --model $model --data configs/data/pref.jsonl --eval configs/data/pref_eval.jsonl --train lora --overwrite --out runs/dpo
for line in "algorithm: dpo " "  name: lora " '  eval: "configs/data/pref_eval.jsonl" '; do has sft.yaml "$line"; done
run 0 check sft.yaml
mkdir below
run 0 init below/kto.yaml --model $model --data configs/data/kto.jsonl --eval none
has below/kto.yaml "algorithm: kto "
lacks below/kto.yaml "eval:"
run 0 check below/kto.yaml

# ---- answers ----
printf '%s\n' $model configs/data/chat.jsonl '' lora '' | "$nrl" init asked.yaml >out 2>err || is "exit code of answers" $? 0
has asked.yaml "  name: lora "
has asked.yaml 'out: "runs/asked"'
printf '%s\n' $model | "$nrl" init other.yaml >out 2>err && is "exit code without answers" 0 2
has err "no answer to 'Training data, a file or a directory?'"
run 2 init other.yaml --model nowhere --data configs/data/chat.jsonl
has err "model 'nowhere': no such directory"
echo '{"odd": 1}' >odd.jsonl
run 65 init other.yaml --model $model --data odd.jsonl
has err "odd.jsonl:1"
[ -e other.yaml ] && is "config of a refused init" present absent

# ---- more and less ----
run 0 check configs/sft.yaml out=other --sample 3
is "samples" "$(grep -c '^sample [0-9]* of 128$' out)" 3
has out "⟧"
run 0 check configs/sft.yaml out=other --full
is "samples of --full" "$(grep -c '^sample 1 of 128$' out)" 1
run 0 check configs/sft.yaml out=other -v
has out "# the config with all defaults"
has out "  diverge_factor: 100"
run 0 check configs/sft.yaml out=other --quiet
is "output of check --quiet" "$(cat out)" ""
run 2 check configs/sft.yaml -q -v
run 2 check configs/sft.yaml --sample many
has err "--sample: expected a number of samples, found 'many'"
run 2 check "$source/scripts/sft.lua" --sample 1
has err "need a config"
exit $failed
