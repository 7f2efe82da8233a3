#!/bin/sh
# moved.sh: a copy of the build directory works in another place: no file of it names the old directory as a library
# path, and while the old one is hidden (which needs root), the program, each plugin and the test programs that
# gpu_check.py copies still start.
set -u
build=$NRL_TEST_BUILD
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

for file in "$build"/bin/nrl "$build"/libexec/nrl/* "$build"/lib/*.so* "$build"/testlib/*.so* "$build"/lib/nrl/*/*.so "$build"/tests/test_* \
    "$build"/tests/bench_* "$build"/tests/*/backends/*.so; do
    [ -f "$file" ] || continue
    if readelf -d "$file" 2>/dev/null | grep -E 'R(UN)?PATH' | grep -qF "$build"; then
        echo "$file names the build folder: $(readelf -d "$file" | grep -E 'R(UN)?PATH')"
        failed=1
    fi
done

mkdir -p "$work/moved/tests" || exit 1
cp -r "$build/bin" "$build/lib" "$build/libexec" "$build/testlib" "$work/moved" || exit 1
[ ! -d "$build/tests/apart" ] || cp -r "$build/tests/apart" "$work/moved/tests"
programs='tensor.reference tensor.gradients tensor.tape optim.updates dpo.losses parity.models parity.stories'
for name in $programs; do
    [ ! -x "$build/tests/test_$name" ] || cp "$build/tests/test_$name" "$work/moved/tests"
done

cat >"$work/hidden.sh" <<'SH'
mount -t tmpfs none "$1" || exit 77
cd "$2" || exit 1
missing=$(ldd bin/nrl libexec/nrl/* lib/nrl/*/*.so tests/test_* 2>/dev/null | grep 'not found' | sort -u)
[ -z "$missing" ] || { echo "$missing"; exit 1; }
bin/nrl plugins >plugins || exit 1
grep -q cpu plugins || { cat plugins; exit 1; }
! grep -qi 'broken\|cannot' plugins || { cat plugins; exit 1; }
bin/nrl plugins test lib/nrl/algorithms/sft.so >tested || { tail -n 5 tested; exit 1; }
NRL_PLUGIN_PATH=$2/lib/nrl tests/test_tensor.tape >tape 2>&1 || { tail -n 5 tape; exit 1; }
[ ! -e tests/apart/backends/apart.so ] ||
    NRL_TEST_BACKEND=$2/tests/apart/backends/apart.so tests/test_tensor.tape >tape 2>&1 || { tail -n 5 tape; exit 1; }
SH
if unshare -m true 2>/dev/null; then
    unshare -m sh "$work/hidden.sh" "$build" "$work/moved"
    code=$?
    [ $code -ne 77 ] || echo "skipped: the old folder hidden: this user cannot mount a tmpfs"
    [ $code -eq 0 ] || [ $code -eq 77 ] || failed=1
else
    echo "skipped: the old folder hidden: this user cannot create a namespace"
fi
exit $failed
