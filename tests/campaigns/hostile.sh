#!/bin/sh
# hostile.sh: a short run of the campaign hostile.
. "$(dirname "$0")/../e2e/e2e.sh"

NRL=$nrl "$source/scripts/campaign.sh" hostile 150 2000 >out 2>err
code=$?
[ $code -ne 77 ] || { cat out; exit 77; }
is "exit code of the campaign" $code 0
has out "hostile: 150 tried, 0 failed, seed 2000"
cat err
exit $failed
