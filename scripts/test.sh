#!/bin/sh
# test.sh: builds nrl and its tests, and runs all tests that need only this checkout. Passes its arguments to ctest:
# `scripts/test.sh -R e2e`.
. "$(dirname "$0")/prepare.sh"

install_needs test
build_release -DNRL_TESTS=ON
exec ctest --preset release "$@"
