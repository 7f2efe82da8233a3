#!/bin/sh
# stores.sh CMAKE CC: builds the store that `nrl plugins new` writes against the package alone and runs its suite. Two
# ranks that use it, a directory or a port have the same losses; a stopped rank is detected through it.
. "$(dirname "$0")/installed.sh"

run 0 plugins new store journal journal
build "journal" journal/build
export NRL_PLUGIN_PATH=$work/journal/build/plugins

train() {
    run 0 launch -n 2 "$@" -- run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=3 eval.every=0 \
        checkpoint.every=0 "$one_thread" out=trained overwrite=true "loggers=[jsonl]"
    grep -o '"loss":[0-9.e+-]*' trained/metrics.jsonl >losses
}
train && mv losses at_a_port
is "steps" "$(grep -c . at_a_port)" 3
train --store "journal:$work/meeting"
is "losses of ranks that meet in the journal" "$(cat losses)" "$(cat at_a_port)"
grep -qa "nrl/.*hello/1" meeting || is "the journal" "without ranks" "both ranks' keys"
mkdir shared
train --store "$work/shared"
is "losses of ranks that meet in a folder" "$(cat losses)" "$(cat at_a_port)"

# a rank that is silent is noticed by its heartbeats
cat >stopped.lua <<LUA
local nrl = require "nrl"
local run = nrl.open(nrl.config "$prefix/share/nrl/configs/sft.yaml")
run:on("step", function(e) if nrl.rank == 1 and e.step == 2 then os.execute "kill -STOP \$PPID" end end)
run:train()
LUA
run 4 launch -n 2 --grace 2 --store "journal:$work/lost" -- run stopped.lua train.epochs=0 train.steps=1000 eval.every=0 \
    checkpoint.every=0 "$one_thread" out=stopped "loggers=[jsonl]"
has err "was lost: no heartbeat for 5 s"

# the launcher uses the store that the config names, and this one has no server
run 2 launch -n 2 -- run "$prefix/share/nrl/configs/sft.yaml" "$one_thread" out=refused store=journal
has err "the store plugin 'journal' has no server"
has err "hint: nrl launch --store ADDRESS"

# what cannot be is an error with an error text
one() { run "$@" "$prefix/share/nrl/configs/sft.yaml" "$one_thread" out=refused; }
one 2 launch -n 2 --store nowhere://x -- run
has err "cannot join at 'nowhere://x': no store plugin supports this address"
one 2 launch -n 2 --store "$work/missing/folder" -- run
has err "cannot use the directory $work/missing/folder"
run 2 launch -n 2 -- run "$prefix/share/nrl/configs/sft.yaml" "$one_thread" out=refused store=jornal
has err "did you mean 'journal'"
exit $failed
