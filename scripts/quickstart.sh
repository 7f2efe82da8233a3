#!/bin/sh
# quickstart.sh: from a new checkout to a trained model. Builds nrl, then runs scripts/quickstart.lua with the
# arguments of this script (model.path=DIR uses your own model).
. "$(dirname "$0")/prepare.sh"

install_needs
build_release -DNRL_TESTS=OFF
exec build/release/bin/nrl run scripts/quickstart.lua "$@"
