#!/bin/sh
# quickstart.sh: from a new checkout to a trained model. Builds nrl, then runs scripts/quickstart.lua with the
# arguments of this script (model.path=DIR uses your own model).
from=$(pwd)
. "$(dirname "$0")/prepare.sh"

install_needs
build_release -DNRL_TESTS=OFF
checkout=$(pwd)
cd "$from" # paths in the arguments are relative to it
exec "$checkout/build/release/bin/nrl" run "$checkout/scripts/quickstart.lua" "$@"
