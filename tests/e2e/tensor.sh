#!/bin/sh
# tensor.sh: ranks that share each layer have the losses and gradient norms of one rank, alone and with ddp and fsdp
# on the data axis: families with grouped heads, head norms, biases, a fused projection, a tied head; preferences with
# an online reference and with one from its file; a script's loss; 16 bits. `debug` checks that values are equal on
# all ranks of the axis.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
rows 64 >train.jsonl
rows 16 >eval.jsonl
both='parallel={data: fsdp, tensor: 2}'
same='debug={every: 4}'

for model in llama llama3 qwen2 qwen3 phi3 gemma3_text gpt2; do
    experiment "eval: {every: 4}" | sed "s|models/llama|models/$model|" >config.yaml
    set -- train.steps=8 data.eval=eval.jsonl checkpoint.every=0 checkpoint.export=none optimizer.clip_norm=0.5
    alone $model "$@"
    room=$exact
    [ $model = gpt2 ] && room=5e-6 # its keys' biases have no gradient but noise, which adamw makes steps of
    ranks 2 $model-2 $room parallel.tensor=2 "$same" "$@"
    ranks 4 $model-fsdp $room "$both" "$same" "$@"
done
ranks 4 gpt2-4 $room parallel.tensor=4 "$same" "$@"
experiment "eval: {every: 4}" | sed "s|models/llama|models/qwen3|" >config.yaml
alone qwen3 "$@"
ranks 4 ddp $exact parallel.tensor=2 "$same" "$@"
ranks 2 whole $exact 'parallel={tensor: {size: 2, vocabulary: false}}' "$@"
ranks 2 recomputed $exact parallel.tensor=2 train.activation_checkpointing=all "$@"
ranks 4 grads $exact 'parallel={data: {name: fsdp, shard: grads}, tensor: 2}' "$@"
lora="lora.rank=4 lora.alpha=8 lora.dropout=0.1 lora.targets=all-linear optimizer.lr=1e-2"
# shellcheck disable=SC2086
alone lora $lora "$@"
# shellcheck disable=SC2086
ranks 4 lora-4 $exact "$both" "$same" $lora "$@"
# shellcheck disable=SC2086
run 0 run config.yaml out=single $lora "$@" checkpoint.export=last
# shellcheck disable=SC2086
run 0 launch -n 2 -- run config.yaml out=adapted parallel.tensor=2 $lora "$@" checkpoint.export=last
# what has learned from the export, of one rank or of two, is alike
run 0 run config.yaml out=from-one model.path=single/model "$@"
numbers from-one/metrics.jsonl >expected.txt
run 0 run config.yaml out=from-two model.path=adapted/model "$@"
compare from-two 1e-5
alone bf16 train.precision=bf16 "$@"
ranks 2 bf16 $bf16_unit parallel.tensor=2 train.precision=bf16 "$same" "$@"
ranks 4 halves $bf16_unit "$both" train.precision=bf16 train.master=split16 train.gradients=bf16 "$@"
alone fp16 train.precision=fp16 "$@"
ranks 2 fp16 $fp16_unit parallel.tensor=2 train.precision=fp16 "$same" "$@"
short_form_ends

# ---- preferences, labels, a loss of a script ----
preferences pref dpo >config.yaml
alone dpo
ranks 2 dpo-2 $exact parallel.tensor=2 "$same"
ranks 4 dpo-4 $exact "$both" "$same"
rm -rf cache # or the file of one rank is there
ranks 2 cached $exact parallel.tensor=2 algorithm.reference=cached
preferences kto kto | sed 's/micro_batch_tokens: 512/micro_batch_tokens: 1024/' >config.yaml
alone kto
ranks 2 kto-2 $exact parallel.tensor=2
preferences chat sft >config.yaml
cat >loss.lua <<'LUA'
local nrl = require "nrl"
nrl.loss { name = "odd", needs = {"logps", "entropy", "sum_p2"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b) return ((0.01 * b:entropy() + 0.001 * b:sum_p2():detach() - b:logps()) * b:mask()):sum() end }
local cfg = nrl.config "config.yaml"
cfg.algorithm = "odd"
nrl.open(cfg):train()
LUA
run 0 run loss.lua out=lua overwrite=true
numbers lua/metrics.jsonl >expected.txt
run 0 launch -n 2 -- run loss.lua out=lua-2 parallel.tensor=2
compare lua-2 $exact

# ---- ranks that share a gradient send the same elements of it; residuals stay as they were in a step that is omitted ----
experiment >config.yaml
for codec in 'topk, topk_ratio: 0.02' 'threshold, threshold_value: 0.3' 'threshold, threshold_value: 1'; do
    for axis in 'tensor: 2' 'pipeline: 2'; do
        run 0 launch -n 4 -- run config.yaml out=sparse overwrite=true eval.every=0 'debug={every: 1}' \
            "parallel={data: {name: ddp, compress: $codec, start_step: 0}, $axis}"
    done
done

# ---- a reference may share its key/value heads differently ----
sed 's/"num_key_value_heads": 2/"num_key_value_heads": 1/' "$source/configs/models/tiny.json" >one_head.json
run 0 run "$source/configs/sft.yaml" model.config=one_head.json train.steps=1 train.epochs=0 schedule=constant eval.every=0 \
    checkpoint.every=0 "$one_thread" out=one_head
run 0 launch -n 4 -- run "$source/configs/dpo.yaml" algorithm.reference_model=one_head/model train.steps=1 train.epochs=0 \
    schedule=constant eval.every=0 checkpoint.every=0 "$one_thread" out=two_heads parallel.tensor=4

# ---- what cannot be divided is told with both numbers ----
run 2 run config.yaml out=bad 'parallel={tensor: {size: 2, sequence: perhaps}}'
has err "parallel.tensor.sequence"
run 2 launch -n 3 -- run config.yaml out=bad parallel.tensor=3
has err "cannot share the model's 4 query heads over 3 ranks"
run 2 run config.yaml out=bad 'parallel={tensor: {size: 2, sequential: true}}'
has err "parallel.tensor.sequential: unknown key"
run 0 check "$source/configs/tensor.yaml" out=planned
has out "4 ranks, not joined"
has out "2 ranks share each layer, 29 of 29 matrices sharded"
exit $failed
