#!/bin/sh
# templates.sh: the tokenizer's own chat template, and one in a file: what is trained, what is refused, and that the
# template is exported with the model and used when the model is sampled.
. "$(dirname "$0")/e2e.sh"

golden model
awk 'BEGIN {
    letters = "abcdefghijklmnopqrstuvwxyz:\n.AU"
    vocab = "\"<s>\": 0, \"<|end|>\": 1, \"Ġ\": 2"
    for (i = 1; i <= length(letters); i++) {
        c = substr(letters, i, 1)
        vocab = vocab ", \"" (c == "\n" ? "Ċ" : c) "\": " 2 + i
    }
    print "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"},"
    print "\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true}, {\"id\": 1, \"content\": \"<|end|>\", \"special\": true}],"
    print "\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab "}, \"merges\": []}}"
}' >model/tokenizer.json
own="{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim + '<|end|>\\\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
printf '{"bos_token": "<s>", "eos_token": "<|end|>", "chat_template": "%s"}\n' "$own" >model/tokenizer_config.json

talk() {
    printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}, ' a b
    printf '{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' c 'd '
}
for i in 1 2 3 4 5 6 7 8; do talk; done >train.jsonl
experiment >run.yaml

# ---- auto ----
run 0 check run.yaml model.path=model
has out "8 samples (messages)"
has out "<s>user: a<|end|>"
has out "assistant: ⟦b<|end|>⟧"
has out "assistant: ⟦d<|end|>⟧"
run 0 check run.yaml model.path=model data.train_on=last
has out "assistant: b<|end|>"
has out "assistant: ⟦d<|end|>⟧"
run 0 run run.yaml model.path=model out=trained
cmp -s model/tokenizer_config.json trained/model/tokenizer_config.json || is "the exported template" other "the tokenizer's"

# ---- "developer" is a system message of the built-in templates, also in the template that is exported ----
for role in system developer; do
    printf '{"messages": [{"role": "%s", "content": "be"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' $role >$role.jsonl
    for template in plain mistral; do
        run 0 check run.yaml model.path=model data.train=$role.jsonl data.template=$template
        sed -n '/^sample/,/^train /p' out >$role.$template
        [ $role = system ] || cmp system.$template $role.$template || is "developer in $template" other "as system"
        run 0 run run.yaml model.path=model data.train=$role.jsonl data.template=$template out=made overwrite=true train.steps=1
        run 0 check run.yaml model.path=made/model data.train=$role.jsonl data.template=auto
        sed -n '/^sample/,/^train /p' out >exported
        cmp system.$template exported || is "$role in the exported $template" other "as system"
    done
done
has system.mistral "be"

# ---- asked as a user ----
run 0 sample trained --prompt a --chat --json --max-tokens 4
cp out chat.out
run 0 sample trained/model --prompt a --template auto --json --max-tokens 4
is "answer by the run's template" "$(cat chat.out)" "$(cat out)"
run 0 sample trained --prompt a --json --max-tokens 4

# ---- a file, beside the config ----
mkdir templates
printf '%s' '{% for m in messages %}{% if m.role == "assistant" %}{% generation %}{{ m.content }}.{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}' >templates/own.jinja
experiment "" >other.yaml
sed -i 's|data: {train|data: {template: templates/own.jinja, train|' other.yaml
mkdir deeper && cp other.yaml deeper/run.yaml && cp -r templates deeper
run 0 check deeper/run.yaml model.path=model data.train=train.jsonl
has out "a⟦b.⟧c⟦d .⟧"
run 0 check run.yaml model.path=model data.template=templates/own.jinja
has out "a⟦b.⟧c⟦d .⟧"
run 0 run other.yaml model.path=model out=filed
has filed/config.yaml "$work/templates/own.jinja"

# named by a variable, which nobody needs who samples the run
run 0 sample filed --prompt a --chat --json --max-tokens 4
cp out chat.out
TEMPLATE=$work/templates/own.jinja
export TEMPLATE
run 0 run other.yaml model.path=model 'data.template=${env:TEMPLATE}' out=variable
has variable/config.yaml '"${env:TEMPLATE}"'
unset TEMPLATE
run 0 sample variable --prompt a --chat --json --max-tokens 4
is "answer by a template that a variable names" "$(cat out)" "$(cat chat.out)"

