#!/bin/sh
# checkpoint_faults.sh: a full, limited, read-only or failing disk under a launched program of one and two ranks. The
# error names the file and the required space, the previous checkpoint stays intact, no incomplete files are left, and
# with checkpoint.on_error=warn the run continues.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
shim=$NRL_TEST_BUILD/tests/e2e/faults.so

settings="train.epochs=0 train.steps=8 eval.every=0 checkpoint.every=4 checkpoint.keep=0 checkpoint.export=none"
settings="$settings checkpoint.save_at_start=false"

# ranks EXPECTED-CODE N ARGUMENT...: the run in `out`, from its checkpoint of step 4 on
ranks() {
    expected=$1 n=$2
    shift 2
    # shellcheck disable=SC2086
    run "$expected" launch -n "$n" -- run "$source/configs/sft.yaml" $settings out="$out" resume=auto "$@"
}

# begin N: a run in `out` that has its checkpoint of step 4
begin() {
    out=$work/out-$1
    rm -rf "$out"
    cp -r "$work/begun-$1" "$out"
}

# intact: that checkpoint, and nothing else
intact() {
    is "what is left" "$(ls "$out/checkpoints" | tr '\n' ' ')" "step-00000004 "
    run 0 checkpoint verify "$out/checkpoints/step-00000004"
}

for n in 1 2; do
    out=$work/begun-$n
    ranks 0 $n
    rm -r "$out/checkpoints/step-00000008"

    # a limit on the size of files, below one rank's part
    begin $n
    (ulimit -f 512 && ranks 7 $n && exit $failed) || failed=1
    has err "rank-0000"
    has err "File too large"
    has err "the checkpoint needs "
    intact
    (ulimit -f 512 && ranks 0 $n checkpoint.on_error=warn && exit $failed) || failed=1
    has err "checkpoint.on_error: warn; the run continues"
    has out "step 8/8"
    intact
    (ulimit -f 512 && ranks 7 $n checkpoint.save_at_start=true && exit $failed) || failed=1
    has err "a trial save before the first step"
    intact

    # a disk that breaks under the last rank
    if [ -e "$shim" ]; then
        for kind in 1 2; do # a write, a sync
            begin $n
            NRL_FAULT_FOLDER=$out/checkpoints NRL_FAULT_MATCH=rank-0000$((n - 1)) NRL_FAULT_KIND=$kind NRL_FAULT_ERROR=5
            export NRL_FAULT_FOLDER NRL_FAULT_MATCH NRL_FAULT_KIND NRL_FAULT_ERROR
            (LD_PRELOAD=$shim && export LD_PRELOAD && ranks 1 $n && exit $failed) || failed=1
            has err "rank-0000$((n - 1)).nrlc: Input/output error"
            intact
            (LD_PRELOAD=$shim && export LD_PRELOAD && ranks 0 $n checkpoint.on_error=warn && exit $failed) || failed=1
            has err "Input/output error"
            has out "step 8/8"
            intact
        done
    else
        echo "skipped: broken disks: this build has no library to preload"
    fi

    # who is root may write anywhere
    if [ "$(id -u)" != 0 ]; then
        begin $n
        chmod a-w "$out/checkpoints"
        ranks 1 $n
        has err "checkpoints/step-00000008.tmp: Permission denied"
        intact
        chmod u+w "$out/checkpoints"
    else
        echo "skipped: read-only folders: root may write into them"
    fi
done

# a file system that is full: room for one checkpoint, not for two
mkdir full
if unshare -rm true 2>unshare.err; then
    for n in 1 2; do
        # shellcheck disable=SC2086
        unshare -rm sh -c '
            mount -t tmpfs -o size=4m none full && cp -r "$0" full/out || exit 77
            "$@" >out 2>err
            echo $? >code
            ls full/out/checkpoints >left' "$work/begun-$n" \
            "$nrl" launch -n $n -- run "$source/configs/sft.yaml" $settings out="$work/full/out" resume=auto
        [ $? = 77 ] && echo "skipped: full disks: this user cannot mount a tmpfs" && break
        is "exit on a full disk" "$(cat code)" 7
        has err "No space left on device"
        has err "the checkpoint needs "
        is "what is left on a full disk" "$(tr '\n' ' ' <left)" "step-00000004 "
    done
else
    echo "skipped: full disks: this user cannot create a namespace"
fi
exit $failed
