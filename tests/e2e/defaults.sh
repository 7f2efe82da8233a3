#!/bin/sh
# defaults.sh: what a config does not specify is chosen from the declarations of plugins that are installed with nrl
# or in a directory of the config; the saved config contains what the user specified. The backend apart
# (tests/support) has the highest priority.
. "$(dirname "$0")/e2e.sh"
rows 16 >train.jsonl
experiment >config.yaml
sed -i '/^backend:/d' config.yaml
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
apart=$NRL_TEST_BUILD/tests/apart
path=$apart${NRL_PLUGIN_PATH:+:$NRL_PLUGIN_PATH}

# saved NAME: the backend in the saved config of a run, on one line
saved() {
    sed -n '/^backend:/,/^[a-z]/p' "$1/config.yaml" | sed '1b;/^[a-z]/d' | tr -d '\n ' | tr -d '"'
}

# a plugin of NRL_PLUGIN_PATH is not chosen, one of the config's folder is, one by its name is wherever it lies
NRL_PLUGIN_PATH=$path run 0 run config.yaml out=path
lacks out "apart"
NRL_PLUGIN_PATH=$path run 0 run config.yaml out=named backend=apart
has out "apart"
run 0 run config.yaml out=folder "plugins=[$apart]"
has out "apart"

# the run is saved as it was asked for, and goes on on another backend
is "saved backend" "$(saved folder)" "backend:name:auto"
is "saved backend with an option" "$(run 0 run config.yaml out=option backend.threads=1 && saved option)" \
    "backend:name:autothreads:1"
numbers folder/metrics.jsonl >expected.txt
rm -rf folder/checkpoints/step-0000000[46]
run 0 resume folder --no-plugins-from-config
lacks out "apart"
compare folder $exact
run 0 launch -n 2 -- run config.yaml out=two
is "saved collective" "$(grep -A1 '^collective:' two/config.yaml | tr -d '\n "')" "collective:name:auto"

# the defaults of other kinds are saved by their names
for line in 'name: sft' 'name: adamw' 'name: console' 'name: jsonl'; do
    has path/config.yaml "$line"
done
sed -n '/^loggers:/,/^[a-z]*:/p' path/config.yaml >loggers.txt
lacks loggers.txt tensorboard
# another strategy of an axis drops the options of the one in the other file
cat >below.yaml <<YAML
$(experiment 'parallel: {data: {name: fsdp, shard: grads}}')
YAML
printf 'defaults: below.yaml\nparallel: {data: {name: ddp}}\n' >above.yaml
run 0 check above.yaml
printf 'defaults: below.yaml\nparallel: {data: {prefetch: 0}}\n' >above.yaml
run 2 check above.yaml
has err "prefetch: has no effect here"
exit $failed
