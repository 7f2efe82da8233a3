# e2e.sh - sourced by the tests in this directory: creates a working directory, and has checks that print what was
# expected. Tests use one thread, so that several can run in parallel.
set -u
nrl=$NRL_TEST_BUILD/bin/nrl
source=$NRL_TEST_SOURCE
work=$(mktemp -d) && work=$(cd "$work" && pwd -P) || exit 1 # as nrl prints paths, without links
# Tests execute and open files of this directory, which some systems forbid for temporary directories.
printf '#!/bin/sh\n' >"$work/x" && chmod +x "$work/x"
"$work/x" 2>"$work/dd" || { rm -rf "$work" && work=$(mktemp -d -p "$NRL_TEST_BUILD/tests"); } || exit 1
rm -f "$work/x" "$work/dd"
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# what the user's shell may have, and nrl reads
unset NO_COLOR CUDA_VISIBLE_DEVICES NRL_API_KEY NRL_MACHINE NRL_RUN_ID NRL_JOB_SECRET NRL_JOB_SECRET_FILE NRL_STORE
export no_proxy='*' NO_PROXY='*'
backend=${NRL_TEST_BACKEND_NAME:-cpu}
# NRL_TEST_CPU, for example "isa=avx2 bf16=widen": options of the cpu backend for tests that compute
cpu_options=
for option in ${NRL_TEST_CPU:-}; do
    cpu_options="$cpu_options, ${option%%=*}: ${option#*=}"
    case $option in
    isa=avx2) needed=avx2 ;;
    isa=avx512) needed=avx512f ;;
    bf16=native) needed=avx512_bf16 ;;
    *) continue ;;
    esac
    grep -qsw "$needed" /proc/cpuinfo || { echo "skipped: this CPU has no $needed"; exit 77; }
done
one_thread="backend={name: $backend, threads: 1$cpu_options}"
one_thread_yaml="backend: {name: $backend, threads: 1$cpu_options}"
failed=0

# short_form_ends: the end of a variant on another instruction set (NRL_TEST_SHORT), which has run all kinds of operations of
# its test by now. `campaign.sh suite` runs the whole test on each instruction set.
short_form_ends() {
    [ -z "${NRL_TEST_SHORT:-}" ] || exit $failed
}

# run EXPECTED-CODE ARGUMENT...: runs nrl; its output is in the files out and err.
run() {
    expected=$1
    shift
    "$nrl" "$@" >out 2>err
    code=$?
    [ $code -eq "$expected" ] && return
    echo "nrl $*: exit $code, expected $expected"
    tail -n 20 out err
    failed=1
}

# has FILE TEXT: a line of FILE holds TEXT.
has() {
    grep -qF -- "$2" "$1" && return
    echo "no '$2' in $1:"
    tail -n 20 "$1"
    failed=1
}

# lacks FILE TEXT
lacks() {
    grep -qF -- "$2" "$1" || return
    echo "'$2' in $1"
    failed=1
}

# is NAME FOUND EXPECTED
is() {
    [ "$2" = "$3" ] && return
    echo "$1: $2, expected $3"
    failed=1
}

# truth NAME LUA: an expression over the JSON in out, as the table d; null is nil
truth() {
    cat >truth.lua <<LUA
local nrl = require "nrl"
local d = nrl.json.decode((io.open("out"):read "a"):match "{.*}")
local function near(a, b) return math.abs(a - b) <= 1e-6 * math.abs(b) end
local function sum(list, key, where)
  local s = 0
  for _, x in pairs(list) do if not where or x[where] then s = s + x[key] end end
  return s
end
local function all(list, holds)
  for k, x in pairs(list) do if not holds(x, k) then return false end end
  return true
end
os.exit(($2) and 0 or 1)
LUA
    "$nrl" run truth.lua >why 2>&1 || is "$1" "not so: $2 $(tail -n 1 why)" so
    rm -f truth.lua why
}

