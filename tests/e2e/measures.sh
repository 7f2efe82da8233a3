#!/bin/sh
# measures.sh: `nrl bench` and `nrl profile` report time and memory, and leave no files behind.
. "$(dirname "$0")/e2e.sh"

rows 16 >train.jsonl
experiment >run.yaml

# number KEY: of the JSON in out, the last one of that name
number() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" out; }

run 0 bench run.yaml --steps 3 --json
for key in tokens_per_s mfu step_seconds_median data_fraction parameters weight_bytes optimizer_bytes activation_bytes \
    peak_rss threads; do
    [ -n "$(number $key)" ] || is "$key of the bench" missing there
done
is "measured steps" "$(number steps)" 3
is "bytes of the optimizer, two states of f32" "$(number optimizer_bytes)" "$((2 * $(number weight_bytes)))"
truth "processor time of one thread" 'd.cpu_seconds_a_step > 0 and d.cpu_seconds_a_step < 2 * d.step_seconds_max'
truth "one of six steps is left to look into" 'd.profile.profiled_steps == 1'
truth "phases add up to the step" 'near(sum(d.phases, "seconds_a_step"), d.profile.seconds_a_step)'
truth "operations and the rest add up to the step" 'near(sum(d.ops, "seconds_a_step"), d.profile.seconds_a_step)'
truth "idle is what is not busy" \
    'near(1 - d.profile.busy_seconds_a_step / d.profile.seconds_a_step, d.profile.idle_share)'
truth "phases of a plain step" \
    'all(d.phases, function(p, name) return (p.seconds_a_step > 0) == (name ~= "recompute" and name ~= "reference") end)'
truth "memory adds up" 'd.memory.used_peak_bytes == d.memory.weight_bytes + d.memory.master_bytes + d.memory.gradient_bytes +
    d.memory.optimizer_bytes + d.memory.activation_bytes + d.memory.reference_bytes + d.memory.strategy_bytes'
run 0 bench run.yaml train.offload.optimizer=disk --steps 1 --json
truth "memory without what is elsewhere adds up" 'd.memory.offloaded_bytes == d.memory.optimizer_bytes and
    d.memory.used_peak_bytes == d.memory.weight_bytes + d.memory.gradient_bytes + d.memory.activation_bytes'
run 0 bench run.yaml --steps 3 --json
truth "the pool got what was used" 'd.memory.reserved_peak_bytes >= d.memory.used_peak_bytes'
if [ "$backend" = cpu ]; then
    has out '"launches_a_step": null, "joules_per_token": null'
fi
run 0 bench run.yaml --steps 2
for line in "tokens_per_s " "time by phase" "time by operation" "peak memory" "step" "head"; do has out "$line"; done
run 0 bench run.yaml --steps 4
has out "the config has no steps left"
run 2 bench run.yaml --steps 5
has err "the config has 6 steps, but 2 warm-up steps and 5 measured steps"

run 0 bench run.yaml train.activation_checkpointing=all --steps 2 --json
truth "recompute is a phase" 'd.phases.recompute.seconds_a_step > 0'

run 0 profile run.yaml --steps 2
for operation in gemm attention attention_grad norm glu rope head adamw 'outside operations' 'by operation and phase'; do
    has out "$operation"
done
run 0 profile run.yaml --steps 2 --top 3 --json
has out '"gflop_per_s"'
truth "all steps of a profile are looked into" 'd.profile.profiled_steps == 2'
truth "the longest shapes" '#d.shapes == 3 and all(d.shapes, function(s) return #s.shape == 3 and s.phase end)'
truth "operations by phase add up to those that are not" \
    'near(sum(d.ops_by_phase, "seconds_a_step"), sum(d.ops, "seconds_a_step") - d.ops[#d.ops].seconds_a_step)'
run 2 bench run.yaml --steps 0
has err "--steps"
run 2 profile run.yaml --top x
has err "--top"

# two ranks: one page, with the least and most of both
# rank 1 has the long samples
awk 'BEGIN { for (i = 0; i < 16; i++) { ids = "3"; for (t = 1; t < (i % 2 ? 60 : 8); t++) ids = ids ", " 3 + (i * 31 + t * t * 17) % 90
    print "{\"input_ids\": [" ids "]}" } }' >uneven.jsonl
run 0 launch -n 2 -- bench run.yaml parallel=ddp data.train=uneven.jsonl data.shuffle=false data.packing=false \
    train.micro_batch=1 train.global_batch=2 --steps 2 --json
truth "peak of the rank that used most" 'd.memory.most_used_peak_bytes > d.memory.used_peak_bytes + 100000'
rm uneven.jsonl
run 0 launch -n 2 -- bench run.yaml parallel=ddp --steps 2 --json
truth "phases of all ranks" 'd.ranks == 2 and d.phases.communication.seconds_a_step > 0 and all(d.phases, function(p)
    return p.least_seconds_a_step <= p.seconds_a_step and p.seconds_a_step <= p.most_seconds_a_step end)'

# a reference model is a phase of its own
run 0 bench "$source/configs/dpo.yaml" "$one_thread" out=dpo --steps 2 --json
truth "the reference is a phase" 'd.phases.reference.seconds_a_step > 0 and d.memory.reference_bytes > 0'
is "files beside the config and the data" "$(ls | grep -v -e '^out$' -e '^err$' | tr '\n' ' ')" "run.yaml train.jsonl "
exit $failed
