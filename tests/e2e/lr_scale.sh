#!/bin/sh
# lr_scale.sh: optimizer.lr_scale multiplies lr by the quotient of the global batch and base_batch, or its root; the plan
# says so, the records have the product, and a run with that lr written out has the same numbers.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
train: {steps: 3, global_batch: 8, micro_batch_tokens: 256, seed: 3}
optimizer: {name: adamw, lr: 1e-3}
schedule: constant
loggers: [console, jsonl]
$one_thread_yaml
YAML
run 0 run config.yaml out=linear 'optimizer.lr_scale={rule: linear, base_batch: 2}'
has out "lr 0.004 (0.001 x 4, for the global batch)"
has linear/metrics.jsonl '"lr": 0.004'
run 0 run config.yaml out=root 'optimizer.lr_scale={rule: sqrt, base_batch: 32}'
has out "lr 0.0005 (0.001 x 0.5, for the global batch)"
run 0 run config.yaml out=written optimizer.lr=4e-3
lacks out "for the global batch"
numbers written/metrics.jsonl >expected.txt
numbers linear/metrics.jsonl | cmp - expected.txt || failed=1
run 0 launch -n 2 -- run config.yaml out=two 'optimizer.lr_scale={rule: linear, base_batch: 2}'
compare two 1e-5
run 2 resume linear train.steps=4 optimizer.lr_scale.base_batch=4
has err "optimizer.lr_scale"
run 0 resume linear train.steps=4
run 2 check config.yaml out=none 'optimizer.lr_scale={rule: cubic, base_batch: 2}'
has err "optimizer.lr_scale.rule"
run 2 check config.yaml out=none 'optimizer.lr_scale={rule: sqrt}'
has err "optimizer.lr_scale.base_batch: required"
run 2 check config.yaml out=none optimizer.lr_scale=2
has err "optimizer.lr_scale"
exit $failed
