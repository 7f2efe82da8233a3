#!/bin/sh
# faults.sh [--update]: docs/plugins/faults.md lists the plugins of wrong/*.h, each with the rule that finds its fault. The
# tests conformance.wrong.KIND show that each is found.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
page=$root/docs/plugins/faults.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for header in "$root"/tests/conformance/wrong/*.h; do
    kind=$(basename "$header" .h)
    # A row may go on in the next line.
    tr '\n' ' ' <"$header" | sed 's/ \(WRONG\|STAGED\)(/\n&/g' |
        sed -n 's/^ *\(WRONG\|STAGED\)(\([a-z_0-9]*\), *"\([^"]*\)".*/\2\t\3/p' | grep -v '^nm' | while IFS="$(printf '\t')" read -r name rule; do
        [ "$name" != right ] || continue
        case $name in lacks_*) rule="required members are set (the plugin is not opened)" ;; esac
        printf '%s\t%s\t%s\n' "$kind" "$(echo "$name" | tr _ ' ')" "$rule"
    done
done >"$work/rows"
{
    cat <<'TEXT'
# Faults that the suites find

Each suite of `nrl plugins test` is itself tested by plugins that are wrong on purpose, one fault each
(`tests/conformance/wrong/`). The rule beside a fault is the one that reports it. `sh tests/conformance/faults.sh --update`
writes this page; the tests `conformance.wrong.KIND` run every plugin and expect that rule.

| kind | faults injected | found |
| --- | --- | --- |
TEXT
    cut -f1 "$work/rows" | uniq -c | awk '{ printf "| %s | %d | %d |\n", $2, $1, $1; n += $1 } END { printf "| all | %d | %d |\n", n, n }'
    kind=
    while IFS="$(printf '\t')" read -r own name rule; do
        if [ "$own" != "$kind" ]; then
            kind=$own
            printf '\n## %s\n\n| fault | rule that finds it |\n| --- | --- |\n' "$kind"
        fi
        echo "| $name | $rule |"
    done <"$work/rows"
} >"$work/faults.md"
if [ "${1-}" = --update ]; then
    cp "$work/faults.md" "$page"
    exit
fi
diff "$page" "$work/faults.md" && exit
echo "the wrong plugins changed: sh tests/conformance/faults.sh --update"
exit 1
