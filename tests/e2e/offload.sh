#!/bin/sh
# offload.sh: with train.offload every number and every byte of the exported model is that of a run without it:
# fine-tuning in fp32 and bf16, other optimizers, preferences, adapters, activation checkpointing, all strategies, a
# resume, and a run that is killed, which leaves no file behind. A run that lacks memory for its states, or for its
# activations, trains with it.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# config TRAIN ALGORITHM [LINE]
config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, max_length: 128, template: chatml, cache: cache}
algorithm: $2
train: {steps: 6, global_batch: 8, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
checkpoint: {every: 3}
loggers: [jsonl]
$one_thread_yaml
${3-}
YAML
}

steps() {
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*|\1 \2|p' "$1/metrics.jsonl"
}

# same NAME: the run `off` is the run `base`
same() {
    steps base >base.txt
    steps off >off.txt
    is "steps of $1" "$(wc -l <off.txt)" 6
    cmp base.txt off.txt || is "numbers of $1" differ "be equal"
    cmp base/model/model.safetensors off/model/model.safetensors || is "model of $1" differs "be equal"
    is "files of $1" "$(find off -name '*offload*')" ""
}

# both NAME ARGUMENT...: without and with
both() {
    what=$1
    shift
    run 0 run config.yaml out=base overwrite=true "$@"
    run 0 run config.yaml out=off overwrite=true "$@" train.offload.optimizer=disk
    same "$what"
    run 0 run config.yaml out=off overwrite=true "$@" train.offload.activations=disk
    same "$what, activations"
}

# ranks N ARGUMENT...: the same on N ranks, with everything elsewhere
ranks() {
    n=$1
    shift
    run 0 launch -n $n -- run config.yaml out=base overwrite=true "$@"
    run 0 launch -n $n -- run config.yaml out=off overwrite=true "$@" 'train.offload={optimizer: disk, activations: disk}'
    same "$*"
}

# shards N PARALLEL ARGUMENT...: weights and gradients elsewhere as well, of N ranks, as without a strategy or with PARALLEL
shards() {
    n=$1
    parallel=$2
    shift 2
    set -- train.micro_batch_tokens=256 "$@"
    [ $n -eq 1 ] && launch= || launch="launch -n $n --"
    # shellcheck disable=SC2086 # words
    run 0 $launch run config.yaml out=base overwrite=true "parallel={$parallel}" "$@"
    case $parallel in
    *name:*) parallel="${parallel%"}"}, offload: disk}" ;;
    *fsdp*) parallel="data: {name: fsdp, offload: disk}" ;;
    *:*) parallel="$parallel, data: {size: 1, name: fsdp, offload: disk}" ;;
    *) parallel="data: {name: fsdp, offload: disk}" ;;
    esac
    # shellcheck disable=SC2086
    run 0 $launch run config.yaml out=off overwrite=true "parallel={$parallel}" "$@"
    same "shards elsewhere, $n, $parallel, $*"
}

chat=$source/configs/data/chat.jsonl
config "$chat" sft >config.yaml
both fp32
both bf16 train.precision=bf16
both split16 train.precision=bf16 train.master=split16
both checkpointing train.activation_checkpointing=all
ranks 2 parallel=ddp
ranks 2 parallel=fsdp "train.activation_checkpointing={ratio: 0.5}"
ranks 2 "parallel={tensor: 2}"
ranks 2 "parallel={pipeline: 2}" train.micro_batch_tokens=128
shards 1 ""
shards 1 "" train.activation_checkpointing=all 'train.offload={optimizer: disk, activations: disk}'
shards 1 "" train.precision=bf16
shards 1 "" train.precision=bf16 train.master=split16
shards 2 "data: fsdp"
shards 2 "data: fsdp" train.precision=bf16 train.master=split16 train.gradients=bf16
shards 2 "tensor: 2"
shards 2 "pipeline: 2"
# gradients alone, and in whole sums, on each kind of master
for shard in grads optimizer; do
    shards 1 "data: {name: fsdp, shard: $shard}"
    shards 2 "data: {name: fsdp, shard: $shard}"
    shards 2 "data: {name: fsdp, shard: $shard}" train.precision=bf16
    shards 2 "data: {name: fsdp, shard: $shard}" train.precision=bf16 train.master=split16
    shards 2 "data: {name: fsdp, shard: $shard}" 'train.offload={optimizer: disk, activations: disk}'
done
for shard in full grads optimizer; do
    shards 1 "data: {name: fsdp, shard: $shard, reproducible: 8}"
    shards 2 "data: {name: fsdp, shard: $shard, reproducible: 8}" train.precision=bf16
