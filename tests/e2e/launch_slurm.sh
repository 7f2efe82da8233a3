#!/bin/sh
# launch_slurm.sh: a Slurm cluster of three nodes on the loopback interface, with its own keys, ports and directories:
# what `nrl` reads in a batch script and in a step, and a run of two ranks. Skipped if Slurm is not installed (Debian:
# slurmctld, slurmd, slurm-client, munge).
. "$(dirname "$0")/e2e.sh"
for program in munged slurmctld slurmd srun sbatch perl; do
    PATH=$PATH:/usr/sbin command -v $program >dd && continue
    echo "skipped: $program is not installed"
    exit 77
done
PATH=$PATH:/usr/sbin
unset $(env | sed -n 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p') MASTER_ADDR MASTER_PORT
started=
stop() {
    for pid in $started; do
        kill "$pid" 2>dd
        wait "$pid" 2>dd
    done
    started=
}
trap 'stop; rm -rf "$work"' EXIT

# until SECONDS COMMAND...: repeats it until it succeeds
until_() {
    tries=$(($1 * 20))
    shift
    while ! "$@" >dd 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}
# start NAME COMMAND...: in the background; newest first, so that stop ends them in that order
start() {
    name=$1
    shift
    "$@" >"$name.err" 2>&1 &
    started="$! $started"
}
give_up() {
    echo "$1"
    tail -n 5 ./*.err ./*.log
    exit 1
}

# ---- the cluster ----
set --
for _ in 1 2 3 4; do
    next_port
    set -- "$@" "$port"
done
host=$(hostname -s)
mkdir munge state spool
chmod 711 . munge
(umask 077 && dd if=/dev/urandom of=munge/key bs=128 count=1 2>dd)
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$1
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
KillWait=5
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$2 CPUs=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$3 CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$4 CPUs=2
PartitionName=all Nodes=n[0-2] Default=YES State=UP
CONF
export SLURM_CONF="$work/slurm.conf"
start munged munged -F -f --socket="$work/munge/socket" --key-file="$work/munge/key" \
    --log-file="$work/munge/log" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed"
until_ 10 test -S munge/socket || give_up "munged does not start"
start slurmctld slurmctld -D -f slurm.conf
start n0 slurmd -D -N n0 -f slurm.conf
start n1 slurmd -D -N n1 -f slurm.conf
start n2 slurmd -D -N n2 -f slurm.conf
all_idle() { [ "$(sinfo -h -t idle -o %D)" = 3 ]; }
until_ 300 all_idle || give_up "the three nodes do not come up"

# ---- one job: a batch script with its steps ----
rows 32 >train.jsonl
experiment >run.yaml
echo 'os.exit(os.getenv "SLURM_PROCID" == "1" and 3 or 0)' >fail.lua
cat >job.sh <<JOB
#!/bin/sh
nrl=$nrl
"\$nrl" env --json >batch.json
srun -o 'step.%t.json' "\$nrl" env --json
srun -o 'fail.%t' "\$nrl" run fail.lua
echo \$? >fail.code
export MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 # the node names are no hosts' names
srun -o 'run.%t' -e 'run.%t.err' "\$nrl" run run.yaml parallel=ddp out=by_slurm
echo \$? >run.code
JOB
sbatch --parsable -N 2 -n 2 -o job.out job.sh >out 2>err || give_up "sbatch: $(cat out err)"
finished_batch() { scontrol show job "$(cat out)" | grep -q 'JobState=COMPLETED '; }
until_ 240 finished_batch || give_up "the batch script does not end: $(scontrol show job "$(cat out)") $(cat job.out)"
lacks batch.json '"place"'
for rank in 0 1; do
    has step.$rank.json '"launcher": "Slurm"'
    has step.$rank.json "\"rank\": $rank,"
    has step.$rank.json '"world_size": 2'
    has step.$rank.json '"local_rank": 0'
    has step.$rank.json '"store": "n0:'
done
is "code of a step with a failing rank" "$(cat fail.code)" 3

# The same losses as on this machine's own two ranks, and the same as alone.
is "code of the run" "$(cat run.code)" 0
[ "$(cat run.code)" = 0 ] || tail -n 5 run.0 run.?.err
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
OMP_NUM_THREADS=1 run 0 launch -n 2 -- run run.yaml parallel=ddp out=by_launch
losses by_slurm >a
losses by_launch >b
is "steps" "$(wc -l <a | tr -d ' ')" 6
cmp -s a b || is "losses under Slurm" "$(tr '\n' ' ' <a)" "$(tr '\n' ' ' <b)"

# ---- nrl cluster: a job that is stopped before its time limit, queued again, and continues bit for bit ----
cat run.yaml - >job.yaml <<YAML
cluster: {name: requeued, nodes: 2, time: 10, save_before: 54, environment: {MASTER_ADDR: 127.0.0.1, OMP_NUM_THREADS: 1}}
YAML
sed -i 's/steps: 6/steps: 4000/; s/^checkpoint: .*/checkpoint: {every: 0}/; s/^out: .*/out: requeued/' job.yaml
echo 'parallel: ddp' >>job.yaml
echo 'loggers: [{name: console, every: 1000}, jsonl]' >>job.yaml
OMP_NUM_THREADS=1 run 0 launch -n 2 -- run job.yaml out=in_one_go -q
run 0 cluster script job.yaml
has out "#SBATCH --signal=USR1@54"
has out "run job.yaml resume=auto"
run 0 cluster submit job.yaml
has out "submitted job "
run 2 cluster submit job.yaml
has err " of this run is "
run 0 cluster status job.yaml --json
has out '"from": "squeue"'
some_steps() { [ "$(wc -l <requeued/metrics.jsonl)" -gt 100 ]; }
until_ 600 some_steps || give_up "the job does not start"
id=$(sed -n 's/.*"job": *"\([0-9]*\).*/\1/p' jobs/requeued.json)
scancel --signal=USR1 "$id" # as Slurm does before the limit
# ended FILE COMPONENTS: whether the job of FILE is over. Slurm waits two minutes before it starts a job that was queued
# again, so this asks for an earlier start: once all nodes are idle, since no message of the first start is then under way
# that would end the second.
ended() {
    if all_idle; then
        for component in $(seq 0 $(($2 - 1))); do
            scontrol update JobId=$((id + component)) StartTime=now
        done
    fi
    "$nrl" cluster status "$1" --json >state.txt 2>dd &&
        grep -q '"state": "\(COMPLETED\|FAILED\|CANCELLED\|TIMEOUT\)' state.txt
}
until_ 600 ended job.yaml 1 || give_up "the job does not end: $(cat state.txt jobs/*.log)"
grep -q '"state": "COMPLETED"' state.txt || give_up "the job has failed: $(cat state.txt jobs/*.log)"
run 0 cluster logs job.yaml
has out "the state is saved; the job is requeued"
has out "start 1, nodes"
losses in_one_go >a
losses requeued >b
is "steps of the job" "$(wc -l <b | tr -d ' ')" 4000
cmp -s a b || is "losses of the job" "$(diff a b | head -4)" "those of an uninterrupted run"

# ---- machines of two sizes and a group with a command of its own: one run over the components of a heterogeneous job ----
cat >wrapped <<JOB
#!/bin/sh
echo "\$NRL_GROUP \$SLURM_PROCID of \$SLURM_NTASKS" >>ranks.txt
exec "$nrl" "\$@"
JOB
chmod +x wrapped
cat run.yaml - >unequal.yaml <<YAML
parallel: ddp
loggers: [{name: console, every: 1000}, jsonl]
cluster:
  name: unequal
  time: 10
  nrl: ./wrapped
  cpus_per_rank: 1
  environment: {MASTER_ADDR: 127.0.0.1, OMP_NUM_THREADS: 1}
  groups:
    watcher: {nodes: 1, command: 'echo "\$NRL_GROUP \$SLURM_NTASKS" >watcher.txt; exec sleep 1000'}
    trainer: {ranks: [1, 2]}
YAML
sed -i 's/steps: 6/steps: 3000/; s/^checkpoint: .*/checkpoint: {every: 0}/; s/^out: .*/out: unequal/' unequal.yaml
OMP_NUM_THREADS=1 run 0 launch -n 3 -- run unequal.yaml out=equal -q
run 0 cluster submit unequal.yaml
id=$(sed -n 's/.*"job": *"\([0-9]*\).*/\1/p' jobs/unequal.json)
some_steps() { [ "$(wc -l <unequal/metrics.jsonl)" -gt 300 ]; }
until_ 600 some_steps || give_up "the heterogeneous job does not start: $(squeue) $(cat jobs/unequal*.log)"
sort -u ranks.txt >found
printf '%s\n' "trainer 0 of 3" "trainer 1 of 3" "trainer 2 of 3" >expected
cmp -s found expected || is "ranks of the job" "$(cat found)" "$(cat expected)"
until_ 600 test -s watcher.txt
is "the other group" "$(cat watcher.txt)" "watcher 1"
has jobs/unequal-"$id".log "3 ranks on 2 nodes (Slurm)"
scancel --signal=USR1 "$id"
until_ 600 ended unequal.yaml 3 || give_up "the heterogeneous job does not end: $(cat state.txt jobs/unequal*.log)"
grep -q '"state": "COMPLETED"' state.txt || give_up "the job has failed: $(cat state.txt jobs/*.log)"
has jobs/unequal-"$id".log "the state is saved; the job is requeued"
has jobs/unequal-"$id".log "start 1, nodes"
losses equal >a
losses unequal >b
is "steps of the heterogeneous job" "$(wc -l <b | tr -d ' ')" 3000
cmp -s a b || is "losses of the heterogeneous job" "$(diff a b | head -4)" "those of an uninterrupted run"
until_ 300 all_idle || is "a node of a group that ended" "$(squeue)" idle

# ---- cancel, and what sbatch says ----
run 0 cluster submit job.yaml out=cancelled train.steps=100000000
running() { [ -s cancelled/metrics.jsonl ]; }
until_ 600 running || give_up "the job to be cancelled does not start"
run 0 cluster cancel job.yaml
until_ 600 ended job.yaml 1 || give_up "the cancelled job does not end"
has state.txt '"state": "CANCELLED'
ls cancelled/checkpoints | grep -q step- || is "checkpoint of the cancelled job" none some
run 1 cluster submit job.yaml cluster.partition=nowhere cluster.name=other
has err "sbatch failed with exit code 1: sbatch: error: "
has err "nowhere"
stop
exit $failed
