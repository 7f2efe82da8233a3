#!/bin/sh
# prepare.sh: scripts/quickstart.sh on a system where it cannot install anything: it prints the names of missing
# packages for apt, dnf and conda-forge, and builds nothing. Libraries in CMAKE_PREFIX_PATH are not missing.
# scripts/test.sh lists what the tests skipped, and ends with the exit code of ctest.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# The scripts alone, beside programs that answer as on a machine without root, sudo and packages.
mkdir "$work/bin" "$work/prefix" && cp -r "$NRL_TEST_SOURCE/scripts" "$work/scripts"
for program in sh dirname cat grep tr env rm; do
    ln -s "$(command -v $program)" "$work/bin/$program"
done
fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"
}
fake id 'echo 1000'
fake sudo 'exit 1'
fake apt-get 'echo apt-get was called >&2; exit 1'
for program in cc c++ make; do
    fake $program 'exit 0'
done
fake cmake 'echo "cmake $*" >>called; exit 1'
# pkg-config finds what has a file in the folders it is told of
fake pkg-config 'IFS=:; for d in $PKG_CONFIG_PATH; do [ -e "$d/$2.pc" ] && exit; done; exit 1'

quickstart() {
    (cd "$work" && PATH=$work/bin CMAKE_PREFIX_PATH=$1 PKG_CONFIG_PATH= sh scripts/quickstart.sh >out 2>&1)
    code=$?
}
has() {
    grep -qF -- "$1" "$work/out" && return
    echo "no '$1' in:" && cat "$work/out"
    failed=1
}

quickstart ''
[ $code -eq 1 ] || { echo "exit code $code, expected 1"; failed=1; }
has "  apt          "
has " libyaml-dev liblua5.4-dev libuv1-dev libzstd-dev libpcre2-dev libjansson-dev libxxhash-dev libutf8proc-dev libsodium-dev zlib1g-dev"
has " libyaml-devel lua-devel libuv-devel libzstd-devel pcre2-devel jansson-devel xxhash-devel utf8proc-devel libsodium-devel zlib-devel"
has "  conda-forge  "
has " yaml lua libuv zstd pcre2 jansson xxhash libutf8proc libsodium zlib"
has "set CMAKE_PREFIX_PATH to the directories that contain them"
[ ! -e "$work/called" ] || { echo "cmake was called without what it needs"; failed=1; }
if grep -q "apt-get was called\|cmocka\|build-essential" "$work/out"; then
    cat "$work/out"
    failed=1
fi

# The same folder with all of it, and one thing less.
mkdir -p "$work/prefix/include" "$work/prefix/lib/pkgconfig"
: >"$work/prefix/include/dnnl.h"
for module in yaml-0.1 lua5.4 libuv libzstd libpcre2-8 jansson libxxhash libutf8proc libsodium zlib; do
    : >"$work/prefix/lib/pkgconfig/$module.pc"
done
quickstart "/nowhere;$work/prefix"
grep -q "^cmake --preset release" "$work/called" || { echo "cmake was not called:"; cat "$work/out"; failed=1; }
rm "$work/called" "$work/prefix/lib/pkgconfig/libuv.pc"
quickstart "$work/prefix"
has "  apt          libuv1-dev "
has "  dnf          libuv-devel "
has "  conda-forge  libuv "

rm "$work/bin/c++"
quickstart "$work/prefix"
has "  apt          build-essential libuv1-dev "
has "  dnf          gcc-c++ libuv-devel "
fake c++ 'exit 0'

# A build that succeeds, and tests that fail and skip.
: >"$work/prefix/lib/pkgconfig/libuv.pc"
: >"$work/prefix/lib/pkgconfig/cmocka.pc"
for program in sed awk mkdir; do
    ln -s "$(command -v $program)" "$work/bin/$program"
done
fake cmake 'mkdir -p build/release/tests && echo "{\"id\": \"all\", \"slots\": 4}" >build/release/tests/processors.json'
fake ctest 'echo "ctest $*"
mkdir -p build/release/Testing/Temporary && cp "$(dirname "$0")/log" build/release/Testing/Temporary/LastTest.log
exit 8'
ln -s "$(command -v cp)" "$work/bin/cp"
cat >"$work/bin/log" <<'LOG'
1/3 Testing: one.whole
1/3 Test: one.whole
Output:
nothing is skipped: all is well
2/3 Testing: two.partly
2/3 Test: two.partly
Output:
skipped: no such disk
skipped: no such disk
3/3 Testing: three.not
Output:
skipped: no such program
LOG
(cd "$work" && PATH=$work/bin CMAKE_PREFIX_PATH=$work/prefix PKG_CONFIG_PATH= sh scripts/test.sh -R some >out 2>&1)
code=$?
[ $code -eq 8 ] || { echo "exit code $code of test.sh, expected 8"; failed=1; }
has "/build/release/tests/processors.json --parallel 12 -R some"
sed -n '/^skipped:/,$p' "$work/out" >"$work/listed"
printf 'skipped:\n  two.partly: no such disk\n  three.not: no such program\n' | cmp - "$work/listed" || {
    echo "listed as skipped:" && cat "$work/listed"
    failed=1
}
exit $failed
