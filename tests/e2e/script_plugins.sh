#!/bin/sh
# script_plugins.sh: the section `plugins` of a config says where the base of a loss is searched and whether it is opened; that
# of the command line also holds for the tokenizer and the backend that a script uses without a config.
. "$(dirname "$0")/e2e.sh"
unset NRL_PLUGIN_PATH # a test's own is searched before a config's folders
hostile=$NRL_TEST_BUILD/tests/e2e/hostile.so
silent=$NRL_TEST_BUILD/tests/plugins/algorithms/silent.so
mkdir -p plugins/algorithms bad/algorithms bad/tokenizers bad/backends
cp "$silent" plugins/algorithms/
for file in algorithms/hostile tokenizers/a_hostile backends/cpu; do
    cp "$hostile" "bad/$file.so"
done
hash=$(sha256sum plugins/algorithms/silent.so | cut -c1-64)

# nothing_ran NAME
nothing_ran() {
    [ -e executed ] && is "code of a plugin by $1" executed "left alone"
    rm -f executed
}

# ---- the base of a loss ----
# base.lua BASE [FOLDER [ALLOWED]]: the last two are in the config, the command line is above it
cat >base.lua <<E2
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
if arg[2] then cfg.plugins = {folders = {arg[2]}, allow = nrl.list {arg[3]}} end
cfg.algorithm = nrl.loss {name = "mine", base = arg[1], weight = function(b) return b:base_weight() end,
  loss = function(b) return b:base_loss() end}
local run <close> = nrl.open(cfg, {quiet = true})
print("opened " .. run.config.algorithm.name)
E2
refusal="plugins.allow contains neither its name nor its hash"
run 2 run base.lua silent out=absent "$one_thread"
has err "base.lua:6: base: no algorithm 'silent'"
lacks err "no algorithm 'mine'"
run 0 run base.lua silent plugins=plugins out=found "$one_thread"
has out "opened mine"
for allow in silent algorithms/silent "sha256:$hash"; do
    run 0 run base.lua silent plugins "$allow" overwrite=true out=allowed "$one_thread"
    has out "opened mine"
    NRL_PLUGIN_PATH=$work/plugins run 0 run base.lua silent "plugins.allow=[$allow]" overwrite=true out=allowed "$one_thread"
    has out "opened mine"
done
for allow in adapters/silent "sha256:$(printf %064d 0)" ""; do
    # shellcheck disable=SC2086
    run 2 run base.lua silent plugins $allow out=refused "$one_thread"
    has err "base.lua:6: base: 'silent' (plugins/algorithms/silent.so): cannot open the plugin: $refusal"
    has err "hint: to allow exactly this file, add 'plugins.allow=[sha256:$hash]'"
    # shellcheck disable=SC2086
    run 0 run base.lua sft plugins $allow overwrite=true out=installed "$one_thread" # installed plugins are always allowed
    has out "opened mine"
done

"$nrl" run base.lua hostile bad hostile out=hostile >out 2>err # what it is for: this one is listed
[ -e executed ] || is "code of a plugin that is allowed" "left alone" executed
rm -f executed
run 2 run base.lua hostile bad silent out=hostile
nothing_ran "a base that the config does not allow"
run 2 run base.lua hostile bad hostile 'plugins.allow=[]' out=hostile
nothing_ran "a base that the command line does not allow"
NRL_PLUGIN_PATH=$work/bad run 2 run base.lua hostile 'plugins.allow=[]' out=hostile
nothing_ran "a base in NRL_PLUGIN_PATH"
run 2 --no-plugins-from-config run base.lua hostile bad hostile out=hostile
nothing_ran "a base in a folder of the config with --no-plugins-from-config"

# ---- without a config ----
cat >check.lua <<'E2'
local nrl = require "nrl"
nrl.gradcheck(nrl.loss {name = "mine", base = "sft", weight = function(b) return b:base_weight() end,
  loss = function(b) return b:base_loss() end})
E2
cat >train.lua <<'E2'
local nrl = require "nrl"
print(nrl.tokenizer_train {texts = {"one two three one two"}, vocab_size = 260, plugin = arg[1], out = "tokenizer",
  overwrite = true})
E2
export NRL_PLUGIN_PATH="$work/bad"
run 0 run check.lua 'plugins.allow=[]'
nothing_ran "nrl.gradcheck"
run 0 run train.lua 'plugins.allow=[]'
nothing_ran "nrl.tokenizer_train"
run 2 run train.lua a_hostile 'plugins.allow=[]'
nothing_ran "nrl.tokenizer_train of a plugin"
has err "train.lua:2: tokenizer: 'a_hostile' ($work/bad/tokenizers/a_hostile.so): cannot open the plugin: $refusal"
"$nrl" run train.lua a_hostile >out 2>err
[ -e executed ] || is "code of a plugin that is searched" "left alone" executed
exit $failed
