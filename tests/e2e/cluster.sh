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
run 0 cluster script job.yaml cluster.type=kubernetes cluster.image=a/b:1 cluster.secret=job
has out "- {name: NRL_JOB_SECRET, valueFrom: {secretKeyRef: {name: job, key: secret}}}"
lacks out "/etc/nrl"
run 0 cluster script job.yaml cluster.type=ray 'cluster.ranks=[4, 8, 16]' cluster.nodes=null cluster.min_nodes=2 cluster.time=null
grep -qF "[4, 8, 16], " out || is "the ranks of the driver" "$(sed -n 3p out)" "[4, 8, 16]"
command -v python3 >dd || echo "skipped: the driver for Ray: no python3"
! command -v python3 >dd || python3 - <out >log 2>&1 <<'END' || is "the driver for Ray" "$(cat log)" "a program of Python"
import ast, signal
program = ast.parse(open("out").read())
program.body = [n for n in program.body if getattr(n, "name", "") == "is_lost" or isinstance(n, ast.Assign) and "JOB" not in ast.dump(n)]
exec(compile(program, "driver", "exec"))
codes = [0, 1, 2, 3, 4, 5, 75, 130, 134, 137, 139, 143]
lost = [code for code in codes if is_lost(code)]
assert lost == [4, 134, 137, 139], lost
END
run 0 cluster autoscaler job.yaml cluster.type=ray 'cluster.provider={type: aws, region: us-west-2, machine: p4d.24xlarge, head_machine: m5.large}'
for line in "max_workers: 2" 'region: "us-west-2"' 'node_config: {InstanceType: "m5.large"}' '  - "module load cuda"'; do has out "$line"; done
run 2 cluster autoscaler job.yaml cluster.type=ray
has err "cluster.provider: required"
run 2 cluster script job.yaml cluster.type=ray 'cluster.ranks=[0, 2]' 'cluster.provider={type: aws, region: 3}' 'cluster.resources={A100: none}'
for text in "cluster.ranks: not together with nodes" "cluster.ranks: expected numbers" "cluster.provider.machine: required for aws" \
    "cluster.provider.region: required" "cluster.resources: expected numbers above 0"; do has err "$text"; done
# sbatch takes a value with blanks as one word only in double quotes
run 0 cluster script job.yaml cluster.directory="/data/my runs" cluster.logs="/data/logs #1"
has out '#SBATCH --chdir="/data/my runs"'
has out '#SBATCH --output="/data/logs #1/result-%j.log"'
has out "#SBATCH --partition=gpu"
run 2 cluster script job.yaml 'cluster.directory=/a"b' 'cluster.partition=a\b' 'cluster.logs=c"d'
for text in "cluster.directory: '/a\"b'; expected a value for sbatch without double quotes" "cluster.partition: 'a\\b'" \
    "cluster.logs: '$work/c\"d'"; do has err "$text"; done
run 0 cluster script job.yaml cluster.type=kubernetes cluster.image=a/b:1 'cluster.directory=/a"b'
mkdir 'q"q'
(cd 'q"q' && "$nrl" cluster script ../job.yaml >../out 2>../err)
is "exit code in a directory that sbatch cannot have" $? 2
has err "cluster.directory: '$work/q\"q'"
# ---- machines of several sizes and groups: components of a job of Slurm, a JobSet, bundles of Ray ----
cat >groups.yaml <<YAML
$(experiment)
cluster:
  gpus_per_node: 1
  cpus_per_rank: 2
  time: 60
  groups:
    judge: {nodes: 2, ranks_per_node: 3, gpus_per_node: 0, partition: cpu, command: "serve-it --port 8000 'a b'"}
    trainer: {ranks: [4, 8, 8, 16], memory: 200G, partition: gpu}
YAML
run 0 check groups.yaml
run 0 cluster script groups.yaml
sed -n 's/^#SBATCH //p' out | awk '/^hetjob$/ { n++ } /^--(nodes|ntasks|cpus|gpus|mem|part|time)/ { line[n + 0] = line[n + 0] $0 " " }
    END { for (i = 0; i <= n; i++) print line[i] }' >components
cat >expected <<'END'
--nodes=1 --ntasks-per-node=4 --cpus-per-task=2 --gpus-per-node=4 --mem=200G --time=60 --partition=gpu 
--nodes=2 --ntasks-per-node=8 --cpus-per-task=2 --gpus-per-node=8 --mem=200G --time=60 --partition=gpu 
--nodes=1 --ntasks-per-node=16 --cpus-per-task=2 --gpus-per-node=16 --mem=200G --time=60 --partition=gpu 
--nodes=2 --ntasks-per-node=1 --cpus-per-task=6 --time=60 --partition=cpu 
END
cmp -s components expected || is "components of a job" "$(cat components)" "$(cat expected)"
has out "NRL_GROUP=judge srun --het-group=3 sh -c 'serve-it --port 8000 '\\''a b'\\''' &"
has out "NRL_GROUP=trainer srun --kill-on-bad-exit=0 --wait=120 --het-group=0,1,2 --cpus-per-task=2 "
sh -n out || is "the script" malformed "a script of sh"
run 0 cluster script job.yaml 'cluster.groups={learner: {memory: 200G}}'
lacks out "het"
has out "#SBATCH --mem=200G"
has out "#SBATCH --nodes=2"
has out "NRL_GROUP=learner srun --kill-on-bad-exit=0 --wait=120 "
run 0 cluster script groups.yaml cluster.type=kubernetes cluster.image=a/b:1 cluster.groups.judge.image=c/d:2
for text in "kind: JobSet" "targetReplicatedJobs: [trainer-0, trainer-1, trainer-2]" "name: judge" "c/d:2" "value: judge" "nvidia.com/gpu: 16" \
    "result-trainer-0-0-0.result:4,result-trainer-1-0-0.result:8,result-trainer-1-0-1.result:8,result-trainer-2-0-0.result:16" \
    'JOB_COMPLETION_INDEX + 3))'; do has out "$text"; done
