#!/bin/sh
# tidy.sh ROOT BUILD: clang-tidy, with the checks of .clang-tidy, on as many files as it checks in 15 seconds: those that
# changed since the last commit and in it, then others, beginning at a place that moves from day to day.
# `scripts/campaign.sh tidy` checks all files.
set -u
cd "$1" || exit 1
root=$(pwd) seconds=15
command -v clang-tidy-14 >/dev/null || { echo "skipped: clang-tidy-14 is not installed"; exit 77; }
[ -f "$2/compile_commands.json" ] || { echo "skipped: $2 has no compile_commands.json"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
sed -n "s|^ *\"file\": \"$root/\(.*\.c\)\",*$|\1|p" "$2/compile_commands.json" | LC_ALL=C sort -u >"$work/files"
count=$(wc -l <"$work/files")
[ "$count" -gt 0 ] || { echo "no C files in $2/compile_commands.json"; exit 1; }
first=$(($(date +%s) / 86400 * 8 % count + 1))
{
    { git diff --name-only HEAD; git diff --name-only HEAD~1 HEAD; } 2>/dev/null | grep -Fxf "$work/files"
    tail -n "+$first" "$work/files"
} | awk '!seen[$0]++' >"$work/sample"

end=$(($(date +%s) + seconds)) checked=0
while read -r file && [ "$(date +%s)" -lt $end ]; do
    timeout 60 clang-tidy-14 --quiet -p "$2" --extra-arg=-Wno-unknown-warning-option "$file" >>"$work/found" 2>/dev/null
    checked=$((checked + 1))
done <"$work/sample"
echo "checked $checked of $count files"
grep -E ': (warning|error): ' "$work/found" | sort -u | sed "s|^$root/||" | grep . && exit 1
exit 0
