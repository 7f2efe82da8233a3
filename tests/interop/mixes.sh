#!/bin/sh
# mixes.sh [PROGRAM...]: groups of nrl and libgloo ranks (dialect tcp22, a directory as store). Every rank checks its
# results, and sums that depend on their order are bit-identical to those of groups of libgloo only.
set -u
programs=$NRL_TEST_BUILD/tests
list=$NRL_TEST_SOURCE/tests/interop/ops.list
if [ ! -x "$programs/gloo_rank" ]; then
    echo "skipped: built without libgloo (libgloo-dev)"
    exit 77
fi
. "$NRL_TEST_SOURCE/tests/interop/mix.sh"

prepare() { rm -rf "$work/store" && mkdir "$work/store"; }

begin() {
    case $1 in
    nrl) set -- nrl_rank "$2" "$3" "$work/store" "$list" dialect=tcp22 peers=gloo address=127.0.0.1 ;;
    gloo) set -- gloo_rank "$2" "$3" "$work/store" "$list" ;;
    esac
    program=$1
    shift
    exec timeout 100 "$programs/$program" "$@"
}

if [ $# -gt 0 ]; then
    mix "$@"
    exit $failed
fi
mix gloo gloo
mix nrl gloo
mix gloo nrl
mix gloo gloo gloo
mix nrl gloo gloo
mix gloo nrl nrl
mix nrl gloo nrl gloo
exit $failed
