#!/bin/sh
# startup.sh: the installed program without the build directory: its size, its memory, a run and a check of a tiny
# model. tests/bench/footprint.py measures the start-up time.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
experiment >run.yaml
cmake --install "$NRL_TEST_BUILD" --prefix "$work/prefix" >log 2>&1 || { cat log; exit 1; }
unset NRL_PLUGIN_PATH
nrl=$work/prefix/bin/nrl

bytes=$(find prefix -type f ! -name cuda.so -exec cat {} + | wc -c)
[ "$bytes" -le 10000000 ] || is "bytes installed" "$bytes" "at most 10000000"

run 0 plugins
lacks out broken
has out "$work/prefix/"
run 0 check run.yaml
run 0 run run.yaml
has out "step 6/6"
resident=$(sed -n 's/^{"step": 1,.*"mem_bytes": \([0-9]*\).*/\1/p' result/metrics.jsonl)
[ "${resident:-99999999}" -le 50000000 ] || is "bytes resident after the first step" "$resident" "at most 50000000"

# from elsewhere, through a link
ln -s "$nrl" linked
nrl=./linked
run 0 plugins
has out "$work/prefix/"
exit $failed
