#!/bin/sh
# path.sh ROOT: the files in which core/README.md follows a training step from `main` to the product of two matrices:
# there are at most 12, the first defines main, and each contains the name of the function of the next one that the
# README says it calls.
set -u
cd "$1" || exit 1
list=$(sed -n '/^## From `main`/,/^## The walk/s/^[0-9]*\. `\([^`]*\)`\( -> `\([^`]*\)`\)*$/\1 \3/p' core/README.md)
n=$(echo "$list" | grep -c .)
bad=0
complain() {
    echo "core/README.md: $1"
    bad=1
}

[ "$n" -ge 2 ] && [ "$n" -le 12 ] || complain "the way from main to a product has $n files, expected 2 to 12"
grep -q '^int main(' "$(echo "$list" | head -n 1 | cut -d' ' -f1)" || complain "the first file does not define main"
before=
while read -r file name; do
    [ -f "$file" ] || { complain "$file is not there"; continue; }
    [ -z "$before" ] || grep -qw "$before" "$file" || complain "$file does not name $before"
    [ -z "$name" ] || grep -qw "$name" "$file" || complain "$file does not call $name"
    before=$name
done <<END
$list
END
exit $bad
