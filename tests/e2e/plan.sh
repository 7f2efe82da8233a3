#!/bin/sh
# plan.sh: `nrl plan` lists settings with memory and time, and chooses another one if there is less memory; its memory is
# that of a run; the config that it writes passes `nrl check` and trains; mistakes end it with their text.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

rows 64 >train.jsonl
experiment >config.yaml
set -- plan config.yaml train.global_batch=32

run 0 "$@"
has out "settings"
has out "chosen     micro_batch_tokens="
has out "memory     weights"
is "files of a plan" "$(ls -d result 2>dd)" ""

# memory by kind, and the sum
run 0 "$@" --json --save-machine measured.json
truth "candidates" '#d.candidates >= 2 and all(d.candidates, function(c) return c.fits and c.step_seconds > 0 and
    c.tokens_per_s > 0 and c.total_bytes >= c.used_peak_bytes and c.used_peak_bytes > c.weight_bytes + c.gradient_bytes end)'
truth "the fastest is chosen" 'all(d.candidates, function(c) return c.tokens_per_s <= d.candidates[d.chosen + 1].tokens_per_s end)'
truth "larger micro-batches need more" 'd.candidates[1].total_bytes <= d.candidates[#d.candidates].total_bytes'
truth "the machine" 'd.machine.processors > 0 and d.machine.threads == 1'

# the prediction of the config alone, compared with what a run takes
run 0 "$@" --as-is --json --machine measured.json
predicted=$(sed -n 's/.*"used_peak_bytes": *\([0-9]*\).*/\1/p' out)
run 0 bench config.yaml train.global_batch=32 train.steps=10 train.epochs=0 --steps 1 --json
measured=$(sed 's/.*"used_peak_bytes": *\([0-9]*\).*/\1/' out)
awk -v p="$predicted" -v m="$measured" 'BEGIN { exit !(p / m > 0.95 && p / m < 1.05) }' ||
    is "peak memory within 5 %" "$predicted" "$measured"

# less memory: recomputation, then offload, then nothing
run 0 "$@" --keep train.micro_batch_tokens --json --machine measured.json
most=$(sed -n 's/.*"total_bytes": *\([0-9]*\).*/\1/p' out)
run 0 "$@" --keep train.micro_batch_tokens --memory $((most - 1))
has out ": needs "
has out "activation_checkpointing={ratio: 0.5}"
run 0 "$@" --keep train.micro_batch_tokens --keep train.activation_checkpointing --try train.offload.optimizer=disk --json \
    --machine measured.json
truth "memory by kind adds up to the peak, without what offload keeps elsewhere" '#d.candidates == 2 and
    d.candidates[2].offloaded_bytes == d.candidates[1].optimizer_bytes and all(d.candidates, function(c)
    return c.weight_bytes + c.master_bytes + c.gradient_bytes + c.optimizer_bytes + c.strategy_bytes + c.activation_bytes -
    c.offloaded_bytes == c.used_peak_bytes end)'
run 0 "$@" --keep train.micro_batch_tokens --keep train.activation_checkpointing train.offload.optimizer=disk --machine measured.json
has out "of offloaded data"
# a size that needs too much is the last one
run 6 "$@" --memory 1KiB --machine measured.json
is "sizes of micro-batches that need too much" "$(grep -c 'micro_batch_tokens=512' out)" 0
run 6 "$@" --memory 100KiB --machine measured.json
has err "no setting fits: needs"
has err "hint: \`nrl plan FILE --try train.precision=bf16"

