#!/bin/sh
# docs.sh ROOT: no file contains a path of one machine, and the files that a plugin's README names exist.
set -u
cd "$1" || exit 1
bad=0
texts=$(find README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md docs mkdocs.yml CMakeLists.txt lib cli tools cmake configs core examples plugins scripts tests -type f \( -name '*.md' -o -name '*.[ch]' \
    -o -name '*.cu' -o -name '*.cpp' -o -name '*.sh' -o -name '*.py' -o -name '*.lua' -o -name '*.yaml' -o -name '*.txt' \
    -o -name '*.cmake' \) 2>/dev/null | grep -v '^tests/lint/' | LC_ALL=C sort)

if grep -nE '(^|[^A-Za-z0-9_.}/-])/(home|mnt|media|opt|root|scratch|srv|Users|work)/[A-Za-z0-9]' $texts; then
    echo "  ^ a path of one machine"
    bad=1
fi
for readme in plugins/*/*/README.md; do
    [ -e "$readme" ] || continue
    for file in $(grep -oE '`[a-z_0-9/]+\.(c|h|cu|cuh)`' "$readme" | tr -d '`'); do
        [ -e "$(dirname "$readme")/$file" ] || [ -e "$file" ] && continue
        echo "$readme names $file, which is not there"
        bad=1
    done
done
exit $bad
