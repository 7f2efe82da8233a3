#!/bin/sh
# verb.sh DIR: output and exit codes of `nrl plugins test` on the plugins of DIR/<kind>/.
wrong=$1
. "$NRL_TEST_SOURCE/tests/e2e/e2e.sh"
plugins=$NRL_PLUGIN_PATH

run 0 plugins test "$plugins/algorithms/sft.so"
is "first line" "$(head -n 1 out)" "algorithm sft 0.1: supervised fine-tuning on answer tokens"
has out "  ok       a loss is a sum, not a mean"
has out " rules, 0 failed ("
run 0 plugins test "$plugins/algorithms/sft.so" loss=dft prompt_weight=0.5

run 1 plugins test "$wrong/algorithms/mean.so"
has out "  FAILED   a loss is a sum, not a mean"
has out "term 0 is "
has out " more of "
has err "error: algorithm 'mean' breaks "

run 1 plugins test "$wrong/backends/crashing.so" --json
has out '"reason": "the plugin ended the process: Aborted"'
has out '"rule": "a watch begins and ends"' # what comes after the crash
has out '"passed": false'
has err "error: backend 'crashing' breaks "
run 0 plugins test --json "$plugins/loggers/jsonl.so"
has out '"rule": "a write takes any record"'
has out '"passed": true'
run 1 plugins test "$wrong/backends/few.so" threads=2
has out "it has no fill, copy, unary"
has out "it has no softmax, softmax_grad, adamw"
lacks out "FAILED   square_sum"

# A path without a folder, as typed beside the file.
cp "$plugins/optimizers/adamw.so" .
run 0 plugins test adamw.so
cp adamw.so adam.so
run 1 plugins test adam.so
has err "adam.so: has the name 'adamw' in its table; expected 'adam', as its file is called"

# What cannot be tested.
run 2 plugins test "$plugins/algorithms/sft.so" prompt_wait=1
has err "algorithm.prompt_wait: unknown key; did you mean 'prompt_weight'?"
run 2 plugins test "$plugins/algorithms/sft.so" --backend cpuu
has err "did you mean 'cpu'?"
run 2 plugins test
run 2 plugins test nowhere.so
has err "cannot open 'nowhere.so': No such file or directory"
run 2 plugins test adamw
has err "cannot open 'adamw': No such file or directory; expected a plugin's file, NAME.so"
echo text >text.so
run 1 plugins test text.so
has err "text.so: cannot be opened"

# A model of other keys brings a config; a family with norms around everything and two kinds of layers.
run 0 plugins test "$plugins/models/llama.so" --config "$source/tests/data/models/gemma3_text/config.json"
run 65 plugins test "$plugins/models/llama.so" --config text.so
has err "text.so:1:4"
echo '{"model_type": "llama"}' >poor.json
run 1 plugins test "$plugins/models/llama.so" --config poor.json
has out "  FAILED   an instance is created and declares its layout"
exit $failed