# await COMMAND...: repeats it until it succeeds; a failure of the test after five minutes, on a busy machine more.
# Runs that a test begins and stops should end by themselves in a few minutes: the test itself may be killed.
await() {
    tries=0
    while ! "$@" >dd 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 15000 ]; then
            echo "waited in vain for: $*"
            failed=1
            return 1
        fi
        sleep 0.02
    done
}

# gone PID: no such process, but one that only waits to be asked for its exit code
gone() {
    ! grep -s '^State:' "/proc/$1/status" | grep -qv 'Z (zombie)'
}

# heard PID: the signals that were sent to it have arrived
heard() {
    grep -q '^ShdPnd:[[:space:]]*0*$' "/proc/$1/status"
}

# finished PID CODE NAME: a child of this shell ends with that code; one that does not end is killed
finished() {
    await gone "$1" || kill -9 "$1"
    wait "$1" 2>dd
    is "exit code of $3" $? "$2"
}

# next_port: another one in $port at each call, which nobody uses now, by this process's number, below those that
# connections get
n_ports=$(($(od -An -N2 -tu2 /dev/urandom) % 15000))
next_port() {
    while :; do
        port=$((15000 + ($$ * 37 + n_ports) % 15000))
        n_ports=$((n_ports + 1))
        grep -qs ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 || return 0
    done
}

# values RUN FIELD: on standard output, that number of each training record of a run.
values() {
    sed -n '/"loss"/s|.*"'"$2"'": *\([^,}]*\).*|\1|p' "$1/metrics.jsonl"
}

# near FOUND EXPECTED N TOLERANCE: files of N numbers; relative for numbers above 1.
near() {
    paste "$1" "$2" | awk -v n="$3" -v room="$4" '
        { d = ($1 - $2) / ($2 > 1 || $2 < -1 ? $2 : 1); if (d < 0) d = -d; if (d > worst) worst = d; have += NF == 2 }
        END { if (have != n || worst > room) { printf "%d numbers, off by %g, expected %g\n", have, worst, room; exit 1 } }' && return
    echo "in $1, compared with $2"
    failed=1
}

# golden FOLDER: a copy of a tiny model, two layers and 96 tokens, to be broken.
golden() {
    mkdir "$1" && cp "$source"/tests/data/models/llama/config.json \
        "$source"/tests/data/models/llama/model.safetensors "$1"
}

# emulated_cuda: `backend: cuda` is the emulated GPU from here on, or a failure says that it is not built.
emulated_cuda() {
    [ -e "$NRL_TEST_BUILD/tests/emulated/backends/cuda.so" ] || { echo "skipped: no emulated cuda backend"; return 1; }
    NRL_PLUGIN_PATH=$NRL_TEST_BUILD/tests/emulated:$NRL_PLUGIN_PATH
    export NRL_PLUGIN_PATH
}

# token_rows N LENGTH VOCABULARY: on standard output, N rows of that many tokens, all of them trained.
token_rows() {
    awk -v n="$1" -v length_="$2" -v most="$3" 'BEGIN {
        for (r = 0; r < n; r++) {
            ids = ""
            for (i = 0; i < length_; i++) ids = ids (i ? ", " : "") 3 + (r * 17 + i * i * 5) % (most - 3)
            print "{\"input_ids\": [" ids "], \"labels\": [" ids "]}"
        }
    }'
}

# rows N: on standard output, N pre-tokenized rows for it, of 4 to 40 tokens.
rows() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++) {
            ids = labels = ""
            length_ = 4 + (i * 11) % 37
            for (t = 0; t < length_; t++) {
                id = 3 + (i * 31 + t * t * 17) % 90
                ids = ids (t ? ", " : "") id
                labels = labels (t ? ", " : "") (t < length_ / 3 ? -100 : id)
            }
            print "{\"input_ids\": [" ids "], \"labels\": [" labels "]}"
        }
    }'
}

