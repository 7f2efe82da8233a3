#!/bin/sh
# wrong.sh DIR [argument of `nrl plugins test`]...: every plugin in DIR breaks exactly the rule that its summary
# names; `right` breaks none (there is none for backends: the tree's own are), and `lacks_MEMBER` does not open. Runs four at a time, because they mostly wait.
set -u
nrl=$NRL_TEST_BUILD/bin/nrl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$1
shift

# try NAME ARGUMENT...: what is wrong with the verdict is in NAME.bad
try() {
    out=$work/$1.out
    name=$1
    shift
    "$nrl" plugins test "$folder/$name.so" "$@" >"$out" 2>&1
    code=$?
    rule=$(sed -n '1s/^[^:]*: //p' "$out")
    expected=1
    [ "$name" != right ] || expected=0
    {
        [ $code -eq $expected ] || echo "$name: exit $code, expected $expected"
        case $name in
        right) ;;
        lacks_*) grep -qF ": lacks ${name#lacks_}: required members of its table are NULL" "$out" || echo "$name: was opened" ;;
        *) grep -qxF "  FAILED   $rule" "$out" || echo "$name: broke no rule '$rule'" ;;
        esac
    } >"$work/$name.bad"
    [ ! -s "$work/$name.bad" ] || cat "$out" >>"$work/$name.bad"
}

[ -f "$folder/right.so" ] || [ -f "$folder/few.so" ] || { echo "no plugins in $folder"; exit 1; }
started=0
for file in "$folder"/*.so; do
    try "$(basename "$file" .so)" "$@" &
    started=$((started + 1))
    [ $((started % 4)) -ne 0 ] || wait
done
wait
cat "$work"/*.bad
[ "$(cat "$work"/*.bad | wc -c)" -eq 0 ] && [ "$(ls "$work"/*.bad | wc -l)" -eq $started ]
