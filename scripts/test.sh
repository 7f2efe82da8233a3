#!/bin/sh
# test.sh: builds nrl and its tests, and runs all tests that need only this checkout. Passes its arguments to ctest:
# `scripts/test.sh -R e2e`.
. "$(dirname "$0")/prepare.sh"

install_needs test
build_release -DNRL_TESTS=ON
# As many tests as there are processors run at the same time, each with one thread unless it sets its own number.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} exec ctest --preset release --parallel "$(nproc)" "$@"
