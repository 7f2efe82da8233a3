#!/bin/sh
# launch_environment.sh: the rank that a process reads from its launcher's variables, as `nrl env` shows it, and
# incomplete environments. The test sets the variables itself.
. "$(dirname "$0")/e2e.sh"

# place EXPECTED VARIABLE=VALUE...: what `nrl env` says of the place, in one line
place() {
    expected=$1
    shift
    env "$@" "$nrl" env --json >out 2>err || { echo "$*: $(cat err)" && failed=1; }
    found=$(tr -d '\n ' <out | sed -n 's/.*"place":{\([^}]*\)}.*/\1/p' | tr -d '"')
    [ -z "$expected" ] || found=$(printf '%s' "$found" | cut -c "-${#expected}")
    is "the place of $*" "$found" "$expected"
}

# refused TEXT VARIABLE=VALUE...
refused() {
    text=$1
    shift
    env "$@" "$nrl" run nothing.yaml >out 2>err
    is "exit code with $*" $? 2
    has err "$text"
}

place '' MASTER_ADDR=somewhere
place 'launcher:torchrun,rank:1,world_size:2,local_rank:1,local_world_size:2,threads:' \
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost
has out '"store": "localhost:29500"'
has out '"store_holder": "rank 0"'
place 'launcher:torchrun,rank:3,world_size:4,local_rank:1,local_world_size:2,threads:' \
    RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=1234 \
    TORCHELASTIC_RUN_ID=job TORCHELASTIC_USE_AGENT_STORE=True
has out '"store": "node1:1234"'
has out '"store_holder": "launcher"'
has out '"run_id": "job"'
place 'launcher:OpenMPI,rank:0,world_size:2,' OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 \
    OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2
place 'launcher:PMI,rank:0,world_size:2,' PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2
place 'launcher:Slurm,rank:2,world_size:3,local_rank:0,local_world_size:1,threads:' SLURM_PROCID=2 \
    SLURM_NTASKS=3 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=5 \
    SLURM_STEP_TASKS_PER_NODE=2,1 'SLURM_JOB_NODELIST=gpu[07,09-10]'
has out '"store": "gpu07:'
place '' SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_LOCALID=0 SLURM_JOB_ID=5 # sbatch: no step

refused 'RANK is set (1), but WORLD_SIZE is not' RANK=1
refused 'RANK is 2, but WORLD_SIZE is 2' RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2
refused "MASTER_PORT is 'x'" RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=x
refused 'Open MPI: MASTER_ADDR is not set, and the 4 ranks are not all on one node' \
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2

# The launcher is not needed where ranks are there already.
RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost "$nrl" launch -n 2 -- env >out 2>err
is "exit code of a launch under torchrun" $? 2
has err 'already one of several ranks (torchrun), so `nrl launch` is not needed'
exit $failed
