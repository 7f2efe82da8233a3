#!/bin/sh
# readme.sh: the commands and the script of README.md work as they are printed there.
. "$(dirname "$0")/e2e.sh"
ln -s "$source/configs" configs
ln -s "$source/scripts" scripts

# block LANGUAGE N: the text of the Nth block of that language
block() {
    awk -v start="\`\`\`$1" -v wanted="$2" '
        $0 == "```" { inside = 0 }
        inside { print }
        $0 == start { inside = ++n == wanted }' "$source/README.md"
}

# the first block is the two commands, which other tests run
n=2
while block sh $n >part && [ -s part ]; do
    cat part
    n=$((n + 1))
done | sed "s#build/release/bin/nrl#\$nrl#" >all
mv all commands
[ -s commands ] || is "commands in the README" none some
while read -r command; do
    eval "${command%%#*}" >out 2>err </dev/null && continue
    echo "failed: $command"
    tail -n 5 out err
    failed=1
done <commands

block lua 1 >example.lua
run 0 run example.lua out=lua train.epochs=1 "$one_thread"
has out "step 16/16"

# the paths it names are there
for path in $(sed -n 's/](\([^)#:]*\))/\n@\1\n/gp' "$source/README.md" | sed -n 's/^@//p'); do
    [ -e "$source/$path" ] || is "$path of the README" missing there
done
exit $failed
