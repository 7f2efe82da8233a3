#!/bin/sh
# context_ring.sh: ranks that pass keys and values around a ring have the losses and gradient norms of one rank, alone
# and with the other axes, for numbers of ranks that do not divide the heads: grouped heads, windows, capped scores,
# biases; preferences with shared prompts, groups of completions; recomputation; 16 bits. They resume on other meshes, and
# send what the strategy's README says.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
rows 64 >train.jsonl
rows 16 >eval.jsonl
same='debug={every: 4}'

# ring N: the value of `parallel` or of an axis in it
ring() {
    echo "{size: $1, kind: ring}"
}

# The weights of a model of this type with random values; there is no file of such a small one.
cat >gemma2.json <<'JSON'
{"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 1024,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 0.5,
 "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
 "tie_word_embeddings": true, "initializer_range": 0.2}
JSON
steps="train.steps=$n_steps data.eval=eval.jsonl checkpoint.every=0 checkpoint.export=none optimizer.clip_norm=0.5"
for model in qwen3 mistral gpt2 gemma2; do
    experiment "eval: {every: $((n_steps / 2))}" | sed "s|models/llama|models/$model|; s|{path: .*gemma2}|{config: gemma2.json}|" >config.yaml
    # shellcheck disable=SC2086
    set -- $steps
    # the keys' biases of gpt2 have no gradient but noise, which a small epsilon makes steps of
    [ $model = gpt2 ] && set -- "$@" optimizer.eps=1e-3
    alone $model "$@"
    ranks 3 $model-3 $exact "parallel={context: $(ring 3)}" "$same" "$@"
done
# with other axes
experiment "eval: {every: $((n_steps / 2))}" | sed "s|models/llama|models/qwen3|" >config.yaml
# shellcheck disable=SC2086
set -- $steps
alone qwen3 "$@"
ranks 4 fsdp $exact "parallel={context: $(ring 2), data: fsdp}" "$same" "$@"
ranks 4 tensor $exact "parallel={context: $(ring 2), tensor: 2}" "$same" "$@"
ranks 4 pipeline $exact "parallel={context: $(ring 2), pipeline: 2}" "$same" "$@"
ranks 2 recomputed $exact "parallel={context: $(ring 2)}" train.activation_checkpointing=all "$@"
lora="lora.rank=4 lora.alpha=8 lora.dropout=0.1 lora.targets=all-linear optimizer.lr=1e-2"
# shellcheck disable=SC2086
alone lora $lora "$@"
# shellcheck disable=SC2086
ranks 4 lora-4 $exact "parallel={context: $(ring 2), data: fsdp}" "$same" $lora "$@"
alone bf16 train.precision=bf16 "$@"
ranks 2 bf16 $bf16_unit "parallel={context: $(ring 2)}" train.precision=bf16 "$same" "$@"

# ---- preferences, groups ----
preferences pref dpo | sed 's/steps: 4,/steps: 30,/; s/eval: {every: 2}/eval: {every: 10}/' >config.yaml
alone dpo
ranks 3 dpo-3 $exact "parallel={context: $(ring 3)}" "$same"
data=$source/tests/data
cat >cases.lua <<LUA
local nrl = require "nrl"
local case = nrl.json.decode(io.open("$data/grpo/grpo.json"):read "a").cases[1]
io.open("config.yaml", "w"):write((case.config:gsub("TESTS", "$data")))
LUA
run 0 run cases.lua
# losses are small differences of large advantages, so their distance is absolute
run 0 run config.yaml out=grpo
run 0 launch -n 2 -- run config.yaml out=grpo-2 "parallel={context: $(ring 2)}"
numbers grpo/metrics.jsonl >expected.txt
numbers grpo-2/metrics.jsonl | paste expected.txt - | awk '
    function off(a, b) { return a > b ? a - b : b - a }
    off($1, $3) > 1e-6 || off($2, $4) > 1e-5 * $2 { print "grpo: " $0; bad = 1 }
    END { if (NR != 8) print NR " steps of grpo"; exit bad || NR != 8 }' || failed=1

# ---- resuming: on the same mesh bit for bit, on others up to the order of sums; a lost rank ----
experiment | sed "s|models/llama|models/qwen3|" >config.yaml
run 0 launch -n 4 -- run config.yaml out=whole train.steps=8 checkpoint.keep=9 "parallel={data: fsdp, context: $(ring 2)}"
numbers whole/metrics.jsonl >expected.txt
continued alike 4 0 "parallel={data: fsdp, context: $(ring 2)}"
cmp -s whole/model/model.safetensors alike/model/model.safetensors || is "the export" "another" "the same"
continued one 1 1e-5
continued three 3 1e-5 "parallel={context: $(ring 3)}"
continued ulysses 2 1e-5 parallel.context=2
cat >die.lua <<LUA
local nrl = require "nrl"
local run = nrl.open(nrl.config "config.yaml")
run:on("step", function(e) if nrl.rank == 1 and e.step == 5 then os.execute "kill -9 \$PPID" end end)
run:train()
LUA
run 137 launch -n 2 --grace 1 -- run die.lua out=dies "parallel={context: $(ring 2)}" train.steps=8 checkpoint.keep=9
has err "rank 1"
run 0 launch -n 2 -- run config.yaml out=dies resume=auto "parallel={context: $(ring 2)}" train.steps=8 checkpoint.keep=9
compare dies 1e-5

# ---- bytes: what recomputing adds is the keys and values of a forward; 2 layers, G = 2 heads of K = 8 ----
experiment | sed 's|{path: .*llama}|{config: gemma2.json}|' >config.yaml
awk 'BEGIN {
    for (i = 0; i < 1024; i++) ids = ids (i ? ", " : "") 3 + i % 90
    print "{\"input_ids\": [" ids "], \"labels\": [" ids "]}" }' >long.jsonl
sent() {
    run 0 launch -n 4 -- run config.yaml out=bytes overwrite=true data.train=long.jsonl data.max_length=1024 train.micro_batch_tokens=1024 \
        train.global_batch=1 train.steps=1 checkpoint.every=0 checkpoint.export=none "parallel={context: $(ring 4)}" "$@"
    sed -n 's/.*"comm_bytes": *\([0-9]*\).*/\1/p' bytes/metrics.jsonl
}
plain=$(sent)
forward=$(($(sent train.activation_checkpointing=all) - plain))
wanted=$((2 * 1024 / 4 * 8 * 4 * 3 * 2 * 2)) # layers n K e (R - 1) 2G
[ $((forward - wanted)) -ge 0 ] && [ $((100 * (forward - wanted))) -le $((2 * wanted)) ] ||
    is "bytes of a forward" "$forward" "$wanted and at most 2 % of headers"
# too few tokens: every rank computes all
awk 'BEGIN { for (i = 0; i < 8; i++) print "{\"input_ids\": [5, 6, 7, 8], \"labels\": [5, 6, 7, 8]}" }' >short.jsonl
few="data.train=short.jsonl data.packing=false train.micro_batch=1 train.steps=4 checkpoint.every=0 checkpoint.export=none"
# shellcheck disable=SC2086
alone few $few
# shellcheck disable=SC2086
ranks 3 few-3 $exact "parallel={context: $(ring 3)}" "$same" $few

# ---- mistakes ----
run 2 run config.yaml out=bad 'parallel={context: {size: 2, kind: rings}}'
has err "parallel.context.kind"
has err "ulysses, ring"
exit $failed
