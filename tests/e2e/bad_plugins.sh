#!/bin/sh
# bad_plugins.sh: unusable plugin files at the beginning of the search path only cause a warning that names them; if
# the config selects one, the error names the file and the reason.
. "$(dirname "$0")/e2e.sh"
ends=$NRL_TEST_BUILD/tests/e2e/ends
probes=$NRL_TEST_BUILD/tests/e2e/probes
own=$NRL_TEST_BUILD/lib/nrl
rows 16 >train.jsonl
rows 4 >eval.jsonl
experiment >c.yaml
export NRL_PLUGIN_TIMEOUT=2
unset NRL_PLUGIN_PATH

# ---- the expected output of each verb, without bad files ----
golden model
cat >script.lua <<'LUA'
local nrl = require "nrl"
nrl.open(nrl.config "c.yaml", {quiet = true, out = "scripted"}):train()
LUA

# verbs FOLDER: every verb once, its output in FOLDER/N.out, its warnings in FOLDER/N.err. What differs from call to
# call (times, speeds, paths of the output) is left out.
verbs() {
    mkdir "$1"
    i=0
    while read -r line; do
        i=$((i + 1))
        # shellcheck disable=SC2086
        "$nrl" $line </dev/null >out 2>err
        echo "exit $?" >>out
        sed "s|$1|FOLDER|g; s/  [0-9,.]* tok.*//; s/[0-9.e-]* s\b//g; s/threads.*//" out >"$1/$i.out"
        cp err "$1/$i.err"
        echo "$line" >"$1/$i.line"
    done <<VERBS
version
describe train --json
describe --json
check c.yaml out=$1/check
check c.yaml out=$1/check backend=auto
run c.yaml out=$1/run loggers=[jsonl]
run script.lua
resume $1/run train.steps=8 loggers=[jsonl]
export $1/run $1/exported
sample model --prompt a --max-tokens 1
eval c.yaml data.eval=eval.jsonl
checkpoint verify $1/run
plugins test $own/optimizers/adamw.so
launch -n 2 -- run c.yaml out=$1/two loggers=[jsonl]
import model $1/imported
tokenizer encode train.jsonl --tokenizer $source/configs/models/tiny-tokenizer
VERBS
    # the same without the console's numbers
    rm -rf scripted
}
verbs good
is "verbs that fail without bad files" "$(grep -L '^exit 0' good/*.out | wc -l)" 1 # sample, without a tokenizer

# ---- bad files of every kind ----
for kind in algorithms optimizers loggers models formats datasets tokenizers templates frontends backends parallel \
    collectives stores adapters schedules; do
    mkdir -p bad/$kind
    cp "$ends/crash.so" bad/$kind/a_crash.so
    cp "$ends/leave.so" bad/$kind/a_leave.so
    cp "$ends/abort.so" bad/$kind/a_abort.so
    head -c 9000 "$own/optimizers/adamw.so" >bad/$kind/a_cut.so
    head -c 40 "$own/optimizers/adamw.so" >bad/$kind/a_stub.so
    echo text >bad/$kind/a_text.so
    : >bad/$kind/a_empty.so
    { head -c 18 "$own/optimizers/adamw.so"; printf '\377\376'; tail -c +21 "$own/optimizers/adamw.so"; } >bad/$kind/a_machine.so
    cp "$NRL_TEST_BUILD/tests/abi/cases/algorithms/abi.so" bad/$kind/abi.so
    mkdir bad/$kind/a_folder.so
    ln -s /nowhere/at/all bad/$kind/a_link.so
    echo text >bad/$kind/a_locked.so && chmod 000 bad/$kind/a_locked.so
