#!/bin/sh
# plugins.sh CMAKE CC: does what plugins/README.md says. Blocks that name a file in their first line are
# that file: one of the tree must be equal, the others are built against an installed nrl and used.
set -eu
cmake=$1 cc=$2
readme=$NRL_TEST_SOURCE/plugins/README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# block NAME: the text of the block of that name.
block() {
    awk -v name="$1" '/^```/ { if (on) exit; if ($2 == name) { on = 1; next } } on' "$readme"
}

block plugins/algorithms/sft/sft.c >"$work/sft.c"
cmp "$work/sft.c" "$NRL_TEST_SOURCE/plugins/algorithms/sft/sft.c" || {
    echo "plugins/README.md shows another sft.c than the tree's"
    exit 1
}

mkdir "$work/focal"
block focal.c >"$work/focal/focal.c"
block CMakeLists.txt >"$work/focal/CMakeLists.txt"
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$work/nrl" >"$work/log"
"$cmake" -S "$work/focal" -B "$work/focal/build" -DCMAKE_PREFIX_PATH="$work/nrl" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$work/log" 2>&1 &&
    "$cmake" --build "$work/focal/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

unset LD_LIBRARY_PATH || true
export NRL_PLUGIN_PATH="$work/focal/build/plugins"
nrl=$work/nrl/bin/nrl
"$nrl" plugins | grep "focal .* 1.0 .* focal loss on answer tokens"
"$nrl" describe focal | grep "gamma .* 2.0"
"$nrl" run "$NRL_TEST_SOURCE/configs/sft.yaml" algorithm=focal train.steps=4 train.epochs=0 \
    checkpoint.every=0 eval.every=0 out="$work/out" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
test "$(wc -l <"$work/out/metrics.jsonl")" -eq 4
