#!/bin/sh
# launch_mpi.sh: ranks started by Open MPI and by MPICH, whichever is installed; skipped if neither is. nrl does not
# use MPI; it only reads their variables.
. "$(dirname "$0")/e2e.sh"
unset MASTER_ADDR MASTER_PORT
# Open MPI wants to be asked twice whether it may run as root.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$work" OMP_NUM_THREADS=1
rows 32 >train.jsonl
experiment >run.yaml
echo 'os.exit((os.getenv "OMPI_COMM_WORLD_RANK" or os.getenv "PMI_RANK") == "1" and 3 or 0)' >fail.lua
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
found=

# starts NAME COMMAND...: COMMAND starts two ranks of what follows it
starts() {
    name=$1
    shift
    found="$found $1"
    timeout 60 "$@" "$nrl" env --json >out 2>err
    is "exit code of env by $name" $? 0
    is "ranks of $name" "$(grep -c "\"launcher\": \"$name\"" out)" 2
    has out '"rank": 1,'
    has out '"local_world_size": 2'
    timeout 60 "$@" "$nrl" run fail.lua >out 2>err
    is "exit code of a failing rank of $name" $? 3
    next_port
    MASTER_PORT=$port timeout 60 "$@" "$nrl" run run.yaml parallel=ddp out="by_$1" >out 2>err
    is "exit code of a run by $name" $? 0
    losses "by_$1" >a
    cmp -s a by_launch.losses || is "losses of $name" "$(tr '\n' ' ' <a)" "$(tr '\n' ' ' <by_launch.losses)"
}

command -v mpirun.openmpi >dd || command -v mpiexec.hydra >dd || {
    echo "skipped: neither Open MPI nor MPICH is installed"
    exit 77
}
run 0 launch -n 2 -- run run.yaml parallel=ddp out=by_launch
losses by_launch >by_launch.losses
if command -v mpirun.openmpi >dd; then starts "Open MPI" mpirun.openmpi --oversubscribe -n 2; else echo "skipped: Open MPI is not installed"; fi
if command -v mpiexec.hydra >dd; then starts PMI mpiexec.hydra -n 2; else echo "skipped: MPICH is not installed"; fi
exit $failed
