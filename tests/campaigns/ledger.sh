#!/bin/sh
# ledger.sh: the campaign suite over a ctest that is made up: what it prints of each run, and a row of runs that is
# interrupted and continued from its ledger, at one commit only. The same of the campaign planner over an nrl that is made
# up, whose predictions are 10 % too long.
. "$(dirname "$0")/../e2e/e2e.sh"
command -v git >dd || { echo "skipped: git is not installed"; exit 77; }

mkdir -p copy/scripts copy/tests/campaigns build/bin build/tests bin
cp "$source/scripts/campaign.sh" copy/scripts
echo '{"id": "all", "slots": 2}' >build/tests/processors.json
# The tests fail in the run that `breaks` names, and the campaign is killed in the run that `dies` names.
cat >bin/ctest <<'SH'
#!/bin/sh
echo "$NRL_TEST_CPU" >>calls
[ -z "$NRL_CAMPAIGN_LEDGER" ] || { echo "the ledger of the campaign reaches its tests"; exit 1; }
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

# planner: rounds of a setting that is timed, two of memory alone, then all from the ledger
command -v python3 >dd && {
    cp "$source/tests/campaigns/planner.py" copy/tests/campaigns
    cat >build/bin/nrl <<'SH'
#!/bin/sh
echo "$1" >>"$(dirname "$0")/called"
case " $* " in
*" bench "*) echo '[0] {"memory": {"used_peak_bytes": 100}, "cpu_seconds_a_step": 1, "tokens_a_step": 10, "tokens_per_s": 5}' ;;
*) echo '{"candidates": [{"used_peak_bytes": 102, "tokens": 10, "busy_seconds": 1.1, "step_seconds": 2.2}]}' ;;
esac
case " $* " in *" --memory "*) exit 6 ;; esac
SH
    chmod +x build/bin/nrl
    save planner
    planner() {
        NRL=$work/build/bin/nrl NRL_CAMPAIGN_LEDGER=$work/planned sh copy/scripts/campaign.sh planner 1 1 >out 2>err
        is "exit code of planner" $? 0
        has out "memory: median 2.0 %"
        has out "processor time: median 10.0 %"
        has out "medians of 3 rounds: median 10.0 %"
        has out "planner: 3 tried, 0 failed, seed 1"
    }
    planner
    is "calls of nrl" "$(wc -l <build/bin/called)" 10
    planner
    is "calls of nrl" "$(wc -l <build/bin/called)" 10
    is "settings in the ledger" "$(grep -c ' planner ' planned)" 3
    NRL=$work/build/bin/nrl NRL_CAMPAIGN_LEDGER=$work/planned sh copy/scripts/campaign.sh kills 1 1 >out 2>err
    is "exit code of a campaign without a ledger" $? 2
    has err "NRL_CAMPAIGN_LEDGER: campaign kills keeps no ledger"
    rm ledger
}

# another commit, and changes
row 0 1
echo '# more' >>copy/scripts/campaign.sh
row 2 6
has err "a ledger belongs to one commit; expected a checkout without changes"
save two
row 2 6
has err "/ledger: belongs to commit "
exit $failed
