#!/bin/sh
# style.sh ROOT: conventions that readers rely on: a comment at the head of every file, lines of at most 140 columns
# (100 is the rule, tables may be wider), no tabs, no trailing blanks, no TODO notes.
set -u
cd "$1" || exit 1
bad=0
sources=$(find lib core cli tools plugins tests -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' | LC_ALL=C sort)

tell() {
    echo "  ^ $1"
    bad=1
}

if awk 'FNR == 1 && !/^\/\*/ { print FILENAME; n = 1 } END { exit !n }' $sources; then
    tell "a file begins with what it is for"
fi
if awk 'length($0) > 140 { print FILENAME ":" FNR; n = 1 } END { exit !n }' $sources; then
    tell "longer than 140 columns"
fi
if grep -nE '	| +$' $sources; then tell "a tab or a blank at the end of a line"; fi
if grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources; then tell "a note to oneself"; fi
exit $bad
