#!/bin/sh
# restarts.sh: a short run of the campaign restarts.
. "$(dirname "$0")/../e2e/e2e.sh"

NRL=$nrl "$source/scripts/campaign.sh" restarts 6 3 >out 2>err
code=$?
[ $code -ne 77 ] || { cat out; exit 77; }
is "exit code of the campaign" $code 0
grep -Eq "^restarts: ([6-9]|1[0-9]) tried, 0 failed, seed 3" out || { cat out; failed=1; } # at least 6; the last run may have several
cat err
exit $failed
