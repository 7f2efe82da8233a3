#!/bin/sh
# test.sh: builds nrl and its tests, and runs all that need nothing but this checkout. Arguments go to
# ctest: `scripts/test.sh -R e2e`.
. "$(dirname "$0")/prepare.sh"

install_needs test
build_release -DNRL_TESTS=ON
exec ctest --preset release "$@"
