#!/bin/sh
# ranks_activations.sh: ranks that divide the tokens of a micro-batch hold their share of the activations, as `nrl bench`
# measures them: with `context` of all, with `sequence` of those that `tensor` leaves whole, as `nrl check` predicts.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

near=5 # percent; a CPU borrows the batch's own arrays, where a device has copies
cat >model.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 192,
 "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8, "max_position_embeddings": 1024,
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
JSON
awk 'BEGIN { for (i = 0; i < 1024; i++) ids = ids (i ? ", " : "") 3 + i % 90
    for (i = 0; i < 8; i++) print "{\"input_ids\": [" ids "], \"labels\": [" ids "]}" }' >train.jsonl
experiment | sed 's|{path: .*llama}|{config: model.json}|; s/max_length: 64/max_length: 1024/
    s/global_batch: 4, micro_batch_tokens: 128/global_batch: 2, micro_batch_tokens: 1024/' >config.yaml

# taken NAME RANKS ARGUMENT...: bytes of activations on rank 0, in $taken
taken() {
    name=$1 n=$2
    shift 2
    run 0 launch -n "$n" -- bench config.yaml out=planned "$@" --steps 2 --json
    taken=$(sed -n 's/.*"activation_bytes": *\([0-9]*\).*/\1/p' out | head -n 1)
}

# share WHOLE MOST: $taken is at most that part of WHOLE
share() {
    echo "$name: $taken of $1 bytes"
    awk -v a="${taken:-0}" -v b="$1" -v most="$2" 'BEGIN { exit !(a > 0 && a <= most * b) }' ||
        is "bytes of $name" "$taken of $1" "at most $2 of that"
}

# said ARGUMENT...: `nrl check` predicts $taken
said() {
    run 0 check config.yaml out=planned "$@" --json
    said=$(grep -o '"micro_batch": *[0-9]*' out | grep -o '[0-9]*$')
    awk -v a="${said:-0}" -v b="$taken" -v near=$near 'BEGIN { d = 100 * (a / b - 1); exit d > near || d < -near }' ||
        is "bytes predicted for $name" "$said" "$taken"
}

# ulysses has the queries, keys and values of all tokens for some heads; a ring passes on those of others
taken one 1
one=$taken
said
taken "ulysses 2" 2 'parallel={context: 2}'
share "$one" 0.55
taken "ulysses 4" 4 'parallel={context: 4}'
share "$one" 0.28
taken "ring 2" 2 'parallel={context: {size: 2, kind: ring}}'
share "$one" 0.51
taken "ring 4" 4 'parallel={context: {size: 4, kind: ring}}'
share "$one" 0.26

# matrices and attention are divided by `tensor` already; what remains is norms and residuals
for n in 2 4; do
    taken "tensor $n" $n parallel.tensor=$n
    tensor=$taken
    taken "sequence $n" $n "parallel={tensor: {size: $n, sequence: true}}"
    said "parallel={tensor: {size: $n, sequence: true}}"
    [ $n = 2 ] && share "$tensor" 0.9 || share "$tensor" 0.75
done
exit $failed
