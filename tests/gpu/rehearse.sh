#!/bin/sh
# rehearse.sh: each of gpu_check's three calls works from the directory that `prepare` writes while the original is
# hidden from the program; on the cpu backend, at small sizes. A check that cannot run is reported as such.
. "$(dirname "$0")/../e2e/e2e.sh"
check=$source/scripts/gpu_check.py

OMP_NUM_THREADS=2
export OMP_NUM_THREADS
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$check" prepare --build nowhere 2>err
is "exit code without a build" $? 1
has err "no build in nowhere"
python3 "$check" correct --carry nowhere 2>err
is "exit code without what prepare makes" $? 1
has err "nowhere is not a directory of"

env -u NRL_PLUGIN_PATH python3 "$check" prepare --build "$NRL_TEST_BUILD" --carry carry --rehearse >out 2>err ||
    is "prepare" "$(cat out err)" "exit code 0"
has out "MiB, at most 64 are allowed"

# Every library that a carried file needs is carried, too, unless it is the C library's or NVIDIA's.
if command -v readelf >/dev/null; then
    python3 -m tarfile -e carry/libraries.tar.xz libraries
    find carry libraries -type f -exec sh -c 'for f; do readelf -d "$f" 2>/dev/null; done' sh {} + |
        sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u >needed
    for name in $(grep -v '^ld-linux\|^lib\(c\|m\|dl\|rt\|pthread\)\.so\|^libcu\|^libnv' needed); do
        [ -n "$(find carry libraries -name "$name")" ] || is "where $name is" nowhere "in the carried directory"
    done
    grep -q libjansson needed || is "what nrl needs" "$(cat needed)" "libjansson, among others"
fi
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    python3 carry/scripts/gpu_check.py correct >out
    is "exit code without a GPU" $? 77
    has out "skipped: this machine has no NVIDIA GPU"
fi
cat >ncu.txt <<'TEXT'
  flash_keys_kernel(flash_params) (32, 8, 1)x(128, 1, 1), Context 1, Stream 13, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    DRAM Frequency                  Ghz         2.62
    Memory Throughput                 %        31.20
    Duration                         us       412.42
    Compute (SM) Throughput           %        58.71
    ----------------------- ----------- ------------
TEXT
is "ncu's numbers" "$(PYTHONPATH=carry/scripts python3 -c 'import gpu_check, sys; print(gpu_check.ncu_values(sys.stdin.read()))' <ncu.txt)" \
    "412.42 us, compute 58.71 %, memory 31.20 %"
cat >slow.py <<'PYTHON'
import argparse, gpu_check
call = gpu_check.Call("slow", argparse.Namespace(rehearse=True, seconds=400, carry="carry", backend="cpu", out="slow"))
for name, seconds, text in (("quiet", 2, "nothing"), ("loud", 5, "========= Invalid __global__ read of size 4 bytes")):
    call.check(name, seconds, ["sh", "-c", "echo '%s'; exec sleep 400" % text], error=gpu_check.SANITIZED, slow=True)
call.finish()
PYTHON
PYTHONPATH=carry/scripts python3 slow.py >out
has out "quiet                                skipped  no error in"
has out "loud                                 failed "

# A machine that has none of the carried libraries.
mkdir bare
printf '#!/bin/sh\n' >bare/ldconfig
chmod +x bare/ldconfig
for part in correct time peers; do
    env -u NRL_PLUGIN_PATH PATH="$PWD/bare:$PATH" python3 carry/scripts/gpu_check.py $part --backend cpu --rehearse --out results >out 2>err ||
        is "$part" "$(cat out err)" "exit code 0"
    has out "written to results/gpu_check.$part.json"
done
for used in 0 1 2 3 4; do
    lacks results/gpu_check.correct.json "all are here, $used of them carried"
done
python3 carry/scripts/gpu_check.py time --backend cpu --rehearse --seconds 1 --out short >out || is "a second" "$(cat out)" "exit code 0"
has out "a step, tiny                         skipped  no time is left"
python3 carry/scripts/gpu_check.py report --out results >out || is "report" "$(cat out)" "exit code 0"
for row in "rules of a backend" "shapes, tiny" "own attention beside" "parity.models" "operations.beside" "dpo, bf16, beside the CPU" "experts, gpt_oss" \
    "two runs give the same bits" "operations, tiny" "attention own, tiny" "a step, tiny" "nrl bench, tiny" "stall of a save"; do
    grep -q "^  $row.* \(ok\|measure\) " out || is "$row" "$(grep -- "$row" out)" "ok, or measured"
done
exit $failed
