#!/bin/sh
# cluster.sh: the section `cluster`: mistakes in it, the scripts it becomes, and what is said without a cluster.
# launch_slurm.sh has jobs on a real Slurm, peers.kubernetes the schemas of Kubernetes, peers.ray a real Ray.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
{ experiment; echo 'cluster: {nodes: 2, gpus_per_node: 4, time: 1-12, partition: gpu, environment: {A: "x y", N: 3}, setup: [module load cuda]}'; } >job.yaml
run 0 check job.yaml
run 0 cluster script job.yaml train.steps=7
for line in "#SBATCH --job-name=result" "#SBATCH --nodes=2" "#SBATCH --ntasks-per-node=4" "#SBATCH --gpus-per-node=4" "#SBATCH --time=1-12" \
    "#SBATCH --signal=USR1@120" "#SBATCH --requeue" "export A='x y'" "export N=3" "module load cuda" "run job.yaml train.steps=7 resume=auto" \
    "scontrol requeue"; do has out "$line"; done
sh -n out || is "the script" malformed "a script of sh"
run 0 cluster script job.yaml cluster.requeue=false
has out "#SBATCH --no-requeue"
lacks out "scontrol"
run 0 cluster script job.yaml cluster.type=kubernetes cluster.image=a/b:1
has out "completionMode: Indexed"
has out "result-0.result:4,result-1.result:4"
run 0 cluster script job.yaml cluster.type=ray 'cluster.ranks=[4, 8, 16]' cluster.nodes=null cluster.min_nodes=2 cluster.time=null
grep -qF "[4, 8, 16], " out || is "the ranks of the driver" "$(sed -n 3p out)" "[4, 8, 16]"
python3 - <out >log 2>&1 <<'END' || is "the driver for Ray" "$(cat log)" "a program of Python"
import ast, sys
ast.parse(open("out").read())
END
run 0 cluster autoscaler job.yaml cluster.type=ray 'cluster.provider={type: aws, region: us-west-2, machine: p4d.24xlarge, head_machine: m5.large}'
for line in "max_workers: 2" 'region: "us-west-2"' 'node_config: {InstanceType: "m5.large"}' '  - "module load cuda"'; do has out "$line"; done
run 2 cluster autoscaler job.yaml cluster.type=ray
has err "cluster.provider: required"
run 2 cluster script job.yaml cluster.type=ray 'cluster.ranks=[0, 2]' 'cluster.provider={type: aws, region: 3}' 'cluster.resources={A100: none}'
for text in "cluster.ranks: not together with nodes" "cluster.ranks: expected numbers" "cluster.provider.machine: required for aws" \
    "cluster.provider.region: required" "cluster.resources: expected numbers above 0"; do has err "$text"; done
run 2 cluster script job.yaml 'cluster.ranks=[1, 2]' cluster.nodes=null
has err "only Ray starts unequal machines"
run 0 cluster keys
has out "save_before"

# ---- mistakes, all at once, with their places ----
cat >bad.yaml <<YAML
$(experiment)
cluster:
  type: pbs
  node: 2
  nodes: 0
  time: soon
  name: "a b; rm"
  environment: {1X: [y]}
  options: [constraint=a100]
YAML
run 2 cluster script bad.yaml
for text in "7 mistakes in the config" "cluster.type: 'pbs' is not one of: slurm, kubernetes, ray" "cluster.node: unknown key; did you mean 'nodes'?" \
    "cluster.nodes: expected a whole number of at least 1" "cluster.time: 'soon'" "cluster.name: 'a b; rm'" "cluster.environment" \
    "cluster.options: expected an option such as --constraint=a100"; do has err "$text"; done
grep -q "bad.yaml:[0-9]*:[0-9]*: cluster.time" err || is "place of a mistake" "$(cat err)" "bad.yaml:LINE:COLUMN"
experiment >none.yaml
run 2 cluster script none.yaml
has err "has no section"
run 2 cluster frobnicate job.yaml
has err "expected script, submit, status, logs, cancel, autoscaler or keys"
run 2 cluster status job.yaml
has err "no job 'result' was submitted from here"

# ---- sbatch that is missing, and one that refuses ----
mkdir bin
printf '#!/bin/sh\necho "sbatch: error: invalid partition" >&2\nexit 1\n' >bin/sbatch
chmod +x bin/sbatch
PATH="$work/bin:$PATH" "$nrl" cluster submit job.yaml >out 2>err
is "exit code of a refused job" $? 1
has err "sbatch failed with exit code 1: sbatch: error: invalid partition"
PATH=/nonexistent "$nrl" cluster submit job.yaml >out 2>err
is "exit code without sbatch" $? 1
has err "cannot start sbatch: No such file or directory"
exit $failed
