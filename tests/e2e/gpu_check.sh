#!/bin/sh
# gpu_check.sh: scripts/gpu_check.sh says why it does nothing where there is nothing to check.
. "$(dirname "$0")/e2e.sh"

"$source/scripts/gpu_check.sh" -b none -o result.json "$NRL_TEST_BUILD" >out
is "exit code without the backend" $? 77
has out "skipped: this build has no backend 'none'"
"$source/scripts/gpu_check.sh" nowhere >out
is "exit code without a build" $? 2
has out "no build in nowhere"
[ ! -e result.json ] || is "a result" there none
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    env -u NRL_PLUGIN_PATH "$source/scripts/gpu_check.sh" "$NRL_TEST_BUILD" >out
    is "exit code without a GPU" $? 77
    has out "skipped: this"
fi
exit $failed
