#!/bin/sh
# ranks_identity.sh: ranks that read different bytes from the same path, or run different code: all end before the
# first step with exit code 2, and each names the difference and the rank. Rank 1 runs in another directory than rank
# 0, and paths begin with that directory.
. "$(dirname "$0")/e2e.sh"

for side in a b; do
    mkdir $side
    golden $side/model
    rows 48 >$side/train.jsonl
    rows 8 >$side/eval.jsonl
done
cat >run.yaml <<YAML
model: {path: /proc/self/cwd/model}
data: {train: /proc/self/cwd/train.jsonl, max_length: 64}
train: {steps: 3, global_batch: 8, micro_batch_tokens: 256}
optimizer: {name: adamw, lr: 1e-3}
checkpoint: {every: 0}
launch: {timeout_init: 60, timeout_step: 60}
$one_thread_yaml
YAML

# two EXPECTED-CODE TEXT ARGUMENT...: a run of two ranks, one in each folder; TEXT is said by both where they fail
two() {
    expected=$1 text=$2
    shift 2
    next_port
    rm -rf result
    for rank in 0 1; do
        side=$(echo a b | cut -d ' ' -f $((rank + 1)))
        (cd $side && exec env SIDE=$side RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
            MASTER_PORT="$port" OMP_NUM_THREADS=1 "$(eval "echo \${nrl_of_$rank:-$nrl}")" run "$config" out="$work/result" "$@") >out$rank 2>err$rank &
        eval "pid$rank=$!"
    done
    for rank in 0 1; do
        wait "$(eval "echo \$pid$rank")"
        is "exit code of rank $rank, $*" $? "$expected"
        [ "$expected" -eq 0 ] || has err$rank "$text"
        [ "$expected" -eq 0 ] || has err$rank "rank 1 ("
    done
    [ "$expected" -eq 0 ] || lacks out0 "step 1/"
}
config=$work/run.yaml
each_strategy() {
    for parallel in ddp fsdp '{pipeline: 2}' '{data: fsdp, tensor: 2}' '{data: ddp, tensor: 2}'; do
        two "$1" "$2" "parallel=$parallel"
    done
}
each_strategy 0 ""

# ---- variables: the path of a model and a logger may differ, other values may not, and no value is shown ----
two 0 "" "model.path=$work/\${env:SIDE}/model" \
    "loggers=[{name: jsonl, file: 'of-\${env:SIDE}.jsonl'}]"
two 2 "cannot start: name differs" 'name=of-${env:SIDE}'

# ---- data ----
echo '{"input_ids": [5, 6, 7, 8, 9, 10], "labels": [5, 6, 7, 8, 9, 10]}' >>b/train.jsonl
each_strategy 2 "cannot start: data.train /proc/self/cwd/train.jsonl differs between ranks"
cp a/train.jsonl b
two 0 "" data.eval=/proc/self/cwd/eval.jsonl
echo '{"input_ids": [5, 6, 7], "labels": [5, 6, 7]}' >>b/eval.jsonl
two 2 "data.eval /proc/self/cwd/eval.jsonl differs" data.eval=/proc/self/cwd/eval.jsonl
cp a/eval.jsonl b

# ---- weights ----
# flip FILE AT: another byte there, counted from the end
flip() {
    size=$(wc -c <"$1")
    printf '\125' | dd of="$1" bs=1 seek=$((size - $2)) conv=notrunc 2>dd
}
flip b/model/model.safetensors 3
each_strategy 2 "cannot start: model's '"
cp a/model/model.safetensors b/model
sed 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' a/model/config.json >b/model/config.json
each_strategy 2 "cannot start: model's config.json differs"
cp a/model/config.json b/model

# A tensor that is larger than its samples: what differs between them is found by ranks that read all of it.
sed 's/"vocab_size": 96/"vocab_size": 2048/' a/model/config.json >wide.json
run 0 run run.yaml model.path= model.config=wide.json data.train=a/train.jsonl train.steps=1 out=wide "$one_thread"
rm -r a/model b/model
cp -r wide/model a
cp -r wide/model b
flip b/model/model.safetensors 20000
two 2 "cannot start: weights differ between ranks: '"
has err0 ") read other values than rank 0 ("
rm -r a/model b/model
golden a/model
golden b/model

# the reference of preference training
for side in a b; do
    cp -r $side/model $side/reference
    for i in 1 2 3 4 5 6 7 8; do
        echo "{\"prompt_input_ids\": [4, $i], \"chosen_input_ids\": [5, 6, 7], \"rejected_input_ids\": [9, $i]}"
    done >$side/pairs.jsonl
done
set -- data.train=/proc/self/cwd/pairs.jsonl \
    'algorithm={name: dpo, check_initial_loss: false, reference_model: /proc/self/cwd/reference}'
two 0 "" "$@"
flip b/reference/model.safetensors 3
two 2 "cannot start: reference's '" "$@"

