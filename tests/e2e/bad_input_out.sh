#!/bin/sh
# bad_input_out.sh: output that cannot be written, full disks, failing loggers: detected before the first step if
# possible, and only the new file is lost.
. "$(dirname "$0")/e2e.sh"

rows 32 >train.jsonl
experiment >run.yaml

checkpoints() { (cd "$1/checkpoints" && echo *); }
temporary() { find "$1" -name '*.tmp*' -o -name '*.part*' -o -name '*.lock' -o -name '.write-test*'; }

# ---- found by check and by run, before anything is made ----
: >file
for out in file file/below; do
    run 2 check run.yaml out=$out
    has err "out: cannot write to 'file': Not a directory"
    run 2 run run.yaml out=$out
    has err "Not a directory"
done
long=$(printf 'a%.0s' $(seq 300))
run 2 check run.yaml "out=$long"
has err "is too long"
run 2 run run.yaml "out=$long"
run 2 run run.yaml out=/proc/nrl
has err "out: cannot create the directory '/proc/nrl'"
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod 555 locked
    for verb in check run; do
        run 2 $verb run.yaml out=locked
        has err "cannot write to 'locked': Permission denied"
    done
    run 2 check run.yaml out=locked/new
    has err "cannot write to 'locked': Permission denied"
else
    echo "skipped: read-only folders: root may write into them"
fi
run 2 check run.yaml data.cache=file/cache
has err "data.cache: cannot write to 'file': Not a directory"
run 2 run run.yaml data.cache=file/cache out=uncached
has err "data.cache: cannot create the directory 'file/cache': Not a directory"
run 0 check run.yaml data.cache=cache out=new
[ -e cache ] || [ -e new ] && is "folders after check" present absent

# ---- an out that holds a run is refused; to replace it, everything else must be right ----
run 0 run run.yaml
is checkpoints "$(checkpoints result)" "step-00000002 step-00000004 step-00000006"
is "temporary files" "$(temporary result)" ""
cp -r result before
for verb in check run; do
    run 2 $verb run.yaml
    has err "out: 'result' already contains a run"
    has err "resume=auto continues it, overwrite=true replaces it"
done
echo broken >broken.jsonl
run 65 run run.yaml overwrite=true data.train=broken.jsonl
diff -r before result >differences || is "the earlier run" gone "left alone"
run 0 run run.yaml overwrite=true train.steps=2
is checkpoints "$(checkpoints result)" "step-00000002"

# ---- one run at a time; who was killed holds nothing ----
"$nrl" run run.yaml out=busy train.steps=100000 checkpoint.every=0 >busy.out 2>&1 &
await test -s busy/metrics.jsonl
for how in resume=auto overwrite=true; do
    run 2 run run.yaml out=busy $how
    has err "out: another run is writing to 'busy'"
done
mkdir -p busy/checkpoints/step-00000001.tmp # as of a save that is being written
run 2 checkpoint prune busy --keep 1
has err "a run is writing to 'busy'"
[ -d busy/checkpoints/step-00000001.tmp ] || is "a save beside a prune" gone "left alone"
kill -KILL $!
wait $! 2>/dev/null
run 0 run run.yaml out=busy overwrite=true train.steps=2

# ---- a disk that is full: before the first step, at a save, at the token cache ----
(ulimit -f 200 && run 7 run run.yaml out=full && exit $failed) || failed=1
has err "a trial save before the first step (checkpoint.save_at_start)"
has err "the checkpoint needs up to 315264 bytes"
run 0 run run.yaml out=full # that start left nothing that looks like a run

# at the third save: until then there is room
run 0 run run.yaml out=late train.steps=4
cp -r late/checkpoints kept
(ulimit -f 200 && run 7 resume late train.steps=6 checkpoint.save_at_start=false && exit $failed) || failed=1
has err "saving step 6: the checkpoint needs up to 315264 bytes"
diff -r kept late/checkpoints >differences || is "earlier checkpoints" changed "left alone"
is "temporary files" "$(temporary late)" ""
(ulimit -f 200 && run 7 resume late train.steps=7 checkpoint.save_at_start=false checkpoint.on_error=warn && exit $failed) || failed=1
has err "the run continues"
run 0 resume late train.steps=6
is checkpoints "$(checkpoints late)" "step-00000002 step-00000004 step-00000006"
(ulimit -f 1 && run 7 run run.yaml out=tiny && exit $failed) || failed=1
has err "the token cache"
is "temporary files" "$(temporary tiny)" ""

# the same steps as a run in one piece
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
is "losses after a full disk" "$(losses late)" "$(losses before)"

# ---- loggers ----
run 0 run run.yaml out=logs train.steps=1 checkpoint.every=0 checkpoint.export=none
ln -sf /dev/full logs/metrics.jsonl
run 0 run run.yaml out=logs resume=auto
is "times it is told" "$(grep -c "warning: logger 'jsonl' failed; the next record is tried again: " err)" 1
has err "warning: 6 records of this run are missing in logger 'jsonl'"
is checkpoints "$(checkpoints logs)" "step-00000002 step-00000004 step-00000006"
mkdir -p logs2/metrics.jsonl
run 0 run run.yaml out=logs2 resume=auto
has err "warning: logger 'jsonl' failed; the next record is tried again: logs2/metrics.jsonl: Is a directory"
"$nrl" run run.yaml out=unheard >/dev/full 2>err
is "code of a run that nobody hears" $? 7
has err "warning: logger 'console' failed; the next record is tried again: standard output"
has err "error: cannot write standard output: No space left on device"
is "records of a run that nobody hears" "$(grep -c '"loss"' unheard/metrics.jsonl)" 6
exit $failed
