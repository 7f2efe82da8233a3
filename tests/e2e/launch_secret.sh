#!/bin/sh
# launch_secret.sh: the secret of a job: its sources, and clients that are refused without it. It appears neither in
# the environment or arguments of a rank nor in the output and files of a run.
. "$(dirname "$0")/e2e.sh"
export OMP_NUM_THREADS=1
rows 32 >train.jsonl
experiment 'parallel: ddp' >run.yaml
secret=Pie5ahNgoo4uThaeweiB
long="train.steps=100000 checkpoint.every=0 checkpoint.export=none launch.timeout_init=20"
echo "$secret" >key && chmod 600 key

# refused TEXT VARIABLE=VALUE...: one rank is enough to read it
refused() {
    text=$1
    shift
    env "$@" "$nrl" run run.yaml >out 2>err
    is "exit code with $*" $? 2
    has err "$text"
    lacks err "$secret"
}
# unseen PID: no secret in its environment and arguments
unseen() {
    ! tr '\0' '\n' <"/proc/$1/environ" | grep -q "$secret" || is "the environment of $1" "has the secret" clean
    ! tr '\0' '\n' <"/proc/$1/cmdline" | grep -q "$secret" || is "the arguments of $1" "have the secret" clean
}

# ---- a variable and a file are the same secret ----
next_port
{ hand 0 NRL_JOB_SECRET=$secret -- run.yaml $long out=by_hand >out0 2>err0 & } && first=$!
{ hand 1 NRL_JOB_SECRET_FILE=key -- run.yaml $long out=by_hand >out1 2>err1 & } && second=$!
await test -s by_hand/metrics.jsonl
unseen $first
unseen $second
# ---- strangers ----
(hand 1 -- run.yaml $long out=late >out 2>err)
is "exit code without a secret" $? 2
has err "requires the job's secret, but this process has none"
(hand 1 NRL_JOB_SECRET=another-secret-of-20 -- run.yaml $long out=late >out 2>err)
is "exit code with another secret" $? 2
has err "has a different secret than this process"
(hand 1 NRL_JOB_SECRET=$secret NRL_RUN_ID=another -- run.yaml $long out=late >out 2>err)
is "exit code with the secret in another job" $? 2
has err "or belongs to another job"
has err0 "refused 127.0.0.1, which does not know the job's secret"
is "warnings of refusals" "$(grep -c refused err0)" 1
kill -TERM $first $second
finished $first 75 "rank 0"
finished $second 75 "rank 1"
! grep -rq "$secret" out0 err0 out1 err1 by_hand || is "files" "hold the secret" clean

# ---- a launcher ----
NRL_JOB_SECRET=$secret "$nrl" launch -n 2 -- run run.yaml $long out=launched >out 2>err &
launcher=$!
await test -s launched/metrics.jsonl
unseen $launcher
for status in $(grep -ls "^PPid:[[:space:]]*$launcher\$" /proc/[0-9]*/status); do
    pid=$(basename "${status%/status}")
    unseen "$pid"
    tr '\0' '\n' <"/proc/$pid/environ" | grep -q '^NRL_JOB_SECRET_FD=' || is "the environment of a rank" "no descriptor" one
    ! ls -l "/proc/$pid/fd" | grep -q 'memfd:job secret' || is "a rank" "keeps the descriptor" closed
done
kill -TERM $launcher
finished $launcher 75 "a launcher"
next_port
"$nrl" launch -n 2 --port "$port" -- run run.yaml $long out=made >out0 2>err0 &
launcher=$!
await test -s made/metrics.jsonl
(hand 1 -- run.yaml $long out=late >out 2>err)
is "exit code without the secret that a launcher made" $? 2
has err "requires the job's secret"
kill -TERM $launcher
finished $launcher 75 "a launcher that made a secret"

# ---- two nodes ----
next_port
set -- --nodes 127.0.0.1:1,127.0.0.2:1 --port "$port" -- run run.yaml out=nodes
NRL_JOB_SECRET_FILE=key "$nrl" launch --node-rank 1 "$@" >out.1 2>err.1 &
second=$!
NRL_JOB_SECRET=$secret "$nrl" launch --node-rank 0 "$@" >out 2>err || is "exit code of node 0" "$? $(cat err)" 0
wait $second
is "exit code of node 1" $? 0

# ---- a store that others can reach: said once, unless it asks for a secret ----
address=$(hostname -I 2>dd | tr ' ' '\n' | grep -v '^127\.' | grep -m 1 '^[0-9.]*$')
for given in no a; do
    [ -n "$address" ] || break
    next_port
    set -- LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR="$address"
    [ $given = no ] || set -- "$@" NRL_JOB_SECRET=$secret
    { hand 0 "$@" -- run.yaml out="wide.$given" >out0 2>err0 & } && first=$!
    shift
    (hand 1 LOCAL_RANK=1 "$@" -- run.yaml out="wide.$given" >out 2>err)
    is "exit code of rank 1, $given secret" $? 0
    finished $first 0 "rank 0, $given secret"
    is "warnings with $given secret" "$(cat err0 err | grep -c "listens at $address port $port without a secret")" \
        "$([ $given = no ] && echo 1 || echo 0)"
done
[ -n "$address" ] || echo "no address beside loopback: not tried"

# ---- what cannot be a secret ----
refused "NRL_JOB_SECRET: a secret of 5 bytes; expected 16 to 4096" NRL_JOB_SECRET=short
refused "nowhere: No such file" NRL_JOB_SECRET_FILE=nowhere
refused "both set; expected one of them" NRL_JOB_SECRET=$secret NRL_JOB_SECRET_FILE=key
chmod 640 key
refused "key: other users have access to it (mode 640); expected 600" NRL_JOB_SECRET_FILE=key
chmod 600 key && : >key
refused "key: a secret of 0 bytes" NRL_JOB_SECRET_FILE=key
refused "not a regular file" NRL_JOB_SECRET_FILE=/dev/null
exit $failed
