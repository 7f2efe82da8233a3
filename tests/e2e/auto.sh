#!/bin/sh
# auto.sh: keys that say `auto` get a value before the run is opened: one that fits into memory and changes no number,
# is written to the run's config, is the same on all ranks, and is kept by a resume. Where nobody chooses, the config is
# refused.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

rows 64 >train.jsonl
experiment >plain.yaml
sed 's/micro_batch_tokens: 128/micro_batch_tokens: auto, activation_checkpointing: auto/; s/global_batch: 4/global_batch: 64/' \
    plain.yaml >config.yaml
# chosen RUN KEY: its value in the run's config
chosen() { sed -n "s/^ *$2: //p" "$1/config.yaml"; }

# ---- one rank ----
run 0 run config.yaml out=one
has err "auto       train.micro_batch_tokens=$(chosen one micro_batch_tokens): "
has err "auto       train.activation_checkpointing=none: "
has err "s per step (settings compared: "
lacks one/config.yaml auto,
tokens=$(chosen one micro_batch_tokens)
run 0 run plain.yaml train.global_batch=64 train.micro_batch_tokens="$tokens" out=written
is "losses" "$(values one loss)" "$(values written loss)"
# the operations and exchanges are measured once more, below on two ranks; all other runs take this machine's file
run 0 plan config.yaml --ranks 2 --save-machine machine.json
NRL_MACHINE=machine.json
export NRL_MACHINE
run 0 run config.yaml out=quiet -q train.steps=1
is "lines of -q" "$(cat err)" ""
run 0 check config.yaml out=none
has err "auto       train.micro_batch_tokens="
run 0 bench config.yaml --steps 1 train.steps=10 --json
has err "auto       train.micro_batch_tokens="
run 0 eval config.yaml data.eval=train.jsonl
has err "auto       train.micro_batch_tokens has its default, because this command does not train"
run 0 run config.yaml data.train=- train.steps=1 data.cache=cache out=input <train.jsonl
has err "auto       train.micro_batch_tokens="

# ---- less memory: activations are recomputed; nothing fits ----
rows 600 >more.jsonl
set -- data.train=more.jsonl train.global_batch=600 train.micro_batch_tokens=16384
run 0 plan plain.yaml "$@" train.activation_checkpointing=all --as-is --json
most=$(sed -n 's/.*"total_bytes": *\([0-9]*\).*/\1/p' out)
set -- run config.yaml "$@" train.steps=1
run 0 "$@" out=less "backend={name: cpu, threads: 1, memory_limit: $((most * 10 / 9 + 9))}"
has err "auto       train.activation_checkpointing={ratio: 0.5}: "
has less/config.yaml "ratio: 0.5"
run 6 "$@" out=none "backend={name: cpu, threads: 1, memory_limit: 100KiB}"
has err "no setting fits: needs"
has err "more than 90.0 KiB"

# ---- a resume ----
run 0 run config.yaml train.steps=4 schedule=constant out=stopped
tokens=$(chosen stopped micro_batch_tokens)
run 0 run config.yaml train.steps=6 schedule=constant out=stopped resume=auto
has err "auto       train.micro_batch_tokens has the value of stopped/config.yaml, which this run continues"
is "tokens after a resume" "$(chosen stopped micro_batch_tokens)" "$tokens"
run 0 resume stopped train.steps=8
lacks err "auto  "
run 0 resume stopped train.steps=9 train.micro_batch_tokens=auto
has err "s per step (settings compared: "

# ---- two ranks: they get one choice ----
unset NRL_MACHINE
run 0 launch -n 2 -- run config.yaml parallel=auto out=two
NRL_MACHINE=machine.json
export NRL_MACHINE
is "lines of two ranks" "$(grep -c '^auto  ' err)" 3
has err "auto       parallel="
is "records" "$(values two loss | wc -l | tr -d ' ')" 6
sed -n '/^parallel/,/^[a-o]/p' two/config.yaml >parallel
lacks parallel auto
run 0 launch -n 2 -- run config.yaml parallel=ddp train.steps=1 out=ddp
has ddp/config.yaml "name: ddp"
run 0 launch -n 2 --max-restarts 1 -- run config.yaml parallel=auto out=again
run 0 run config.yaml parallel=auto train.steps=1 out=alone
has err "auto       parallel: not needed for one rank"
has alone/config.yaml "name: default"
run 0 launch -n 2 -- run alone/config.yaml train.steps=1 out=default

# ---- measurements of a file ----
run 0 run config.yaml train.steps=1 out=file
has err "s per step (settings compared: "
echo '{}' >wrong.json
NRL_MACHINE=wrong.json
run 2 run config.yaml out=none
has err "wrong.json: expected a file of \`nrl plan --save-machine\`"
NRL_MACHINE=machine.json

# ---- nobody chooses ----
next_port
(hand 0 -- config.yaml out=none >out 2>err)
is "exit code of a rank of torchrun" $? 2
has err "config.yaml:3:37: train.micro_batch_tokens: auto is only supported by \`nrl run FILE.yaml\` and \`nrl launch\`"
has err "hint: \`nrl plan FILE.yaml --ranks N --write planned.yaml\` chooses one"
run 2 launch --nodes 127.0.0.1:1,127.0.0.2:1 --node-rank 0 -- run config.yaml out=none
has err "train.micro_batch_tokens: auto is only supported for the ranks of one machine"
cat >script.lua <<'LUA'
local nrl = require "nrl"
nrl.open(nrl.config "config.yaml")
LUA
run 2 run script.lua
has err "train.micro_batch_tokens: auto is only supported by "
run 2 plan config.yaml --keep train.micro_batch_tokens
has err "train.micro_batch_tokens: auto: there is no value to keep"
run 2 plan config.yaml --as-is
has err "there is no value to keep"
run 2 plan plain.yaml --auto
has err "no key is \`auto\`"
run 2 run config.yaml data.packing=false train.micro_batch=2 out=none
has err "train.micro_batch_tokens: auto and train.micro_batch are both set"
run 2 run config.yaml train.seeed=2 out=none
has err "train.seeed"
run 0 plan config.yaml --auto --ranks 2 parallel=auto --write planned.yaml
run 0 launch -n 2 -- check planned.yaml
lacks err "auto  "
exit $failed
