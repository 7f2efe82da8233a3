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
has err "logger 'refuses' failed, and is tried again at the next record"
has out "step 6/6"

# a column that nothing fills
run 2 run c.yaml algorithm=magic "plugins=[$NRL_TEST_BUILD/tests/conformance/wrong]" optimizer.name=adamw
has err "algorithm 'magic' needs 'magic', which is neither a column of nrl nor in data.extra; expected one of: logps, ref_logps"

# a loss of a script that starts from it
cat >based.lua <<LUA
local nrl = require "nrl"
nrl.loss { name = "based", base = "refuses", loss = function(b) return b:base_loss() end }
LUA
NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/plugins:$NRL_PLUGIN_PATH refused 2 run based.lua
exit $failed
