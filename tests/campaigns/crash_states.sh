#!/bin/sh
# crash_states.sh: a short run of the campaign crash-states, and a check that it can fail: if fsync has no effect,
# states fail.
. "$(dirname "$0")/../e2e/e2e.sh"

NRL=$nrl "$source/scripts/campaign.sh" crash-states 90 1 >out 2>err
code=$?
[ $code -ne 77 ] || { cat out; exit 77; }
is "exit code of the campaign" $code 0
has out "crash-states: 90 tried, 0 failed, seed 1"
[ $failed -eq 0 ] || { cat err; exit 1; }

NRL_CAMPAIGN_DROP_SYNCS=1 NRL=$nrl "$source/scripts/campaign.sh" crash-states 20 1 >out 2>err
is "exit code of the campaign without syncs" $? 1
has out "was reported as saved"
exit $failed
