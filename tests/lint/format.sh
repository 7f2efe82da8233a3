#!/bin/sh
# format.sh ROOT: the tree is formatted according to its .clang-format. The version of clang-format is fixed, because
# versions differ.
set -u
cd "$1" || exit 1
clang_format=clang-format-14
command -v "$clang_format" >/dev/null || { echo "skipped: $clang_format is not installed"; exit 77; }
find lib core cli tools plugins examples tests -path examples/skeletons -prune -o -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' |
    LC_ALL=C sort | xargs "$clang_format" --dry-run -Werror 2>&1 | grep -E 'error' | head -20 | grep . &&
    { echo "  ^ run: find ... | xargs $clang_format -i (see CONTRIBUTING.md)"; exit 1; }
exit 0
