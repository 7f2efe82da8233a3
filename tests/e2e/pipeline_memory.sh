#!/bin/sh
# pipeline_memory.sh: `nrl check` predicts what the first stage holds beside weights, gradients and states: with every
# schedule, with recomputed activations, in bf16 and with a data axis it is what `nrl bench` measures. The costs that a
# run measures are printed whole, however many units the model has.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

near=5 # percent; a CPU borrows the batch's own arrays, where a device has copies
tiny="{config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}"
staged "$tiny" "$source/configs/data/chat.jsonl" "$source/configs/data/chat_eval.jsonl" sft 512 1e-3 |
    sed 's/global_batch: 16/global_batch: 128/' >config.yaml

run 0 check config.yaml out=planned parallel.pipeline=2
has out "in the micro-batches that the stage holds at a time, one of 484 tokens, the largest of the first steps"

# said_and_taken RANKS ARGUMENT...
said_and_taken() {
    n=$1
    shift
    run 0 check config.yaml out=planned "$@" --json
    said=$(grep -o '"micro_batch": *[0-9]*' out | grep -o '[0-9]*$')
    run 0 launch -n "$n" -- bench config.yaml out=planned "$@" --steps 2 --json
    taken=$(sed -n 's/.*"activation_bytes": *\([0-9]*\).*/\1/p' out | head -n 1)
    echo "$*: ${said:-nothing} said, ${taken:-nothing} taken"
    awk -v a="${said:-0}" -v b="${taken:-1}" -v near=$near 'BEGIN { d = 100 * (a / b - 1); exit d > near || d < -near }' ||
        is "bytes with $*" "$said" "$taken"
}
for options in 'schedule: 1f1b' 'schedule: gpipe' 'schedule: interleaved' 'schedule: zero_bubble'; do
    said_and_taken 2 "parallel={pipeline: {size: 2, $options}}"
done
said_and_taken 2 parallel.pipeline=2 train.activation_checkpointing=all
said_and_taken 2 parallel.pipeline=2 train.precision=bf16
said_and_taken 4 'parallel={data: {name: ddp, size: 2}, pipeline: 2}'

# 402 units
rows 8 >train.jsonl
cat >deep.json <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96, "hidden_size": 8,
 "intermediate_size": 8, "num_hidden_layers": 400, "num_attention_heads": 1, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
JSON
cat >deep.yaml <<YAML
model: {config: deep.json}
data: {train: train.jsonl, max_length: 64}
algorithm: sft
train: {steps: 1, global_batch: 4, micro_batch_tokens: 64}
optimizer: {name: adamw, lr: 1e-3}
checkpoint: {every: 0, export: none}
loggers: [jsonl]
$one_thread_yaml
YAML
run 0 launch -n 2 -- run deep.yaml out=deep 'parallel={pipeline: {size: 2, measure: 1}}'
cat out err | grep -o 'costs: \[[^]]*\] were measured.*' >costs.txt
is "costs of units" "$(sed 's/\].*//' costs.txt | tr , '\n' | wc -l | tr -d ' ')" 402
has costs.txt "and with these costs"
exit $failed
