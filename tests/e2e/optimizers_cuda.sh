#!/bin/sh
# optimizers_cuda.sh: the optimizers whose updates are operations of the backend, adamw and adamw8bit, have the CPU's losses
# on the emulated GPU.
. "$(dirname "$0")/e2e.sh"

emulated_cuda || exit 77
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

for optimizer in adamw adamw8bit; do
    cat >config.yaml <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/chat.jsonl, max_length: 64, overlong: truncate, template: chatml, cache: cache}
train: {steps: 4, global_batch: 2, micro_batch_tokens: 128, seed: 3}
optimizer: {name: $optimizer, lr: 1e-2}
schedule: constant
checkpoint: {every: 0, export: none}
loggers: [jsonl]
YAML
    alone cpu backend=cpu
    is "steps of $optimizer" "$(grep -c ' ' expected.txt)" 4
    run 0 run config.yaml out=cuda overwrite=true backend=cuda
    compare cuda 2e-5 # f32 sums in another order
done
exit $failed
