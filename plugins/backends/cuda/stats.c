/*
 * stats.c - measurements of the backend for `nrl bench`: launches, memory pool, and the watch's
 * samples.
 */
#include "cuda_backend.h"
#include <math.h>
#include <string.h>

typedef struct {
    nrl_value *values;
    size_t room, n;
} list;

/* Omits unknown values. */
static void put(list *l, const char *name, const char *unit, double value)
{
    if (isfinite(value) && value >= 0 && l->n < l->room) l->values[l->n++] = (nrl_value){name, unit, value};
}

static double mean(const cuda_gauge *g)
{
    return g->n ? g->sum / (double)g->n : NAN;
}

static double least(const cuda_gauge *g)
{
    return g->n ? g->least : NAN;
}

static double most(const cuda_gauge *g)
{
    return g->n ? g->most : NAN;
}

/* Power from the energy counter if there is one: samples may miss what happens between them. */
static void put_samples(list *l, const cuda_watch_stats *f)
{
    static const char *const reasons[NVML_REASONS] = {
        [NVML_POWER_CAP] = "throttled_power_cap_share",
        [NVML_HARDWARE_SLOWDOWN] = "throttled_hardware_share",
        [NVML_SOFTWARE_THERMAL] = "throttled_software_thermal_share",
        [NVML_HARDWARE_THERMAL] = "throttled_hardware_thermal_share",
        [NVML_POWER_BRAKE] = "throttled_power_brake_share",
    };
    double by_energy = f->seconds > 0 ? f->energy_j / f->seconds : NAN;
    put(l, "sm_clock_mean_mhz", "MHz", mean(&f->sm_clock_mhz));
    put(l, "sm_clock_min_mhz", "MHz", least(&f->sm_clock_mhz));
    put(l, "sm_clock_limit_mhz", "MHz", f->sm_clock_limit_mhz);
    put(l, "dram_clock_mean_mhz", "MHz", mean(&f->memory_clock_mhz));
    put(l, "dram_clock_min_mhz", "MHz", least(&f->memory_clock_mhz));
    put(l, "energy_j", "J", f->energy_j);
    put(l, "power_mean_w", "W", isnan(by_energy) ? mean(&f->power_w) : by_energy);
    put(l, "power_max_w", "W", most(&f->power_w));
    put(l, "power_limit_w", "W", f->power_limit_w);
    put(l, "temperature_max_c", "C", most(&f->temperature_c));
    for (int i = 0; i < NVML_REASONS; i++)
        put(l, reasons[i], "1", mean(&f->reasons[i]));
    if (f->sm_clock_mhz.n) put(l, "samples", "1", (double)f->sm_clock_mhz.n);
}

static void put_memory(list *l, const cuda *self)
{
    cuda_pool_stats p;
    size_t free_bytes = 0, total = 0;
    cuda_pool_measure(self->pool, &p);
    put(l, "memory_pool_used_peak_bytes", "bytes", (double)p.used_peak_bytes);
    put(l, "memory_pool_held_peak_bytes", "bytes", (double)p.held_peak_bytes);
    put(l, "memory_pool_held_bytes", "bytes", (double)p.held_bytes);
    put(l, "memory_pool_waiting_bytes", "bytes", (double)p.waiting_bytes);
    size_t workspace = 0;
    for (int i = 0; i <= CUDA_MAX_STREAMS; i++)
        workspace += self->memory[i].scratch_bytes + self->memory[i].workspace_bytes;
    put(l, "memory_workspace_bytes", "bytes", (double)workspace);
    put(l, "memory_fragmentation_share", "1", p.fragmentation);
    if (self->driver->memory_info(&free_bytes, &total) == CUDA_DONE)
        put(l, "memory_free_bytes", "bytes", (double)free_bytes);
}

nrl_status cuda_watch_begin(void *instance)
{
    cuda *self = instance;
    char bus_id[32];
    NRL_TRY(cuda_enter(self));
    bool named = self->driver->bus_id(self->device, bus_id, sizeof bus_id) == CUDA_DONE;
    cuda_watch_start(self->watch, NVML_FILE, named ? bus_id : NULL);
    return NRL_OK;
}

static double utilization(void *instance)
{
    cuda *self = instance;
    char bus_id[32];
    if (!self->nvml_is_tried && self->driver->bus_id(self->device, bus_id, sizeof bus_id) == CUDA_DONE)
        self->nvml = nvml_open(NVML_FILE, bus_id);
    self->nvml_is_tried = true;
    return self->nvml ? nvml_utilization(self->nvml) : NAN;
}

const void *cuda_extension(void *instance, const char *name)
{
    cuda *self = instance;
    if (!strcmp(name, "offload")) return cuda_offload_open(self);
    if (!strcmp(name, "update_decision")) return cuda_decider(self);
    if (strcmp(name, "utilization")) return NULL;
    self->utilization = (nrl_utilization){.size = sizeof self->utilization, .self = self, .read = utilization};
    return &self->utilization;
}

nrl_status cuda_watch_end(void *instance, nrl_value *values, size_t room, size_t *n)
{
    cuda *self = instance;
    cuda_watch_stats f;
    list l = {values, room, 0};
    *n = 0;
    NRL_TRY(cuda_enter(self));
    if (!cuda_watch_stop(self->watch, &f)) return nrl_fail(NRL_ERR_BUG, "the GPU's measurement was not started");
    put(&l, "launches", "1", (double)f.launches);
    put_samples(&l, &f);
    put_memory(&l, self);
    *n = l.n;
    return NRL_OK;
}
