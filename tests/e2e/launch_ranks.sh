#!/bin/sh
# launch_ranks.sh: `nrl launch` as a parent process: lines and their prefixes, exit codes, signals; no rank is left
# behind, however the launcher or a rank ends.
. "$(dirname "$0")/e2e.sh"
mkfifo never
: >fast.lua

# What a rank does is in ACT followed by its number, for all it is ACT.
cat >act.lua <<'LUA'
local rank = os.getenv "NRL_RANK" or "0"
local act = os.getenv("ACT" .. rank) or os.getenv "ACT" or "0"
if os.getenv "PIDS" then os.execute("echo $PPID >pid." .. rank) end
if act == "lines" then
    for i = 1, 2000 do io.write(rank, " line ", i, " ", ("x"):rep(i % 300), "\n") end
    io.write(("long"):rep(100000), "\n\n", "no end of line")
elseif act == "wait" then
    io.open("never"):read()
elseif act == "kill" then
    os.execute "kill -9 $PPID"
    io.open("never"):read()
elseif act == "error" then
    error "broken on purpose"
else
    while act == "4" and not io.open "pid.2" do os.execute "sleep 0.02" end
    os.exit(tonumber(act))
end
LUA

# ended PID-FILE...: none of these processes is there any more, soon
ended() {
    for file; do await gone "$(cat "$file")" || kill -9 "$(cat "$file")"; done
}

# ---- the command line ----
run 2 launch -n 2 -n 3 -- env
has err "-n: given twice"
run 2 launch
has err "missing command"
run 2 launch -n 2 run fast.lua
has err "nrl launch -n 2 -- run FILE"
run 2 launch -n 2 -- describe
has err "cannot launch 'describe'"
run 2 launch -n 2 -- tune run.yaml
has err "hint: nrl tune FILE --ranks 2"
run 2 launch -n 0 -- run fast.lua
has err "-n: got '0'; expected a number from 1"
run 2 launch -- run fast.lua
has err "number of ranks is unknown"
run 2 launch -n 2 --port 99999 -- run fast.lua
has err "--port: got '99999'"
run 2 launch -n 2 --fast -- run fast.lua
has err "unknown flag '--fast'"
run 2 launch -n 1 --nodes 127.0.0.1:1 --hostfile never -- run fast.lua
has err "--nodes and --hostfile"

# ---- lines ----
ACT=lines run 0 launch -n 3 -- run act.lua
for rank in 0 1 2; do
    is "lines of rank $rank" "$(grep -c "^\[$rank\] $rank line [0-9]* x*$" out)" 2000
    has out "[$rank] no end of line"
done
is "lines" "$(wc -l <out | tr -d ' ')" 6009
is "long lines" "$(awk 'length($0) == 400004' out | wc -l | tr -d ' ')" 3
ACT=lines run 0 launch -n 1 -- run act.lua # a single rank speaks for itself
is "lines of a single rank" "$(grep -c '^0 line' out)" 2000
run 0 launch -n 2 -- env
is "places" "$(grep -c 'store_holder": "launcher"' out)" 2

# ---- exit codes ----
ACT1=3 run 3 launch -n 3 -- run act.lua
has err "error: rank 1 failed with exit code 3"
rm -f pid.*
PIDS=1 ACT1=4 ACT2=65 run 65 launch -n 3 -- run act.lua # 4 is what others report of the one that fails
ACT2=error run 2 launch -n 3 -- run act.lua
has err "[2] error: "
has err "error: rank 2 failed with exit code 2: "
ACT=75 run 75 launch -n 2 -- run act.lua
lacks err error:
ACT0=wait ACT1=3 run 3 launch -n 2 --grace 0 -- run act.lua
ACT0=wait ACT1=kill ACT2=wait PIDS=1 run 137 launch -n 3 --grace 0 -- run act.lua
has err "error: rank 1 failed with signal 9 (Killed)"
ended pid.0 pid.2
ACT=5 run 5 launch -n 1 -- run act.lua
is "what is said of a single rank" "$(cat err)" ""

# ---- the launcher ends ----
# begin: a launch of two ranks that wait
begin() {
    rm -f pid.*
    ACT=wait PIDS=1 "$nrl" launch -n 2 --grace 1 -- run act.lua >out 2>err &
    launcher=$!
    await test -s pid.0 && await test -s pid.1
}
begin
kill -9 $launcher
wait $launcher 2>dd
ended pid.0 pid.1
begin
kill -INT $launcher
await heard $launcher
kill -INT $launcher
finished $launcher 130 "a launcher after a second INT"
ended pid.0 pid.1

# ---- standard output that ends ----
ACT=lines "$nrl" launch -n 2 -- run act.lua 2>err | head -n 1 >out
has out "line 1"
# a slow reader gets all of it
cat >many.lua <<'LUA'
for i = 1, 20000 do io.write("line ", i, " of many\n") end
LUA
"$nrl" launch -n 2 -- run many.lua 2>err | { sleep 4; cat >out; }
is "lines for a slow reader" "$(wc -l <out | tr -d ' ')" 40000
if [ -w /dev/full ]; then
    ACT=lines "$nrl" launch -n 2 -- run act.lua >/dev/full 2>err
    is "exit code with a full disk" $? 7
fi
exit $failed
