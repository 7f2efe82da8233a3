#!/bin/sh
# gpu_check.sh [-o RESULT.json] [-b BACKEND] [BUILD]: what can only be seen on a GPU, in 8 minutes at most: the
# rules of a backend, the numbers of other programs, losses beside the CPU's, repeatability, memory, speed.
# Needs a built tree (build/release unless given), no compiler and no cmake. Libraries are looked for where the system
# has them, in -l FOLDER, in the build's lib/carried, in CUDA's folders and in python3's nvidia packages. Prints a
# table ("-" is what the machine does not tell), writes one JSON object (and the rules' report beside it), exits 1 if
# a check failed, 77 without a GPU. NRL_PEERS_PYTHON names a python that has torch and transformers.
# A rehearsal where there is no GPU: -b cpu, or NRL_PLUGIN_PATH with an emulated cuda.so; NRL_CHECK_STEPS=2 shortens it.
set -u
result=gpu_check.json
backend=cuda
folders=
while getopts o:b:l: option; do
    case $option in
    o) result=$OPTARG ;;
    b) backend=$OPTARG ;;
    l) folders=$(cd "$OPTARG" && pwd) || exit 2 ;;
    *) sed -n '2,8s/^# //p' "$0" && exit 2 ;;
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

# limit SECONDS COMMAND...: 124 when it is not done in time; killed 5 seconds later if it does not end by itself
limit() {
    seconds=$1
    shift
    [ "$seconds" -ge 1 ] || return 124
    timeout -k 5 "$seconds" "$@"
}

# why CODE FILE: what ended a command, by its exit code and the last line it wrote
why() {
    case $1 in 124 | 137) printf 'not done in time; ' ;; esac
    tail -n 1 "$2"
}

# Folders of libraries, the given one first.
for folder in "$build/lib/carried" /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/nvidia/lib64 \
    $(limit 20 python3 -c 'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"))' 2>/dev/null); do
    [ -d "$folder" ] && folders=${folders:+$folders:}$folder
done
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folders
export LD_LIBRARY_PATH

# left MOST: seconds that a step may take
left() {
    seconds=$((end - $(date +%s)))
    [ $seconds -gt "$1" ] && seconds=$1
    echo $seconds
}

# note NAME STATE DETAIL: one row; STATE is ok, failed, skipped or a measure
note() {
    printf '%-34s %-8s %s\n' "$1" "$2" "$3"
    detail=$(printf '%s' "$3" | tr '\n\t' '  ' | tr -d '\000-\037' | cut -c1-1000 | sed 's/\\/\\\\/g; s/"/\\"/g')
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
    limit "$seconds" "$@" >log 2>&1
    code=$?
    took=$(($(date +%s) - began))
    case $code in
    0) note "$name" ok "$took s; $(tail -n 1 log)" ;;
    77) note "$name" skipped "$(tail -n 1 log)" ;;
    124 | 137) note "$name" failed "not done after $seconds s; $(tail -n 1 log)" ;;
    *) note "$name" failed "exit $code; $(grep -iE 'error|fail' log | head -n 3)" ;;
    esac
    return $code
}

# ---- the backend against plain sums, and against other programs' numbers ----

# Without these nothing else can be right.
missing=$(ldd "$nrl" "$library" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
note "libraries of nrl" "$([ -z "$missing" ] && echo ok || echo failed)" "${missing:-all are here}"
for name in libcuda.so.1 libcublasLt.so.13 libcudnn.so.9 libnccl.so.2; do
    place=$(ldconfig -p 2>/dev/null | awk -v n="$name" '$1 == n { print $NF; exit }')
    for folder in $(echo "$LD_LIBRARY_PATH" | tr : ' '); do
        [ -z "$place" ] && [ -e "$folder/$name" ] && place=$folder/$name
    done
    note "$name" "$([ -n "$place" ] && echo ok || echo skipped)" "${place:-not found}"
done
check "the program starts" 20 "$nrl" describe "$backend"

# Each rule, so each operation in each dtype, is a line of the report.
check "rules of a backend" 120 "$nrl" plugins test "$library"
cp log "${result%.json}.rules.txt"
note "rules, counted" measure "$(awk '$1 == "ok" { ok++ } $1 == "FAILED" { bad++; names = names "; " $0 } END { printf "%d kept, %d not%s", ok, bad, names }' log)"

NRL_TEST_SHARED=${NRL_TEST_SHARED:-$source/../shared}
NRL_TEST_SOURCE=$source NRL_TEST_BUILD=$build NRL_PLUGIN_PATH=$plugins
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
    limit "$(left 60)" "$nrl" run "$source/configs/$config.yaml" "backend=$on" "out=$out" overwrite=true train.epochs= \
        "train.steps=$steps" checkpoint.every=0 checkpoint.export=false eval.every=0 "$@"
}

