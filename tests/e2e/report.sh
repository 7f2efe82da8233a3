#!/bin/sh
# report.sh: `nrl report` writes one self-contained HTML file for runs, finished or not; and its errors.
. "$(dirname "$0")/e2e.sh"

rows 24 >train.jsonl
experiment >run.yaml
run 0 run run.yaml data.eval=train.jsonl eval.every=2 out=runs/slow
run 0 run run.yaml optimizer.lr=1e-2 train.steps=3 out=runs/fast

charts() { grep -c '<svg' "$1"; }

run 0 report runs/slow
has out "runs/slow/report.html: "
page=runs/slow/report.html
has $page '<figcaption>loss</figcaption>'
has $page '<figcaption>eval_loss</figcaption>'
has $page '<figcaption>grad_norm</figcaption>'
has $page 'checkpoint 2</title>'
has $page 'global_batch: 4'
lacks $page 'What differs'
for word in '<script' 'http:' 'https:' 'src=' '@import' 'url('; do lacks $page "$word"; done
is "series drawn twice" "$(grep -o '<figcaption>[^<]*' $page | sort | uniq -d)" ""

run 0 report runs/slow runs/fast/ -o both.html
has both.html '<td>optimizer.lr</td><td>0.001</td><td>0.01</td>'
has both.html '<td>train.steps</td><td>6</td><td>3</td>'
lacks both.html '<td>train.global_batch</td>'
is "charts of both" "$(charts both.html)" "$(charts $page)"
is "files left behind" "$(ls | tr '\n' ' ')" "both.html err out run.yaml runs train.jsonl "

# A run that goes on: its last line is not whole yet. Names come from scripts, numbers from anywhere.
mkdir live
cat >live/metrics.jsonl <<'JSON'
{"step": 1, "time": 1700000000.5, "loss": 2.5, "<b>&\"odd\"": 1}
{"step": 2, "time": 1700000002, "loss": "NaN", "<b>&\"odd\"": -1e99}
{"step": 3, "time": 1700000003, "loss": 1e-300, "<b>&\"odd\"": 1e99}
JSON
printf '{"step": 4, "time": 17000' >>live/metrics.jsonl
run 0 report live
has live/report.html '<td>3</td><td>2023-11-14 22:13:20</td><td>0:00:02</td>'
has live/report.html '<figcaption>loss <b>(1 not finite)</b>'
has live/report.html '&lt;b&gt;&amp;&quot;odd&quot;'
lacks live/report.html '"odd"'
lacks live/report.html 'nan'
lacks live/report.html 'inf'

run 2 report nowhere
has err "nowhere/metrics.jsonl: No such file or directory"
mkdir broken
echo '{"step": 1, "loss": }' >broken/metrics.jsonl
run 65 report broken
has err "broken/metrics.jsonl:1:"
echo '{"loss": 1}' >broken/metrics.jsonl
run 65 report broken
has err "broken/metrics.jsonl:1: no record with a 'step' from 0"
: >broken/metrics.jsonl
run 65 report broken
has err "no record yet"
run 2 report runs/slow runs/fast
has err "several runs need -o FILE"
run 2 report
run 1 report runs/fast -o nowhere/x.html
has err "nowhere/x.html: No such file or directory"
exit $failed
