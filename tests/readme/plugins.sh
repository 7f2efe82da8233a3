#!/bin/sh
# plugins.sh CMAKE CC: runs the commands of plugins/README.md. A block that names a file in its first line is that
# file: a file of the tree must be equal, other files are built against an installed nrl and used.
set -eu
cmake=$1 cc=$2
readme=$NRL_TEST_SOURCE/plugins/README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# block NAME: the text of the block of that name; without one, of the shell's.
block() {
    awk -v name="$1" '/^```/ { if (on) exit; if ($2 == name && (name || $1 == "```sh")) { on = 1; next } } on' "$readme"
}

block plugins/algorithms/sft/sft.c >"$work/sft.c"
cmp "$work/sft.c" "$NRL_TEST_SOURCE/plugins/algorithms/sft/sft.c" || {
    echo "plugins/README.md shows another sft.c than the tree's"
    exit 1
}

mkdir "$work/focal"
block focal.c >"$work/focal/focal.c"
block CMakeLists.txt >"$work/focal/CMakeLists.txt"
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$work/nrl" >"$work/log"
export PATH="$work/nrl/bin:$(dirname "$cmake"):$PATH" CC="$cc" CFLAGS="-Wall -Wextra -Werror"
export CMAKE_PREFIX_PATH="$work/nrl" OMP_NUM_THREADS=1
unset LD_LIBRARY_PATH NRL_PLUGIN_PATH || true
cd "$work/focal"
block "" | sed "s#/usr/local#$work/nrl#" >commands
grep -q '^nrl run' commands
sh -e ./commands >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep "100% tests passed" "$work/log"
grep "^  focal .* 1.0 .* focal loss on answer tokens" "$work/log"
grep "gamma .* 2.0" "$work/log"
test "$(grep -c grad_norm runs/focal/metrics.jsonl)" -eq 16

# The one-line beginning.
cd "$work"
begin=$(sed -n 's/^`\(nrl plugins new [^`]*\)`.*/\1/p' "$readme")
mkdir new && cd new
$begin >"$work/log"
test -f focal/focal.c
