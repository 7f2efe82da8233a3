#!/bin/sh
# dora.sh: DoRA has the numbers of one rank on several, where rows or columns of the weights are divided too, and over a
# quantized base those of DoRA on the dequantized weights. Resume and exports are exact.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

wide '{rank: 4, alpha: 8, dora: true}'

# several BASE: the run `one` of this base on two ranks
several() {
    numbers one/metrics.jsonl >expected.txt
    for how in ddp fsdp '{data: {name: fsdp, shard: optimizer}}' '{tensor: 2}'; do
        rm -rf two
        run 0 launch -n 2 -- run config.yaml out=two lora.base="$1" parallel="$how"
        compare two 1e-5
        run 0 export two two-merged --dtype f32 --overwrite
        cmp two-merged/model.safetensors two/model/model.safetensors || failed=1
    done
    cp -r one half
    rm -r half/checkpoints/step-00000006 half/model
    run 0 run config.yaml out=half lora.base="$1" resume=auto
    cmp half/model/model.safetensors one/model/model.safetensors || failed=1
    rm -rf half
}

run 0 run config.yaml out=one
several full
mv one full
for base in nf4 int8; do
    run 0 run config.yaml out=one lora.base=$base
    has out "in $base)"
    several $base
    # on the dequantized weights, which a run without a step exports
    run 0 run config.yaml out=zero-$base lora.base=$base train.steps=1 optimizer.lr=0
    run 0 run config.yaml out=on-$base model.path=zero-$base/model
    compare on-$base 1e-5
    cmp -s one/model/model.safetensors full/model/model.safetensors && { echo "$base changes nothing"; failed=1; }
    rm -rf one
done
exit $failed
