#!/bin/sh
# old.sh: plugins that were built once, with the headers of an earlier nrl of this NRL_ABI (tests/abi/old), still load, keep
# the rules of their kinds, and train together.
. "$NRL_TEST_SOURCE/tests/e2e/e2e.sh"
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the binaries are of x86-64"; exit 77; }
old=$source/tests/abi/old
abi=$(sed -n 's/^#define NRL_ABI \([0-9]*\).*/\1/p' "$source/core/include/nrl/plugin.h")
[ "$abi" = 3 ] || { echo "skipped: the binaries are of NRL_ABI 3, this is $abi; see $old/build.sh"; exit 77; }
for kind in algorithm dataset logger model optimizer parallel; do
    folder=${kind}s
    [ $kind != parallel ] || folder=parallel
    mkdir -p "plugins/$folder" && cp "$old/old_$kind.so" "plugins/$folder"
    [ "$(wc -c <"$old/old_$kind.so")" -lt 20000 ] || is "size of old_$kind.so" large "less than 20 kB"
done
# The new library is the one that is found; the binaries know its soname alone.
LD_LIBRARY_PATH=$NRL_TEST_BUILD/lib NRL_PLUGIN_PATH=$work/plugins:$NRL_PLUGIN_PATH
export LD_LIBRARY_PATH NRL_PLUGIN_PATH OMP_NUM_THREADS=1
for kind in algorithm dataset logger model optimizer parallel; do
    folder=${kind}s
    [ $kind != parallel ] || folder=parallel
    run 0 plugins test "plugins/$folder/old_$kind.so"
    has out " rules, 0 failed ("
done

echo '{"model_type": "old_model", "vocab_size": 1200, "hidden_size": 16, "num_hidden_layers": 1}' >config.json
for i in 1 2 3 4 5 6 7 8; do printf 'question %d\tanswer %d\n' $i $i; done >rows.old_dataset
cat >run.yaml <<YAML
model: {config: config.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: rows.old_dataset, template: chatml, max_length: 128}
algorithm: {name: old_algorithm, strength: 0.5}
optimizer: {name: old_optimizer, lr: 0.1, momentum: 0.5}
train: {steps: 3, global_batch: 4}
checkpoint: {every: 0}
loggers: [old_logger, jsonl]
$one_thread_yaml
YAML
run 0 run run.yaml out=one
is "records of the old logger" "$(grep -c . one/old_logger.txt)" 3
run 0 launch -n 2 -- run run.yaml out=two parallel='{old_parallel: 2}'
numbers one/metrics.jsonl >expected.txt
compare two "$exact"
exit $failed
