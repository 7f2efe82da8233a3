#!/bin/sh
# linears_cuda.sh: products of one input that the emulated GPU computes as one (queries, keys and values; gate and up) give
# the CPU's losses, with biases, norms of heads, adapters, bf16 gradients and several ranks; and there are fewer products and
# rotations.
. "$(dirname "$0")/e2e.sh"

emulated_cuda || exit 77
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# model FILE CLASS TYPE: two layers, sizes that are multiples of 64 bytes
model() {
    cat >"$1" <<JSON
{"architectures": ["$2ForCausalLM"], "model_type": "$3", "vocab_size": 70, "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.05,
 "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
}
model llama.json Llama llama
model biased.json Qwen2 qwen2
model normed.json Qwen3 qwen3
token_rows 8 12 70 >rows.jsonl
cat >config.yaml <<YAML
model: {config: llama.json}
data: {train: rows.jsonl, max_length: 16, cache: cache}
train: {steps: 2, global_batch: 4, micro_batch_tokens: 24, seed: 3}
optimizer: {name: adamw, lr: 1e-3}
checkpoint: {every: 0, export: none}
loggers: [jsonl]
YAML

room=2e-5 # f32 sums in another order
# both ARGUMENT...: the losses of one process on the CPU, and on the emulated GPU
both() {
    alone cpu backend=cpu "$@"
    is "steps of $*" "$(grep -c ' ' expected.txt)" 2
    run 0 run config.yaml out=cuda overwrite=true backend=cuda "$@"
    compare cuda $room
}
both model.config=biased.json
both model.config=normed.json
both adapter=lora
both 'adapter={name: lora, targets: [q_proj, gate_proj]}'
both train.activation_checkpointing=all
room=1e-3 # bf16 has 8 bits
both train.gradients=bf16 train.precision=bf16 model.config=biased.json
room=2e-5
both
ranks 2 ddp $room "backend={name: cuda, device: 0}" collective=gloo parallel=ddp
ranks 2 fsdp $room "backend={name: cuda, device: 0}" collective=gloo parallel=fsdp
ranks 2 tensor $room "backend={name: cuda, device: 0}" collective=gloo 'parallel={tensor: 2}'

# Heads whose gradients are rotated back by attention's kernels.
room=1e-3
sed 's|"head_dim": 16|"head_dim": 64|' llama.json >wide.json
both train.precision=bf16 model.config=wide.json

run 0 bench config.yaml out=bench backend=cuda train.steps=30 train.global_batch=1 --steps 1 --json
# calls OPERATION: of a step of one micro-batch
calls() {
    sed -n 's|.*"op": *"'"$1"'"[^}]*"calls_a_step": *\([0-9]*\)[.,].*|\1|p' out
}
is "products of a step" "$(calls gemm)" "$((2 * 12 + 3))" # of a layer 4 and 8, for 7 matrices, and the head's
is "rotations of a step" "$(calls rope)" 2                # of a layer one, of queries and keys, in the forward

# Two experts, of which each token takes both: their products are passed to the backend together, and are not joined.
sed 's|"rms_norm_eps"|"num_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": true,\n&|' normed.json |
    sed 's|Qwen3For|Qwen3MoeFor|; s|"qwen3"|"qwen3_moe"|' >experts.json
room=2e-5
both model.config=experts.json
run 0 bench config.yaml out=experts model.config=experts.json backend=cuda train.steps=30 train.global_batch=1 --steps 1 --json
is "products of a step with experts" "$(calls gemm)" "$((2 * (9 + 2 * 9) + 3))" # a router, and 9 of each expert
exit $failed
