#!/bin/sh
# soak_campaigns.sh: short runs of those campaigns of scripts/campaign.sh that only need the program.
. "$(dirname "$0")/e2e.sh"

# campaign NAME N SEED
campaign() {
    NRL=$nrl "$source/scripts/campaign.sh" "$@" >out 2>err && return
    echo "campaign $*:"
    tail -n 20 out err
    failed=1
}
if command -v python3 >/dev/null; then campaign flips 5 3; else echo "skipped: the campaign flips: there is no python3"; fi
campaign soak 3 3
campaign faults 2 5
campaign steady 1000
exit $failed
