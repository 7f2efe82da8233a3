#!/bin/sh
# text.sh CMAKE CC: builds the installed examples of a tokenizer and of a chat template against the package alone and
# runs their suites. A run trains with both, continues from its checkpoint, and detects another file, another header
# and another version of either plugin.
. "$(dirname "$0")/installed.sh"

build "$prefix/share/nrl/examples/bytes" bytes
build "$prefix/share/nrl/examples/fixed_template" fixed 2
export NRL_PLUGIN_PATH=$work/bytes/plugins:$work/fixed/plugins
run 0 describe bytes
run 0 describe fixed
has out "question"

configs=$prefix/share/nrl/configs
mkdir tok && cp "$prefix/share/nrl/examples/bytes/tokenizer.bytes" tok
cat >run.yaml <<END
model: {config: $configs/models/tiny.json, tokenizer: tok}
data: {train: $configs/data/chat.jsonl, template: fixed, max_length: 256, overlong: drop, cache: cache}
algorithm: sft
train: {steps: 4, global_batch: 4}
optimizer: {name: adamw, lr: 1e-3}
backend: {name: cpu, threads: 1}
checkpoint: {every: 2}
eval: {every: 0}
loggers: [jsonl]
END
run 0 check run.yaml out=trained
has out "### Response:"
has out "</s>⟧"
run 0 run run.yaml out=trained
is "steps" "$(grep -c grad_norm trained/metrics.jsonl)" 4
[ -f trained/model/tokenizer.bytes ] || is "files of the export" "$(ls trained/model)" "tokenizer.bytes among them"
run 0 sample trained --prompt "What color is ash?" --chat --max-tokens 4
run 0 sample trained/model --prompt ash --max-tokens 4

# ---- the same again ----
resume() { run "$1" run run.yaml out=trained resume=auto train.steps=6 "$2"; }
run 0 run run.yaml out=again
is "losses" "$(grep -o '"loss":[^,]*' again/metrics.jsonl)" "$(grep -o '"loss":[^,]*' trained/metrics.jsonl)"

# ---- beside the file of another tokenizer, whose plugin is asked first ----
mkdir both && cp tok/tokenizer.bytes "$configs/models/tiny-tokenizer/tokenizer.json" both
run 0 run run.yaml out=again resume=auto train.steps=6 model.tokenizer=both

# ---- an export of the checkpoint, and of that ----
run 0 export trained exported
run 0 export exported twice
cmp -s tok/tokenizer.bytes twice/tokenizer.bytes || is "the tokenizer of an export" "$(ls twice)" "the run's"

# ---- another file of the same size ----
sed -i 's/<pad>/<nop>/' tok/tokenizer.bytes
resume 2 name=file
has err "tokenizer"
sed -i 's/<nop>/<pad>/' tok/tokenizer.bytes

# ---- other headers of the template, and another template ----
resume 2 'data.template={name: fixed, question: "Q:"}'
has err "template: was"
resume 2 data.template=plain
has err "builtin 0.1"

# ---- another version of a plugin, whose tokens are made anew ----
for kind in bytes fixed; do
    from=bytes
    [ $kind = bytes ] || from=fixed_template
    mkdir -p other_$kind
    cp "$prefix/share/nrl/examples/$from/"* other_$kind
    sed -i 's/"0\.1",/"0.2",/' other_$kind/$kind.c
done
build other_bytes newer_bytes 1
build other_fixed newer_fixed 2
n_caches() { find cache -type f | wc -l; }
before=$(n_caches)
NRL_PLUGIN_PATH=$work/newer_bytes/plugins:$work/fixed/plugins
resume 2 name=bytes
has err "bytes 0.1"
has err "bytes 0.2"
NRL_PLUGIN_PATH=$work/bytes/plugins:$work/newer_fixed/plugins
resume 2 name=fixed
has err "fixed 0.1"
has err "fixed 0.2"
run 0 run run.yaml out=newer
[ "$(n_caches)" -gt "$before" ] || is "token caches of another template" "$(n_caches)" "more than $before"
NRL_PLUGIN_PATH=$work/bytes/plugins:$work/fixed/plugins
resume 0 name=same
is "steps after the resume" "$(grep -c grad_norm trained/metrics.jsonl)" 6
exit $failed
