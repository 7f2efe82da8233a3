#!/bin/sh
# resume_refused.sh: resume=auto only starts a new run if there is no checkpoint. The error lists unreadable
# checkpoints with their reasons, and neither they nor the records are changed; checkpoints of a later version of nrl
# are never replaced.
. "$(dirname "$0")/e2e.sh"
rows 32 >train.jsonl
experiment >c.yaml
run 0 run c.yaml out=whole checkpoint.keep=0

# begin NAME: a copy of that run
begin() {
    rm -rf "$1"
    cp -r whole "$1"
}

# untouched NAME: its records and checkpoints are what they were before the last run
untouched() {
    (cd "$1" && find checkpoints metrics.jsonl -type f -exec cksum {} + | sort) >after
    cmp -s before after || is "files of $1" changed untouched
}

# refused CODE NAME ARGUMENT...
refused() {
    expected_code=$1 name=$2
    shift 2
    (cd "$name" && find checkpoints metrics.jsonl -type f -exec cksum {} + | sort) >before
    run "$expected_code" run c.yaml out="$name" resume=auto train.steps=8 checkpoint.keep=0 "$@"
    untouched "$name"
    run "$expected_code" resume "$name" train.steps=8
    untouched "$name"
}

# later_format MANIFEST: as a later version would write it
later_format() {
    sed 's/"format": 3/"format": 4/' "$1" >manifest.new && mv manifest.new "$1"
}

# ---- all damaged ----
begin damaged
for step in 2 4; do printf 'x' | dd of=damaged/checkpoints/step-0000000$step/manifest.json conv=notrunc bs=1 seek=100 2>dd; done
rm damaged/checkpoints/step-00000006/rank-00000.nrlc
refused 5 damaged
has err "'damaged' contains no complete checkpoint"
for step in 2 4; do has err "damaged/checkpoints/step-0000000$step/manifest.json: the hash does not match"; done
has err "damaged/checkpoints/step-00000006/rank-00000.nrlc: is missing"
run 5 run c.yaml out=damaged resume=auto train.steps=8
has err "hint: overwrite=true starts a new run and replaces them"
run 5 sample damaged --prompt a
run 2 import "$source/tests/data/models/llama" damaged
has err "already contains a checkpoint"

# ---- a later format: newer than all others, the only one, and in the way of a save ----
begin later
later_format later/checkpoints/step-00000006/manifest.json
refused 65 later
has err "step-00000006/manifest.json: has format 4, but this version of nrl reads format 3"
refused 65 later checkpoint.fallback=previous
run 0 run c.yaml out=later resume=later/checkpoints/step-00000004 checkpoint.fallback=previous
has later/checkpoints/after-00000004.1/step-00000006/manifest.json '"format": 4'
begin later
later_format later/checkpoints/step-00000006/manifest.json
rm -r later/checkpoints/step-00000002 later/checkpoints/step-00000004
refused 65 later

# ---- a file that cannot be read says nothing about the checkpoint ----
begin unreadable
if [ "$(id -u)" != 0 ]; then
    chmod 000 unreadable/checkpoints/step-00000006/manifest.json
    refused 1 unreadable
    has err "Permission denied"
    chmod 644 unreadable/checkpoints/step-00000006/manifest.json
else
    echo "skipped: unreadable files: root may read them"
fi
mv unreadable/checkpoints elsewhere && ln -s "$work/unmounted" unreadable/checkpoints
run 1 run c.yaml out=unreadable resume=auto
has err "unreadable/checkpoints: No such file or directory"
is "steps on record" "$(grep -c '"loss"' unreadable/metrics.jsonl)" 6

# ---- one that is whole is taken; none at all is a fresh run ----
begin older
rm older/checkpoints/step-00000006/manifest.json
run 0 run c.yaml out=older resume=auto train.steps=7
has err "warning: skipped a damaged checkpoint: older/checkpoints/step-00000006: is not a complete checkpoint"
has out "after step 4 of 7"
begin fresh
rm -r fresh/checkpoints
mkdir -p fresh/checkpoints/step-00000002.tmp # a run that was killed while it saved for the first time
run 0 run c.yaml out=fresh resume=auto
lacks out "after step"
exit $failed
