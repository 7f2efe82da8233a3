# e2e.sh - sourced by the tests of this folder: a fresh folder to work in, and checks that say what was
# expected. Tests run on one thread, so that several may run side by side.
set -u
nrl=$NRL_TEST_BUILD/bin/nrl
source=$NRL_TEST_SOURCE
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
one_thread='backend={name: cpu, threads: 1}'
failed=0

# run EXPECTED-CODE ARGUMENT...: runs nrl; its output is in the files out and err.
run() {
    expected=$1
    shift
    "$nrl" "$@" >out 2>err
    code=$?
    [ $code -eq "$expected" ] && return
    echo "nrl $*: exit $code, expected $expected"
    tail -n 20 out err
    failed=1
}

# has FILE TEXT: a line of FILE holds TEXT.
has() {
    grep -qF -- "$2" "$1" && return
    echo "no '$2' in $1:"
    tail -n 20 "$1"
    failed=1
}

# lacks FILE TEXT
lacks() {
    grep -qF -- "$2" "$1" || return
    echo "'$2' in $1"
    failed=1
}

# is NAME FOUND EXPECTED
is() {
    [ "$2" = "$3" ] && return
    echo "$1: $2, expected $3"
    failed=1
}
