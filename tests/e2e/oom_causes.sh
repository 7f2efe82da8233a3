#!/bin/sh
# oom_causes.sh: train.on_oom: retry where memory ends for other reasons than backend.memory_limit, which memory_limit.sh
# tests: `ulimit -v`, the limit of a control group, and memory_fraction of a GPU. In less and less memory, the first run that lacks some names the
# limit, repeats its step with smaller micro-batches, and has the numbers of a run with enough.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# A sanitizer wants far more memory than any limit leaves.
(ulimit -v 4000000 && exec "$nrl" version >out 2>err) || { echo "skipped: this build needs more addresses"; exit 77; }

# activations of about 130 MB with 4096 tokens
cat >model.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128, "hidden_size": 64,
 "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
 "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
 "initializer_range": 0.05, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
token_rows 64 64 123 >rows.jsonl
cat >config.yaml <<YAML
model: {config: model.json}
data: {train: rows.jsonl, max_length: 64, cache: cache}
train: {steps: 2, global_batch: 64, micro_batch_tokens: 4096, seed: 3, on_oom: retry}
optimizer: {name: adamw, lr: 1e-3, clip_norm: 0.5}
checkpoint: {every: 0, export: none}
loggers: [jsonl]
$one_thread_yaml
YAML
alone base
lacks err "is repeated"
is "steps of base" "$(wc -l <expected.txt)" 2

# retried NAME LIMIT: the run `less` in that limit has ended with $code; false if it had enough memory
retried() {
    grep -q "is repeated" err || { is "exit code of $1 $2" $code 0 && return 1; }
    is "exit code of $1 $2" $code 0
    has err "step 1 is repeated with micro-batches of 2048"
    compare less $exact
}

for kib in 600000 560000 520000 480000 440000 400000 360000 320000 280000 240000 200000 none; do
    [ $kib != none ] || { is "a run within ulimit -v" "never repeated" repeated && break; }
    (ulimit -v $kib && exec "$nrl" run config.yaml out=less overwrite=true >out 2>err)
    code=$?
    retried "ulimit -v" $kib && has err "of address space that ulimit -v allows" && break
    [ $failed = 0 ] || break
done

limited=
for group in /sys/fs/cgroup/memory/nrl-oom-$$ /sys/fs/cgroup/nrl-oom-$$; do
    [ -e "${group%/*}/memory.limit_in_bytes" ] || [ -e "${group%/*}/cgroup.controllers" ] || continue
    mkdir "$group" 2>dd || continue
    for limit in memory.limit_in_bytes memory.max; do
        [ -e "$group/$limit" ] && limited=$group/$limit
    done
    break
done
if [ -n "$limited" ]; then
    for mib in 240 220 200 180 160 140 120 100 80 none; do
        [ $mib != none ] || { is "a run in a control group" "never repeated" repeated && break; }
        echo $((mib << 20)) >"$limited"
        sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" "$nrl" run config.yaml out=less overwrite=true >out 2>err
        code=$?
        retried "a control group of" "$mib MiB" && has err " free)" && break
        [ $failed = 0 ] || break
    done
    await rmdir "$group"
else
    echo "skipped: the limit of a control group: this user cannot create one"
fi

# The emulated GPU has 1000 MiB. Its pool takes 20 MiB at a time, which the weights, gradients and states of 16384 positions
# nearly fill, and 32 MiB for matrix products.
if emulated_cuda; then
    FAKE_CUDA_LATE=1
    FAKE_CUDA_MEMORY_MIB=1000
    export FAKE_CUDA_LATE FAKE_CUDA_MEMORY_MIB
    sed 's/"n_layer": 4/"n_layer": 2/; s/"vocab_size": 512/"vocab_size": 128/; s/"n_positions": 1024/"n_positions": 16384/' \
        "$source/configs/models/tiny-gpt2.json" >model.json
    sed 's/^backend:.*/backend: cuda/; s/steps: 2, global_batch: 64, micro_batch_tokens: 4096/steps: 1, global_batch: 8, micro_batch_tokens: 512/' \
        config.yaml >gpu.yaml && mv gpu.yaml config.yaml
    alone base
    lacks err "is repeated"
    for share in 0.07 0.05 none; do
        [ $share != none ] || { is "a run with memory_fraction" "never repeated" repeated && break; }
        "$nrl" run config.yaml out=less overwrite=true "backend={name: cuda, memory_fraction: $share}" >out 2>err
        code=$?
        grep -q "is repeated" err || continue
        is "exit code with memory_fraction: $share" $code 0
        has err "backend.memory_fraction"
        compare less $exact
        break
    done
fi
exit $failed
