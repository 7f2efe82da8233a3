#!/bin/sh
# exports.sh LIBNRL [--update]: the names that libnrl exports are those of exports.list, no more and no
# less, all of version NRL_0.1. --update writes the list anew.
set -eu
list=$(dirname "$0")/exports.list
names() {
    nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sed 's/@@NRL_0\.1$//' | LC_ALL=C sort
}
if [ "${2:-}" = --update ]; then
    names "$1" >"$list"
    exit 0
fi
if ! names "$1" | diff -u "$list" -; then
    echo "the exported interface changed: if that is meant, run: sh tests/abi/exports.sh LIBNRL --update"
    exit 1
fi
