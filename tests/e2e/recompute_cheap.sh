#!/bin/sh
# recompute_cheap.sh: results of norms and gated activations that are kept for the backward pass (train.recompute_cheap:
# false) give the bits of those that it computes again, also with recomputed layers, parts of a sequence on each rank, and on
# the emulated GPU. There are fewer passes, more activations, and the estimate knows them.
. "$(dirname "$0")/e2e.sh"

OMP_NUM_THREADS=1
export OMP_NUM_THREADS
cat >model.json <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 70, "hidden_size": 32, "intermediate_size": 96,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.05,
 "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
token_rows 12 32 70 >rows.jsonl
cat >config.yaml <<YAML
model: {config: model.json}
data: {train: rows.jsonl, max_length: 48, cache: cache}
train: {steps: 3, global_batch: 4, micro_batch_tokens: 96, seed: 3}
optimizer: {name: adamw, lr: 1e-2}
checkpoint: {every: 0, export: none}
loggers: [jsonl]
YAML
keep=train.recompute_cheap=false

# same ARGUMENT...: the numbers of both ways
same() {
    alone again "$@"
    is "steps of $*" "$(wc -l <expected.txt)" 3
    run 0 run config.yaml out=kept overwrite=true $keep "$@"
    numbers kept/metrics.jsonl >kept.txt
    is "numbers of $*" "$(cat kept.txt)" "$(cat expected.txt)"
}
same
same train.precision=bf16 train.gradients=bf16
same train.activation_checkpointing=all
same adapter=lora
run 0 launch -n 2 -- run config.yaml out=again overwrite=true 'parallel={tensor: {size: 2, sequence: true}}'
numbers again/metrics.jsonl >expected.txt
run 0 launch -n 2 -- run config.yaml out=kept overwrite=true $keep 'parallel={tensor: {size: 2, sequence: true}}'
numbers kept/metrics.jsonl >kept.txt
is "numbers of two ranks" "$(cat kept.txt)" "$(cat expected.txt)"

# value NAME: the number of the last output; calls OPERATION: of a step of one micro-batch
value() {
    sed -n 's|.*"'"$1"'": *\([0-9]*\).*|\1|p' out | head -n 1
}
calls() {
    sed -n 's|.*"op": *"'"$1"'"[^}]*"calls_a_step": *\([0-9]*\)[.,].*|\1|p' out
}
step="train.global_batch=1 train.steps=30 --steps 1 --json"
run 0 bench config.yaml out=bench $step
is "gates and norms of a step" "$(calls glu) $(calls norm)" "4 13" # of a layer 1 and 4, of which 1 and 2 again; a norm at the end
again=$(value activation_bytes)
run 0 bench config.yaml out=bench overwrite=true $step $keep
is "gates and norms that are kept" "$(calls glu) $(calls norm)" "2 9"
[ "$(value activation_bytes)" -gt "$again" ] || is "activations that are kept" "$(value activation_bytes)" "more than $again"

# estimate ARGUMENT...: bytes of a micro-batch
estimate() {
    run 0 check config.yaml out=none --json "$@"
    value micro_batch
}
small=$(estimate)
large=$(estimate $keep)
[ "$large" -gt "$small" ] || is "the estimate" "$large" "more than $small"

emulated_cuda || exit $failed
same backend=cuda train.precision=bf16
exit $failed
