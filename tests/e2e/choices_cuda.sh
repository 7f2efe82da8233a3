#!/bin/sh
# choices_cuda.sh: algorithms of products that the emulated GPU chooses by time are kept in a directory, and only where
# results need not repeat.
. "$(dirname "$0")/e2e.sh"

emulated_cuda || exit 77

rows 2 >train.jsonl
experiment >run.yaml
small="train.steps=1 train.global_batch=1 train.micro_batch_tokens=64 checkpoint.every=0 overwrite=true"
kept='backend={name: cuda, product_cache: kept}'
file=kept/emulated-GPU-driver-13000-cublaslt-0.txt

# shellcheck disable=SC2086
{
    run 0 run run.yaml $small "$kept"
    is "the directory of a run whose results repeat" "$(ls -d kept 2>/dev/null)" ""
    run 0 run run.yaml $small "$kept" train.deterministic=false
    is "a line for each class" "$(sort -u "$file" | wc -l)" "$(wc -l <"$file")"
    cp "$file" first
    run 0 run run.yaml $small "$kept" train.deterministic=false
    cmp "$file" first || is "the file after another run" longer "the same"
    echo "no choice" >>"$file"
    run 0 run run.yaml $small "$kept" train.deterministic=false
    has err "$file:$(wc -l <"$file"): expected 17 numbers and 128 hexadecimal digits"
    run 2 run run.yaml $small 'backend={name: cuda, product_cache: kept, timed_products: false}'
    has err "product_cache has no effect with timed_products: false"
}
exit $failed
