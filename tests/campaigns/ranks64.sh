#!/bin/sh
# ranks64.sh: 64 processes train a tiny model; one is killed, and the others name it in time.
. "$(dirname "$0")/../e2e/e2e.sh"

NRL=$nrl "$source/scripts/campaign.sh" ranks64 1 2 >out 2>err
is "exit code of the campaign" $? 0
has out "the first 5 losses are those of one process"
has out "ranks64: 1 tried, 0 failed, seed 2"
cat err
[ $failed -eq 0 ] || cat out
exit $failed
