#!/bin/sh
# lr_ratios.sh: a ratio of 1/2 for all parameters is half the learning rate, to the bit, with every way in which parameters
# are updated; ratios of some parameters have the losses of one rank on several; mistakes are named.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

rows 64 >train.jsonl
experiment 'loggers: [jsonl]' >config.yaml
set -- config.yaml schedule=constant train.micro_batch_tokens=128 eval.every=0 checkpoint.every=0 checkpoint.export=none \
    overwrite=true

# half RANKS ARGUMENT...
half() {
    n=$1
    shift
    run 0 launch -n "$n" -- run "$@" optimizer.lr=0.004 'optimizer.lr_ratios={"*": 0.5}' out=ratio
    run 0 launch -n "$n" -- run "$@" optimizer.lr=0.002 out=plain
    is "losses with half the rate, $*" "$(values ratio loss)" "$(values plain loss)"
}
for optimizer in adamw sgd muon adamw8bit; do
    half 1 "$@" optimizer.name=$optimizer
    half 2 "$@" optimizer.name=$optimizer parallel=fsdp
done
half 1 "$@" train.offload.optimizer=disk
half 1 "$@" train.precision=bf16 train.master=split16
short_form_ends

# some parameters: not those of one rate, and the same on two ranks
ratios='optimizer.lr_ratios={"*": 0.1, "*.mlp.*": 8, "*.mlp.down_proj.*": 2}'
run 0 run "$@" out=plain
run 0 run "$@" "$ratios" out=one
[ "$(values one loss)" != "$(values plain loss)" ] || is "losses with ratios" "those without" "others"
values one loss >expected
for strategy in ddp fsdp '{tensor: 2}'; do
    run 0 launch -n 2 -- run "$@" "$ratios" "parallel=$strategy" out=two
    values two loss >found
    near found expected 6 1e-5
done

# LoRA+: another rate for the second matrix of each adapter
run 0 run "$@" 'lora={rank: 4}' out=plain
run 0 run "$@" 'lora={rank: 4}' 'optimizer.lr_ratios={"*.lora_B.*": 16}' out=plus
[ "$(values plus loss)" != "$(values plain loss)" ] || is "losses with LoRA+" "those without" "others"

# mistakes
run 2 run "$@" 'optimizer.lr_ratios={"*.lora_B.*": 16}' out=bad
has err "optimizer.lr_ratios: '*.lora_B.*' matches no trained parameter, such as "
run 2 run "$@" 'optimizer.lr_ratios={"*": 0}' out=bad
has err "optimizer.lr_ratios: '*': expected a number above 0 and at most 1e6"
run 2 run "$@" 'optimizer.lr_ratios=[2]' out=bad
has err "optimizer.lr_ratios: expected a map {PATTERN: RATIO}"
exit $failed
