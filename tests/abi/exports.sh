#!/bin/sh
# exports.sh LIBNRL [--update]: compares the public names that libnrl and the libraries beside it export with
# exports.list. In addition, libnrl exports to the programs and libraries of this tree exactly the names that they use.
# --update writes the list.
set -eu
list=$(dirname "$0")/exports.list
names() {
    for library in "$1" "$(dirname "$1")/libnrl-inference.so" "$(dirname "$1")/libnrl-profiling.so" "$(dirname "$1")/libnrl-testing.so" "$(dirname "$1")/libnrl-operations.so"; do
        nm -D --defined-only "$library" | awk '$2 != "A" && $3 !~ /@@NRL_PRIVATE$/ { print $3 }'
    done | sed 's/@@NRL_\([A-Z]*_\)*0\.1$//' | LC_ALL=C sort
}
if [ "${2:-}" = --update ]; then
    names "$1" >"$list"
    exit 0
fi
if ! names "$1" | diff -u "$list" -; then
    echo "the exported interface changed: if that is meant, run: sh tests/abi/exports.sh LIBNRL --update"
    exit 1
fi

private() { awk '$NF ~ /@+NRL_PRIVATE$/ { print $NF }' | sed 's/@.*//' | LC_ALL=C sort -u; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$1" | private >"$work/exported"
nm -D "$NRL_TEST_BUILD"/bin/nrl "$NRL_TEST_BUILD"/lib/libnrl-inference.so "$NRL_TEST_BUILD"/lib/libnrl-profiling.so "$NRL_TEST_BUILD"/lib/libnrl-testing.so "$NRL_TEST_BUILD"/libexec/nrl/nrl-* | private >"$work/used"
if ! diff -u "$work/used" "$work/exported"; then
    echo "NRL_PRIVATE in core/nrl.map exports what no program of this tree uses"
    exit 1
fi
sed -n '/^NRL_PRIVATE/,$s/^    \([a-z_0-9]*\);$/\1/p' "$(dirname "$0")/../../core/nrl.map" | LC_ALL=C sort | comm -23 - "$work/exported" >"$work/stale"
if [ -s "$work/stale" ]; then
    cat "$work/stale"
    echo "  ^ core/nrl.map lists what libnrl does not have"
    exit 1
fi

# The programs of tools/ are clients of <nrl/...> alone.
for program in "$NRL_TEST_BUILD"/libexec/nrl/nrl-*; do
    if nm -D "$program" | private | grep .; then
        echo "  ^ ${program##*/} uses what is private to libnrl"
        exit 1
    fi
done