# compare NAME CONFIG PRECISION TOLERANCE: the largest relative distance of two losses
compare() {
    if [ "$(left 60)" -lt 20 ]; then
        note "$1" skipped "no time is left"
        return
    fi
    train "cpu-$2-$3" cpu "$2" "train.precision=$3" >log 2>&1 || {
        note "$1" skipped "the CPU did not train: $(why $? log)"
        return
    }
    train "gpu-$2-$3" "$backend" "$2" "train.precision=$3" >log 2>&1 || {
        note "$1" failed "$(why $? log)"
        return
    }
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

if [ "$(left 60)" -lt 10 ] || [ ! -s gpu-sft-bf16/metrics.jsonl ]; then
    note "two runs give the same bits" skipped "no time is left, or nothing to compare with"
elif ! train again "$backend" sft train.precision=bf16 >log 2>&1; then
    note "two runs give the same bits" failed "$(tail -n 1 log)"
elif [ "$(losses again)" = "$(losses gpu-sft-bf16)" ]; then
    note "two runs give the same bits" ok "$steps losses"
else
    note "two runs give the same bits" failed "losses differ"
fi

# The library's attention beside our own, on the same device.
if [ "$backend" != cuda ] || [ "$(left 60)" -lt 15 ] || [ ! -s gpu-sft-bf16/metrics.jsonl ]; then
    note "attention by cudnn" skipped "another backend, no time, or nothing to compare with"
elif ! train dnn "{name: cuda, attention: cudnn}" sft train.precision=bf16 >log 2>&1; then
    note "attention by cudnn" failed "$(tail -n 1 log)"
else
    losses gpu-sft-bf16 >a
    losses dnn >b
    note "attention by cudnn" measure "$(paste -d' ' a b | awk '
        { d = $4 - $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
        END { printf "losses at most %.3g from those with our own kernels", worst }'); $(grep -c '^warning: attention' log) warnings: $(grep '^warning: attention' log | head -n 2)"
fi

# ---- memory and speed ----

# number KEY: of the JSON in the file log; "-" where it is null or absent
number() {
    found=$(sed -n 's/.*"'"$1"'": *\([^,}]*\).*/\1/p' log | tr -d '"')
    case $found in '' | null) echo - ;; *) echo "$found" ;; esac
}

# scaled KEY FACTOR FORMAT: the same, as printf writes it
scaled() {
    number "$1" | awk -v by="$2" -v format="$3" '{ if ($1 == "-") print "-"; else printf format, $1 * by }'
}

# shares: of the phases that took any time, as "forward 31 %"
shares() {
    sed 's/.*"phases": {//; s/}}.*//; s/}, /}\n/g' log | sed -n 's/^"\([a-z]*\)".*"share": *\([^,}]*\).*/\1 \2/p' |
        awk '$2 >= 0.0005 { printf "%s%s %.1f %%", n++ ? ", " : "", $1, 100 * $2 }'
}

# throttled: reasons for lower clocks that were seen
throttled() {
    if [ "$(number samples)" = - ]; then
        echo "not told"
        return
    fi
    seen=$(grep -o '"throttled_[a-z_]*_share": *[0-9.e-]*' log | sed 's/"throttled_//; s/_share"//' |
        awk -F': *' '$2 > 0 { printf "%s%s %.0f %%", n++ ? ", " : "", $1, 100 * $2 }')
    echo "${seen:-never}"
}