# preferences DATA ALGORITHM: an experiment with DATA.jsonl and DATA_eval.jsonl of configs/data
preferences() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $source/configs/data/$1.jsonl, eval: $source/configs/data/$1_eval.jsonl, max_length: 128, template: chatml, cache: cache}
algorithm: $2
train: {steps: 4, global_batch: 8, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 1e-3}
eval: {every: 2}
checkpoint: {export: none}
loggers: [console, jsonl]
$one_thread_yaml
YAML
}

# recorded_steps DIR: an experiment of three steps on the model and the rows in DIR; backend etc. follow
recorded_steps() {
    cat <<YAML
model: {path: $1}
data: {train: $1/rows.jsonl, max_length: 64, shuffle: false, cache: $(basename "$1").cache}
train: {steps: 3, global_batch: 2, micro_batch_tokens: 64}
optimizer: {name: sgd, lr: 0.05, weight_decay: 0, momentum: 0, clip_norm: 0}
schedule: constant
loggers: [jsonl]
YAML
}

# experiment [LINE]: on standard output, a config of six steps of that model on train.jsonl, and LINE.
experiment() {
    cat <<YAML
model: {path: $source/tests/data/models/llama}
data: {train: train.jsonl, max_length: 64}
train: {steps: 6, global_batch: 4, micro_batch_tokens: 128}
optimizer: {name: adamw, lr: 1e-3}
checkpoint: {every: 2}
$one_thread_yaml
out: result
${1-}
YAML
}

# hand RANK VARIABLE=VALUE... -- ARGUMENT...: becomes a rank of two by torchrun's variables, to meet at $port
hand() {
    rank=$1
    shift
    variables=
    while [ "$1" != -- ]; do
        variables="$variables $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    exec env RANK="$rank" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" $variables "$nrl" run "$@"
}
# ---- a run on several ranks beside one rank; both take config.yaml ----

# numbers FILE: loss and gradient norm of each step, then each evaluation's loss
numbers() {
    sed -n 's|.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*|\1 \2|p; s|.*"eval_loss": *\([^,}]*\).*|\1|p' "$1"
}

# What two runs may differ by, relative to the loss:
exact=1e-6     # the same numbers added in another order, in f32
bf16_unit=4e-3 # the same in a run that rounds to bf16 (8 bits, a rounding moves a value by at most 2^-8): a sum in
               # another order turns some roundings of weights and activations; all of the loss moved by one bounds that
fp16_unit=5e-4 # likewise 11 bits, 2^-11
norms=20       # times that for norms

# compare NAME TOLERANCE: the run NAME gave the numbers of the expected run. Norms are sums of more numbers in
# another order, so they are compared less strictly than losses; with 16 bits only the first step's, since a turned
# rounding of a weight is a step of its own, whose effect on later gradients nothing bounds.
compare() {
    numbers "$1/metrics.jsonl" >found.txt
    is "records of $1" "$(wc -l <found.txt)" "$(wc -l <expected.txt)"
    paste expected.txt found.txt | awk -v name="$1" -v room="$2" -v norms="$norms" '
        function off(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (a > 0 ? a : -a) }
        { n = NF / 2; loss = off($1, $(n + 1)); norm = n == 2 && (room < 1e-4 || NR == 1) ? off($2, $4) : 0
          if (loss > worst) worst = loss
          if (norm > worst_norm) worst_norm = norm
          if (loss > room || norm > norms * room) { print name ": " $0; bad = 1 } }
        END { printf "%s: losses differ by %.1e of %.1e, norms by %.1e\n", name, worst, room, worst_norm; exit bad }' || failed=1
}

# step_values FILE: the numbers of each step that $step_names names, as "name number"
step_names='loss router_loss grad_norm'
step_values() {
    for name in $step_names; do
        { tr '{' '\n' <"$1"; echo; } | sed -n "s/.*\"$name\": *\([0-9.e-]*\).*/$name \1/p"
    done
}

