#!/bin/sh
# campaign.sh NAME [N] [SEED]: long tests. Each prints the number of tries, the number of failures and the seed;
# the exit code is 1 if a try failed. The seed of a failed try is printed: `campaign.sh NAME 1 THAT_SEED` repeats it.
# NRL is the path of the program, build/release/bin/nrl by default. A new campaign is a function try_NAME below
# (its argument is a seed) and a row in `campaigns`.
# NRL_CAMPAIGN_LEDGER=FILE keeps the results of the tries: a campaign that was interrupted continues from them. Those that
# keep none refuse it.
set -u
cd "$(dirname "$0")/.." || exit 1
source=$(pwd)
nrl=${NRL:-$source/build/release/bin/nrl}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

campaigns='
fuzz    10000  inputs for each fuzz target (build with clang, NRL_FUZZ=ON, in FUZZ_BUILD)
planner 30     settings of random models on 1, 2 and 4 ranks, predicted by `nrl plan` and measured, three times in turn: memory within 5 %, time within 15 % in the median
kills   500    runs of each strategy on 1 to 4 ranks, interrupted by signals to rank, launcher or all, and resumed: bit-identical
restarts 100   kills of one or two of four ranks under `nrl launch --max-restarts`, at start-up, during saves and at other moments: bit-identical
offload 100    the same for runs with each kind of offload to disk, which then equal runs without: bit-identical, no file is left
hostile 10000  configs, rows, tokenizers, templates, weights, checkpoints, scripts and clients that are hostile: no crash, no hang
faults  100    ranks killed or stopped: the others end within 10 s and name the right rank
ranks64 1      runs of 64 processes: the losses of one process; one is killed, the others end within 10 s and name it
flips   1000   one bit flipped or the end removed, in a file of a checkpoint of two ranks: always detected
soak    50     short runs with random settings: each ends as expected
learn   5      whole quickstarts with other seeds: more than 90 % right, and brief after preferences
bench   1      repeats of each bench in tests/bench, on small settings; NRL_PEERS_PYTHON: PyTorch too
crash-states 10000 states of the disk that a crash may leave, from recorded runs: each resumes from the last save, same losses
shards  3      steps on 1, 2 and 4 ranks of fsdp, in the shape of SmolLM2-135M: memory decreases as in the plan
reproducible 1 runs of 50 steps on 1 to 8 ranks of ddp and fsdp, each algorithm, stopped and continued on fewer ranks: same bits
long-runs 1    tests of strategies and optimizers, with runs of 20 steps instead of 8: losses and norms of one rank
families 1     runs of 30 steps of all families of models in tests/data with each strategy: losses of one rank to 1e-6, norms to 1e-5
sanitize 2     sanitizers, address and undefined together, then thread: each builds the tree and runs the tests of several ranks: no findings
network 50     ranks in network namespaces (root) whose network fails: they end within 10 s and name the right rank, or continue with the same numbers
suite   20     runs of all tests, every second one on a busy machine, in turn on each instruction set of the CPU: all pass
packages 2     Debian releases (12, then 13): .deb files are built, installed in a bare system, and run the quickstart there (root, debootstrap)
cuda12  1      build of the cuda backend by nvcc 12.4, the package nvidia-cuda-toolkit of Debian 13, and the tests of its kernels without a GPU (apt, 1.3 GB)
docs    1      build of the site of docs/, with mkdocs in a separate virtual environment: no warnings
tidy    10000  C files for clang-tidy-14 with the checks of .clang-tidy, beginning at number SEED: no findings
steady  10000  steps of one run: from the 500th on, memory grows less than 1 % (or 1 MiB), descriptors not at all'

usage() {
    echo "usage: campaign.sh NAME [N] [SEED]"
    echo "$campaigns" | sed '/^$/d; s/^/  /'
    exit 2
}

