#!/bin/sh
# context.sh: ranks that divide the tokens of each micro-batch have the losses and gradient norms of one rank, alone and
# with the other axes: families with grouped heads, windows, biases, a fused projection; preferences with shared
# prompts; a script's loss; dropout; 16 bits. `debug` checks that values are equal on all ranks of the axis.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
norms=10
rows 64 >train.jsonl
rows 16 >eval.jsonl
same='debug={every: 4}'

for model in llama qwen2 qwen3 phi3 gemma3_text gpt2; do
    experiment "eval: {every: $((n_steps / 2))}" | sed "s|models/llama|models/$model|" >config.yaml
    set -- train.steps=$n_steps data.eval=eval.jsonl checkpoint.every=0 checkpoint.export=none optimizer.clip_norm=0.5
    # the keys' biases of gpt2 have no gradient but noise, which a small epsilon makes steps of
    [ $model = gpt2 ] && set -- "$@" optimizer.eps=1e-3
    alone $model "$@"
    ranks 2 $model-2 $exact parallel.context=2 "$same" "$@"
done
# with other axes; four ranks have two key/value heads between them
experiment "eval: {every: $((n_steps / 2))}" | sed "s|models/llama|models/qwen3|" >config.yaml
alone qwen3 "$@"
ranks 4 four $exact parallel.context=4 "$same" "$@"
ranks 4 ddp $exact 'parallel={context: 2, data: ddp}' "$same" "$@"
ranks 4 fsdp $exact 'parallel={context: 2, data: fsdp}' "$same" "$@"
ranks 4 tensor $exact 'parallel={context: 2, tensor: 2}' "$same" "$@"
ranks 4 pipeline $exact 'parallel={context: 2, pipeline: 2}' "$same" "$@"
ranks 2 recomputed $exact parallel.context=2 train.activation_checkpointing=all "$@"
lora="lora.rank=4 lora.alpha=8 lora.dropout=0.1 lora.targets=all-linear optimizer.lr=1e-2"
# shellcheck disable=SC2086
alone lora $lora "$@"
# shellcheck disable=SC2086
ranks 4 lora-4 $exact 'parallel={context: 2, data: fsdp}' "$same" $lora "$@"
alone noise train.neftune_alpha=5 "$@"
ranks 2 noise $exact parallel.context=2 train.neftune_alpha=5 "$@"
alone bf16 train.precision=bf16 "$@"
ranks 2 bf16 $bf16_unit parallel.context=2 train.precision=bf16 "$same" "$@"
ranks 4 halves $bf16_unit 'parallel={context: 2, data: fsdp}' train.precision=bf16 train.master=split16 train.gradients=bf16 "$@"

# ---- preferences, labels, a loss of a script ----
preferences pref dpo >config.yaml
alone dpo
ranks 2 dpo-2 $exact parallel.context=2 "$same"
ranks 4 dpo-4 $exact 'parallel={context: 2, data: fsdp}' "$same"
rm -rf cache # or the file of one rank is there
ranks 2 cached $exact parallel.context=2 algorithm.reference=cached
alone apart data.prefix_sharing=false
ranks 2 apart $exact parallel.context=2 data.prefix_sharing=false
preferences kto kto | sed 's/micro_batch_tokens: 512/micro_batch_tokens: 1024/' >config.yaml
alone kto
ranks 2 kto-2 $exact parallel.context=2
preferences chat 'sft' >config.yaml
alone sequence algorithm.reduce=sequence
ranks 2 sequence $exact parallel.context=2 algorithm.reduce=sequence
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
run 0 launch -n 2 -- run loss.lua out=lua-2 parallel.context=2
compare lua-2 $exact

# ---- what cannot be divided is told with both numbers ----
experiment >config.yaml
run 2 launch -n 3 -- run config.yaml out=bad parallel.context=3
has err "cannot share 4 query heads over 3 ranks"
run 2 run config.yaml out=bad 'parallel={context: {size: 2, kind: none}}'
has err "parallel.context.kind"
exit $failed
