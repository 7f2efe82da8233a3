#!/bin/sh
# samples.sh CMAKE CC CXX: the sample plugins of examples/ are built out of tree against an installed nrl, without a warning,
# and keep the rules of their kinds: in C, in C++ where there is a compiler for it, and in Rust where cargo is.
. "$(dirname "$0")/installed.sh"
cxx=$3
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
examples=$prefix/share/nrl/examples
n=0

# One project of all of them is configured once.
{
    echo 'cmake_minimum_required(VERSION 3.22)'
    echo 'project(samples LANGUAGES C CXX)'
    echo 'set(CMAKE_CXX_STANDARD 17)'
    echo 'enable_testing()'
    for name in bytes fixed_template gce ia3 npy plain_frontend replica stanzas gpt_neox diloco focal_cpp signum_cpp; do
        echo "add_subdirectory($examples/$name $name)"
        n=$((n + 1))
    done >list
    cat list
} >CMakeLists.txt
n=$(grep -c . list)
"$cmake" -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >log 2>&1 &&
    "$cmake" --build build -j2 >>log 2>&1 || { cat log; exit 1; }
(cd build && "$(dirname "$cmake")/ctest" -j2 --output-on-failure) >log 2>&1 || { cat log; exit 1; }
has log "100% tests passed"
is "samples in C and C++" "$n" 12

export NRL_PLUGIN_PATH="$work/build/plugins"
for name in $(sed 's|.*/\([a-z_]*\) .*|\1|' list); do
    [ -d "build/$name/plugins" ] && NRL_PLUGIN_PATH=$NRL_PLUGIN_PATH:$work/build/$name/plugins
done

# A model and an optimizer of them train, and so does a strategy, whose first two updates are those of each rank alone.
configs=$prefix/share/nrl/configs
tiny="model.tokenizer=$configs/models/tiny-tokenizer data.train=$configs/data/chat.jsonl data.template=chatml data.max_length=128"
echo '{"model_type": "gpt_neox", "vocab_size": 1200, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
"num_attention_heads": 4, "max_position_embeddings": 128}' >neox.json
# shellcheck disable=SC2086
run 0 launch -n 2 -- run "$configs/sft.yaml" model.config=neox.json $tiny algorithm=focal_cpp \
    'optimizer={name: signum_cpp, lr: 1e-3}' 'parallel={diloco: 2}' train.epochs=0 train.steps=4 eval.every=0 checkpoint.every=0 \
    "$one_thread" out=trained
is "steps" "$(grep -c signum_rises trained/metrics.jsonl)" 4

# Its numbers are those of ddp with outer steps, also if a run goes on between two of these.
cat >config.yaml <<YAML
defaults: $configs/sft.yaml
model: {config: neox.json, tokenizer: $configs/models/tiny-tokenizer}
data: {train: $configs/data/chat.jsonl, max_length: 128}
train: {epochs: 0, steps: 8}
eval: {every: 0}
checkpoint: {every: 4, keep: 0, export: none}
$one_thread_yaml
YAML
run 0 launch -n 2 -- run config.yaml out=built 'parallel={data: {name: ddp, sync_every: 3, outer_lr: 0.7, outer_momentum: 0.9}}'
numbers built/metrics.jsonl >expected.txt
is "steps" "$(wc -l <expected.txt | tr -d ' ')" 8
run 0 launch -n 2 -- run config.yaml out=sample 'parallel={diloco: {size: 2, every: 3}}'
compare sample $exact
rm -rf sample/checkpoints/step-00000008
run 0 launch -n 2 -- run config.yaml out=sample 'parallel={diloco: {size: 2, every: 3}}' resume=auto
has out "resume     after step 4 of 8"
compare sample $exact
exit $failed