# pick SEED N...: one of the words, selected by the seed
pick() {
    seed=$1
    shift
    shift $(((seed * 7919 + 13) / 3 % $#))
    echo "$1"
}

# A run of about a second that replaces this shell: `start ... &` leaves its process id in $!.
start() {
    exec "$nrl" run "$source/configs/sft.yaml" eval.every=0 checkpoint.every=10 \
        'backend={name: cpu, threads: 1}' "$@"
}

small() {
    (start "$@")
}

try_flips() {
    whole=$work/flips try=$work/flipped
    if [ ! -d "$whole" ]; then
        (OMP_NUM_THREADS=1 exec "$nrl" launch -n 2 -- run "$source/configs/sft.yaml" eval.every=0 checkpoint.every=5 \
            checkpoint.keep=0 train.epochs=0 train.steps=10 out="$whole" parallel=fsdp) >"$work/log" 2>&1 ||
            { cat "$work/log"; return 1; }
    fi
    rm -rf "$try" && mkdir -p "$try/checkpoints" && cp -r "$whole"/checkpoints/* "$try/checkpoints"
    newest=$try/checkpoints/step-00000010
    file=$newest/$(pick "$1" manifest.json rank-00000.nrlc rank-00001.nrlc)
    what=$(python3 - "$file" "$1" <<'PY'
import os, random, sys
path, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
size = os.path.getsize(path)
if random.random() < 0.2:
    at = random.randrange(size)
    os.truncate(path, at)
    print("cut at", at)
else:
    at, bit = random.randrange(size), random.randrange(8)
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1 << bit]))
    print("byte", at, "bit", bit)
PY
) || return 1
    "$nrl" checkpoint verify "$newest" >"$work/log" 2>&1
    code=$?
    [ $code -eq 5 ] || { echo "$file: $what: verify exits $code"; return 1; }
    # one in fifty is also resumed: from the checkpoint before it, with a warning
    [ $(($1 % 50)) -eq 0 ] || return 0
    small out="$try" resume=auto checkpoint.fallback=previous train.epochs=0 train.steps=10 >"$work/log" 2>"$work/err" ||
        { cat "$work/err"; return 1; }
    grep -q "after step 5 of 10" "$work/log" && grep -q "^warning: .*step-00000010" "$work/err" && return 0
    echo "$file: $what: no fallback"
    cat "$work/log" "$work/err"
    return 1
}

try_soak() {
    rm -rf "$work/soak"
    small out="$work/soak" train.seed="$1" train.epochs="$(pick "$1" 1 2 3)" \
        train.global_batch="$(pick "$1" 1 2 5 8 32 128)" data.packing="$(pick "$1" true false)" \
        train.micro_batch_tokens="$(pick "$1" 128 200 777 4096)" train.precision="$(pick "$1" fp32 bf16 fp16)" \
        model.config="$(pick "$1" "$source"/configs/models/*.json)" \
        schedule="$(pick "$1" constant linear cosine)" >/dev/null
}

try_learn() {
    NRL_TEST_WHOLE=1 NRL_TEST_SEED=$1 NRL_TEST_SOURCE=$source NRL_TEST_BUILD=$(dirname "$(dirname "$nrl")") \
        sh "$source/tests/e2e/quickstart.sh"
}

# Ranks started as by torchrun, each with its own exit code: a random rank is killed, or stopped for good, at a
# random moment. Every other rank must end within 10 s, with exit code 4 and the right rank in its message, and leave
# nothing behind.
fault_rank() {
    RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$3 \
        OMP_NUM_THREADS=1 exec "$nrl" run "$source/configs/sft.yaml" eval.every=0 checkpoint.every=0 \
        train.epochs=0 train.steps=1000000 schedule=constant loggers=jsonl out="$work/faults" "parallel=$4" \
        >"$work/out.$1" 2>"$work/err.$1"
}

fault_survivor() {
    wait "$2"
    code=$?
    # "rank 2 (host, process 7) was lost": messages about a lost rank must only name the victim
    blamed=$(sed -n 's/.*rank \([0-9]*\) ([^)]*).*was lost.*/\1/p' "$work/err.$1" | sort -u | tr '\n' ' ')
    [ $code -eq 4 ] && [ "$blamed" = "$3 " ] && return
    echo "rank $1: exit code $code, blamed '$blamed', expected 4 and '$3 '"
    cat "$work/err.$1"
    return 1
}

# fault_try SEED RANKS SIGNAL STRATEGY STEPS: the signal comes after that many steps
fault_try() {
    ranks=$2 signal=$3 strategy=$4 steps=$5 victim=$(($1 * 31 / 7 % $2)) bad=0 r=0 pids=''
    port=$((15000 + ($$ * 7 + $1 * 131) % 15000)) # below what connections are given
    rm -rf "$work/faults"
    while [ $r -lt "$ranks" ]; do
        (fault_rank $r "$ranks" $port "$strategy") &
        pids="$pids $!"
        [ $r -ne $victim ] || hit=$!
        r=$((r + 1))
    done
    until [ "$(cat "$work/faults/metrics.jsonl" 2>/dev/null | wc -l)" -ge "$steps" ]; do
        kill -0 "$hit" 2>/dev/null || { cat "$work"/err.*; return 1; }
        sleep 0.05
    done
    sleep "0.$(($1 * 7919 % 90 + 10))"
    kill -"$signal" "$hit"
    begin=$(date +%s%N) r=0
    for pid in $pids; do
        [ $r -eq $victim ] || fault_survivor $r "$pid" $victim || bad=1
        r=$((r + 1))
    done
    waited=$((($(date +%s%N) - begin) / 1000000))
    kill -9 "$hit" 2>/dev/null
    wait "$hit" 2>/dev/null
    slowest=${slowest:-0}
    [ $waited -le "$slowest" ] || slowest=$waited
    echo "$signal rank $victim of $ranks, $strategy: the others ended after $waited ms, the slowest so far $slowest"
    left=$(find "$work/faults" -name '*.tmp*' -o -name '*.part*' -o -name '*.lock')
    [ -z "$left" ] || { echo "left behind: $left"; bad=1; }
    [ $waited -le 10000 ] && [ $bad -eq 0 ]
}

try_faults() {
    signal=KILL
    [ $(($1 % 6)) -ne 0 ] || signal=STOP
    fault_try "$1" "$(pick "$1" 2 3 4)" $signal "$(pick "$1" ddp fsdp '{name: fsdp, shard: grads}')" 1
}

# Sums of 64 parts in another order: 1e-5 of the loss.
try_ranks64() {
    rm -rf "$work/alone"
    fault_try "$1" 64 KILL "$(pick "$1" ddp fsdp)" 5 || return 1
    small train.epochs=0 train.steps=5 schedule=constant loggers=jsonl out="$work/alone" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
    network_losses "$work/faults" | head -n 5 >"$work/found"
    network_losses "$work/alone" | paste -d ' ' - "$work/found" | awk '
        { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-5 * $2) { print "step " $1 ": " $4 ", expected " $2; bad = 1 } }
        END { exit bad || NR != 5 }' || return 1
    echo "the first 5 losses are those of one process"
}

# Ranks on separate machines, and a network that fails at a random moment, with the bounds of tests/e2e/network.sh.
# A run that continues must have the numbers of an undisturbed run.
network_rest() {
    network join "$victim"
    network loss 0
    network delay 0
    network mtu 0
    (on "$victim" ip link set net0 up)
}

network_goes_on() {
    network_rest
    network_steps "$work/network-run/metrics.jsonl" 3 90 && network_stopped 60 "$work" || return 1
    network_losses "$work/network-run" >"$work/found"
    head -n "$(wc -l <"$work/undisturbed")" "$work/found" >"$work/common"
    head -n "$(wc -l <"$work/found")" "$work/undisturbed" | cmp - "$work/common" && [ -s "$work/common" ] && return
    echo "the numbers differ from those without faults"
    return 1
}

network_losses() {
    sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"
}

try_network() {
    # shellcheck source=tests/support/network.sh
    . "$source/tests/support/network.sh"
    why=$(network_is_absent) && { echo "skipped: $why"; exit 77; }
    count=$(pick "$1" 2 3 4 4) fault=$(pick $(($1 * 3)) cut down short weather mtu)
    strategy=$(pick "$1" ddp fsdp '{tensor: 2}' '{data: fsdp, pipeline: 2}')
    case $strategy in *:*) count=$((count / 2 * 2)) ;; esac
    victim=$(($1 * 31 / 7 % count)) bad=0
    set -- "$1" "$source/configs/sft.yaml" eval.every=0 checkpoint.every=0 checkpoint.save_at_start=false train.epochs=0 \
        launch.timeout_step=120 schedule=constant 'backend={name: cpu, threads: 1}' loggers=jsonl \
        "parallel=$strategy" overwrite=true
    seed_of_try=$1
    shift
    OMP_NUM_THREADS=1 "$nrl" launch -n $count -- run "$@" train.steps=400 out="$work/undisturbed-run" >"$work/log" 2>&1 ||
        { cat "$work/log"; return 1; }
    network_losses "$work/undisturbed-run" >"$work/undisturbed"
    network_open $count || { cat "$work/network.out"; return 1; }
    rm -rf "$work/network-run"
    network_ranks $count "$work" "$@" train.steps=1000000 out="$work/network-run"
    network_steps "$work/network-run/metrics.jsonl" 3 60 || { cat "$work"/err.*; bad=1; }
    sleep "0.$((seed_of_try * 7919 % 90 + 10))"
    waited=0
    case $fault in
    cut) network cut $victim; network_lost $victim 10 "$work" || bad=1 ;;
    down) (on $victim ip link set net0 down); network_lost $victim 10 "$work" || bad=1 ;;
    mtu) network mtu 600; network_lost - 15 "$work" || bad=1 ;;
    short) network cut $victim; sleep 2; network_goes_on || bad=1 ;;
    weather) network loss 5; network delay 200; sleep 10; network_goes_on || bad=1 ;;
    esac
    network_close
    slowest=${slowest:-0}
    [ $waited -le "$slowest" ] || slowest=$waited
    echo "$fault, rank $victim of $count, $strategy: $waited ms, the slowest so far $slowest"
    [ $bad -eq 0 ]
}

