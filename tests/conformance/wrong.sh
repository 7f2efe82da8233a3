#!/bin/sh
# wrong.sh FOLDER: every plugin there fails by the rule that its summary names; `right` fails by none, and
# `lacks_MEMBER` is not even opened.
# Four at a time: much of their time is waiting.
set -u
nrl=$NRL_TEST_BUILD/bin/nrl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# try NAME FILE: what is wrong with the verdict is in NAME.bad
try() {
    out=$work/$1.out
    "$nrl" plugins test "$2" >"$out" 2>&1
    code=$?
    rule=$(sed -n '1s/^[^:]*: //p' "$out")
    expected=1
    [ "$1" != right ] || expected=0
    {
        [ $code -eq $expected ] || echo "$1: exit $code, expected $expected"
        case $1 in
        right) ;;
        lacks_*) grep -qF ": lacks ${1#lacks_}: its table has NULL there" "$out" || echo "$1: was opened" ;;
        *) grep -qxF "  FAILED   $rule" "$out" || echo "$1: broke no rule '$rule'" ;;
        esac
    } >"$work/$1.bad"
    [ ! -s "$work/$1.bad" ] || cat "$out" >>"$work/$1.bad"
}

[ -f "$1/right.so" ] || { echo "no plugins in $1"; exit 1; }
started=0
for file in "$1"/*.so; do
    try "$(basename "$file" .so)" "$file" &
    started=$((started + 1))
    [ $((started % 4)) -ne 0 ] || wait
done
wait
cat "$work"/*.bad
[ "$(cat "$work"/*.bad | wc -c)" -eq 0 ] && [ "$(ls "$work"/*.bad | wc -l)" -eq $started ]
