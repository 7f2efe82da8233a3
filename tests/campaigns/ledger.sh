#!/bin/sh
# ledger.sh: the campaign suite over a ctest that is made up: what it prints of each run, and a row of runs that is
# interrupted and continued from its ledger, at one commit only.
. "$(dirname "$0")/../e2e/e2e.sh"
command -v git >dd || { echo "skipped: git is not installed"; exit 77; }

mkdir -p copy/scripts build/bin build/tests bin
cp "$source/scripts/campaign.sh" copy/scripts
echo '{"id": "all", "slots": 2}' >build/tests/processors.json
# The tests fail in the run that `breaks` names, and the campaign is killed in the run that `dies` names.
cat >bin/ctest <<'SH'
#!/bin/sh
echo "$NRL_TEST_CPU" >>calls
n=$(wc -l <calls)
[ ! -e dies ] || [ "$(cat dies)" != "$n" ] || { kill -9 "$PPID"; exit 1; }
[ ! -e breaks ] || [ "$(cat breaks)" != "$n" ] || {
    printf '%s\n' '98% tests passed, 1 tests failed out of 50' '' 'The following tests FAILED:' \
        '    7 - e2e.resume (Failed)' 'Errors while running CTest'
    exit 8
}
echo "100% tests passed, 0 tests failed out of 50"
SH
chmod +x bin/ctest
PATH=$work/bin:$PATH
save() {
    (cd copy && git add -A && git -c user.name=a -c user.email=a commit -q -m "$1") >dd 2>&1 || is "git commit" fails works
}
(cd copy && git init -q) 2>dd
save one

# row CODE N: the campaign of N runs with the ledger; its output is in the files out and err
row() {
    NRL=$work/build/bin/nrl NRL_CAMPAIGN_LEDGER=$work/ledger sh copy/scripts/campaign.sh suite "$2" 1 >out 2>err
    is "exit code of $2 runs" $? "$1"
}
mv bin/ctest bin/made_up
printf '#!/bin/sh\ncd %s && exec sh bin/made_up\n' "$work" >bin/ctest && chmod +x bin/ctest

echo 3 >dies
row 137 5
has out "run 1 of 5, seed 1, busy, options 'isa=base': 100% tests passed, 0 tests failed out of 50, "
has out "run 2 of 5, seed 2, idle, options 'isa=avx2': "
rm dies
row 0 5
has out "suite with seed 1, from the ledger: passed "
has out "suite with seed 3 was interrupted, and is tried again"
has out "run 5 of 5, seed 5, busy, options '': "
has out "suite: 5 tried, 0 failed, seed 1"
is "runs of ctest" "$(wc -l <calls)" 6
is "ends in the ledger" "$(grep -c ' passed ' ledger)" 5

# a failure stays one
echo 7 >breaks
row 1 6
has out "e2e.resume (Failed)"
has out "suite: 6 tried, 1 failed, seed 1"
row 1 6
has out "suite with seed 6, from the ledger: failed "
has out "98% tests passed, 1 tests failed out of 50, "
has out ": e2e.resume (Failed)"
is "runs of ctest" "$(wc -l <calls)" 7

# another commit, and changes
echo '# more' >>copy/scripts/campaign.sh
row 2 6
has err "a ledger belongs to one commit; expected a checkout without changes"
save two
row 2 6
has err "/ledger: belongs to commit "
exit $failed