# All targets at once: libFuzzer counts the inputs.
campaign_fuzz() {
    for target in "${FUZZ_BUILD:-build/fuzz}"/tests/fuzz_*; do
        [ -x "$target" ] || { echo "no fuzz targets in ${FUZZ_BUILD:-build/fuzz}"; return 2; }
        name=$(basename "$target")
        mkdir -p "$work/$name"
        tried=$((tried + 1))
        corpus=$source/tests/fuzz/corpus/${name#fuzz_}
        [ -d "$corpus" ] || corpus=
        "$target" -runs="$n" -seed="$seed" -rss_limit_mb=1024 -timeout=10 \
            -artifact_prefix="$source/$name-" "$work/$name" $corpus >"$work/log" 2>&1 && continue
        tail -n 30 "$work/log"
        failed=$((failed + 1))
    done
}

# bench FILE ARGUMENT...: runs a file of tests/bench and prints its JSON.
bench() {
    script=$1
    shift
    tried=$((tried + 1))
    echo "$script $*"
    python3 "$source/tests/bench/$script" "$nrl" "$@" && return
    failed=$((failed + 1))
}

# Speeds are only printed; a try fails if a benchmark does not work.
campaign_bench() {
    peers=${NRL_PEERS_PYTHON:-}
    bench footprint.py "$source/tests/data/models/llama" --repeats "$n"
    bench prefix_sharing.py --prompt 100 --pairs 2 --repeats "$n"
    bench ratios.py --model tiny --layers 4 --steps 3 --repeats "$n"
    bench overlap.py --tiny --layers 4 --vocab 512 --steps 3 --repeats "$n"
    bench overlap.py --axis sequence --tiny --layers 4 --vocab 512 --steps 3 --repeats "$n"
    bench sequence.py --layers 2 --width 64 --tokens 256 --steps 3 --rounds "$n"
    bench reproducible.py --tiny --layers 4 --vocab 512 --shards 4 --steps 3 --repeats "$n"
    bench optimizer_bytes.py --model tiny --layers 2
    bench bubble.py --micro 4 --steps 3 --rounds "$n"
    bench scaling.py --ranks 2 --strategies ddp --layers 2 --width 64 --length 64
    bench curves.py --ranks 8 16 --strategies ddp --layers 2 --width 256
    bench compress.py --steps 20 --only none powersgd topk-10
    bench all_reduce.py --most 1 --shorter 10 --repeats "$n" ${peers:+--python "$peers"}
    bench serve.py --model tiny --layers 4 --tokens 8 --repeats "$n"
    if [ -z "$peers" ]; then
        echo "skipped: sft_vs_torch.py, dpo_vs_torch.py, memory_vs_torch.py, generate_vs_transformers.py: NRL_PEERS_PYTHON names no python with torch"
        return
    fi
    bench sft_vs_torch.py "$source/configs/models/tiny.json" --batch 4 --length 128 --repeats "$n" --python "$peers"
    bench dpo_vs_torch.py --model tiny --layers 4 --pairs 16 --repeats "$n" --python "$peers"
    bench memory_vs_torch.py --model tiny --layers 4 --batch 2 --length 64 --steps 3 --repeats "$n" --python "$peers"
    "$peers" "$source/tests/bench/generate_vs_transformers.py" "$nrl" --model tiny --layers 4 --tokens 8 --repeats "$n"
}

# memory STEP: the resident set after that step, in bytes
memory() {
    sed -n "s/^{\"step\": $1, .*\"loss\".*\"mem_bytes\": \([0-9]*\).*/\1/p" "$work/steady/metrics.jsonl"
}

# One run over rows of many lengths, packed and shuffled. Before the first measurement it has done everything once,
# including evaluations and saves.
campaign_steady() {
    tried=1
    allocator_noise=1048576
    from=500
    [ "$n" -gt 1000 ] || from=$((n / 2))
    start out="$work/steady" train.epochs=0 train.steps="$n" train.seed="$seed" eval.every=250 \
        checkpoint.every=250 loggers=jsonl >"$work/log" 2>&1 &
    while kill -0 $! 2>/dev/null; do
        last=$(sed -n '$s/{"step": \([0-9]*\),.*/\1/p' "$work/steady/metrics.jsonl" 2>/dev/null)
        open=$(ls "/proc/$!/fd" 2>/dev/null | wc -l)
        # a save and a read of /proc use one for a moment
        if [ "${last:-0}" -ge $from ] && [ "$open" -gt 0 ]; then
            [ "$open" -ge "${fewest:-1000}" ] || fewest=$open
            first=${first:-$open}
            latest=$open
        fi
        sleep 0.2
    done
    wait $! || { cat "$work/log"; failed=1; return; }
    before=$(memory $from) after=$(memory "$n")
    echo "resident set: $before bytes after step $from, $after after step $n"
    echo "descriptors: ${first:-0} then, ${latest:-0} at the end, at least ${fewest:-0}"
    left=$(find "$work/steady" -name '*.tmp*' -o -name '*.part*' -o -name '*.lock')
    [ -z "$left" ] || echo "left behind: $left"
    # one per cent of such a small process is less than the variation of the allocator
    slack=$((before / 100))
    [ $slack -ge $allocator_noise ] || slack=$allocator_noise
    [ -z "$left" ] && [ "$after" -le $((before + slack)) ] &&
        [ "${latest:-0}" -le $((${fewest:-0} + 3)) ] || failed=1
}

# shard RANKS: runs it and appends to the table: ranks, MiB according to the plan, MiB resident
shard() {
    out=$work/shard$1
    tried=$((tried + 1))
    OMP_NUM_THREADS=1 "$nrl" launch -n "$1" -- run "$work/shards.yaml" out="$out" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log"; failed=$((failed + 1)); return; }
    planned=$(sed -n 's/.*memory  *\([0-9.]*\) MiB.*/\1/p' "$work/log" | head -n 1)
    sed -n 's/.*"loss".*"mem_bytes": \([0-9]*\).*/\1/p' "$out/metrics.jsonl" | tail -n 1 |
        awk -v n="$1" -v p="$planned" '{ print n, p, $1 / 1048576 }' >>"$work/shards"
}

# Resident memory outside of the plan (program, activations) does not depend on the number of ranks, to 3 % of the
# largest plan.
campaign_shards() {
    cat >"$work/shards.json" <<JSON
{"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
 "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_act": "silu",
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 100000, "tie_word_embeddings": true}
JSON
    awk 'BEGIN { for (i = 0; i < 64; i++) { s = ""; for (t = 0; t < 32; t++) s = s (t ? "," : "") 3 + (i * 31 + t * t * 17) % 40000
        print "{\"input_ids\":[" s "],\"labels\":[" s "]}" } }' >"$work/shards.jsonl"
    cat >"$work/shards.yaml" <<YAML
