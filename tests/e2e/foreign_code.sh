#!/bin/sh
# foreign_code.sh: with --no-plugins-from-config no verb opens a plugin that lies in a folder of the config or of a run's
# directory, with plugins.allow only the plugins that it lists are opened, and with --no-scripts no script runs. Without
# these switches the same plugins do run. The command that `nrl resume` prints for a scripted run executes nothing else.
# The commands of docs/security.md work as described.
. "$(dirname "$0")/e2e.sh"
unset NRL_PLUGIN_PATH # a test's own is searched before a config's folders
hostile=$NRL_TEST_BUILD/tests/e2e/hostile.so
flip=$NRL_TEST_BUILD/tests/plugins/optimizers/flip.so
rows 32 >train.jsonl
rows 8 >eval.jsonl

# A folder whose files have the names of installed plugins, and one that is named openly.
for file in algorithms/sft optimizers/adamw models/llama backends/cpu loggers/console loggers/jsonl algorithms/hostile; do
    mkdir -p "bad/${file%/*}" && cp "$hostile" "bad/$file.so"
done
experiment 'plugins: [bad]' | sed 's/data: {train: train.jsonl,/data: {train: train.jsonl, eval: eval.jsonl,/' >stranger.yaml
experiment 'algorithm: hostile' | sed 's/data: {train: train.jsonl,/data: {train: train.jsonl, eval: eval.jsonl,/' >named.yaml
echo 'plugins: {folders: [bad], allow: [hostile, sft, adamw]}' >>named.yaml
run 0 run stranger.yaml plugins=[] out=stranger-run train.steps=2
sed -i "s|^plugins:.*|plugins: [$work/bad]|" stranger-run/config.yaml
has stranger-run/config.yaml "plugins: [$work/bad]"

# nothing_ran NAME
nothing_ran() {
    [ -e executed ] && is "code of a stranger by nrl $1" executed "left alone"
    rm -f executed
}

# what the switches are for: without them even a check runs it
"$nrl" check stranger.yaml >out 2>err
[ -e executed ] || is "code of a folder that is searched" "left alone" executed
rm -f executed

for switch in flag variable list; do
    case $switch in
    flag) set -- --no-plugins-from-config ;;
    variable) export NRL_NO_PLUGINS_FROM_CONFIG=1 && set -- ;;
    list) unset NRL_NO_PLUGINS_FROM_CONFIG && set -- ;;
    esac
    allow=
    code=0
    [ $switch = list ] && allow='plugins.allow=[]' && code=2 # what hides an installed one is named, not skipped
    for command in "check stranger.yaml" "eval stranger.yaml" "run stranger.yaml out=$switch" "bench stranger.yaml --steps 1" \
        "resume stranger-run train.steps=4" "eval stranger-run" "launch -n 2 -- run stranger.yaml out=two_$switch"; do
        # shellcheck disable=SC2086
        run $code "$@" $command $allow
        nothing_ran "$* $command $allow"
        [ $switch = list ] && has err "plugins.allow contains neither its name nor its hash"
    done
    # shellcheck disable=SC2086
    run 2 "$@" check named.yaml $allow
    nothing_ran "$* check named.yaml $allow"
done
for command in "sample stranger-run --prompt a" "export stranger-run exported --overwrite" "eval stranger-run --text train.jsonl"; do
    # shellcheck disable=SC2086
    "$nrl" --no-plugins-from-config $command >out 2>err
    nothing_ran "--no-plugins-from-config $command"
    # shellcheck disable=SC2086
    "$nrl" $command >out 2>err
    [ -e executed ] || is "code of a folder that the run searched, by nrl $command" "left alone" executed
    rm -f executed
done
for command in "report stranger-run" "checkpoint verify stranger-run"; do
    # shellcheck disable=SC2086
    "$nrl" $command >out 2>err
    nothing_ran "$command"
done
run 2 --no-plugins-from-config check named.yaml
has err "no algorithm 'hostile'"
has err "hint: --no-plugins-from-config excludes 1 directory of the config from the search"
run 2 check named.yaml --no-plugins-from-config # behind the verb too
has err "no algorithm 'hostile'"

# ---- plugins.allow ----
mkdir -p plugins/optimizers && cp "$flip" plugins/optimizers/
experiment 'plugins: plugins' | sed 's/name: adamw/name: flip/' >mine.yaml
hash=$(sha256sum plugins/optimizers/flip.so | cut -c1-64)
run 2 check mine.yaml 'plugins.allow=[]'
has err "optimizer 'flip' (plugins/optimizers/flip.so): cannot open the plugin: plugins.allow contains neither its name nor its hash"
has err "hint: to allow exactly this file, add 'plugins.allow=[sha256:$hash]'"
for allow in flip optimizers/flip "sha256:$hash"; do
    run 0 check mine.yaml "plugins.allow=[$allow]"
done
run 2 check mine.yaml 'plugins.allow=[algorithms/flip]'
run 2 check mine.yaml 'plugins.allow=[sha256:1234]'
has err "plugins.allow: expected NAME, KIND/NAME or sha256: and 64 hex digits"
run 2 check mine.yaml plugins.alow=flip
has err "did you mean 'allow'?"
NRL_PLUGIN_PATH=$work/plugins run 2 check mine.yaml 'plugins={allow: []}'
has err "plugins.allow contains neither"
run 0 run mine.yaml "plugins.allow=[sha256:$hash]" out=pinned
has pinned/config.yaml "allow: [\"sha256:$hash\"]"
printf 'x' >>plugins/optimizers/flip.so # the file that the run was pinned to has changed
run 2 resume pinned train.steps=8
has err "plugins.allow contains neither its name nor its hash"
cp "$flip" plugins/optimizers/

# ---- scripts ----
echo 'io.open("executed", "w"):close()' >script.lua
for verb in run check "launch -n 2 -- run"; do
    # shellcheck disable=SC2086
    run 2 --no-scripts $verb script.lua
    has err "script.lua: scripts are disabled (--no-scripts, NRL_NO_SCRIPTS)"
    nothing_ran "--no-scripts $verb"
done
NRL_NO_SCRIPTS=1 run 2 run script.lua
nothing_ran "run with NRL_NO_SCRIPTS"

# what `resume` prints of a scripted run is one command, whatever the script is called
name="a'; touch executed; '.lua"
echo "require('nrl').open(require('nrl').config 'mine.yaml', {quiet = true, out = 'scripted'}):train()" >"$name"
run 0 run "$name"
run 0 resume scripted
command=$(sed -n 's/^ *nrl run/run/p' out)
eval "\"\$nrl\" $command" >out 2>err || is "the command that resume prints" "$command" "one that runs"
nothing_ran "the command that resume prints"

# ---- the page ----
awk '$0 == "```" { inside = 0 } inside { print } $0 == "```sh" { inside = 1 }' "$source/docs/security.md" >commands
is "commands of docs/security.md" "$(grep -c '^nrl ' commands)" 7
nrl() { "$nrl" "$@"; }
while read -r command; do
    case $command in
    *"check stranger.yaml 'plugins.allow=[]'") expected=2 ;;
    *) expected=0 ;;
    esac
    eval "$command" >out 2>err </dev/null
    is "exit code of $command" $? $expected
    nothing_ran "$command"
done <commands
exit $failed
