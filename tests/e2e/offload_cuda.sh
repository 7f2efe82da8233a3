#!/bin/sh
# offload_cuda.sh: train.offload on the emulated GPU, whose copies are executed as late as streams and events allow: every
# number and every byte of the exported model is that of a run without it, in fp32 and bf16, with adapters, other
# optimizers, recomputed activations, the shards of fsdp and two ranks; a resume of either kind continues the other, and a
# run that is killed goes on. The emulated GPU rounds updates as the CPU does, which has them with train.offload.optimizer.
. "$(dirname "$0")/e2e.sh"

emulated_cuda || exit 77
FAKE_CUDA_LATE=1
export FAKE_CUDA_LATE

cat >model.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 70, "hidden_size": 16,
 "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
 "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
 "initializer_range": 0.05, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
token_rows 8 32 70 >rows.jsonl
cat >config.yaml <<YAML
model: {config: model.json}
data: {train: rows.jsonl, max_length: 32, cache: cache}
train: {steps: 2, global_batch: 4, micro_batch_tokens: 64, seed: 3}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
checkpoint: {every: 1}
loggers: [jsonl]
backend: cuda
YAML

steps() {
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*|\1 \2|p' "$1/metrics.jsonl"
}

# same NAME [STEPS]: the run `off` is the run `base`, of 2 steps
same() {
    steps base >base.txt
    steps off >off.txt
    is "steps of $1" "$(wc -l <off.txt)" "${2-2}"
    cmp base.txt off.txt || is "numbers of $1" "$(cat off.txt)" "$(cat base.txt)"
    cmp base/model/model.safetensors off/model/model.safetensors || is "model of $1" differs "be equal"
}

states='train.offload={optimizer: host, activations: host}'
shards='parallel={data: {name: fsdp, offload: host}}'
# both NAME ARGUMENT...: without, and with everything elsewhere
both() {
    what=$1
    shift
    run 0 run config.yaml out=base overwrite=true "$@"
    run 0 run config.yaml out=off overwrite=true "$@" "$states" "$shards"
    same "$what"
}

run 0 run config.yaml out=base overwrite=true
for offload in train.offload.optimizer=host train.offload.activations=host "$shards"; do
    run 0 run config.yaml out=off overwrite=true "$offload"
    same "$offload"
done
both checkpointing train.activation_checkpointing=all
both lora 'lora={rank: 4, dropout: 0.1}'
both muon 'optimizer={name: muon, lr: 1e-3}'
both split16 train.precision=bf16 train.master=split16
both bf16 train.precision=bf16
for shard in grads optimizer; do
    run 0 run config.yaml out=off overwrite=true train.precision=bf16 "parallel={data: {name: fsdp, shard: $shard, offload: host}}"
    same "shard: $shard"
done

set -- 'optimizer={name: adamw8bit, lr: 1e-3, min_8bit_size: 256}'
run 0 run config.yaml out=base overwrite=true "$@"
run 0 run config.yaml out=off overwrite=true "$@" train.offload.optimizer=host
same adamw8bit
for parallel in ddp fsdp '{tensor: 2}'; do
    set -- parallel="$parallel" train.precision=bf16 collective=gloo 'backend={name: cuda, device: 0}'
    run 0 launch -n 2 -- run config.yaml out=base overwrite=true "$@"
    run 0 launch -n 2 -- run config.yaml out=off overwrite=true "$@" train.offload.optimizer=host
    same "2 ranks, $parallel"
done

# the device decides about the updates after the first, and the host about those that it makes itself
for precision in fp32 bf16; do
    set -- train.steps=4 train.precision=$precision optimizer.clip_norm=0.05
    run 0 run config.yaml out=base overwrite=true "$@"
    run 0 run config.yaml out=off overwrite=true "$@" train.offload.optimizer=host
    same "decisions in $precision" 4
done

# copies that are executed at once are no other numbers
run 0 run config.yaml out=base overwrite=true
unset FAKE_CUDA_LATE
run 0 run config.yaml out=off overwrite=true "$states" "$shards"
same "copies in time"

# a resume of either kind continues the other; a run that is killed goes on
rm -rf off && cp -r base off && rm -rf off/checkpoints/step-00000002 off/model
run 0 resume off train.offload.optimizer=host train.offload.activations=host
same resume
rm -rf off/checkpoints/step-00000002 off/model
run 0 resume off train.offload.optimizer=none train.offload.activations=none
same "resume without"
"$nrl" run config.yaml out=off overwrite=true "$states" "$shards" train.steps=100000 checkpoint.keep=0 >out 2>err &
pid=$!
await test -e off/checkpoints/step-00000003/manifest.json
kill -9 $pid
wait $pid 2>dd
last=$(ls off/checkpoints | grep -v tmp | tail -n 1)
run 0 resume off train.steps=$(($(echo "${last#step-}" | sed 's/^0*//') + 1)) checkpoint.mismatch=warn

run 0 check config.yaml out=planned train.offload.optimizer=host
has out " of offloaded data"
has out "offloaded states are updated by 'cpu', with 48.0 MiB of pinned memory for copies"
run 0 check config.yaml out=planned train.offload.activations=host
has out "KiB more of activations are stored in host memory until their backward pass (train.offload.activations)"
for what in optimizer activations; do
    run 2 run config.yaml out=disk train.offload.$what=disk
    has err "train.offload: disk is not supported by backend 'cuda', which uses pinned host memory; expected host"
done
exit $failed
