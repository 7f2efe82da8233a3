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

# ---- a tokenizer without a chat template: its vocabulary decides ----
cp -r $model bare
cp configs/models/tiny-tokenizer/tokenizer_config.json bare/
rm -f bare/chat_template.jinja
lacks bare/tokenizer_config.json chat_template
run 0 init bare.yaml --model bare --data configs/data/chat.jsonl
has out "template chatml: the tokenizer has no chat template, but it has the special tokens of this one"
has bare.yaml "  template: chatml                  # the tokenizer has no chat template, but it has"
run 0 check bare.yaml
cp -r bare words
sed 's/<|im_start|>/<|other_1|>/g; s/<|im_end|>/<|other_2|>/g' bare/tokenizer.json >words/tokenizer.json
sed 's/<|im_end|>/<|other_2|>/' bare/tokenizer_config.json >words/tokenizer_config.json
run 0 init words.yaml --model words --data configs/data/chat.jsonl
has out "template plain: turns begin with User: and Assistant:, because the tokenizer has neither a chat template"
has words.yaml "  template: plain                   # turns begin with User: and Assistant:"
run 0 check words.yaml --sample 1
has out "Assistant:⟦"
echo '{"odd": 1}' >odd.jsonl
run 65 init other.yaml --model words --data odd.jsonl # of all attempts, the error that a template does not cause
has err "odd.jsonl:1"
lacks err "chat template"
run 2 check words.yaml data.template=auto
has err "hint: use one of: chatml, llama3, mistral, plain; or a file"
cp -r bare broken # one that the tokenizer has is not replaced
echo '{% frobnicate %}' >broken/chat_template.jinja
run 2 init other.yaml --model broken --data configs/data/chat.jsonl
has err "'frobnicate' is not a known statement"

# ---- a model in the local cache of the hub, and the one of a run ----
mkdir -p cache/models--org--tiny/refs cache/models--org--tiny/snapshots
cp -r $model cache/models--org--tiny/snapshots/c0ffee
printf c0ffee >cache/models--org--tiny/refs/main
for name in org/tiny org/tiny@main start; do
    HF_HUB_CACHE=$work/cache run 0 init named.yaml --model $name --data configs/data/chat.jsonl --overwrite
    HF_HUB_CACHE=$work/cache run 0 check named.yaml
done

# ---- samples that the model cannot take ----
cp -r $model short
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 32/' $model/config.json >short/config.json
has short/config.json '"max_position_embeddings": 32'
run 0 init short.yaml --model short --data configs/data/chat.jsonl
has out "samples are longer than the model's limit of 32 tokens and will be dropped"
has short.yaml "  max_length: 32 "
has short.yaml "  overlong: drop "
run 0 check short.yaml

# ---- little memory ----
run 0 init roomy.yaml --model $model --data configs/data/chat.jsonl --memory 16GiB
has roomy.yaml "  activation_checkpointing: none "
has roomy.yaml "  micro_batch_tokens: 4096 "
lacks err warning
run 0 init tight.yaml --model $model --data configs/data/chat.jsonl --memory 4.2MiB
has out "which are recomputed"
has tight.yaml "  activation_checkpointing: all "
has tight.yaml "  micro_batch_tokens: 64 "
lacks err warning
run 0 check tight.yaml
run 0 init tiny.yaml --model $model --data configs/data/chat.jsonl --memory 1MiB
has err "warning: this is more than the 1.0 MiB available to the run; --train lora needs less"
run 2 init other.yaml --model $model --data configs/data/chat.jsonl --memory 1gb
has err "--memory: expected a size such as 16GiB or 800MiB, found '1gb'"

# ---- answers ----
printf '%s\n' $model configs/data/chat.jsonl '' lora '' | "$nrl" init asked.yaml >out 2>err || is "exit code of answers" $? 0
has asked.yaml "  name: lora "
has asked.yaml 'out: "runs/asked"'
printf '%s\n' $model | "$nrl" init other.yaml >out 2>err && is "exit code without answers" 0 2
has err "no answer to 'Training data, a file or a directory?'"
run 2 init other.yaml --model nowhere --data configs/data/chat.jsonl
has err "model 'nowhere': no such directory"
run 65 init other.yaml --model $model --data odd.jsonl
has err "odd.jsonl:1"
[ -e other.yaml ] && is "config of a refused init" present absent

# rows whose keys have other names
for i in 1 2 3 4 5 6 7 8; do echo "{\"question\": \"$i plus 1?\", \"answer\": \"$i\"}"; done >questions.jsonl
run 65 init other.yaml --model $model --data questions.jsonl
has err "hint: data.columns: {completion: answer, prompt: question}"
run 0 init questions.yaml --model $model --data questions.jsonl --eval questions.jsonl --columns '{completion: answer, prompt: question}'
has questions.yaml "  columns: {completion: answer, prompt: question}"
run 0 check questions.yaml
for columns in prompt=question '{}' 'x}'; do
    run 2 init other.yaml --model $model --data questions.jsonl --columns "$columns"
    has err "--columns: expected a map such as {prompt: question, completion: answer}, found '$columns'"
done
run 2 init other.yaml --model $model --data questions.jsonl --columns '{promt: question}'
has err "data.columns: 'promt' is not a key of a row format"

# the reason is that of the algorithm for the rows
sed '5s/"label": [a-z]*/"label": "maybe"/' configs/data/kto.jsonl >label.jsonl
run 65 init other.yaml --model $model --data label.jsonl
has err "label.jsonl:5: "
lacks err "does not read labels"
sed '5s/"rejected"/"refused"/' configs/data/pref.jsonl >pair.jsonl
run 65 init other.yaml --model $model --data pair.jsonl
has err "pair.jsonl:5: no key 'rejected'"

# few rows: none is left for a usual share, but one that was asked for is an error
head -n 1 configs/data/chat.jsonl >few.jsonl
run 0 init few.yaml --model $model --data few.jsonl
has err "5% of the rows are too few to hold out, so the config has no data.eval"
run 0 check few.yaml
run 65 init demanded.yaml --model $model --data few.jsonl --eval 5%
has err "the split by data.eval leaves no row that can be trained on"

ln -s /dev/full full.yaml
run 7 init full.yaml --model $model --data few.jsonl --overwrite
has err "error: full.yaml: No space left on device"

# ---- more and less ----
run 0 check configs/sft.yaml out=other --sample 3
is "samples" "$(grep -c '^sample [0-9]* of 128$' out)" 3
is "samples in the plan" "$(grep -c '^sample 1   ' out)" 0
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
has err "require a config"
exit $failed
