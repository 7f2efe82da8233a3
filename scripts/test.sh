#!/bin/sh
# test.sh: builds nrl and its tests, runs all tests that need only this checkout, and lists what they skipped. Passes its
# arguments to ctest: `scripts/test.sh -R e2e`.
. "$(dirname "$0")/prepare.sh"

install_needs test
build_release -DNRL_TESTS=ON
# A test uses one of the processors. Tests that mostly wait run beside them.
build=$(pwd)/build/release code=0
slots=$(sed -n 's/.*"slots": \([0-9]*\).*/\1/p' "$build/tests/processors.json")
ctest --preset release --resource-spec-file "$build/tests/processors.json" --parallel $((3 * slots)) "$@" || code=$?
# every "skipped: REASON" that a test printed, the first time that it did
awk '/^[0-9]+\/[0-9]+ Testing: / { test = $3 }
     /^skipped: / && !((test, $0) in seen) { if (!n++) print "\nskipped:"; seen[test, $0]; print "  " test ": " substr($0, 10) }
     ' "$build/Testing/Temporary/LastTest.log"
exit $code
