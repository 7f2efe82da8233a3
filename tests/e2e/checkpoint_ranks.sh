#!/bin/sh
# checkpoint_ranks.sh: one, two or three ranks continue from a checkpoint of two ranks: bit-identical on two ranks,
# and to 1e-6 on other numbers. The export equals that of one rank.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

settings="train.epochs=0 train.steps=12 eval.every=0 checkpoint.every=4 checkpoint.keep=0 checkpoint.export=none"

# continued OUT N ARGUMENT...: the run `whole` from its first checkpoint on, by N ranks
continued() {
    out=$1 n=$2
    shift 2
    cp -r whole "$out" && rm -rf "$out"/checkpoints/step-0000000[5-9] "$out/checkpoints/step-00000012"
    # shellcheck disable=SC2086
    run 0 launch -n "$n" -- run "$source/configs/sft.yaml" $settings out="$out" resume=auto "$@"
    has out "resume     after step 4 of 12"
}

loss() {
    sed -n 's/.*"step": 12,.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"
}

for strategy in ddp fsdp; do
    rm -rf whole alike fewer more
    # shellcheck disable=SC2086
    run 0 launch -n 2 -- run "$source/configs/sft.yaml" $settings out=whole parallel=$strategy
    is "files of $strategy" "$(ls whole/checkpoints/step-00000012 | tr '\n' ' ')" "manifest.json rank-00000.nrlc rank-00001.nrlc "
    continued alike 2 parallel=$strategy
    is "loss of $strategy on as many ranks" "$(loss alike)" "$(loss whole)"
    continued fewer 1 parallel=none
    continued more 3 parallel=$strategy
    for out in fewer more; do
        echo "$(loss $out) $(loss whole)" | awk '{ d = $1 - $2; exit d * d > 1e-10 * $2 * $2 }' ||
            is "loss of $strategy, $out ranks" "$(loss $out)" "$(loss whole)"
    done
    run 0 export whole model-$strategy
    run 0 export fewer model-fewer-$strategy
    [ -s model-$strategy/model.safetensors ] || is "exported weights" missing "there"
done
exit $failed
