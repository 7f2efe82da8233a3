#!/bin/sh
# expert_ranks.sh: ranks that divide the experts of a mixture have the losses, router losses and gradient norms of one
# rank, alone and with the other axes, with adapters and in 16 bits; each has its share of the experts' memory; a run
# goes on with another number of ranks; what cannot be divided is told.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
same='debug={every: 4}' # values are equal on all ranks that should have them

# rows of the 48 tokens of these models
awk 'BEGIN { for (i = 0; i < 32; i++) { ids = ""
    for (t = 0; t < 6 + (i * 7) % 19; t++) ids = ids (t ? ", " : "") 3 + (i * 31 + t * t * 17) % 44
    print "{\"input_ids\": [" ids "], \"labels\": [" ids "]}" } }' >train.jsonl
head -8 train.jsonl >eval.jsonl
# One row a micro-batch: the balance loss is one of each micro-batch, so that all ranks must have the same ones.
config() {
    cat <<YAML
model: {path: $source/tests/data/experts/$1}
data: {train: train.jsonl, eval: eval.jsonl, max_length: 64, packing: false}
train: {steps: 30, global_batch: 4, micro_batch: 1}
optimizer: {name: adamw, lr: 1e-3, clip_norm: 0.5}
eval: {every: 10}
checkpoint: {every: 0, export: none}
loggers: [console, jsonl]
$one_thread_yaml
YAML
}

for model in qwen3_moe mixtral olmoe; do
    config $model >config.yaml
    alone $model
    ranks 2 $model-2 $exact parallel.experts=2 "$same"
    ranks 4 $model-fsdp $exact 'parallel={experts: 2, data: fsdp}' "$same"
done

# biases of experts are shared: their gradients are sums over the axis. Steps of 1e-3 are so large for this model that they
# amplify roundings: the norms of any number of ranks, also of one, then come to be 5e-5 away from those of float64 on one
# CPU, and may be a few times that on another.
config gpt_oss >config.yaml
set -- optimizer.lr=3e-4
alone gpt_oss "$@"
ranks 2 gpt_oss-2 $exact parallel.experts=2 "$same" "$@"
ranks 4 gpt_oss-4 $exact parallel.experts=4 "$same" "$@"
ranks 4 gpt_oss-fsdp $exact 'parallel={experts: 2, data: fsdp}' "$same" "$@"
{ tr '{' '\n' <"$source/tests/data/experts/gpt_oss/float64.json"; echo; } |
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*|\1 \2|p' >expected.txt
is "steps in float64" "$(wc -l <expected.txt)" 30
set -- data.shuffle=false optimizer.weight_decay=0 schedule=constant eval.every=0 data.eval=null
rounded=1e-5
norms=20
run 0 run config.yaml out=float32 "$@"
compare float32 $rounded
ranks 2 float32-2 $rounded parallel.experts=2 "$@"
ranks 4 float32-4 $rounded parallel.experts=4 "$@"
ranks 2 float32-ddp $rounded parallel=ddp "$@"
norms=10

config qwen3_moe >config.yaml
alone axes train.steps=6 eval.every=3
set -- train.steps=6 eval.every=3 "$same"
ranks 4 four $exact parallel.experts=4 "$@"
ranks 4 ddp $exact 'parallel={experts: 2, data: ddp}' "$@"
ranks 4 tensor $exact 'parallel={experts: 2, tensor: 2}' "$@"
ranks 4 sequence $exact 'parallel={experts: 2, tensor: {size: 2, sequence: true}}' "$@"
ranks 4 stages $exact 'parallel={experts: 2, pipeline: 2}' "$@"
ranks 2 recomputed $exact parallel.experts=2 train.activation_checkpointing=all "$@"
# a rank with no rows of its own in a step, and one expert a rank
alone few train.steps=4 train.global_batch=1
ranks 4 few $exact parallel.experts=4 train.steps=4 train.global_batch=1
alone bf16 train.precision=bf16 train.steps=6
ranks 2 bf16 $bf16_unit parallel.experts=2 train.precision=bf16 train.steps=6
ranks 4 halves $bf16_unit 'parallel={experts: 2, data: fsdp}' train.precision=bf16 train.steps=6 train.master=split16 \
    train.gradients=bf16
# whole matrices, blocks of elements: states that are not slices of parameters
for optimizer in muon adamw8bit adafactor; do
    alone $optimizer train.steps=6 optimizer.name=$optimizer
    ranks 2 $optimizer $exact parallel.experts=2 train.steps=6 optimizer.name=$optimizer
    ranks 4 $optimizer $exact 'parallel={experts: 2, data: fsdp}' train.steps=6 optimizer.name=$optimizer