done
run 0 check config.yaml out=planned 'parallel={data: {name: fsdp, offload: disk}}'
has out "shards on disk"
has out "without 1.8 MiB of offloaded data"
run 2 run config.yaml out=word 'parallel={data: {name: fsdp, offload: host}}'
has err "host: backend 'cpu' computes in host memory; expected disk"
run 0 check config.yaml out=planned train.offload.optimizer=disk
has out " of offloaded data"
run 0 check config.yaml out=planned train.offload.activations=disk
has out "more of activations are stored on disk until their backward pass (train.offload.activations)"

# a resume of either kind continues the other
run 0 run config.yaml out=base overwrite=true
rm -rf off && cp -r base off && rm -rf off/checkpoints/step-00000006 off/model
run 0 resume off train.offload.optimizer=disk
same resume
run 0 run config.yaml out=off overwrite=true train.offload.optimizer=disk
rm -rf off/checkpoints/step-00000006 off/model
run 0 resume off train.offload.optimizer=none
same "resume without"

# killed, then resumed; nothing is left in a folder of its own either
mkdir elsewhere
for what in optimizer activations shards gradients; do
    rm -rf off
    set -- "train.offload={$what: disk, folder: elsewhere}"
    [ $what = shards ] && set -- 'parallel={data: {name: fsdp, offload: disk}}' train.offload.folder=elsewhere
    [ $what = gradients ] &&
        set -- 'parallel={data: {name: fsdp, shard: optimizer, offload: disk, reproducible: 4}}' train.offload.folder=elsewhere
    "$nrl" run config.yaml out=off overwrite=true "$@" train.steps=100000 checkpoint.keep=0 >out 2>err &
    pid=$!
    await test -e off/checkpoints/step-00000003/manifest.json
    ls -l /proc/$pid/fd >files
    grep -q "$work/elsewhere/\(#\|\.offload-\)" files || is "a file of offload" "$(cat files)" "in $work/elsewhere"
    kill -9 $pid
    wait $pid 2>dd
    is "files of a killed run" "$(find off elsewhere -name '*offload*' -o -path 'elsewhere/*')" ""
    last=$(ls off/checkpoints | grep -v tmp | tail -n 1)
    run 0 resume off train.steps=$(($(echo "${last#step-}" | sed 's/^0*//') + 1)) checkpoint.mismatch=warn
    is "files of a resumed run" "$(find off elsewhere -name '*offload*' -o -path 'elsewhere/*')" ""
done

# with memory to spare, too, the pages of the file leave the process: of 256 MiB of moments of one matrix no more stay than
# what is read ahead
mkdir large
sed 's/"vocab_size": [0-9]*/"vocab_size": 65536/; s/"hidden_size": [0-9]*/"hidden_size": 512/; s/"num_hidden_layers": 4/"num_hidden_layers": 1/' \
    "$source/configs/models/tiny.json" >large/config.json
rows 6 >large.jsonl
set -- "model={config: large/config.json}" "data={train: large.jsonl, max_length: 64}" train.steps=4 train.global_batch=2 \
    train.micro_batch_tokens=64 checkpoint.every=0 checkpoint.export=none
run 0 run config.yaml out=base overwrite=true "$@"
run 0 run config.yaml out=off overwrite=true "$@" train.offload.optimizer=disk
steps base >base.txt
steps off >off.txt
cmp base.txt off.txt || is "numbers of a large matrix" differ "be equal"
run 0 bench config.yaml out=speed "$@" --steps 2 --json
whole=$(sed -n 's|.*"peak_rss": *\([0-9]*\).*|\1|p' out)
run 0 bench config.yaml out=speed "$@" train.offload.optimizer=disk --steps 2 --json
saved=$(((whole - $(sed -n 's|.*"peak_rss": *\([0-9]*\).*|\1|p' out)) >> 20))
[ $saved -ge 100 ] || is "MiB that left the process" $saved "at least 100"

# memory that suffices with it alone
run 0 run config.yaml out=base overwrite=true
run 6 run config.yaml out=little "backend={name: $backend, threads: 1$cpu_options, memory_limit: 7MiB}"
run 0 run config.yaml out=off overwrite=true train.offload.optimizer=disk \
    "backend={name: $backend, threads: 1$cpu_options, memory_limit: 7MiB}"
