#!/bin/sh
# launch_nodes.sh: `nrl launch` on several nodes, which are loopback addresses here: one launcher per node, ranks
# numbered by the slots of the nodes, assignment of GPUs.
. "$(dirname "$0")/e2e.sh"
cat >place.lua <<'LUA'
local words = {"rank", os.getenv "NRL_RANK", "of", os.getenv "NRL_WORLD_SIZE", "local", os.getenv "NRL_LOCAL_RANK",
               "of", os.getenv "NRL_LOCAL_WORLD_SIZE", "store", os.getenv "NRL_STORE", "gpu", os.getenv "CUDA_VISIBLE_DEVICES" or "any"}
io.write(table.concat(words, " "), "\n")
os.exit(os.getenv "NRL_RANK" == os.getenv "FAILS" and 65 or 0)
LUA

# both ARGUMENT...: two launchers at once, with these arguments and a node number each
both() {
    next_port
    "$nrl" launch --port "$port" --node-rank 0 "$@" >out.0 2>err.0 &
    first=$!
    "$nrl" launch --port "$port" --node-rank 1 "$@" >out.1 2>err.1
    code_1=$?
    wait $first
    code_0=$?
}

# ---- a list ----
both --nodes 127.0.0.1:1,127.0.0.2:2 -- run place.lua
is "codes" "$code_0 $code_1" "0 0"
has out.0 "[0] rank 0 of 3 local 0 of 1 store 127.0.0.1:$port gpu any"
has out.1 "[1] rank 1 of 3 local 0 of 2 store 127.0.0.1:$port gpu any"
has out.1 "[2] rank 2 of 3 local 1 of 2 store 127.0.0.1:$port gpu any"
is "lines" "$(cat out.0 out.1 | wc -l | tr -d ' ')" 3
both --nodes 127.0.0.1,127.0.0.2 -n 2 --address localhost -- run place.lua
has out.1 "[3] rank 3 of 4 local 1 of 2 store localhost:$port gpu any"
FAILS=2 both --nodes 127.0.0.1,127.0.0.2 -n 2 -- run place.lua
is "codes where a rank of the second node fails" "$code_0 $code_1" "0 65"
has err.1 "error: rank 2 failed with exit code 65"

# ---- a host file ----
cat >hosts <<'HOSTS'
# two nodes that are not alike
127.0.0.1 slots=1
127.0.0.2 gpus=3,1   # slots follow
HOSTS
both --hostfile hosts -- run place.lua
has out.0 "[0] rank 0 of 3 local 0 of 1 store 127.0.0.1:$port gpu any"
has out.1 "[1] rank 1 of 3 local 0 of 2 store 127.0.0.1:$port gpu 3"
has out.1 "[2] rank 2 of 3 local 1 of 2 store 127.0.0.1:$port gpu 1"

# ---- the config ----
rows 32 >train.jsonl
experiment 'launch: {nodes: [{address: 127.0.0.1, slots: 2}, {address: 203.0.113.9, slots: 1}]}' >run.yaml
run 0 launch --port "$port" -- check run.yaml
has out "[0] ok: no mistakes found, nothing was trained"
is "lines of a check" "$(grep -c "nothing was trained" out)" 1
run 2 launch -- check run.yaml launch.nodes=3
has err "launch.nodes"
is "times that the config's mistake is told" "$(grep -c '^error' err)" 1
run 0 launch -n 1 -- check run.yaml # the flag counts

# ---- mistakes ----
run 2 launch --nodes 127.0.0.1,127.0.0.2 -n 1 -- run place.lua
has err "several of the 2 nodes are this machine"
run 2 launch --nodes 203.0.113.1:1,203.0.113.2:1 -- run place.lua
has err "none of the 2 nodes is this machine"
run 2 launch --nodes 127.0.0.1:1,127.0.0.2:1 --node-rank 2 -- run place.lua
has err "--node-rank: got '2'; expected a number from 0 to 1"
run 2 launch --nodes a:0 -- run place.lua
has err "--nodes: slots: got '0'"
run 2 launch --hostfile nowhere -- run place.lua
has err "--hostfile: nowhere"
printf 'a slots=1\nb gpu=0\n' >hosts
run 2 launch --hostfile hosts -- run place.lua
has err "hosts:2: got 'gpu=0'; expected slots=N or gpus=0,1"
exit $failed
