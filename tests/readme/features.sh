#!/bin/sh
# features.sh CMAKE CC: runs the command of each row of features.txt with this build installed, and compares docs/features.md
# with the rows. NRL_TEST_RECORD=1 writes the page.
set -u
cmake=$1 cc=$2
page=$NRL_TEST_SOURCE/docs/features.md rows=$NRL_TEST_SOURCE/tests/readme/features.txt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
mkdir "$work/here" && cd "$work/here" || exit 1
cp -r "$NRL_TEST_SOURCE/configs" "$NRL_TEST_SOURCE/scripts" "$NRL_TEST_SOURCE/examples" .
export PATH="$work/prefix/bin:$(dirname "$cmake"):$PATH" CC="$cc" CMAKE_PREFIX_PATH="$work/prefix" OMP_NUM_THREADS=1
unset NRL_PLUGIN_PATH 2>"$work/log" || true

cat >"$work/page" <<'END'
# All features

Each feature of nrl with a command that shows it. A test runs the commands of this page from top to bottom, in a directory with `configs/`, `scripts/` and
`examples/` of a checkout. All of them work on a CPU and need no download.
END
n=0 failed=0
while IFS= read -r row; do
    case $row in
    '## '*)
        printf '\n%s\n\n| feature | command |\n| --- | --- |\n' "$row" >>"$work/page"
        continue
        ;;
    '#'* | '') continue ;;
    esac
    n=$((n + 1))
    feature=${row%% | *}
    rest=${row#* | }
    # the command may have pipes: the expectation begins after the last " | " of the row
    command=${rest% | *} expected=${rest##* | }
    printf '| %s | `%s` |\n' "$feature" "$(echo "$command" | sed 's/|/\\|/g')" >>"$work/page"
    if ! sh -ec "$command" >"$work/output" 2>&1 </dev/null || ! grep -qE -e "$expected" "$work/output"; then
        echo "$feature: failed, or printed nothing like '$expected': $command"
        tail -n 12 "$work/output" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
done <"$rows"
echo "$n features, $failed failed"
if [ "${NRL_TEST_RECORD:-}" ]; then
    cp "$work/page" "$page"
elif ! cmp -s "$work/page" "$page"; then
    echo "docs/features.md differs from tests/readme/features.txt; NRL_TEST_RECORD=1 writes it"
    failed=$((failed + 1))
fi
[ "$failed" -eq 0 ]