same "little memory"
mkdir deep
sed 's/"num_hidden_layers": 4/"num_hidden_layers": 16/' "$source/configs/models/tiny.json" >deep/config.json
limit="backend={name: $backend, threads: 1$cpu_options, memory_limit: 21MiB}"
run 0 run config.yaml out=base overwrite=true model.config=deep/config.json
run 6 run config.yaml out=little overwrite=true model.config=deep/config.json "$limit"
run 0 run config.yaml out=off overwrite=true model.config=deep/config.json train.offload.activations=disk "$limit"
same "little memory for activations"
# a disk that is full: the limit on the size of a file is that of a small one
(
    ulimit -f 500
    run 7 run config.yaml out=full model.config=deep/config.json train.offload.activations=disk checkpoint.every=0 \
        checkpoint.export=none
    exit $failed
) || failed=1
has err "cannot keep activations in a file (train.offload.activations): File too large"
for what in optimizer activations; do
    run 2 run config.yaml out=host train.offload.$what=host
    has err "train.offload: host: backend 'cpu' computes in host memory; expected disk"
    is "$what: lines of a refusal" "$(grep -c 'computes in host memory' err)" 1
done
run 2 run config.yaml out=word train.offload.optimizer=disc
has err "train.offload.optimizer: 'disc' is not one of: none, host, disk"

# the same in a control group, where this user can make one: 8.4 million parameters are 34 MB each of weights and gradients,
# and 67 MB of moments
group= roots='/sys/fs/cgroup/memory /sys/fs/cgroup'
[ "$(stat -f -c %T .)" != tmpfs ] || { echo "skipped: the limit of a control group: files here count as memory"; roots=; }
for root in $roots; do
    [ -e $root/memory.limit_in_bytes ] || [ -e $root/cgroup.controllers ] || continue
    mkdir $root/nrl-offload-$$ 2>dd || continue
    group=$root/nrl-offload-$$
    break
done
for limit in memory.limit_in_bytes memory.max; do
    [ -n "$group" ] && [ -e "$group/$limit" ] && echo 146800640 >"$group/$limit" && limited=$limit
done
# in_group ARGUMENT...: nrl in that group
in_group() {
    sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" "$nrl" "$@" >out 2>err
    code=$?
}
if [ -n "${limited-}" ]; then
    mkdir wide
    cat >wide/config.json <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
 "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true,
 "bos_token_id": 1, "eos_token_id": 2}
JSON
    rows 8 >train.jsonl
    set -- run config.yaml "model={config: wide/config.json}" "data={train: train.jsonl, max_length: 64}" train.steps=3 \
        train.global_batch=4 train.micro_batch_tokens=128 checkpoint.every=0 checkpoint.export=none
    in_group "$@" out=group
    [ $code -eq 6 ] || [ $code -eq 137 ] || is "exit code in a control group" $code "6 or 137"
    in_group "$@" out=off overwrite=true train.offload.optimizer=disk
    is "exit code in a control group with offload" $code 0
    run 0 "$@" out=base overwrite=true
    steps base >base.txt
    steps off >off.txt
    cmp base.txt off.txt || is "numbers in a control group" differ "be equal"
    # weights, gradients and moments of 644 MiB, 3 times the limit: with the shards of fsdp elsewhere too, and only then
    sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 16/' wide/config.json
    echo 223000000 >"$group/$limited"
    in_group "$@" out=group overwrite=true train.offload.optimizer=disk
    [ $code -eq 6 ] || [ $code -eq 137 ] || is "exit code of a third of the memory" $code "6 or 137"
    in_group "$@" out=off overwrite=true 'train.offload={optimizer: disk, activations: disk}' \
        'parallel={data: {name: fsdp, offload: disk}}'
    is "exit code of a third of the memory with offload" $code 0
    run 0 "$@" out=base overwrite=true
    steps base >base.txt
    steps off >off.txt
    is "steps with a third of the memory" "$(wc -l <off.txt)" 3
    cmp base.txt off.txt || is "numbers with a third of the memory" differ "be equal"
elif [ -n "$roots" ]; then
    echo "skipped: the limit of a control group: this user cannot create one"
fi
[ -n "$group" ] && await rmdir "$group"

config "$source/configs/data/pref.jsonl" dpo >config.yaml
both dpo
shards 1 ""
config "$chat" sft 'lora: {rank: 4, dropout: 0.1}' >config.yaml
both lora
shards 1 ""
config "$chat" sft | sed 's/name: adamw, lr: 1e-3, weight_decay: 0.1/name: muon, lr: 1e-3/' >config.yaml
both muon
shards 1 ""
exit $failed
