#!/bin/sh
# quickstart.sh: the promise of the README. From about nothing to more than 90 % of problems that were
# not trained on, in a few minutes at most.
. "$(dirname "$0")/e2e.sh"

run 0 run "$source/scripts/quickstart.lua"
has out "in both: 0;"
constant=$(sed -n 's/.*best constant answer: \([0-9]*\).*/\1/p' out)
[ "$constant" -lt 5 ] || is "best constant answer, percent" "$constant" "under 5"
before=$(sed -n 's/^before training: \([0-9]*\) of 1000.*/\1/p' out)
after=$(sed -n 's/^after training: \([0-9]*\) of 1000.*/\1/p' out)
echo "before $before, after $after of 1000"
[ "$before" -le 10 ] || is "right before training" "$before" "10 at most"
[ "$after" -gt 900 ] || is "right after training" "$after" "more than 900"
exit $failed
