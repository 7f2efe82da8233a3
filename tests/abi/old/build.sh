#!/bin/sh
# build.sh PREFIX: how the binaries beside it were made, once, from these sources and an installed nrl of ABI 3. Do not run
# it again: the test wants to know whether plugins that were built with earlier headers still run. After NRL_ABI rises, the
# sources of that ABI get binaries of their own.
set -eu
cd "$(dirname "$0")"
for source in old_*.c; do
    cc -std=gnu11 -Os -fPIC -shared -s -fvisibility=hidden -I "$1/include" "$source" -o "${source%.c}.so" -L "$1/lib" -lnrl \
        -Wl,-z,noseparate-code -Wl,--build-id=none
done
