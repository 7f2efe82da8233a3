#!/bin/sh
# gpu_check.sh [-o RESULT.json] [-b BACKEND] [BUILD]: what can only be seen on a GPU, in 8 minutes at most: the
# rules of a backend, the numbers of other programs, losses beside the CPU's, repeatability, memory, speed.
# Needs a built tree (build/release unless given) and the libraries it runs with. Prints a table, writes one
# JSON object, exits 1 if a check failed, 77 without a GPU.
# A rehearsal where there is no GPU: -b cpu, or NRL_PLUGIN_PATH with an emulated cuda.so; NRL_CHECK_STEPS=2 shortens it.
set -u
result=gpu_check.json
backend=cuda
while getopts o:b: option; do
    case $option in
    o) result=$OPTARG ;;
    b) backend=$OPTARG ;;
    *) sed -n '2,6s/^# //p' "$0" && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
source=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build=$(cd "${1:-$source/build/release}" 2>/dev/null && pwd) || {
    echo "gpu_check: no build in ${1:-$source/build/release}"
    exit 2
}
case $result in /*) ;; *) result=$(pwd)/$result ;; esac
nrl=$build/bin/nrl
plugins=${NRL_PLUGIN_PATH:-$build/lib/nrl}
library=$plugins/backends/$backend.so

if [ ! -e "$library" ]; then
    echo "gpu_check: skipped: this build has no backend '$backend' ($library)"
    exit 77
fi
if [ "$backend" = cuda ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] && [ -z "${NRL_PLUGIN_PATH:-}" ]; then
    echo "gpu_check: skipped: this machine has no NVIDIA GPU"
    exit 77
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
end=$(($(date +%s) + 465))
failed=0
rows=

# left MOST: seconds that a step may take
left() {
    seconds=$((end - $(date +%s)))
    [ $seconds -gt "$1" ] && seconds=$1
    echo $seconds
}

# note NAME STATE DETAIL: one row; STATE is ok, failed, skipped or a measure
note() {
    printf '%-34s %-8s %s\n' "$1" "$2" "$3"
    detail=$(printf '%s' "$3" | tr '\n\t' '  ' | sed 's/\\/\\\\/g; s/"/\\"/g')
    rows="$rows${rows:+, }{\"name\": \"$1\", \"state\": \"$2\", \"detail\": \"$detail\"}"
    [ "$2" != failed ] || failed=1
}

# check NAME SECONDS COMMAND...: ok when it exits 0 in time; 77 is skipped
check() {
    name=$1
    seconds=$(left "$2")
    shift 2
    if [ "$seconds" -lt 5 ]; then
        note "$name" skipped "no time is left"
        return 1
    fi
    began=$(date +%s)
    timeout "$seconds" "$@" >log 2>&1
    code=$?
    took=$(($(date +%s) - began))
    case $code in
    0) note "$name" ok "$took s; $(tail -n 1 log)" ;;
    77) note "$name" skipped "$(tail -n 1 log)" ;;
    124) note "$name" failed "not done after $seconds s; $(tail -n 1 log)" ;;
    *) note "$name" failed "exit $code; $(grep -iE 'error|fail' log | head -n 3)" ;;
    esac
    return $code
}

# ---- the backend against plain sums, and against other programs' numbers ----

check "rules of a backend" 120 "$nrl" plugins test "$library"

NRL_TEST_SOURCE=$source NRL_TEST_BUILD=$build NRL_TEST_SHARED=$source/../shared NRL_PLUGIN_PATH=$plugins
export NRL_TEST_SOURCE NRL_TEST_BUILD NRL_TEST_SHARED NRL_PLUGIN_PATH
for test in tensor.reference tensor.gradients tensor.tape optim.adamw dpo.losses parity.models parity.stories; do
    if [ -x "$build/tests/test_$test" ]; then
        check "$test" 60 env NRL_TEST_BACKEND="$library" "$build/tests/test_$test"
    else
        note "$test" skipped "not built"
    fi
done

# ---- losses of 50 steps beside the CPU's ----

# losses OUT
losses() {
    sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"
}

# train OUT BACKEND CONFIG OPTION...
train() {
    out=$1
    on=$2
    config=$3
    shift 3
    timeout "$(left 60)" "$nrl" run "$source/configs/$config.yaml" "backend=$on" "out=$out" overwrite=true train.epochs= \
        "train.steps=$steps" checkpoint.every=0 checkpoint.export=false eval.every=0 "$@"
}

# compare NAME CONFIG PRECISION TOLERANCE: the largest relative distance of two losses
compare() {
    if [ "$(left 60)" -lt 20 ]; then
        note "$1" skipped "no time is left"
        return
    fi
    if ! train "cpu-$2-$3" cpu "$2" "train.precision=$3" >log 2>&1; then
        note "$1" skipped "the CPU did not train: $(tail -n 1 log)"
        return
    fi
    if ! train "gpu-$2-$3" "$backend" "$2" "train.precision=$3" >log 2>&1; then
        note "$1" failed "$(tail -n 1 log)"
        return
    fi
    losses "cpu-$2-$3" >a
    losses "gpu-$2-$3" >b
    text=$(paste -d' ' a b | awk -v most="$4" '
        { d = ($4 - $2) / ($2 < 0 ? -$2 : $2); if (d < 0) d = -d; if (!(d <= worst)) worst = d; n++ }
        END { printf "%d losses, last %s and %s, at most %.2g apart (%.2g allowed)", n, $2, $4, worst, most
              exit !(n > 0 && worst <= most) }') && state=ok || state=failed
    [ "$(wc -l <b)" -eq "$steps" ] || state=failed
    note "$1" $state "$text"
}

steps=${NRL_CHECK_STEPS:-50}
# Sums in another order drift apart as steps go on; bf16 and fp16 round each activation.
compare "sft, fp32, beside the CPU" sft fp32 1e-3
compare "sft, bf16, beside the CPU" sft bf16 5e-2
compare "sft, fp16, beside the CPU" sft fp16 1e-2
compare "dpo, fp32, beside the CPU" dpo fp32 2e-3
compare "dpo, bf16, beside the CPU" dpo bf16 1e-1
compare "dpo, fp16, beside the CPU" dpo fp16 2e-2

train again "$backend" sft train.precision=bf16 >log 2>&1
if [ "$(losses again)" = "$(losses gpu-sft-bf16)" ]; then
    note "two runs give the same bits" ok "$steps losses"
else
    note "two runs give the same bits" failed "losses differ"
fi

# ---- memory and speed ----

# number KEY: of the JSON in the file log
number() {
    sed -n 's/.*"'"$1"'": *\([^,}]*\).*/\1/p' log
}