model: {config: shards.json}
data: {train: shards.jsonl, max_length: 64}
algorithm: sft
train: {steps: $n, global_batch: 4, micro_batch_tokens: 64, seed: $seed}
optimizer: {name: adamw, lr: 1e-4}
parallel: fsdp
loggers: [console, jsonl]
checkpoint: {every: 0, save_at_start: false, export: none}
backend: {name: cpu, threads: 1}
YAML
    : >"$work/shards"
    shard 1 && shard 2 && shard 4
    awk '{ rest = $3 - $2; printf "%d ranks: planned %.0f MiB a rank, resident %.0f, beside the plan %.0f\n", $1, $2, $3, rest
           if (NR == 1) { first = rest; whole = $2 }
           if (rest - first > 0.03 * whole || first - rest > 0.03 * whole) bad = 1 }
         END { exit bad || NR != 3 }' "$work/shards" || failed=$((failed + 1))
}

try_reproducible() {
    NRL_TEST_STEPS=50 NRL_TEST_SOURCE=$source NRL_TEST_BUILD=$(dirname "$(dirname "$nrl")") \
        sh "$source/tests/e2e/reproducible.sh"
}

try_families() {
    NRL_TEST_FAMILIES=$(ls "$source/tests/data/models") NRL_TEST_SOURCE=$source \
        NRL_TEST_BUILD=$(dirname "$(dirname "$nrl")") sh "$source/tests/e2e/ranks_families.sh"
}