# ---- the exported model asks as it was trained ----
cmp -s templates/own.jinja filed/model/chat_template.jinja || is "the exported template" other "the file's"
run 0 run run.yaml model.path=model data.template=plain out=plain
lacks model/tokenizer_config.json "macro text"
has plain/model/tokenizer_config.json '"eos_token": "<|end|>"'
has plain/model/tokenizer_config.json "macro text"
run 0 export plain plain-again
for name in chat_template.jinja tokenizer_config.json; do
    cmp -s plain/model/$name plain-again/$name || is "$name of nrl export" other "the run's own export's"
done
for out in filed plain; do
    run 0 sample $out --prompt a --chat --json --max-tokens 4
    cp out chat.out
    for from in $out/model plain-again; do
        [ $out = filed ] && [ $from = plain-again ] && continue
        run 0 sample $from --prompt a --chat --json --max-tokens 4
        is "answer of $from" "$(cat out)" "$(cat chat.out)"
    done
done
run 0 run run.yaml model.path=plain/model out=further
cmp -s plain/model/chat_template.jinja further/model/chat_template.jinja || is "the template of a further run" other "the first's"
run 0 check run.yaml model.path=model data.template=plain
sed -n '/⟦/p' out >trained.out
run 0 check run.yaml model.path=plain/model
is "what is trained further" "$(sed -n '/⟦/p' out)" "$(cat trained.out)"
has out "Assistant:⟦ b<|end|>⟧"
mv templates/own.jinja templates/gone.jinja # its text is in the checkpoint
run 0 sample filed --prompt a --chat --json --max-tokens 4
run 0 export filed filed-again
cmp -s templates/gone.jinja filed-again/chat_template.jinja || is "the template of nrl export" other "the file's"
mv templates/gone.jinja templates/own.jinja

# ---- a byte order mark in front of any text ----
mkdir marked
for file in model/tokenizer.json model/tokenizer_config.json model/config.json run.yaml train.jsonl; do
    { printf '\357\273\277' && cat $file; } >marked/${file#*/}
done
cp model/model.safetensors marked
run 0 check marked/run.yaml model.path=marked data.train=marked/train.jsonl out=mark
has out "assistant: ⟦b<|end|>⟧"

# ---- what cannot be ----
run 2 check run.yaml model.path=model data.template=templates/none.jinja
has err "command line: data.template: "
has err "templates/none.jinja"
has err "expected a file, auto, or one of: chatml, llama3, mistral, plain"
printf 'a\n{%% include "b" %%}' >templates/bad.jinja
run 2 check run.yaml model.path=model data.template=templates/bad.jinja
has err "templates/bad.jinja: line 2: 'include' is not a known statement"
has err "built-in template instead: chatml, llama3, mistral, plain"
printf '{{ raise_exception("roles must alternate") }}' >templates/raises.jinja
run 65 check run.yaml model.path=model data.template=templates/raises.jinja
has err "train.jsonl:1: "
has err "templates/raises.jinja: line 1: roles must alternate"
printf '%s' '{% for m in messages %}{{ m.content if loop.last else "x" }}{% endfor %}' >templates/changes.jinja
run 65 check run.yaml model.path=model data.template=templates/changes.jinja
has err "train.jsonl:1: messages[1]: "
has err "data.train_on: last trains only the last turn"
printf '{"bos_token": "<s>", "chat_template": "a\\n{{ b|wobble }}"}' >model/tokenizer_config.json
run 2 check run.yaml model.path=model
has err "chat template of model: line 2: unknown filter 'wobble'"
has err "built-in template instead: chatml, llama3, mistral, plain"
printf '{"bos_token": "<s>"}' >model/tokenizer_config.json
run 2 check run.yaml model.path=model
has err "template 'auto' is the template of the tokenizer, but the tokenizer has none"
has err "hint: use one of: chatml, llama3, mistral, plain; or a file"
exit $failed
