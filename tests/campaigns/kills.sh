#!/bin/sh
# kills.sh: a short run of the campaign kills.
. "$(dirname "$0")/../e2e/e2e.sh"

NRL=$nrl "$source/scripts/campaign.sh" kills 8 3 >out 2>err
code=$?
[ $code -ne 77 ] || { cat out; exit 77; }
is "exit code of the campaign" $code 0
has out "kills: 8 tried, 0 failed, seed 3"
cat err
exit $failed