campaign_long_runs() {
    for test in ddp fsdp context context_ring pipeline pipeline_schedules memory_limit optimizers; do
        tried=$((tried + 1))
        NRL_TEST_STEPS=20 NRL_TEST_SOURCE=$source NRL_TEST_BUILD=$(dirname "$(dirname "$nrl")") \
            sh "$source/tests/e2e/$test.sh" >"$work/log" 2>&1 && continue
        echo "$test:"
        tail -n 20 "$work/log"
        failed=$((failed + 1))
    done
}

# Tests of what runs on several ranks, in the builds of the presets asan and tsan; a test fails by what its sanitizer finds.
try_sanitize() {
    case $(($1 % 2)) in 1) preset=asan kinds=address,undefined ;; 0) preset=tsan kinds=thread ;; esac
    cmake --preset $preset -DNRL_SANITIZE=$kinds -DNRL_TESTS=ON -DNRL_CUDA=OFF >"$work/log" 2>&1 &&
        cmake --build --preset $preset --parallel "$(nproc)" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; return 1; }
    ctest --preset $preset --parallel "$(nproc)" \
        -R '^(ddp|fsdp|gloo|mesh|pipeline)\.|^conformance\.(parallel|collectives)\.|^e2e\.(strategies|ranks_killed)$' >"$work/tests" 2>&1
    code=$?
    echo "$kinds: $(grep 'tests passed' "$work/tests" || tail -n 1 "$work/tests")"
    [ $code -eq 0 ] || grep -E '(Failed|Timeout)|ERROR: |WARNING: |SUMMARY: |runtime error:' "$work/tests"
    return $code
}