done
cp "$ends/hang.so" bad/stores/a_hang.so
mkdir -p bad/optimizers && cp "$NRL_TEST_BUILD/tests/plugins/optimizers/flip.so" bad/optimizers/z_flip.so
export NRL_PLUGIN_PATH=$work/bad
verbs hurt
for line in good/*.line; do
    i=$(basename "$line" .line)
    cmp -s "good/$i.out" "hurt/$i.out" || is "nrl $(cat "$line")" "$(diff "good/$i.out" "hurt/$i.out")" "the same as without bad files"
    grep -vE '^(\[[01]\] )?warning: skipped a plugin that cannot be used: ' "hurt/$i.err" | sed 's|hurt|FOLDER|g' >left
    sed 's|good|FOLDER|g' "good/$i.err" | diff - left >diff.txt || is "errors of nrl $(cat "$line")" "$(cat diff.txt)" "the same"
done
# each file once
grep -h '^warning: skipped' hurt/2.err | sort | uniq -d >twice
is "files that are reported twice" "$(cat twice)" ""
for reason in "a_crash.so: crashes when it is opened: Segmentation fault" \
    "a_leave.so: ends the process when it is opened (exit code 0)" "a_abort.so: crashes when it is opened: Aborted" \
    "a_hang.so: does not return within 2 s when it is opened" "a_cut.so: cannot be opened: the file is truncated or damaged" \
    "a_text.so: cannot be opened: it is not a shared object: it has no ELF header" "a_empty.so: cannot be opened: the file is empty" \
    "a_machine.so: cannot be opened: it was built for another machine" "a_folder.so: cannot be opened: it is a directory" \
    "a_link.so: cannot be opened: No such file or directory" "abi.so: has ABI 77, expected"; do
    has hurt/2.err "$reason"
done
run 0 plugins
has out "broken: crashes when it is opened: Segmentation fault"
has out "broken: has the name 'flip' in its table; expected 'z_flip'" # behind all that crash

# ---- probes that harm the process: a warning for each, and the run goes on with the other plugins ----
for kind in datasets tokenizers templates formats frontends stores backends; do
    rm -rf alone scripted && mkdir alone && cp -r "$probes/$kind" alone/$kind
    export NRL_PLUGIN_PATH=$work/alone
    case $kind in
    frontends) run 0 run script.lua ;;
    stores) run 0 launch -n 2 -- run c.yaml out=probed/$kind "loggers=[jsonl]" ;;
    backends) NRL_PLUGIN_PATH='' run 0 run c.yaml out=probed/$kind backend=auto "plugins=[$work/alone]" "loggers=[jsonl]" ;;
    templates) run 0 run c.yaml out=probed/$kind data.template=chatml "loggers=[jsonl]" ;;
    *) run 0 run c.yaml out=probed/$kind "loggers=[jsonl]" ;;
    esac
    for way in "crash crashes in its probe: Segmentation fault" "leave ends the process in its probe (exit code 0)" \
        "hang does not return within 2 s in its probe"; do
        name=a_probe_${way%% *}
        warning="'$name' ($work/alone/$kind/$name.so): ${way#* }"
        case $kind in
        stores) has err "$warning" ;; # the launcher and its ranks ask
        *) is "warnings '$warning'" "$(grep -cF "$warning" err)" 1 ;;
        esac
    done
done
# a backend that the config names: an error of a run, and a warning of a check
for way in "crash crashes in its probe: Segmentation fault" "leave ends the process in its probe (exit code 0)" \
    "hang does not return within 2 s in its probe"; do
    name=a_probe_${way%% *}
    reason="$work/alone/backends/$name.so: ${way#* }"
    run 1 run c.yaml out=probed/named overwrite=true backend="$name"
    has err "error: backend '$name': $reason"
    lacks err "skipped a plugin"
    run 0 check c.yaml out=probed/checked backend="$name"
    has err "warning: backend '$name' cannot be used on this machine: $reason"
    run 1 sample probed/datasets --prompt hello --max-tokens 1 --backend "$name"
    has err "$reason"
done
export NRL_PLUGIN_PATH=$work/bad

# ---- where the config names one ----
for case in "a_crash crashes when it is opened: Segmentation fault" "a_leave ends the process when it is opened (exit code 0)" \
    "a_abort crashes when it is opened: Aborted" "a_cut cannot be opened: the file is truncated" "a_folder cannot be opened: it is a directory"; do
    name=${case%% *}
    run 2 run c.yaml optimizer.name="$name" out=named
    has err "optimizer '$name' ($work/bad/optimizers/$name.so): ${case#* }"
    run 2 check c.yaml backend="$name" out=named
    has err "backend '$name' ($work/bad/backends/$name.so): ${case#* }"
    run 1 plugins test "bad/optimizers/$name.so"
    has err "bad/optimizers/$name.so: ${case#* }"
done
cp "$ends/hang.so" bad/optimizers/a_hang.so
run 2 run c.yaml optimizer.name=a_hang out=named
has err "optimizer 'a_hang' ($work/bad/optimizers/a_hang.so): does not return within 2 s when it is opened"
NRL_PLUGIN_TIMEOUT=soon run 0 describe train
has err "NRL_PLUGIN_TIMEOUT: expected a number of seconds above 0, got 'soon'"
[ ! -e named ] || is "the folder of a refused run" made "not made"
exit $failed
