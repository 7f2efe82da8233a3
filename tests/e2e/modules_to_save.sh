#!/bin/sh
# modules_to_save.sh: with lora.modules_to_save whole modules are trained beside the adapters. The numbers are the same on
# any number of ranks; checkpoints, exports, adapters on disk, another run and a reference contain them; a tied head stays
# tied; the base may be quantized. Mistakes are reported.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$source/configs/models/tiny.json" >untied.json
cat >config.yaml <<YAML
model: {config: untied.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
lora: {rank: 4, alpha: 8, targets: [q_proj, v_proj, down_proj], modules_to_save: [embed_tokens, lm_head, norm, 3.mlp]}
train: {steps: 8, global_batch: 8, micro_batch_tokens: 128, seed: 3}
optimizer: {name: adamw, lr: 1e-2, weight_decay: 0.1, clip_norm: 0.5}
checkpoint: {every: 4, export_dtype: f32}
loggers: [console, jsonl]
$one_thread_yaml
YAML

# ---- one rank ----

run 0 run config.yaml out=start train.steps=1 optimizer.lr=0
run 0 run config.yaml out=plain
numbers plain/metrics.jsonl >expected.txt
has out "lora       rank 4, alpha 8 on 11 modules"
run 0 checkpoint inspect plain
has out "model.layers.3.mlp.down_proj.weight"
has out "model.embed_tokens.weight"
lacks out "model.layers.2.mlp.down_proj.weight"
lacks out "layers.3.mlp.down_proj.lora_A"
run 0 run config.yaml out=without lora.modules_to_save=null
numbers without/metrics.jsonl | cmp -s - expected.txt && { echo "modules_to_save changes nothing"; failed=1; }
run 0 run config.yaml out=recomputed train.activation_checkpointing=all
numbers recomputed/metrics.jsonl | cmp - expected.txt || failed=1

run 0 run config.yaml out=stopped train.steps=4
run 2 run config.yaml out=stopped resume=auto 'lora.modules_to_save=[norm]'
has err "lora.modules_to_save: "
run 0 run config.yaml out=stopped resume=auto
run 0 checkpoint diff plain/checkpoints/step-00000008 stopped/checkpoints/step-00000008
has out "0 tensors differ"

# ---- merged, as an adapter, in another run ----

run 0 export plain merged --dtype f32
cmp merged/model.safetensors plain/model/model.safetensors || failed=1
run 0 sample plain --prompt "Spell the word" --max-tokens 8
mv out sampled
run 0 sample merged --prompt "Spell the word" --max-tokens 8
cmp out sampled || failed=1
run 0 export plain adapter --adapter
has adapter/adapter_config.json '"model.layers.3.mlp.down_proj"'
has adapter/adapter_config.json '"CAUSAL_LM"'
run 0 run config.yaml out=used 'lora={use: adapter}' train.steps=1 optimizer.lr=0
cmp used/model/model.safetensors merged/model.safetensors || failed=1
run 0 run config.yaml out=used-again 'lora={use: adapter, modules_to_save: [norm, embed_tokens, 3.mlp, lm_head]}' train.steps=1
run 2 run config.yaml out=used-less 'lora={use: adapter, modules_to_save: [norm]}' train.steps=1
has err "lora.modules_to_save: the adapter of lora.use has its own"
run 0 resume used train.steps=2
# on top of a run with adapters and modules of its own; its modules get adapters, its adapters a module
run 0 run config.yaml out=over model.config=null model.path=plain train.steps=1 optimizer.lr=0 \
    'lora={rank: 2, modules_to_save: [q_proj]}'
cmp over/model/model.safetensors merged/model.safetensors || failed=1
run 0 run config.yaml out=over2 model.config=null model.path=plain train.steps=2 'lora={rank: 2, modules_to_save: [q_proj]}'
run 0 export over2 over2-merged --dtype f32
cmp over2/model/model.safetensors over2-merged/model.safetensors || failed=1

# ---- tied ----

cp "$source/configs/models/tiny.json" tied.json
run 0 run config.yaml out=tied model.config=tied.json 'lora={rank: 4, modules_to_save: [lm_head]}' train.steps=2
run 0 export tied tied-adapter --adapter
grep -q 'base_model.model.lm_head.weight' tied-adapter/adapter_model.safetensors || { echo "no head for peft"; failed=1; }
has tied-adapter/adapter_config.json '"ensure_weight_tying": true'
run 0 run config.yaml out=tied-used model.config=tied.json 'lora={use: tied-adapter}' train.steps=1 optimizer.lr=0
cmp tied-used/model/model.safetensors tied/model/model.safetensors || failed=1

# ---- several ranks ----

for how in ddp fsdp '{data: {name: fsdp, shard: grads}}' '{tensor: 2}' '{pipeline: 2}'; do
    rm -rf many
    run 0 launch -n 2 -- run config.yaml out=many parallel="$how"
    compare many 1e-5
    run 0 export many many-merged --dtype f32 --overwrite
    cmp many-merged/model.safetensors many/model/model.safetensors || failed=1
done

# ---- a quantized base; a reference, which has the modules of the start ----

sed 's/"hidden_size": 64/"hidden_size": 128/; s/"intermediate_size": 192/"intermediate_size": 256/
     s/"num_hidden_layers": 4/"num_hidden_layers": 2/; s/"head_dim": 16/"head_dim": 32/' \
    "$source/configs/models/tiny.json" >wide.json
run 0 run config.yaml out=base lora=null model.config=wide.json train.steps=1
narrow='lora={rank: 4, base: nf4, modules_to_save: [embed_tokens, lm_head, 1.mlp]}'
run 0 run config.yaml out=quantized model.config=null model.path=base/model "$narrow"
numbers quantized/metrics.jsonl >expected.txt
run 0 export quantized quantized-merged --dtype f32
cmp quantized/model/model.safetensors quantized-merged/model.safetensors || failed=1
run 0 launch -n 2 -- run config.yaml out=quantized-ranks model.config=null model.path=base/model "$narrow" parallel=fsdp
compare quantized-ranks 1e-5

cat >dpo.yaml <<YAML
model: {path: base/model}
data: {train: $source/configs/data/pref.jsonl, max_length: 256, template: chatml, cache: cache}
algorithm: dpo
lora: {rank: 4, modules_to_save: [norm]}
train: {steps: 3, global_batch: 8, micro_batch_tokens: 256, seed: 3}
optimizer: {name: adamw, lr: 1e-2}
loggers: [console, jsonl]
$one_thread_yaml
YAML
run 0 run dpo.yaml out=dpo
has out "reference  a forward each step, weights"
numbers dpo/metrics.jsonl >expected.txt
run 0 run dpo.yaml out=dpo-own algorithm.reference_model=base/model
numbers dpo-own/metrics.jsonl | cmp - expected.txt || failed=1

# ---- mistakes ----

run 2 check config.yaml out=none 'lora.modules_to_save=[embed_token]'
has err "lora.modules_to_save: no module has a name that ends in 'embed_token'; expected one such as model.layers."
run 2 check config.yaml out=none lora.modules_to_save=norm
has err "lora.modules_to_save: expected a list of names"
run 2 check config.yaml out=none 'lora={targets: [q_proj], modules_to_save: [q_proj]}'
has err "in modules_to_save: these have no adapters"
exit $failed
