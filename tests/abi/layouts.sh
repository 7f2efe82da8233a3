#!/bin/sh
# layouts.sh CC [--update]: sizes and offsets of the members of all public structs, and the values of all constants, are
# those of layouts.txt: plugins and programs that were built with these headers rely on them. A line may be added; a line
# that changes breaks the ABI and raises NRL_ABI (but the size of a struct that begins with `size`, which may grow).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for header in "$root"/core/include/nrl/*.h "$root"/lib/*/include/nrl/*.h; do
    echo "#include <nrl/${header##*/}>"
done >"$work/layouts.c"
cat "$root"/core/include/nrl/*.h "$root"/lib/*/include/nrl/*.h | awk -f "$here/layouts.awk" >>"$work/layouts.c" || exit 1
# shellcheck disable=SC2046
"$1" -std=gnu11 $(printf " -I %s" "$root"/core/include "$root"/lib/*/include) "$work/layouts.c" -o "$work/layouts" || exit 1
"$work/layouts" | LC_ALL=C sort -u >"$work/layouts.txt"
if [ "${2-}" = --update ]; then
    cp "$work/layouts.txt" "$here/layouts.txt"
    exit
fi
[ "$(getconf LONG_BIT)" = 64 ] || { echo "skipped: layouts.txt is of 64-bit machines"; exit 77; }
diff "$here/layouts.txt" "$work/layouts.txt" && exit
echo "the layout of public structs changed: see the head of tests/abi/layouts.sh; sh tests/abi/layouts.sh CC --update"
exit 1
