#!/bin/sh
# quickstart.sh: from a fresh checkout to a trained model. Builds nrl, then runs scripts/quickstart.lua;
# arguments go to it (model.path=DIR takes a model of yours).
. "$(dirname "$0")/prepare.sh"

install_needs
build_release -DNRL_TESTS=OFF
exec build/release/bin/nrl run scripts/quickstart.lua "$@"