# All tests, as scripts/test.sh runs them. The seed selects the options of the cpu backend in turn, and every second
# run shares the machine with as many busy processes as it has cores. Failed tests are printed.
try_suite() {
    case $(($1 % 5)) in 0) set -- "$1" ;; 1) set -- "$1" isa=base ;; 2) set -- "$1" isa=avx2 ;;
    3) set -- "$1" isa=avx512 bf16=native ;; 4) set -- "$1" bf16=widen ;; esac
    try=$1 hogs= load=idle
    shift
    build=$(cd "$(dirname "$nrl")/.." && pwd)
    slots=$(sed -n 's/.*"slots": \([0-9]*\).*/\1/p' "$build/tests/processors.json")
    if [ $((try % 2)) -eq 1 ]; then
        load=busy
        for core in $(seq "$slots"); do
            # ends with this shell, even if that is killed
            (trap 'exit 0' TERM; while kill -0 $$ 2>/dev/null; do :; done) &
            hogs="$hogs $!"
        done
    fi
    begin=$(date +%s)
    # The tests run short campaigns of their own, whose tries do not belong into this one's ledger.
    NRL_CAMPAIGN_LEDGER='' NRL_TEST_CPU="$*" ctest --test-dir "$build" --resource-spec-file "$build/tests/processors.json" \
        --parallel $((3 * slots)) -LE peers >"$work/suite" 2>&1
    code=$?
    for hog in $hogs; do kill "$hog" && wait "$hog"; done
    detail="$load, options '$*': $(grep 'tests passed' "$work/suite" || tail -n 1 "$work/suite"), $(($(date +%s) - begin)) s"
    echo "run $tried of $n, seed $try, $detail"
    [ $code -eq 0 ] || sed -n '/FAILED:/,/^Errors/p' "$work/suite" | sed '1d;$d' | tee "$work/failures"
    [ $code -eq 0 ] || detail="$detail:$(awk '{ printf " %s %s", $3, $4 }' "$work/failures")"
    return $code
}

# inside DIR COMMAND...: runs it in that root directory, with /proc and /dev mounted while it runs
inside() {
    root=$1
    shift
    unshare --mount --pid --fork --kill-child sh -c '
        root=$1 && shift
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
                HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' sh "$root" "$@"
}

# Builds the packages of a release from this checkout with the two plain commands and without cmocka, and installs them
# in a bare system, where an unprivileged user runs the quickstart; then tests libnrl-dev.
# NRL_PACKAGES=DIR keeps the packages in DIR.
try_packages() {
    case $(($1 % 2)) in 1) release=bookworm ;; 0) release=trixie ;; esac
    # The mirror that apt uses on this system.
    mirror=${NRL_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | head -n 1)}
    [ -n "$mirror" ] || { echo "no Debian mirror in apt's sources: set NRL_DEBIAN_MIRROR"; return 1; }
    bare=$work/$release build=$work/$release-build
    debootstrap --variant=minbase "$release" "$bare" "$mirror" >"$work/log" 2>&1 || { tail -n 5 "$work/log"; return 1; }
    cp -L /etc/resolv.conf "$bare/etc/resolv.conf"
    cp -a "$bare" "$build"
    mkdir "$build/src"
    (cd "$source" && git ls-files -z | xargs -0 cp --parents -t "$build/src") || return 1
    sed -n 's/^\(program\|module\|header\):[^:]*:\([^:]*\).*/\2/p' "$source/scripts/prepare.sh" |
        grep -vE 'cmocka|munge|slurm|clang' >"$build/needs"
    inside "$build" sh -ec 'apt-get update -q
        apt-get install -q -y --no-install-recommends $(cat /needs) dpkg-dev file >/tmp/apt
        cd /src
        cmake -B build
        cmake --build build -j "$(nproc)"
        cd build && cpack -G DEB && cpack -G TGZ' >"$work/log" 2>&1 || { tail -n 30 "$work/log"; return 1; }
    grep -q 'no cmocka: the tests are not built' "$work/log" || { echo "cmake did not report that the tests are not built"; return 1; }
    cp "$build"/src/build/*.deb "$build"/src/build/*.tar.gz "$bare/tmp"
    [ -z "${NRL_PACKAGES:-}" ] || { mkdir -p "$NRL_PACKAGES/$release" && cp "$bare"/tmp/*nrl* "$NRL_PACKAGES/$release"; }
    rm -rf "$build"
    inside "$bare" sh -ec 'apt-get update -q
        apt-get install -q -y --no-install-recommends /tmp/nrl_*.deb
        useradd -m user
        su user -c "cd && nrl run /usr/share/nrl/scripts/quickstart.lua"' >"$work/log" 2>&1 ||
        { tail -n 30 "$work/log"; return 1; }
    right=$(sed -n 's/^after preferences: \([0-9]*\) of 1000 right.*/\1/p' "$work/log")
    echo "$release: $(cd "$bare/tmp" && ls nrl_*.deb), $(inside "$bare" dpkg-query -W | wc -l) packages in all, quickstart: ${right:-0} of 1000 right"
    [ "${right:-0}" -ge 900 ] || { tail -n 20 "$work/log"; return 1; }
    inside "$bare" sh -ec 'mkdir /tmp/unpacked && tar -C /tmp/unpacked --strip-components=1 -xzf /tmp/nrl-*.tar.gz
        /tmp/unpacked/bin/nrl check /tmp/unpacked/share/nrl/configs/sft.yaml
        apt-get install -q -y --no-install-recommends /tmp/libnrl-dev_*.deb gcc libc6-dev cmake make pkg-config
        su user -c "cd && nrl plugins new optimizer mine mine && cmake -S mine -B mine/build && cmake --build mine/build &&
            ctest --test-dir mine/build &&
            cc -shared -fPIC \$(pkg-config --cflags nrl) /usr/share/nrl/examples/gce/gce.c -o gce.so \$(pkg-config --libs nrl) &&
            nrl plugins test ./gce.so"' >"$work/log" 2>&1 || { tail -n 30 "$work/log"; return 1; }
    rm -rf "$bare"
}