# bench NAME SECONDS STEPS CONFIG OPTION...: rows of speed, time, memory and the device
bench() {
    name=$1
    seconds=$(left "$2")
    n=$3
    on=${bench_on:-$backend}
    shift 3
    if [ "$seconds" -lt 15 ]; then
        note "$name" skipped "no time is left"
        return
    fi
    limit "$seconds" "$nrl" bench "$@" "backend=$on" --steps "$n" --json >log 2>err || {
        note "$name" failed "$(why $? err)"
        return
    }
    note "$name" measure "$(scaled tokens_per_s 1 %.0f) tok/s, MFU $(scaled mfu 1 %.4f), step $(scaled step_seconds_median 1000 %.3f) ms, loss $(scaled last_loss 1 %.4f)"
    note "  time" measure "$(shares)"
    note "  device" measure "$(scaled launches_a_step 1 %.0f) launches a step, idle $(scaled idle_share 100 %.1f) % when measured ($(scaled overhead 100 %+.1f) %), SM $(scaled sm_clock_mean_mhz 1 %.0f) MHz (least $(scaled sm_clock_min_mhz 1 %.0f) of $(scaled sm_clock_limit_mhz 1 %.0f)), memory $(scaled dram_clock_mean_mhz 1 %.0f) MHz, $(scaled power_mean_w 1 %.0f) W of $(scaled power_limit_w 1 %.0f), $(scaled joules_per_token 1000 %.3f) mJ a token, throttled: $(throttled)"
    note "  memory, MiB" measure "weights $(mib weight_bytes), master $(mib master_bytes), gradients $(mib gradient_bytes), states $(mib optimizer_bytes), activations $(mib activation_bytes); in use at most $(mib used_peak_bytes), the device's pool $(mib pool_held_peak_bytes), workspace $(mib workspace_bytes), fragmentation $(scaled fragmentation_share 100 %.1f) %"
    rows="$rows, {\"name\": \"$name\", \"bench\": $(cat log)}"
}

# mib KEY
mib() {
    scaled "$1" 9.5367431640625e-07 %.1f
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

[ "$backend" = cuda ] && bench_on="{name: cuda, attention: cudnn}" bench "speed, cudnn's attention, bf16" 60 8 small.yaml

# The same weights, tokens and optimizer by torch and transformers, taking turns with nrl: as users write it, and compiled.
python=${NRL_PEERS_PYTHON:-python3}
if [ "$backend" = cuda ] && [ -z "${NRL_CHECK_STEPS:-}" ]; then
    peer="--device cuda --batch 16 --length 1024 --steps 12 --repeats 2 --bf16 --peers eager compile"
else
    peer="--device cpu --threads 1 --batch 1 --length 64 --steps 3 --repeats 1 --bf16 --peers eager"
fi
if [ "$(left 200)" -lt 45 ]; then
    note "beside PyTorch" skipped "no time is left"
elif ! limit 60 "$python" -c 'import torch, transformers' 2>/dev/null; then
    note "beside PyTorch" skipped "no torch and transformers in $python (NRL_PEERS_PYTHON)"
elif limit "$(left 200)" python3 "$source/tests/bench/sft_vs_torch.py" "$nrl" config.json $peer --backend "$backend" \
    --python "$python" >log 2>err; then
    # Products in bf16 round each in its own way.
    apart=$(number largest_loss_difference)
    state=$(awk -v d="$apart" 'BEGIN { print (d >= 0 && d <= 5e-2 ? "ok" : "failed") }')
    note "beside PyTorch" "$state" "$(scaled nrl_tokens_per_s 1 %.0f) tok/s, PyTorch: $(sed 's/.*"peers": {//' log | grep -o '"[a-z-]*": {"torch_tokens_per_s": [0-9.]*' | sed 's/"//g; s/: {torch_tokens_per_s:/ /' | tr '\n' ';') losses at most $apart apart"
    rows="$rows, {\"name\": \"beside PyTorch\", \"bench\": $(cat log)}"
else
    note "beside PyTorch" failed "$(why $? err)"
fi

# ---- several GPUs, and memory errors ----

n_gpus=$(limit 10 nvidia-smi -L 2>/dev/null | wc -l)
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

device=$(limit 10 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
printf '{"backend": "%s", "device": "%s", "failed": %s, "checks": [%s]}\n' "$backend" "$device" \
    "$([ $failed = 0 ] && echo false || echo true)" "$rows" >"$result"
echo "written to $result"
exit $failed
