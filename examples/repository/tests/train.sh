#!/bin/sh
# train.sh NRL FOLDER: trains two steps with the plugins of FOLDER, resumes for a third, and reads what they wrote.
set -eu
nrl=$1
configs=$(dirname "$nrl")/../share/nrl/configs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NRL_PLUGIN_PATH="$2"
cd "$work"

train() {
    "$nrl" run "$configs/sft.yaml" loggers="[table]" train.epochs=0 train.steps="$1" schedule=null eval.every=0 checkpoint.every=1 \
        backend="{name: cpu, threads: 1}" out=out resume=auto >log 2>&1 || { cat log; exit 1; }
}
train 2
train 3
[ "$(cut -d, -f1 out/table.csv | tr '\n' ' ')" = "step 1 2 3 " ] || { cat out/table.csv; exit 1; }
