# installed.sh - sourced by tests with arguments CMAKE CC: installs this build into $prefix and sets $nrl to the
# installed program, which does not see the build directory. The rest is that of e2e.sh.
set -u
cmake=$1 cc=$2
prefix=$(mktemp -d)
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$prefix" >/dev/null || exit 1
. "$NRL_TEST_SOURCE/tests/e2e/e2e.sh"
trap 'rm -rf "$work" "$prefix"' EXIT
nrl=$prefix/bin/nrl
unset LD_LIBRARY_PATH NRL_PLUGIN_PATH || true

# build SOURCES FOLDER [TESTS]: builds a project against the installed package, without a warning, and runs its tests (1)
build() {
    "$cmake" -S "$1" -B "$2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >log 2>&1 && "$cmake" --build "$2" >>log 2>&1 &&
        (cd "$2" && "$(dirname "$cmake")/ctest" --output-on-failure) >>log 2>&1
    is "building and testing $2" $? 0
    has log "100% tests passed, 0 tests failed out of ${3:-1}"
    [ $failed -eq 0 ] || { cat log; exit 1; }
}
