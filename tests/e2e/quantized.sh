#!/bin/sh
# quantized.sh: with lora.base the frozen matrices are stored in 4 or 8 bits. Losses are those of training on the
# dequantized weights, for any number of ranks on any axis, with recomputed activations, and after a resume; the plan
# counts the memory; exports are merged into the dequantized weights; an online reference is the policy without
# adapters. Mistakes are reported.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

wide '{rank: 4, alpha: 8, base: nf4}'

losses() {
    sed -n 's/.*"step": \([0-9]*\),.*"loss": \([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}
# near RUN: losses within 1e-5 of those in the file expected.txt
near() {
    losses "$1" >got.txt
    awk 'NR == FNR { want[$1] = $2; n++; next }
         { d = $2 - want[$1]; if (d < 0) d = -d; if (d > 1e-5) bad = 1; m++ }
         END { exit bad || n != m || !n }' expected.txt got.txt && return
    echo "losses of $1:"
    paste expected.txt got.txt
    failed=1
}

# ---- equal to adapters on the dequantized weights, which a run without a step exports ----

for base in fp4 int8 nf4; do
    run 0 run config.yaml lora.base=$base out=zero-$base train.steps=1 optimizer.lr=0
    run 0 run config.yaml lora.base=full model.path=zero-$base/model out=on-$base
    losses on-$base >expected.txt
    run 0 run config.yaml lora.base=$base out=$base
    near $base
    has out "in $base)"
done
cmp -s zero-nf4/model/model.safetensors base/model/model.safetensors && { echo "nf4 changed nothing"; failed=1; }
run 0 check config.yaml out=none
has out "361,088 frozen (0.4 MiB in nf4)"
has out "weights 0.5 MiB"
run 0 run config.yaml out=recomputed train.activation_checkpointing=all
cmp nf4/model/model.safetensors recomputed/model/model.safetensors || failed=1
run 0 run config.yaml out=bf16 train.precision=bf16

# ---- resumed, exported, evaluated, started from ----

cp -r nf4 stopped
rm -r stopped/checkpoints/step-00000006 stopped/model
run 2 run config.yaml out=stopped resume=auto lora.base=fp4
has err 'adapter.base: was "nf4", is now "fp4"'
run 0 run config.yaml out=stopped resume=auto
cmp nf4/model/model.safetensors stopped/model/model.safetensors || failed=1
run 0 export nf4 merged --dtype f32
cmp nf4/model/model.safetensors merged/model.safetensors || failed=1
run 0 sample nf4 --prompt "Spell the word" --max-tokens 8
mv out sampled
run 0 sample merged --prompt "Spell the word" --max-tokens 8
cmp out sampled || failed=1
run 0 export nf4 adapter --adapter
run 0 run config.yaml out=used 'lora={use: adapter, base: nf4}' train.steps=1

# ---- several ranks ----

for axis in ddp fsdp '{name: fsdp, shard: optimizer}' '{tensor: 2}' '{pipeline: 2}'; do
    rm -rf ranks
    run 0 launch -n 2 -- run config.yaml out=ranks parallel="$axis"
    near ranks
done
rm -rf ranks
run 0 launch -n 4 -- run config.yaml out=ranks 'parallel={tensor: 2, data: fsdp}'
near ranks
run 2 launch -n 2 -- run config.yaml out=narrow 'parallel={tensor: 2}' \
    "model={config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}"
has err "which is stored in blocks of 64 elements: the share of a rank has ranges of 32"

# ---- a reference without memory of its own ----

cat >dpo.yaml <<YAML
model: {path: base/model}
data: {train: $source/configs/data/pref.jsonl, max_length: 256, template: chatml, cache: cache}
algorithm: dpo
lora: {rank: 4, base: nf4}
train: {steps: 2, global_batch: 8, micro_batch_tokens: 256, seed: 3}
optimizer: {name: adamw, lr: 1e-3}
loggers: [console, jsonl]
$one_thread_yaml
YAML
run 0 run dpo.yaml out=dpo
has out "the policy without its adapters"
has dpo/metrics.jsonl '"loss": 0.693'
run 2 check config.yaml out=none lora.base=nf3
has err "lora.base"
# the option belongs to the core, and is found under the name of each adapter
run 0 describe lora.base
has out "full|nf4|fp4|int8"
exit $failed
