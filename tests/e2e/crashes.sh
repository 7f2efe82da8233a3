#!/bin/sh
# crashes.sh: if a plugin crashes, the message names the plugin and the step, and the run continues from its newest
# checkpoint.
. "$(dirname "$0")/e2e.sh"

if [ -n "${ASAN_OPTIONS-}" ]; then
    echo "skipped: a sanitizer has words of its own"
    exit 77
fi
rows 16 >train.jsonl
experiment "plugins: $NRL_TEST_BUILD/tests/plugins" >run.yaml
ulimit -c 0

# 139: the number of SIGSEGV and 128
words="error: step 3: optimizer 'crash' crashed: segmentation fault"
"$nrl" run run.yaml optimizer.name=crash checkpoint.async=false >out 2>err
code=$?
is "exit code" $code 139
has err "$words"
has out "step 2/6"

"$nrl" launch -n 2 -- run run.yaml optimizer.name=crash out=ranks >out 2>err
[ $? -ne 0 ] || is "exit code of two ranks" 0 "a failure"
has err "$words"

run 0 resume result optimizer.at=100 checkpoint.mismatch=warn
has out "resume     after step 2 of 6"
exit $failed
