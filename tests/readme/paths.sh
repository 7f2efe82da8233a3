#!/bin/sh
# paths.sh: the files and directories that the READMEs name exist.
set -u
cd "$NRL_TEST_SOURCE" || exit 1
failed=0

# need README PATH
need() {
    [ -e "$2" ] && return
    echo "$1 names $2, which is not there"
    failed=1
}

for readme in core/README.md plugins/README.md tests/README.md CONTRIBUTING.md docs/*.md docs/plugins/*.md; do
    folder=$(dirname "$readme")
    for path in $(sed -n 's/](\([^)#:]*\))/\n@\1\n/gp' "$readme" | sed -n 's/^@//p'); do
        need "$readme" "$folder/$path"
    done
done

# In core/README.md a word in backquotes with a suffix of C or Lua is a file of the tree, of core, or of the
# folder whose row it stands in.
readme=core/README.md
grep -n '' $readme | while IFS= read -r line; do
    row=$(echo "$line" | sed -n 's/^[0-9]*:| \[\([^]]*\)\].*/\1/p')
    for path in $(echo "$line" | grep -oE '`[a-z_/0-9]+\.(c|h|lua)`' | tr -d '`'); do
        [ -e "$path" ] || [ -e "lib/$path" ] || [ -e "core/$path" ] || [ -e "core/$row/$path" ] ||
            [ -e "core/include/$path" ] || [ -e "lib/inference/include/$path" ] || [ -e "lib/profiling/include/$path" ] || [ -e "lib/testing/include/$path" ] || [ -e "lib/operations/include/$path" ] || echo "$readme names $path"
    done
done | grep . && failed=1
exit $failed