# near_recorded NAME TOLERANCE: the run NAME gave the numbers of want.txt, which step_values wrote
near_recorded() {
    step_values "$1/metrics.jsonl" >got.txt
    is "values of $1" "$(wc -l <got.txt)" "$(wc -l <want.txt)"
    paste got.txt want.txt |
        awk -v room="$2" -v norms="$norms" '{ d = ($2 - $4) / $4; r = /norm/ ? norms * room : room; if (d > r || d < -r) bad++ }
            END { exit bad > 0 || NR < 6 }' ||
        is "values of $1" "$(cat got.txt)" "$(cat want.txt)"
}

# ranks N NAME TOLERANCE ARGUMENT...: that config on N ranks
ranks() {
    n=$1
    name=$2
    room=$3
    shift 3
    run 0 launch -n "$n" -- run config.yaml out="$name" overwrite=true "$@"
    [ -f "$name/metrics.jsonl" ] && compare "$name" "$room"
    rm -rf "$name"
}

# alone NAME ARGUMENT...: one rank's run of config.yaml, whose numbers are the expected ones
alone() {
    name=$1
    shift
    run 0 run config.yaml out="$name" overwrite=true "$@"
    numbers "$name/metrics.jsonl" >expected.txt
}

# How many steps the runs of tests of strategies and optimizers take; campaign.sh long-runs says more.
n_steps=${NRL_TEST_STEPS:-8}

# one NAME ARGUMENT...: the same, of n_steps
one() {
    alone "$@"
    is "steps of $name" "$(grep -c ' ' expected.txt)" "$n_steps"
}

# continued NAME N TOLERANCE ARGUMENT...: `whole` from step 4 on
continued() {
    name=$1 n=$2 room=$3
    shift 3
    rm -rf "$name" && cp -r whole "$name" && rm -rf "$name"/checkpoints/step-0000000[678]
    run 0 launch -n "$n" -- run config.yaml out="$name" resume=auto train.steps=8 checkpoint.keep=9 "$@"
    has out "resume     after step 4 of 8"
    compare "$name" "$room"
}

# staged MODEL TRAIN EVAL ALGORITHM MICRO_BATCH_TOKENS RATE: a config of n_steps with several micro-batches
staged() {
    cat <<YAML
model: $1
data: {train: $2, eval: $3, max_length: 128, template: chatml, cache: cache}
algorithm: $4
train: {steps: $n_steps, global_batch: 16, micro_batch_tokens: $5, seed: 3}
optimizer: {name: adamw, lr: $6, weight_decay: 0.1, clip_norm: 0.5}
eval: {every: $((n_steps / 2))}
loggers: [console, jsonl]
$one_thread_yaml
YAML
}

# wide ADAPTER: config.yaml with such adapters, on a model in `base` whose matrices have whole quantized blocks on two ranks
wide() {
    sed 's/"hidden_size": 64/"hidden_size": 128/; s/"intermediate_size": 192/"intermediate_size": 256/
         s/"num_hidden_layers": 4/"num_hidden_layers": 2/; s/"head_dim": 16/"head_dim": 32/' \
        "$source/configs/models/tiny.json" >model.json
    cat >config.yaml <<YAML
model: {path: base/model}
data: {train: $source/configs/data/chat.jsonl, max_length: 128, template: chatml, cache: cache}
lora: $1
train: {steps: 6, global_batch: 8, micro_batch_tokens: 128, seed: 3}
optimizer: {name: adamw, lr: 1e-2, clip_norm: 0.5}
checkpoint: {every: 3, export_dtype: f32}
loggers: [console, jsonl]
$one_thread_yaml
YAML
    run 0 run config.yaml out=base lora=null "model={config: model.json, tokenizer: $source/configs/models/tiny-tokenizer}" train.steps=1
}