# bench NAME SECONDS STEPS CONFIG OPTION...
bench() {
    name=$1
    seconds=$(left "$2")
    n=$3
    shift 3
    if [ "$seconds" -lt 15 ]; then
        note "$name" skipped "no time is left"
        return
    fi
    if ! timeout "$seconds" "$nrl" bench "$@" "backend=$backend" --steps "$n" --json >log 2>err; then
        note "$name" failed "$(tail -n 1 err)"
        return
    fi
    note "$name" measure "$(number tokens_per_s | cut -d. -f1) tok/s, MFU $(number mfu | cut -c1-6), step $(number step_seconds_median | cut -c1-8) s, weights $(number weight_bytes) + activations $(number activation_bytes) bytes, loss $(number last_loss | cut -c1-7)"
    rows="$rows, {\"name\": \"$name\", \"bench\": $(cat log)}"
}

# The shape of SmolLM2-135M with random weights, on rows of random tokens.
small() {
    cat >config.json <<JSON
{"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": $1,
 "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
 "rms_norm_eps": 1e-05, "rope_theta": 100000, "tie_word_embeddings": true, "hidden_act": "silu"}
JSON
    awk -v rows="$2" -v n="$3" 'BEGIN {
        srand(1)
        for (i = 0; i < rows; i++) {
            ids = ""
            for (t = 0; t < n; t++) ids = ids (t ? ", " : "") int(rand() * 49000)
            print "{\"input_ids\": [" ids "], \"labels\": [" ids "]}"
        }
    }' >rows.jsonl
    cat >small.yaml <<YAML
model: {config: config.json}
data: {train: rows.jsonl, max_length: $3}
train: {steps: 1000, global_batch: $4, micro_batch_tokens: $(($4 * $3)), precision: bf16}
optimizer: {name: adamw, lr: 1e-4}
out: bench
YAML
}

bench "speed, tiny model" 30 20 "$source/configs/sft.yaml"
if [ -n "${NRL_CHECK_STEPS:-}" ]; then
    small 1 4 64 1 # a rehearsal
else
    small 30 64 1024 16
fi
bench "speed, SmolLM2-135M shape, bf16" 90 8 small.yaml
bench "speed, SmolLM2-135M shape, fp32" 60 3 small.yaml train.precision=fp32

# ---- several GPUs, and memory errors ----

n_gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$backend" = cuda ] && [ "$n_gpus" -ge 2 ]; then
    steps=5
    check "two ranks by nccl" 60 "$nrl" launch -n 2 -- run "$source/configs/sft.yaml" backend=cuda \
        parallel=ddp collective=nccl out=two overwrite=true train.epochs= train.steps=5 checkpoint.every=0 \
        checkpoint.export=false eval.every=0
else
    note "two ranks by nccl" skipped "$n_gpus GPUs"
fi
if [ "$backend" = cuda ] && command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck racecheck; do
        check "compute-sanitizer $tool" 60 compute-sanitizer --tool $tool --error-exitcode 9 "$nrl" run \
            "$source/configs/sft.yaml" backend=cuda out=sanitized overwrite=true train.epochs= train.steps=2 \
            train.precision=bf16 checkpoint.every=0 checkpoint.export=false eval.every=0
    done
else
    note "compute-sanitizer" skipped "it is not here"
fi

device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
printf '{"backend": "%s", "device": "%s", "failed": %s, "checks": [%s]}\n' "$backend" "$device" \
    "$([ $failed = 0 ] && echo false || echo true)" "$rows" >"$result"
echo "written to $result"
exit $failed
