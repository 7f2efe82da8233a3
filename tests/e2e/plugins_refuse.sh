#!/bin/sh
# plugins_refuse.sh: a plugin of each kind that fails in create and leaves a pointer behind (plugins/refuses.c): its
# error text is printed, and destroy is not called.
. "$(dirname "$0")/e2e.sh"
rows 16 >train.jsonl
experiment "plugins: $NRL_TEST_BUILD/tests/plugins" >c.yaml

# refused CODE ARGUMENT...
refused() {
    run "$@"
    has err "refused on purpose"
    lacks err "never began"
}

refused 2 run c.yaml algorithm=refuses
refused 2 run c.yaml optimizer.name=refuses
refused 2 run c.yaml backend=refuses
refused 2 launch -n 2 -- run c.yaml parallel=refuses
refused 2 launch -n 2 -- run c.yaml collective=refuses
golden odd && sed -i 's/"model_type": *"[a-z]*"/"model_type": "refuses"/' odd/config.json
refused 2 run c.yaml model.path=odd
# a run goes on without a logger
refused 0 run c.yaml 'loggers=[console, refuses]'
has err "logger 'refuses' failed; the next record is tried again"
has out "step 6/6"

# a plugin that fails and gives no text (plugins/silent.c)
run 1 run c.yaml algorithm=silent out=silent
has err "loss of 'silent': it failed without a message"

# what a backend does not compute in attention
cat >gemma2.json <<'JSON'
{"model_type": "gemma2", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
 "query_pre_attn_scalar": 8, "attn_logit_softcapping": 0.5, "tie_word_embeddings": true}
JSON
poor() { # poor CODE TEXT ARGUMENT...
    code_of=$1
    text=$2
    shift 2
    for verb in check run; do
        [ $verb = check ] || case "$*" in *context*) verb="launch -n 2 -- run" ;; esac
        # shellcheck disable=SC2086
        run "$code_of" $verb c.yaml backend=poor out=poor "$@"
        has err "$text"
    done
}
poor 2 "parallel strategy 'context': it merges attention over parts of the tokens, which backend 'poor' does not support" \
    'parallel={context: {size: 2, kind: ring}}'
run 0 check c.yaml backend=poor out=poor 'parallel={context: {size: 2, kind: ulysses}}'
poor 1 "of model 'gpt_oss': backend 'poor' has no op 'attention' with sinks" \
    model.path="$source/tests/data/experts/gpt_oss" data.train="$source/tests/data/experts/gpt_oss/rows.jsonl"
poor 1 "of model 'gemma2': backend 'poor' has no op 'attention' with capped scores" 'model={config: gemma2.json}'

# a column that nothing fills
run 2 run c.yaml algorithm=magic "plugins=[$NRL_TEST_BUILD/tests/conformance/wrong]" optimizer.name=adamw
has err "algorithm 'magic' needs 'magic', which is neither a column of nrl nor in data.extra; expected one of: logps, ref_logps"

# a loss of a script that starts from it
cat >based.lua <<LUA
local nrl = require "nrl"
nrl.gradcheck(nrl.loss { name = "based", base = "refuses", weight = function(b) return b:base_weight() end,
  loss = function(b) return b:base_loss() end })
LUA
NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/plugins:$NRL_PLUGIN_PATH refused 2 run based.lua
exit $failed
