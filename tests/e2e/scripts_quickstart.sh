#!/bin/sh
# scripts_quickstart.sh: a few steps of the quickstart's script, with a new model and with an existing one, for
# instrumented builds, which have no time for e2e.quickstart.
. "$(dirname "$0")/e2e.sh"

# quickstart.lua, three steps of it; then its config alone
run 0 run "$source/scripts/quickstart.lua" out=quick train.steps=3 "$one_thread"
has out "in both: 0;"
has out "before training: 0 of 1000 right"
has out "after training:"
run 0 check "$source/configs/quickstart.yaml" data.train=quick/data/train.jsonl \
    data.eval=quick/data/test.jsonl model.config=quick/start/config.json model.tokenizer=quick/start out=checked

# the quickstart with a model that exists
run 0 run "$source/scripts/quickstart.lua" model.path=quick/model out=quick2 train.steps=2 "$one_thread"
has out "weights from quick/model"
exit $failed
