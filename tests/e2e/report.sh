#!/bin/sh
# report.sh: `nrl report` writes one self-contained HTML file for runs, finished or not; and its errors.
. "$(dirname "$0")/e2e.sh"

rows 24 >train.jsonl
experiment >run.yaml
run 0 run run.yaml data.eval=train.jsonl eval.every=2 out=runs/slow
run 0 run run.yaml optimizer.lr=1e-2 train.steps=3 out=runs/fast

charts() { grep -c '<figure data-chart' "$1"; }

# data PAGE LUA: an expression over the JSON of a page's charts, as the table d
data() {
    sed -n 's|.*id="data">\(.*\)</script>.*|\1|p' "$1" >out
    truth "the data of $1" "$2"
}

run 0 report runs/slow
has out "runs/slow/report.html: "
page=runs/slow/report.html
has $page '<figcaption>loss</figcaption>'
lacks $page '<figcaption>eval_loss</figcaption>'
has $page '<figcaption>grad_norm</figcaption>'
lacks $page '<figcaption>lr</figcaption>'
has $page 'Constant: lr 0.001'
has $page 'Where the time of a step goes'
has $page '<td>loss, mean of the last 100 steps</td>'
has $page '<th>mean of the last 100</th>'
has $page 'global_batch: 4'
lacks $page 'Differences'
for word in 'http:' 'https:' 'src=' '@import' 'url('; do lacks $page "$word"; done
is "series drawn twice" "$(grep -o '<figcaption>[^<]*' $page | sort | uniq -d)" ""
data $page 'd.charts[1].name == "loss" and #d.charts[1].lines == 2 and d.charts[1].lines[2].name == "eval_loss"'
data $page '#d.charts[1].lines[1].step == 6 and d.runs[1].batch == 4 and d.runs[1].checkpoints[1] == 2'

run 0 report runs/slow runs/fast/ -o both.html
has both.html '<td>optimizer.lr</td><td>0.001</td><td>0.01</td>'
has both.html '<td>train.steps</td><td>6</td><td>3</td>'
has both.html 'The first option that differs: <b>'
has both.html ' has different losses than the first run from step 2 on.'
lacks both.html '<td>train.global_batch</td>'
data both.html '#d.runs == 2 and #d.charts[1].lines == 3'
is "files left behind" "$(ls | grep -v '^truth\|^why' | tr '\n' ' ')" "both.html err out run.yaml runs train.jsonl "
run 0 report runs/slow runs/slow/ -o same.html
has same.html 'has the same losses as the first run in all 6 common steps'

# A run that goes on: its last line is not whole yet. Names come from scripts, numbers from anywhere.
mkdir live
cat >live/metrics.jsonl <<'JSON'
{"step": 1, "time": 1700000000.5, "loss": 2.5, "</script><b>&\"odd\"": 1}
{"step": 2, "time": 1700000002, "loss": "NaN", "</script><b>&\"odd\"": -1e99}
{"step": 3, "time": 1700000003, "loss": 1e-300, "</script><b>&\"odd\"": 1e99}
JSON
printf '{"step": 4, "time": 17000' >>live/metrics.jsonl
run 0 report live
has live/report.html '<td>2023-11-14 22:13:20</td>'
has live/report.html '<td>0:00:02</td>'
has live/report.html '<figcaption>loss <b>(1 not finite)</b>'
has live/report.html '&lt;/script&gt;&lt;b&gt;&amp;&quot;odd&quot;'
lacks live/report.html '</script><b>'
is "nan and inf in the data" "$(sed -n 's|.*id="data">\(.*\)</script>.*|\1|p' live/report.html | grep -c 'nan\|inf')" 0

# ---- what limits the speed, and by which keys it changes ----
mkdir slowed
awk 'BEGIN { for (i = 1; i <= 20; i++) printf "{\"step\": %d, \"time\": %d, \"loss\": 1, \"tokens\": %d, \"tokens_per_s\": 200, \"data_fraction\": 0.3, \"comm_fraction\": 0.4, \"mem_bytes\": 95, \"mem_total_bytes\": 100, \"save_stall_s\": 1}\n", i, 1700000000 + 10 * i, 1000 * i }' >slowed/metrics.jsonl
echo '{"restart": 1}' >slowed/restarts.jsonl
run 0 report slowed
for text in 'What limits the speed' 'waiting for data: 30.0 %' '<code>data.workers</code>' 'waiting for other ranks: 40.0 %' \
    'saves that stopped the run: 10.5 %' 'idle between steps: 39.5 %' 'memory in use: 95.0 %' \
    '<td>restarts after a lost rank</td><td>1</td>'; do has slowed/report.html "$text"; done
lacks slowed/report.html 'evaluations:'
for key in $(grep -o '<code>[a-z]*\.[a-z_]*</code>' slowed/report.html | sed 's/<[^>]*>//g' | sort -u); do
    [ "$key" = parallel.tensor ] || run 0 describe "$key"
done

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
has err "several runs require -o FILE"

# Values that hardly differ have labels that tell them apart, and room for them (a browser draws them).
has $page '.part,'
has $page '<span class="part"><span class="dot"'
mkdir close
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"step\": $i, \"time\": 170000000$i, \"loss\": 1, \"mem_bytes\": $((3694000000 + i * 900))}"
done >close/metrics.jsonl
run 0 report close
if command -v chromium >/dev/null; then
    timeout 100 chromium --headless --no-sandbox --disable-gpu --window-size=390,900 --dump-dom "file://$PWD/close/report.html" 2>/dev/null |
        grep -o '<text [^>]*text-anchor="end">[^<]*GiB' >labels
    is "labels of memory" "$(wc -l <labels | awk '{ print ($1 >= 3) }') $(sed 's/.*>//' labels | sort | uniq -d)" "1 "
    is "labels that begin left of the page" "$(sed 's/<text x="\([0-9.]*\)".*>\(.*\)/\1 \2/' labels |
        awk '{ x = $1; sub(/^[^ ]* /, ""); if (x < 6.5 * length($0)) print }')" ""
else
    echo "no chromium: labels of charts are not checked"
fi
run 2 report
run 1 report runs/fast -o nowhere/x.html
has err "nowhere/x.html: No such file or directory"
exit $failed
