# prepare.sh - sourced by quickstart.sh and test.sh. install_needs installs the packages that the build needs, or
# prints their names; build_release builds into build/release and passes its arguments to cmake.
set -eu
cd "$(dirname "$0")/.."

# A program, a pkg-config module (or one of several) or a header, and the packages that contain it: of apt, dnf and
# conda-forge.
needs='
program:cc:build-essential:gcc:c-compiler
program:c++:build-essential:gcc-c++:cxx-compiler
program:make:build-essential:make:make
program:cmake:cmake:cmake:cmake
program:pkg-config:pkg-config:pkgconf-pkg-config:pkg-config
header:dnnl.h:libdnnl-dev:onednn-devel:onednn
module:yaml-0.1:libyaml-dev:libyaml-devel:yaml
module:lua5.4 lua-5.4 lua54 lua:liblua5.4-dev:lua-devel:lua
module:libuv:libuv1-dev:libuv-devel:libuv
module:libzstd:libzstd-dev:libzstd-devel:zstd
module:libpcre2-8:libpcre2-dev:pcre2-devel:pcre2
module:jansson:libjansson-dev:jansson-devel:jansson
module:libxxhash:libxxhash-dev:xxhash-devel:xxhash
module:libutf8proc:libutf8proc-dev:utf8proc-devel:libutf8proc
module:libsodium:libsodium-dev:libsodium-devel:libsodium
module:zlib:zlib1g-dev:zlib-devel:zlib'
test_needs='
module:cmocka:libcmocka-dev:libcmocka-devel:cmocka'
# Optional packages, without which some parts are not built or some tests are skipped: libraries of loggers, a decoder of
# xz, Gloo, a small Slurm, a program that cpack needs, and the tools of the rules of the source. They are only installed if
# the user is root (a container, continuous integration).
test_wishes='
module:liblzma:liblzma-dev
module:libmicrohttpd:libmicrohttpd-dev
module:libcurl:libcurl4-openssl-dev
header:gloo/allreduce.h:libgloo-dev
program:clang-format-14:clang-format-14
program:clang-tidy-14:clang-tidy-14
program:curl:curl
program:file:file
program:munged:munge
program:slurmctld:slurmctld
program:slurmd:slurmd
program:srun:slurm-client'

prefixes=$(printf '%s' "${CMAKE_PREFIX_PATH:-}" | tr ':;' '  ')
for prefix in $prefixes; do
    PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$prefix/lib64/pkgconfig:$prefix/share/pkgconfig:${PKG_CONFIG_PATH:-}
    export PKG_CONFIG_PATH
done

# found KIND NAME...: whether one of the names is found
found() {
    kind=$1
    shift
    for name; do
        case $kind in
        program) command -v "$name" >/dev/null && return ;;
        module) pkg-config --exists "$name" 2>/dev/null && return ;;
        header)
            for prefix in $prefixes /usr /usr/local; do
                [ -e "$prefix/include/$name" ] && return
            done
            ;;
        esac
    done
    return 1
}

# missing COLUMN: the packages of that column for everything that was not found
missing() {
    printf '%s\n' "$needs" | while IFS=: read -r kind names apt dnf conda; do
        [ -n "$kind" ] || continue
        # shellcheck disable=SC2086
        found "$kind" $names && continue
        case $1 in apt) echo "$apt" ;; dnf) echo "$dnf" ;; conda) echo "$conda" ;; esac
    done | tr '\n' ' '
}

grant_wishes() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 0
    wished=$(needs=$test_wishes && missing apt)
    [ -n "$wished" ] || return 0
    echo "installing, for some of the tests: $wished"
    apt-get update -q -o Acquire::http::Timeout=10 || echo "the list of packages is not up to date"
    for package in $wished; do # each by itself: not every release has all of them
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package" ||
            echo "cannot install $package: its tests are skipped"
    done
}

# install_needs [test]
install_needs() {
    if [ "${1:-}" = test ]; then
        grant_wishes
        needs=$needs$test_needs
    fi
    [ -n "$(missing apt)" ] || return 0
    as_root=
    if [ "$(id -u)" -ne 0 ]; then as_root='sudo -n'; fi
    if command -v apt-get >/dev/null && { [ -z "$as_root" ] || $as_root true 2>/dev/null; }; then
        echo "installing: $(missing apt)"
        # shellcheck disable=SC2046
        $as_root apt-get update -q &&
            $as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -q -y --no-install-recommends $(missing apt) || true
        [ -n "$(missing apt)" ] || return 0
    fi
    echo "missing packages:"
    echo "  apt          $(missing apt)"
    echo "  dnf          $(missing dnf)"
    echo "  conda-forge  $(missing conda)"
    echo "install these, or set CMAKE_PREFIX_PATH to the directories that contain them"
    return 1
}

build_release() {
    cmake --preset release "$@" >build.log 2>&1 || { cat build.log; return 1; }
    echo "building build/release"
    cmake --build --preset release -j "$(nproc 2>/dev/null || echo 2)" >build.log 2>&1 ||
        { tail -n 50 build.log; return 1; }
    rm -f build.log
}
