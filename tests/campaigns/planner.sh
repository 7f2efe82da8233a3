#!/bin/sh
# planner.sh: a short run of the campaign planner, memory alone: among its settings are adapters on quantized weights,
# offload, and strategies on several ranks.
. "$(dirname "$0")/../e2e/e2e.sh"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }

mkdir work
python3 "$source/tests/campaigns/planner.py" "$nrl" work 2 1 memory >out 2>err
code=$?
is "exit code of the campaign" $code 0
has out "planner: 2 tried, 0 failed, seed 1"
has out "fp4 lora"
has out "offload shards"
has out "; within 5 %: 2 of 2"
[ $failed -eq 0 ] || cat err
exit $failed