# The packages are unpacked and not installed: they would replace the libraries of another toolkit. nvcc expects the
# layout of the toolkit, which Debian spreads over /usr.
try_cuda12() {
    apt=$work/apt kit=$work/kit
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/files" "$kit/bin" "$kit/nvvm/bin" "$kit/lib64"
    mirror=${NRL_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | head -n 1)}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main non-free" >"$apt/sources.list"
    : >"$apt/status"
    get() {
        (cd "$apt/files" && apt-get -q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
            -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
            -o APT::Sandbox::User=root "$@") >"$work/log" 2>&1
    }
    get update && get download nvidia-cuda-toolkit nvidia-cuda-dev libnvvm4 libcudart12 libcublas12 libcublaslt12 \
        libcu++-dev libcub-dev libthrust-dev libnvidia-ml-dev || { tail -n 5 "$work/log"; return 1; }
    for package in "$apt"/files/*.deb; do dpkg-deb -x "$package" "$apt/unpacked" && rm "$package"; done
    from=$apt/unpacked/usr
    mv "$from/include" "$kit" && mv "$from/lib/nvidia-cuda-toolkit/bin/cicc" "$kit/nvvm/bin" &&
        mv "$from/lib/nvidia-cuda-toolkit/libdevice" "$kit/nvvm" && mv "$from/lib/nvidia-cuda-toolkit/bin/nvcc" \
        "$from/lib/nvidia-cuda-toolkit/bin/crt" "$from/bin/ptxas" "$from/bin/cudafe++" "$from/bin/fatbinary" "$from/bin/nvlink" \
        "$kit/bin" && cp -a "$from"/lib/x86_64-linux-gnu/lib*.so* "$from"/lib/x86_64-linux-gnu/libcud*.a "$kit/lib64" || return 1
    rm -rf "$apt"
    cat >"$kit/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
    cmake -S "$source" -B "$work/build" -DNRL_TESTS=ON -DNRL_CUDA=ON -DCMAKE_CUDA_COMPILER="$kit/bin/nvcc" \
        -DCUDAToolkit_ROOT="$kit" >"$work/log" 2>&1 && cmake --build "$work/build" --parallel "$(nproc)" >"$work/log" 2>&1 ||
        { tail -n 30 "$work/log"; return 1; }
    ctest --test-dir "$work/build" --resource-spec-file "$work/build/tests/processors.json" \
        --parallel "$(nproc)" -R 'cuda|ptx' >"$work/tests" 2>&1
    code=$?
    echo "$("$kit/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p'): $(grep 'tests passed' "$work/tests" || tail -n 1 "$work/tests")"
    [ $code -eq 0 ] || grep -E '(Failed|Timeout)' "$work/tests"
    return $code
}

# Builds the site as the workflow does. NRL_SITE=DIR keeps it in DIR.
try_docs() {
    python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q -r "$source/docs/requirements.txt" || return 1
    NO_MKDOCS_2_WARNING=1 NRL=$nrl "$work/venv/bin/mkdocs" build --strict -f "$source/mkdocs.yml" -d "${NRL_SITE:-$work/site}"
}

# Checks the files with the flags of cmake, without a build: every finding of clang-tidy is an error.
campaign_tidy() {
    command -v clang-tidy-14 >/dev/null || { echo "skipped: there is no clang-tidy-14"; exit 77; }
    cmake -S "$source" -B "$work/tidy" -DNRL_TESTS=ON -DNRL_CUDA=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log"; failed=1; return; }
    sed -n 's/^ *"file": "\(.*\.c\)",*$/\1/p' "$work/tidy/compile_commands.json" | sort -u | tail -n "+$seed" | head -n "$n" >"$work/files"
    tried=$(wc -l <"$work/files")
    xargs -P "$(nproc)" -n 4 clang-tidy-14 --quiet -p "$work/tidy" --extra-arg=-Wno-unknown-warning-option \
        <"$work/files" >"$work/found" 2>"$work/log"
    code=$?
    sort -u "$work/found" | grep -E ': (warning|error): ' >"$work/findings"
    failed=$(wc -l <"$work/findings")
    sed "s|^$source/||" "$work/findings"
    [ "$code" -eq 0 ] || [ "$failed" -gt 0 ] || { tail -n 20 "$work/log"; failed=1; }
}

# A program of tests/campaigns, which counts and prints the last line itself.
program() {
    command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
    program=$1
    shift
    python3 "$source/tests/campaigns/$program.py" "$nrl" "$work" "$n" "$seed" "$@"
    exit $?
}

# ledger SEED [RESULT]: with NRL_CAMPAIGN_LEDGER=FILE, the result of that try in FILE, or adds RESULT to it. The lines of
# FILE are "COMMIT NAME SEED RESULT"; all are of the commit that is checked out.
ledger() {
    [ -n "${NRL_CAMPAIGN_LEDGER:-}" ] || return 0
    commit=$(git -C "$source" rev-parse HEAD) && [ -z "$(git -C "$source" status --porcelain --untracked-files=no)" ] || {
        echo "$NRL_CAMPAIGN_LEDGER: a ledger belongs to one commit; expected a checkout without changes" >&2
        exit 2
    }
    touch "$NRL_CAMPAIGN_LEDGER" || exit 2
    if grep -v "^$commit " "$NRL_CAMPAIGN_LEDGER" >"$work/foreign"; then
        echo "$NRL_CAMPAIGN_LEDGER: belongs to commit $(cut -d ' ' -f 1 "$work/foreign" | head -n 1); expected $commit" >&2
        exit 2
    fi
    if [ $# -eq 2 ]; then
        echo "$commit $name $1 $2" >>"$NRL_CAMPAIGN_LEDGER"
    else
        sed -n "s/^$commit $name $1 //p" "$NRL_CAMPAIGN_LEDGER" | tail -n 1
    fi
}

# A campaign that is interrupted and started again with the same ledger continues: what ended is not tried again.
campaign_tries() {
    while [ $tried -lt "$n" ]; do
        this=$((seed + tried)) detail=
        tried=$((tried + 1))
        earlier=$(ledger $this) || exit 2
        case $earlier in
        passed* | failed*) echo "$name with seed $this, from the ledger: $earlier" ;;
        begun*) echo "$name with seed $this was interrupted, and is tried again" ;;
        esac
        case $earlier in
        passed*) continue ;;
        failed*) failed=$((failed + 1)) && continue ;;
        esac
        ledger $this "begun $(date -u +%FT%TZ)"
        if "try_$name" $this; then
            ledger $this "passed $(date -u +%FT%TZ) $detail"
        else
            ledger $this "failed $(date -u +%FT%TZ) $detail"
            echo "failed: $name with seed $this"
            failed=$((failed + 1))
        fi
    done
}

name=${1:-}
row=$(echo "$campaigns" | grep "^$name ") && [ -n "$name" ] || usage
n=${2:-$(echo "$row" | awk '{print $2}')}
seed=${3:-1}
tried=0 failed=0
case $name in
crash-states | kills | hostile | restarts | offload | fuzz | bench | shards | steady | tidy)
    [ -z "${NRL_CAMPAIGN_LEDGER:-}" ] || { echo "NRL_CAMPAIGN_LEDGER: campaign $name keeps no ledger" >&2; exit 2; } ;;
esac
case $name in
crash-states) program crash_states ;;
kills | hostile | planner) program "$name" ;;
restarts | offload) program kills "$name" ;;
long-runs) campaign_long_runs ;;
fuzz | bench | shards | steady | tidy) "campaign_$name" ;;
*) campaign_tries ;;
esac
echo "$name: $tried tried, $failed failed, seed $seed"
[ $tried -gt 0 ] && [ $failed -eq 0 ]
