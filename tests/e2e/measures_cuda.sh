#!/bin/sh
# measures_cuda.sh: `nrl bench` on the emulated GPU: events, launches, the pool of the device, and the values of NVML
# if it has any.
. "$(dirname "$0")/e2e.sh"

emulated_cuda || exit 77

rows 8 >train.jsonl
experiment >run.yaml
small="backend=cuda train.global_batch=1 train.micro_batch_tokens=64"

LD_LIBRARY_PATH=$NRL_TEST_BUILD/tests/nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
    run 0 bench run.yaml $small --steps 1 --json
truth "times are the device's" 'd.profile.clock == "the device\x27s events" and d.device == "emulated GPU"'
truth "phases add up to the step" 'near(sum(d.phases, "seconds_a_step"), d.profile.seconds_a_step)'
truth "operations and the rest add up to the step; what the host does meanwhile is extra" \
    'near(sum(d.ops, "seconds_a_step") - sum(d.ops, "seconds_a_step", "on_host"), d.profile.seconds_a_step)'
truth "some of the step is idle, most is not" 'd.profile.idle_share > 0 and d.profile.idle_share < 0.5'
truth "launches" 'd.launches_a_step > 50 and d.launches_a_step == d.device_stats.launches'
truth "clocks" 'd.device_stats.sm_clock_mean_mhz == 1500 and d.device_stats.dram_clock_min_mhz == 3200 and
    d.device_stats.sm_clock_limit_mhz == 1980'
truth "power and what it costs" 'd.device_stats.energy_j == 5 and d.joules_per_token > 0 and d.device_stats.power_mean_w > 0'
truth "reasons for low clocks" 'd.device_stats.throttled_power_cap_share == 1 and d.device_stats.throttled_hardware_share == 0'
truth "the device's pool by kind" 'd.memory.pool_held_peak_bytes >= d.memory.pool_used_peak_bytes and
    d.memory.pool_used_peak_bytes >= d.memory.used_peak_bytes and d.memory.workspace_bytes >= 2^25 and
    d.memory.fragmentation_share < 1'

FAKE_NVML=power,energy LD_LIBRARY_PATH=$NRL_TEST_BUILD/tests/nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
    run 0 bench run.yaml $small --steps 1 --json
has out '"joules_per_token": null'
truth "a machine that hides power" 'not d.device_stats.power_mean_w and d.device_stats.sm_clock_mean_mhz == 1500'

# records: the share of time in which kernels ran
LD_LIBRARY_PATH=$NRL_TEST_BUILD/tests/nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
    run 0 run run.yaml $small train.steps=2 checkpoint.every=0 out=busy
is "records with the use of the device" "$(grep -c '"device_percent": 83' busy/metrics.jsonl)" 1
FAKE_NVML=utilization LD_LIBRARY_PATH=$NRL_TEST_BUILD/tests/nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
    run 0 run run.yaml $small train.steps=2 checkpoint.every=0 out=hidden
lacks hidden/metrics.jsonl device_percent

FAKE_NVML=init run 0 bench run.yaml $small --steps 1
has out "launches_a_step"
lacks out "sm_clock"
has out "joules_per_token                        unknown"
exit $failed
