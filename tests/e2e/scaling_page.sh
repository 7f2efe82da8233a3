#!/bin/sh
# scaling_page.sh: the tables of docs/scaling.md are those of `nrl plan`. NRL_TEST_RECORD=1 writes them.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
ln -s "$source/configs" configs
page=$source/docs/scaling.md

# With a cluster no processes are started to measure links.
cat >cluster.json <<'JSON'
{"format": 1, "cluster": {"ranks_per_node": 4, "links": 4,
  "inside": {"alpha": 5e-6, "beta": 5e-12}, "between": {"alpha": 1.5e-5, "beta": 2e-11}}}
JSON

# row NAME CONFIG STRATEGY: bytes and messages of rank 0 in a step on four ranks, and the calls
row() {
    run 0 plan "$2" --as-is --json --ranks 4 --machine cluster.json train.epochs=1 "parallel=$3"
    cat >row.lua <<LUA
local c = require "nrl".json.decode((io.open "out"):read "a").candidates[1]
local function mean(t) local s = 0 for _, x in ipairs(t) do s = s + x end return s / #t end
local calls = {}
for _, k in ipairs(c.calls) do calls[#calls + 1] = ("%.4g %s/%d"):format(k.count, k.call, k.ranks) end
local t = c.traffic[1]
print(("| \`$3\` | %.0f | %.0f | %s |"):format(mean(t.sent_bytes), mean(t.sent_messages), table.concat(calls, ", ")))
LUA
    "$nrl" run row.lua >>"$1"
}
: >four
for strategy in ddp fsdp '{data: {name: fsdp, shard: grads}}' '{data: {name: fsdp, shard: optimizer}}' \
    '{data: {name: fsdp, shard_size: 2}}' '{tensor: 4}' '{tensor: {size: 4, sequence: true}}' \
    '{data: ddp, pipeline: 2}' '{pipeline: 2, tensor: 2}' '{context: 4}' '{context: {size: 4, kind: ring}}'; do
    row four configs/sft.yaml "$strategy"
done

for i in 1 2 3 4 5 6 7 8; do cat "$source/configs/data/chat.jsonl"; done >rows.jsonl
scaled() {
    run 0 plan configs/sft.yaml data.train=rows.jsonl --ranks 8,64,1024 --machine cluster.json --json --as-is "parallel=$1"
    STRATEGY=$1 "$nrl" run rows.lua >>many
}
cat >rows.lua <<'LUA'
local d = require "nrl".json.decode((io.open "out"):read "a")
local cells = {}
for _, count in ipairs(d.counts) do
  local c = count.candidates[1]
  cells[#cells + 1] = ("%.0f | %.0f"):format(c.sent_bytes, c.sent_messages)
end
print(("| `%s` | %s |"):format(os.getenv "STRATEGY", table.concat(cells, " | ")))
LUA
: >many
for strategy in ddp fsdp '{data: {name: fsdp, hybrid: true}}' '{data: fsdp, tensor: 4}' '{data: ddp, tensor: 2, pipeline: 2}' \
    '{data: fsdp, context: 4}'; do
    scaled "$strategy"
done

# table NAME: the lines of the page between <!-- NAME --> and the next empty line, behind the head of the table
table() {
    awk -v name="<!-- $1 -->" '$0 == name { on = 1; next } on && /^$/ { exit } on && ++n > 2' "$page"
}
for name in four many; do
    if [ -n "${NRL_TEST_RECORD:-}" ]; then
        awk -v name="<!-- $name -->" -v rows="$name" '$0 == name { print; on = 1; n = 0; next }
            on && /^$/ { while ((getline line <rows) > 0) print line; on = 0 }
            !on || ++n <= 2' "$page" >page && cat page >"$page"
    fi
    is "table '$name' of docs/scaling.md" "$(table $name)" "$(cat $name)"
done
exit $failed
