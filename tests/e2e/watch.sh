#!/bin/sh
# watch.sh: `nrl watch` shows a run that has ended, one that goes on, one that was lost and an empty one, as a page and as
# text, and ends cleanly at a signal.
. "$(dirname "$0")/e2e.sh"

rows 24 >train.jsonl
experiment >run.yaml
run 0 run run.yaml data.eval=train.jsonl eval.every=2 out=done -q

# ---- text: a run that has ended ----
run 0 watch done --text
has out "done: finished step 6/6"
has out "eval loss"
is "lines" "$(wc -l <out | tr -d ' ')" 1

# a run by epochs that exports nothing has ended, too
run 0 run run.yaml train.steps=0 train.epochs=1 checkpoint.export=none out=epochs -q
has epochs/metrics.jsonl '"finished_step"'
run 0 watch epochs --text
has out "epochs: finished"

# ---- text: a run that goes on; a lost one; an empty one, which begins ----
mkdir lost empty
head -n 3 done/metrics.jsonl | sed "s/\"time\": *[0-9.]*/\"time\": $(($(date +%s) - 1000))/" >lost/metrics.jsonl
cp done/config.yaml lost/
run 0 watch lost --text
has out "stopped or lost; nrl resume continues it"
# ---- text: a run that is lost while it is watched ----
mkdir losing
cp done/config.yaml losing/
for age in 57 45 20; do # of the last record: a slow machine may need some seconds before its first look
    sed "s/\"time\": *[0-9.]*/\"time\": $(($(date +%s) - age))/" lost/metrics.jsonl >losing/metrics.jsonl
    run 0 watch losing --text
    mv out losing.out
    grep -q "losing: running" losing.out && break
done
has losing.out "losing: running"
has losing.out "stopped or lost; nrl resume continues it"
"$nrl" watch empty --text >text.out 2>err &
watcher=$!
await grep -q "empty: no record yet" text.out
cp done/config.yaml empty/
sed "s/\"time\": *[0-9.]*/\"time\": $(date +%s)/" done/metrics.jsonl >whole
head -n 2 whole >empty/metrics.jsonl
await grep -q "empty: running step 2/6" text.out
cat whole >empty/metrics.jsonl
finished $watcher 0 "nrl watch --text when the run has ended"
has text.out "empty: finished step 6/6"

# ---- the page ----
skip_page() {
    echo "skipped: the page: $1"
    [ $failed -eq 0 ] && exit 77
    exit 1
}
if [ ! -x "$NRL_TEST_BUILD/libexec/nrl/nrl-serve" ]; then # neither of them has a server
    run 2 watch done
    has err "this nrl was built without libmicrohttpd"
    skip_page "no libmicrohttpd"
fi
command -v curl >dd || skip_page "curl is not installed"
serve() {
    rm -f served # the child truncates it only once it runs
    "$nrl" watch "$1" --port 0 >served 2>err &
    watcher=$!
    await grep -q '^http://127.0.0.1:' served
    url=$(sed -n 's|^\(http://127.0.0.1:[0-9]*\)/.*|\1|p' served)
}
serve done
curl -s "$url/" >page
has page '<b>finished</b>'
has page '<figcaption>loss</figcaption>'
has page '<th>mean of the last 100</th>'
has page "fetch('version')"
curl -s "$url/version" >version.1
echo '{"step": 7, "time": 1, "loss": 1}' >>done/metrics.jsonl
curl -s "$url/version" >version.2
cmp -s version.1 version.2 && is "version after a record" "the same" another
is "another page" "$(curl -s -o dd -w '%{http_code}' "$url/../etc/passwd")" 404
is "another host's name" "$(curl -s -o dd -w '%{http_code}' -H 'Host: evil.example' "$url/")" 403
is "a post" "$(curl -s -o dd -w '%{http_code}' -d x "$url/")" 403
kill -INT $watcher
finished $watcher 0 "nrl watch after SIGINT"
is "what it prints on standard error" "$(cat err)" ""
rm -r empty && mkdir empty
serve empty
curl -s "$url/" >page
has page "empty/metrics.jsonl: No such file or directory"
kill -TERM $watcher
finished $watcher 0 "nrl watch after SIGTERM"
run 2 watch nowhere
has err "nowhere: no such directory"
run 2 watch done --port x
exit $failed