# the rewards of reinforcement learning
for side in a b; do echo 'return function(s) return #s.completion_ids end' >$side/reward.lua; done
set -- data.train=/proc/self/cwd/train.jsonl \
    'algorithm={name: grpo, reward: /proc/self/cwd/reward.lua, group_size: 2, max_tokens: 2}'
two 0 "" "$@"
echo >>b/reward.lua
two 2 "cannot start: algorithm.reward /proc/self/cwd/reward.lua differs" "$@"

# ---- tokenizer and template ----
seq 1 60 | sed 's/.*/number & and its row/' >text
run 0 tokenizer train text --vocab-size 300 --out a/tok
cp -r a/tok b
for side in a b; do
    for i in 1 2 3 4 5 6 7 8; do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"and\"}]}"; done >$side/talk.jsonl
    echo '{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}' >$side/t.jinja
done
set -- model.path= model.config="$work/wide.json" model.tokenizer=/proc/self/cwd/tok data.train=/proc/self/cwd/talk.jsonl data.template=/proc/self/cwd/t.jinja
two 0 "" "$@"
echo >>b/t.jinja
two 2 "data.template /proc/self/cwd/t.jinja differs" "$@"
cp a/t.jinja b
echo >>b/tok/tokenizer.json
two 2 "cannot start: tokenizer differs" "$@"

# ---- checkpoints: each side's own run, of other weights ----
flip b/model/model.safetensors 3
for side in a b; do
    (cd $side && exec "$nrl" run "$config" out=/proc/self/cwd/run checkpoint.every=2 train.steps=2) >out 2>err ||
        is "the run to resume in $side" "$(tail -n 1 err)" finished
done
cp a/model/model.safetensors b/model
each_resume() {
    for parallel in ddp fsdp '{pipeline: 2}'; do
        two 2 "$1" "parallel=$parallel" "$2"
    done
}
each_resume "cannot start: checkpoint /proc/self/cwd/run/checkpoints/step-00000002 differs" \
    resume=/proc/self/cwd/run/checkpoints/step-00000002

# ---- code ----
mkdir -p plugins/optimizers
cp "$NRL_PLUGIN_PATH/optimizers/adamw.so" plugins/optimizers
printf 'x' >>plugins/optimizers/adamw.so
cat >other <<SH
#!/bin/sh
NRL_PLUGIN_PATH=$work/plugins:$NRL_PLUGIN_PATH exec $nrl "\$@"
SH
chmod +x other
nrl_of_1=$work/other
two 2 "cannot start: plugin optimizers/adamw differs"
# the plugin that a loss of a script builds on, and what the script requires
cat >based.lua <<'LUA'
local nrl = require "nrl"
local cfg = nrl.config(arg[0]:gsub("based.lua", "run.yaml"))
package.path = "/proc/self/cwd/?.lua;" .. package.path
require "helper"
cfg.algorithm = nrl.loss {name = "based", base = "sft",
  weight = function(b) return b:base_weight() end, loss = function(b) return b:base_loss() end}
nrl.open(cfg):train()
LUA
for side in a b; do echo 'return 1' >$side/helper.lua; done
config=$work/based.lua
nrl_of_1=
two 0 ""
echo 'return 2' >b/helper.lua
two 2 "cannot start: module helper of the script differs"
cp a/helper.lua b
rm -r plugins && mkdir -p plugins/algorithms
cp "$NRL_PLUGIN_PATH/algorithms/sft.so" plugins/algorithms
printf 'x' >>plugins/algorithms/sft.so
nrl_of_1=$work/other
two 2 "cannot start: loss based differs"
config=$work/run.yaml
mkdir build && cp -r "$NRL_TEST_BUILD/bin" build && mkdir build/lib && cp -L "$NRL_TEST_BUILD"/lib/libnrl*.so.0 build/lib
ln -s "$NRL_TEST_BUILD/lib/nrl" build/lib/nrl
printf 'x' >>build/lib/libnrl.so.0
cat >other <<SH
#!/bin/sh
LD_LIBRARY_PATH=$work/build/lib exec $work/build/bin/nrl "\$@"
SH
two 2 "cannot start: build of nrl"
nrl_of_1=

# ---- several ranks a node: rank 2 stands in another folder ----
rows 47 >b/train.jsonl
next_port
set -- --nodes 127.0.0.1:2,127.0.0.2:1 --port "$port" -- run "$config" out="$work/launched"
(cd b && OMP_NUM_THREADS=1 exec "$nrl" launch --node-rank 1 "$@") >out1 2>err1 &
second=$!
(cd a && OMP_NUM_THREADS=1 exec "$nrl" launch --node-rank 0 "$@") >out0 2>err0
is "exit code of the first launcher" $? 2
wait $second
is "exit code of the second launcher" $? 2
for err in err0 err1; do
    has $err "  ranks 0, 1 ("
    has $err "  rank 2 ("
    is "how often it is said" "$(grep -c '^\[.\] error: cannot start: data.train' $err)" 1
done
exit $failed
