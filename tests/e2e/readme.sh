#!/bin/sh
# readme.sh: the commands and the script of README.md do what they say, as they stand there.
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

for n in 2 3 4 5 6 7 8; do block sh $n; done | sed "s#build/release/bin/nrl#\$nrl#" >commands
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
for path in $(sed -n 's/.*](\([a-z][a-z./_]*\)).*/\1/p' "$source/README.md"); do
    [ -e "$source/$path" ] || is "$path of the README" missing there
done
exit $failed
