#!/bin/sh
# packages.sh CMAKE CC: packs this build with cpack, unpacks the packages into a directory, and checks files and
# dependencies, a run of the program and, with pkg-config alone, a plugin and a program that links libnrl.
# `scripts/campaign.sh packages` does the complete check in a bare system.
set -u
cmake=$1 cc=$2
cpack=$(dirname "$cmake")/cpack
for program in dpkg-deb dpkg-shlibdeps file pkg-config "$cpack"; do
    command -v "$program" >/dev/null || { echo "skipped: there is no $program"; exit 77; }
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
fail() {
    echo "$*"
    failed=1
}

# The generator's name keeps cpack from building everything once more.
for generator in TGZ DEB; do
    "$cpack" -G $generator --config "$NRL_TEST_BUILD/CPackConfig.cmake" -B "$work/packs" \
        -D CPACK_CMAKE_GENERATOR=Ninja >log 2>&1 || { cat log; exit 1; }
done
runtime=$(ls packs/nrl_*.deb) dev=$(ls packs/libnrl-dev_*.deb) tarball=$(ls packs/nrl-*.tar.gz)

# ---- what is in which ----
dpkg-deb -f "$runtime" Depends >depends
for library in libc6 libdnnl libgomp1 libjansson4 liblua5.4-0 libpcre2-8-0 libsodium23 libutf8proc libuv1 \
    libxxhash0 libyaml-0-2 libzstd1 zlib1g; do
    grep -q "\b$library" depends || fail "nrl depends not on $library: $(cat depends)"
done
dpkg-deb -f "$dev" Depends | grep -q "^nrl (= " || fail "libnrl-dev depends not on its own nrl"
dpkg-deb -x "$runtime" deb && cp -r deb runtime && dpkg-deb -x "$dev" deb && mkdir tar && tar -C tar --strip-components=1 -xzf "$tarball"
holds() {
    root=$1
    shift
    for file; do [ -e "$root/$file" ] || fail "$root has no $file"; done
}
holds runtime/usr bin/nrl libexec/nrl/nrl-sample lib/libnrl.so.0 lib/libnrl-inference.so.0 lib/libnrl-profiling.so.0 lib/libnrl-testing.so.0 lib/nrl/backends/cpu.so share/man/man1/nrl.1 share/man/man1/nrl-run.1 share/bash-completion/completions/nrl share/nrl/other-names.txt share/doc/nrl/LICENSE \
    share/doc/nrl/copyright share/nrl/scripts/quickstart.lua share/nrl/configs/sft.yaml
for tree in deb/usr tar; do
    holds $tree bin/nrl lib/libnrl.so include/nrl/nrl.h include/nrl/inference.h include/nrl/harness.h lib/libnrl-testing.so lib/cmake/nrl/nrl-config.cmake lib/pkgconfig/nrl.pc \
        share/nrl/examples/gce/gce.c share/nrl/examples/skeletons
done
for file in include lib/libnrl.so share/nrl/examples; do
    [ ! -e "runtime/usr/$file" ] || fail "nrl has $file, which is libnrl-dev's"
done
grep -rlE "$NRL_TEST_SOURCE|$NRL_TEST_BUILD" deb | grep . && fail "these name the folder they were built in"

# ---- the manual page: every verb, and nothing that roff would take for a request ----
for verb in run check launch resume sample describe plugins; do
    grep -qi "^.SH \"NRL $verb\"" runtime/usr/share/man/man1/nrl.1 || fail "nrl.1 lacks the verb $verb"
done
if command -v groff >/dev/null; then
    groff -man -Tascii -ww runtime/usr/share/man/man1/nrl.1 >page 2>err || fail "groff refuses nrl.1"
    [ ! -s err ] || { fail "groff warns of nrl.1:"; cat err; }
else
    echo "skipped: the rendered manual page: groff is not installed"
fi

# ---- it runs from there ----
unset LD_LIBRARY_PATH NRL_PLUGIN_PATH 2>err || true
nrl=$work/runtime/usr/bin/nrl
small="train.epochs=0 train.steps=2 eval.every=0 checkpoint.every=0"
one='backend={name: cpu, threads: 1}'
# shellcheck disable=SC2086
"$nrl" run runtime/usr/share/nrl/configs/sft.yaml $small "$one" out=out >log 2>&1 || { fail "the packed program:"; cat log; }
"$nrl" plugins new optimizer mine mine >log 2>&1 && fail "plugins new works without libnrl-dev"
grep -q "hint: .*libnrl-dev" log || { fail "plugins new without libnrl-dev gives no hint:"; cat log; }

# ---- pkg-config: a plugin, a program ----
export PKG_CONFIG_PATH="$work/deb/usr/lib/pkgconfig"
nrl=$work/deb/usr/bin/nrl
mkdir -p plugins/algorithms
# shellcheck disable=SC2046
"$cc" -shared -fPIC $(pkg-config --cflags nrl) "$(pkg-config --variable=examplesdir nrl)/gce/gce.c" \
    -o plugins/algorithms/gce.so $(pkg-config --libs nrl) >log 2>&1 || { fail "a plugin by pkg-config:"; cat log; }
# shellcheck disable=SC2086
"$nrl" run "$work/deb/usr/share/nrl/examples/gce/gce.yaml" "plugins=[$work/plugins]" $small "$one" out=gce >log 2>&1 ||
    { fail "the plugin built by pkg-config:"; cat log; }
cat >program.c <<'C'
#include <nrl/run.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    nrl_arena *memory = nrl_arena_create();
    nrl_config *config = nrl_config_create(memory);
    nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    nrl_run *run = NULL;
    nrl_status st = nrl_config_read(config, argv[1]);
    for (int i = 2; i < argc; i++)
        nrl_config_override(config, argv[i]);
    if (st == NRL_OK) st = nrl_run_open(config, &env, &run);
    if (st == NRL_OK) st = nrl_run_train(run);
    if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
    nrl_run_close(run);
    nrl_config_destroy(config);
    nrl_arena_destroy(memory);
    return st != NRL_OK;
}
C
# shellcheck disable=SC2046
"$cc" -Wall -Wextra -Werror $(pkg-config --cflags nrl) program.c -o program $(pkg-config --libs nrl) >log 2>&1 ||
    { fail "a program by pkg-config:"; cat log; }
# shellcheck disable=SC2086
LD_LIBRARY_PATH=$work/deb/usr/lib NRL_PLUGIN_PATH=$work/deb/usr/lib/nrl ./program \
    "$work/deb/usr/share/nrl/configs/sft.yaml" $small "$one" out=embedded >log 2>&1 ||
    { fail "the program built by pkg-config:"; cat log; }
[ -f embedded/model/model.safetensors ] || fail "the program built by pkg-config has not trained"
"$nrl" plugins new optimizer mine mine >log 2>&1 || { fail "plugins new with libnrl-dev:"; cat log; }
exit $failed
