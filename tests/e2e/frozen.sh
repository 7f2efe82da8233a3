#!/bin/sh
# frozen.sh: train.trainable and train.freeze choose parameters by name, and nothing else changes; a resume continues bit
# for bit. train.neftune_alpha changes training alone, and equally on any number of ranks. Mistakes are reported.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
train: {steps: 6, global_batch: 8, micro_batch_tokens: 128, seed: 3}
optimizer: {name: adamw, lr: 1e-2, clip_norm: 0.5}
checkpoint: {every: 3}
loggers: [console, jsonl]
$one_thread_yaml
YAML

# ---- by name ----

run 0 run config.yaml out=start train.steps=1 optimizer.lr=0
run 0 run config.yaml out=part "train.trainable=['*.mlp.*', 'model.norm.weight']" "train.freeze=['model.layers.0.*']"
run 0 checkpoint diff start/checkpoints/step-00000001 part/checkpoints/step-00000006
grep '^weight of' out >weights
lacks weights "self_attn"
lacks weights "layers.0."
lacks weights "embed_tokens"
has weights "model.layers.3.mlp.down_proj.weight"
has weights "model.norm.weight"
lacks out "exp_avg of model.embed_tokens.weight: differs"
numbers part/metrics.jsonl >expected.txt
cp -r part stopped
rm -r stopped/checkpoints/step-00000006 stopped/model
run 0 run config.yaml out=stopped "train.trainable=['*.mlp.*', 'model.norm.weight']" "train.freeze=['model.layers.0.*']" resume=auto
cmp part/model/model.safetensors stopped/model/model.safetensors || failed=1
for how in ddp fsdp '{tensor: 2}' '{pipeline: 2}'; do
    rm -rf ranks
    run 0 launch -n 2 -- run config.yaml out=ranks "train.trainable=['*.mlp.*', 'model.norm.weight']" \
        "train.freeze=['model.layers.0.*']" parallel="$how"
    compare ranks 1e-5
done
run 2 check config.yaml out=none "train.freeze=['*.attn.*']"
has err "train.freeze: '*.attn.*' matches no parameter, such as model.layers."
run 2 check config.yaml out=none "train.freeze=['*']"
has err "nothing is left to train"
run 2 check config.yaml out=none "train.freeze=['*norm*']" 'lora={rank: 4}'
has err "train.freeze: '*norm*' has no effect with lora"
run 2 check config.yaml out=none "train.freeze=model"
has err "train.freeze: expected a list of patterns"

# ---- noise ----

run 0 run config.yaml out=plain
numbers plain/metrics.jsonl >plain.txt
run 0 run config.yaml out=noisy train.neftune_alpha=5
numbers noisy/metrics.jsonl >expected.txt
cmp -s plain.txt expected.txt && { echo "noise changes nothing"; failed=1; }
run 0 run config.yaml out=unpacked train.neftune_alpha=5 data.packing=false train.micro_batch=1
compare unpacked 1e-5
run 0 launch -n 2 -- run config.yaml out=two train.neftune_alpha=5 parallel=ddp
compare two 1e-5
run 0 launch -n 2 -- run config.yaml out=divided train.neftune_alpha=5 'parallel={tensor: 2}'
compare divided 1e-5
exit $failed
