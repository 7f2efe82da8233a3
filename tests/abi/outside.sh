#!/bin/sh
# outside.sh CMAKE CC: installs this build into an empty prefix, builds a plugin against it with find_package(nrl),
# and opens the plugin with the installed program, also after the prefix has moved. Then builds, tests and trains with
# the installed example, selected by name in its config.
set -eu
cmake=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
"$cmake" -S "$NRL_TEST_SOURCE/tests/abi/outside" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/first" \
    -DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1 && "$cmake" --build "$work/build" >>"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
test -f "$work/build/plugins/algorithms/mine.so"

mv "$work/first" "$work/moved"
nrl=$work/moved/bin/nrl
unset LD_LIBRARY_PATH NRL_PLUGIN_PATH || true
"$nrl" plugins >"$work/list"
for word in $(ls "$work/moved/lib/nrl"/*/*.so | sed 's|.*/||; s|\.so$||'); do
    grep -q "^  $word " "$work/list" || { echo "$word is installed but not listed"; exit 1; }
done
if grep broken "$work/list"; then exit 1; fi
NRL_PLUGIN_PATH=$work/build/plugins "$nrl" plugins | grep "^  mine .* from outside"
NRL_PLUGIN_PATH=$work/build/plugins "$nrl" describe mine | grep "strength"
for config in "$work/moved/share/nrl/configs/sft.yaml"; do
    (cd "$work" && "$nrl" check "$config" >"$work/log" 2>&1) || { cat "$work/log"; exit 1; }
done
for file in include/nrl/nrl.h libexec/nrl/nrl-sample lib/libnrl.so.0 lib/cmake/nrl/nrl-config.cmake; do
    test -f "$work/moved/$file" || { echo "$file is not installed"; exit 1; }
done

example=$work/moved/share/nrl/examples/gce
cd "$work"
"$cmake" -S "$example" -B gce -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >log 2>&1 && "$cmake" --build gce >>log 2>&1 ||
    { cat log; exit 1; }
(cd gce && "$(dirname "$cmake")/ctest" --output-on-failure >../log 2>&1) || { cat log; exit 1; }
grep "100% tests passed, 0 tests failed out of 2" log
"$nrl" run "$example/gce.yaml" plugins="[$work/gce/plugins]" train.epochs=0 train.steps=2 eval.every=0 \
    checkpoint.every=0 backend="{name: cpu, threads: 1}" out=out >log 2>&1 || { cat log; exit 1; }
test "$(grep -c '"mean_p":' out/metrics.jsonl)" -eq 2

# ---- libraries in another directory than lib: installed plugins find them ----
"$cmake" -S "$NRL_TEST_SOURCE" -B lib64 -DCMAKE_INSTALL_LIBDIR=lib64 -DCMAKE_C_COMPILER="$cc" -DNRL_TESTS=OFF -DNRL_CUDA=OFF \
    >log 2>&1 || { cat log; exit 1; }
grep -A2 '/algorithms/sft.so"$' lib64/cmake_install.cmake >paths
grep -F 'RPATH "\$ORIGIN/../../../lib64"' paths || { cat paths; exit 1; }
