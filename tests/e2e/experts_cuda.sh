#!/bin/sh
# experts_cuda.sh: mixtures of experts on the emulated GPU, whose kernels choose the experts: loss and router loss of
# three steps are those of transformers (tests/data/experts/make_experts.py).
. "$(dirname "$0")/e2e.sh"

emulated_cuda || exit 77

config() {
    golden=$source/tests/data/experts/$1
    { recorded_steps "$golden" && echo "backend: cuda"; } >run.yaml
}
# values FILE: the numbers of each step
values() {
    { tr '{' '\n' <"$1"; echo; } | sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p; s/.*"router_loss": *\([0-9.e-]*\).*/\1/p'
}
# near NAME ERROR: the run NAME gave the numbers of transformers
near() {
    values "$1/metrics.jsonl" >got.txt
    values "$golden/expected.json" | paste got.txt - |
        awk -v room="$2" '{ d = ($1 - $2) / $2; if (d > room || d < -room) bad++ } END { exit bad > 0 || NR < 3 }' ||
        is "values of $1" "$(cat got.txt)" "$(values "$golden/expected.json")"
}
for family in qwen3_moe gpt_oss; do
    config $family
    run 0 run run.yaml out=$family.fp32
    near $family.fp32 5e-6 # f32 sums of some hundred products, in another order than PyTorch's
    run 0 run run.yaml out=$family.bf16 train.precision=bf16
    near $family.bf16 2e-2 # activations of 8 bits
done
exit $failed