# ranks
run 0 "$@" --ranks 2 --write two.yaml --save-machine machine.json
has out "parallel=ddp"
has out "parallel=fsdp"
has out "parallel={pipeline: 2}"
# what is refused whatever its size is shown for two sizes
is "refusals of a strategy" "$(grep -c 'parallel={experts: 2}.*no experts' out)" 2
run 0 launch -n 2 -- check two.yaml
run 0 launch -n 2 -- run two.yaml
has two.yaml "micro_batch_tokens:"
run 0 "$@" --ranks 2 --machine machine.json --json
truth "from a file nothing is measured" 'd.machine.measured_seconds == 0 and d.candidates[d.chosen + 1].tokens_per_s > 0'
run 0 "$@" --ranks 2 --machine machine.json --try algorithm=dpo --as-is
has out "algorithm=dpo: train.jsonl:1: a row of single samples"
# a file with another strategy and recomputation, in another directory, and a path on the command line
mkdir elsewhere written
sed "s|data: {train: train.jsonl|data: {train: none.jsonl|" config.yaml >elsewhere/run.yaml
echo 'parallel: {name: fsdp, shard: grads}' >>elsewhere/run.yaml
echo 'cluster: {name: kept}' >>elsewhere/run.yaml
run 0 plan elsewhere/run.yaml data.train=train.jsonl train.activation_checkpointing='{ratio: 0.5}' --ranks 2 --as-is \
    'parallel={data: ddp, tensor: 2}' --write written/as-is.yaml
run 0 check written/as-is.yaml out=other
has written/as-is.yaml "$work/train.jsonl"
has written/as-is.yaml "ratio: 0.5"
has written/as-is.yaml "name: kept"
lacks written/as-is.yaml "fsdp"
run 0 "$@" --write one.yaml --target-tokens-per-s 1 --machine measured.json
run 0 check one.yaml out=other
run 0 "$@" --try train.precision=bf16 --keep train.micro_batch_tokens --json
truth "precisions" '#d.candidates == 2 and d.candidates[2].keys["train.precision"] == "bf16" and
    d.candidates[2].weight_bytes < d.candidates[1].weight_bytes'

# many micro-batches through stages: messages that have left are not counted. How many are on their way depends on the ranks.
rows 256 >many.jsonl
set -- config.yaml data.train=many.jsonl train.global_batch=256 'parallel={pipeline: 2}' train.micro_batch_tokens=64
run 0 plan "$@" --ranks 2 --as-is --json --memory 1GiB
predicted=$(sed -n 's/.*"used_peak_bytes": *\([0-9]*\).*/\1/p' out)
run 0 launch -n 2 -- bench "$@" train.steps=4 train.epochs=0 --steps 1 --json
measured=$(sed 's/.*"most_used_peak_bytes": *\([0-9]*\).*/\1/' out)
awk -v p="$predicted" -v m="$measured" 'BEGIN { exit !(p / m > 0.9 && p / m < 1.1) }' ||
    is "peak memory of stages within 10 %" "$predicted" "$measured"

# what only a run does
run 0 plan config.yaml --as-is --machine measured.json debug.every=1 eval.every=2 checkpoint.metric=eval_exact_match \
    'eval.samples={prompts: [{prompt: "1 + 1 =", answer: "2"}]}'
has out "(the config)"

# mistakes
set -- plan config.yaml train.global_batch=32
run 2 "$@" --target-tokens-per-s 1e12 --machine measured.json
has err "no setting reaches 1e+12 tokens/s"
run 2 "$@" --write two.yaml
has err "two.yaml exists"
run 2 "$@" --memory much
has err "--memory: expected a size such as 16GiB"
run 2 "$@" --ranks none
has err "--ranks: 'none': expected a number from 1"
run 2 "$@" --try precision
has err "'precision' is not a value to try; expected KEY=VALUE"
run 2 "$@" train.seeed=1
has err "train.seeed"
echo '{"format": 1, "threads": 1, "processors": 1, "calls": [{"call": "gemm"}]}' >wrong.json
run 2 "$@" --machine wrong.json
has err "wrong.json: calls[0]: expected {call, dims"
for sample in '"dims": [1e300, 0, 0], "seconds": 1' '"dims": [-1, 0, 0], "seconds": 1'; do
    echo "{\"format\": 1, \"threads\": 1, \"processors\": 1, \"calls\": [{\"call\": \"gemm\", $sample}]}" >wrong.json
    run 2 "$@" --machine wrong.json
    has err "wrong.json: calls[0]: expected {call, dims"
done
echo '{}' >wrong.json
run 2 "$@" --machine wrong.json
has err "expected a file of \`nrl plan --save-machine\`"
run 2 plan
exit $failed
