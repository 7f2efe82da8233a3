#!/bin/sh
# porting.sh: `nrl describe` knows every key that docs/porting.md lists as a key of nrl: SECTION.OPTION, and the
# options of a component that is written as a map.
set -u
nrl=$NRL_TEST_BUILD/bin/nrl
failed=0
n=0
keys=$(mktemp) || exit 1

# known SECTION OPTION: of the section, or of the plugins whose options stand beside it
known() {
    case $1 in
    algorithm) names="algorithm sft dpo kto" ;;
    optimizer) names="optimizer adamw" ;;
    *) names=$1 ;;
    esac
    for name in $names; do
        "$nrl" describe "$name" 2>/dev/null | grep -q "^  $2  *" && return
    done
    return 1
}

# The second column of the tables, a backquoted word a line; `{name: dpo, beta: 1}` of algorithm becomes algorithm.beta.
sed -n 's/^|[^|]*|\(.*\)|$/\1/p' "$NRL_TEST_SOURCE/docs/porting.md" | grep -o '`[^`]*`' | tr -d '`' | while IFS= read -r text; do
    case $text in
    *": {"*)
        section=${text%%:*}
        echo "${text#*\{}" | tr -d '}' | sed 's/\[[^]]*\]//g' | tr ',' '\n' | sed 's/^ *//; s/:.*//' | grep -v '^name$' | sed "s/^/$section./"
        ;;
    -* | "nrl "*) ;;
    *.*) echo "${text%%:*}" ;;
    esac
done | sort -u >"$keys"
while read -r key; do
    n=$((n + 1))
    known "${key%%.*}" "${key#*.}" && continue
    echo "docs/porting.md names $key, which nrl describe does not know"
    failed=1
done <"$keys"
rm -f "$keys"
[ $n -ge 30 ] || { echo "only $n keys were found in docs/porting.md"; failed=1; }
echo "$n keys"
exit $failed