run 0 cluster script groups.yaml cluster.type=ray
has out '\"ranks\": [4, 8, 8, 16], \"gpus\": 1, \"cpus_per_rank\": 2'
has out '{\"name\": \"judge\", \"ranks\": [3, 3], \"gpus\": 0'
provider='cluster.provider={type: aws, region: us-west-2, machine: p4d.24xlarge}'
run 0 cluster autoscaler groups.yaml cluster.type=ray "$provider" cluster.groups.judge.machine=m5.large
for text in "max_workers: 6" "  judge:" "  trainer:" 'InstanceType: "m5.large"'; do has out "$text"; done
run 0 cluster script groups.yaml cluster.group=judge cluster.groups.judge.command=null cluster.groups.trainer.command=wait-here
has out "NRL_GROUP=judge srun --kill-on-bad-exit=0 --wait=120 --het-group=0 "
run 2 cluster script groups.yaml cluster.group=other 'cluster.groups.A_b={nodes: 0, time: 3, command: x}' cluster.groups.trainer.command=x \
    cluster.groups.judge.command=null
for text in "cluster.group: there is no group 'other'" "cluster.groups.A_b: expected a name of at most 20 letters" \
    "cluster.groups.A_b.nodes: expected a whole" "cluster.groups.A_b.time: unknown key" \
    "cluster.groups.judge.command: required: the command that its machines run while 'other' trains"; do has err "$text"; done
run 2 cluster script groups.yaml cluster.groups.trainer.command=x cluster.groups.trainer.nodes=2
has err "cluster.groups.trainer.command: the group that trains runs"
has err "cluster.groups.trainer.ranks: not together with nodes"
run 2 cluster script groups.yaml 'cluster.groups.judge=[{nodes: 2}, {nodes: 3}]'
has err "cluster.groups.judge: expected a map"
run 2 cluster script groups.yaml cluster.groups=null cluster.group=trainer
has err "cluster.group: there are no groups"
run 0 cluster keys
has out "save_before"
has out "groups.NAME"

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
has err "no job 'result' was submitted from this directory"

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

# ---- files of the user in the place of those of a job ----
printf '#!/bin/sh\necho 7\n' >bin/sbatch
PATH="$work/bin:$PATH" "$nrl" cluster submit job.yaml >out 2>err
is "exit code where an earlier script is replaced" $? 0
has jobs/result.json '"job": "7"'
PATH="$work/bin:$PATH" "$nrl" cluster submit job.yaml cluster.name=other 'name=a b' >out 2>err
has out "nrl cluster status job.yaml cluster.name=other 'name=a b'"

# ---- a job that runs in another directory: its script, its record and its output stay here ----
mkdir elsewhere
PATH="$work/bin:$PATH" "$nrl" cluster submit job.yaml cluster.name=far cluster.directory="$work/elsewhere" >out 2>err
is "exit code of a job in another directory" $? 0
has jobs/far.sh "#SBATCH --chdir=$work/elsewhere"
has jobs/far.sh "#SBATCH --output=$work/jobs/far-%j.log"
echo 'step 1' >jobs/far-7.log
run 0 cluster logs job.yaml cluster.name=far cluster.directory="$work/elsewhere"
has out "step 1"
run 0 cluster script job.yaml cluster.type=ray cluster.directory="$work/elsewhere"
has out "$work/jobs/result.state.json"

# ---- kubectl ----
printf '#!/bin/sh\necho "$*" >>calls.txt\n[ "$1" != get ] || echo "2,,"\n' >bin/kubectl
chmod +x bin/kubectl
sed 's/cluster: {/cluster: {type: kubernetes, image: "a:1", name: pods, /' job.yaml >pods.yaml
for words in "submit pods.yaml" "status pods.yaml" "logs pods.yaml cluster.namespace=ours --follow"; do
    PATH="$work/bin:$PATH" "$nrl" cluster $words >out 2>err
    is "exit code of $words" $? 0
    cat out >>printed.txt
done
has printed.txt "job pods: active 2, succeeded 0, failed 0"
has calls.txt "-f --max-log-requests=8 -n ours"
lacks calls.txt "-n default"
mkdir own && cp job.yaml own/result.sh && cp train.jsonl own/other.json
for name in result other; do
    PATH="$work/bin:$PATH" "$nrl" cluster submit job.yaml cluster.logs=own cluster.name=$name >out 2>err
    is "exit code where the user has a file of the job $name" $? 2
    has err "exists, and \`nrl cluster\` did not write it"
done
cmp own/result.sh job.yaml && cmp own/other.json train.jsonl || is "the user's files" replaced kept
exit $failed