done
# without the balance loss the tokens of a micro-batch may be divided too
config olmoe >config.yaml
alone tokens train.steps=6
ranks 4 tokens $exact 'parallel={experts: 2, context: 2}' train.steps=6 "$same"

# ---- adapters: of attention and experts; of experts alone, whose first layer has nothing trained before it ----
config mixtral >config.yaml
for targets in all-linear '[w1, w2]'; do
    set -- train.steps=6 optimizer.lr=1e-2 "lora={rank: 2, targets: $targets}"
    alone lora "$@"
    ranks 2 lora-2 $exact parallel.experts=2 "$same" "$@"
    ranks 4 lora-4 $exact 'parallel={experts: 2, data: fsdp}' "$same" "$@"
done
run 0 run config.yaml out=adapted checkpoint.export=last "$@"
run 0 launch -n 2 -- run config.yaml out=adapted-2 checkpoint.export=last parallel.experts=2 "$@"
is "parameters of the adapter" "$(ls adapted-2/model)" "$(ls adapted/model)"

# ---- memory: 6912 of the 10768 parameters are of experts; two ranks have 3456 of them each, of 4 bytes ----
config mixtral >config.yaml
run 0 run config.yaml out=one train.steps=1
has out "weights 42.1 KiB, gradients 42.1 KiB, optimizer 84.1 KiB"
run 0 launch -n 2 -- run config.yaml out=two train.steps=1 parallel.experts=2
has out "experts: 2 ranks with 3 of 6 experts each; 0.2 KiB sent per token and chosen expert"
has out "weights 28.6 KiB, gradients 28.6 KiB, optimizer 57.1 KiB"

# ---- another number of ranks goes on with the same numbers; the same one bit for bit ----
config qwen3_moe >config.yaml
set -- checkpoint.every=2 checkpoint.export=last
run 0 launch -n 4 -- run config.yaml out=whole train.steps=8 checkpoint.keep=9 'parallel={experts: 2, data: fsdp}' "$@"
numbers whole/metrics.jsonl >expected.txt
continued alike 4 0 'parallel={experts: 2, data: fsdp}' "$@"
cmp -s whole/model/model.safetensors alike/model/model.safetensors || is "the export" "another" "the same"
continued one 1 1e-5 "$@"
continued pair 2 1e-5 parallel.experts=2 "$@"
continued four 4 1e-5 parallel.experts=4 "$@"
continued tensor 4 1e-5 'parallel={experts: 2, tensor: 2}' "$@"

# ---- weights and optimizer states that go to another mesh and are saved there keep their bits ----
cat >again.lua <<'LUA'
local nrl = require "nrl"
nrl.open(nrl.config "config.yaml"):save()
LUA
moved() { # moved RANKS PARALLEL
    rm -rf again && cp -r whole again && rm -rf again/checkpoints/step-0000000[678]
    run 0 launch -n "$1" -- run again.lua out=again resume=auto checkpoint.mismatch=warn parallel="$2"
    is "files written by $1 ranks" "$(find again/checkpoints/step-00000004 -name 'rank-*' | wc -l | tr -d ' ')" "$1"
    run 0 checkpoint diff whole/checkpoints/step-00000004 again/checkpoints/step-00000004
    has out "0 tensors differ"
}
moved 1 ddp
moved 2 '{experts: 2}'
moved 4 '{experts: 2, tensor: 2}'

# ---- a gradient that a rank of the axis has is not missing ----
sed 's/"num_experts_per_tok": 2/"num_experts_per_tok": 8/; s/"tie_word_embeddings": true/"tie_word_embeddings": false/' \
    "$source/configs/models/tiny-experts.json" >all.json
run 0 launch -n 4 -- run "$source/configs/sft.yaml" model.config=all.json train.global_batch=1 train.steps=2 train.epochs=0 \
    schedule=constant eval.every=0 checkpoint.every=0 "$one_thread" out=all 'parallel={data: {name: ddp, unused: error, size: 2}, experts: 2}'

# ---- what cannot be divided ----
config mixtral >config.yaml
run 2 launch -n 4 -- run config.yaml out=bad parallel.experts=4
has err "cannot divide 6 experts over 4 ranks; expected a number of ranks that divides 6"
run 2 launch -n 2 -- run config.yaml out=bad parallel.experts=2 train.on_oom=retry
has err "train.on_oom: retry is not supported"
run 2 launch -n 2 -- run config.yaml out=bad parallel.experts=2 model.path="$source/tests/data/models/llama"
has err "model 'llama' has no experts that 2 ranks can divide"
run 2 launch -n 2 -- run config.yaml out=bad parallel.experts=2 'lora={rank: 2, targets: [experts.0.w1]}'
has err "differ in shape, or only one of them is trained; expected experts with equal parameters"
exit $failed
