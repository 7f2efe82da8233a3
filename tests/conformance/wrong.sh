#!/bin/sh
# wrong.sh FOLDER [ARGUMENT...]: every plugin there fails by the rule that its summary names; `right` fails by none.
set -u
nrl=$NRL_TEST_BUILD/bin/nrl
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

# complain PLUGIN WHAT
complain() {
    echo "$1: $2"
    cat "$out"
    failed=1
}

folder=$1
shift
[ -f "$folder/right.so" ] || { echo "no plugins in $folder"; exit 1; }
for file in "$folder"/*.so; do
    name=$(basename "$file" .so)
    "$nrl" plugins test "$file" "$@" >"$out" 2>&1
    code=$?
    rule=$(sed -n '1s/^[^:]*: //p' "$out")
    if [ "$name" = right ]; then
        [ $code -eq 0 ] || complain "$name" "exit $code, expected 0"
    else
        [ $code -eq 1 ] || complain "$name" "exit $code, expected 1"
        grep -qxF "  FAILED   $rule" "$out" || complain "$name" "broke no rule '$rule'"
    fi
done
exit $failed
