/*
 * nvml_library.c - NVML through dlopen, without its header: the declarations and values of the
 * enumerations are repeated here.
 */
#include "nvml_library.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0 };

/* Each call returns a code, 0 for success. */
typedef int (*call_plain)(void);
typedef int (*call_handle)(const char *bus_id, void **device);
typedef int (*call_u32)(void *device, unsigned *value);
typedef int (*call_kind)(void *device, int kind, unsigned *value);
typedef int (*call_u64)(void *device, unsigned long long *value);
typedef struct {
    unsigned gpu, memory; /* per cent of time in which kernels ran; in which memory was read or written */
} rates;
typedef int (*call_rates)(void *device, rates *value);

struct nvml {
    void *file, *device;
    call_plain shutdown;
    call_kind clock, clock_limit, temperature; /* any may be NULL: an older library */
    call_u32 power, power_limit;
    call_u64 energy, reasons;
    call_rates utilization;
};

static const unsigned long long reason_bits[NVML_REASONS] = {
    [NVML_POWER_CAP] = 0x4,         [NVML_HARDWARE_SLOWDOWN] = 0x8, [NVML_SOFTWARE_THERMAL] = 0x20,
    [NVML_HARDWARE_THERMAL] = 0x40, [NVML_POWER_BRAKE] = 0x80,
};

#define FIND(call, name) (*(void **)&(call) = dlsym(n->file, (name)))

static void find_calls(nvml *n)
{
    FIND(n->clock, "nvmlDeviceGetClockInfo");
    FIND(n->clock_limit, "nvmlDeviceGetMaxClockInfo");
    FIND(n->temperature, "nvmlDeviceGetTemperature");
    FIND(n->power, "nvmlDeviceGetPowerUsage");
    FIND(n->power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    FIND(n->utilization, "nvmlDeviceGetUtilizationRates");
    FIND(n->energy, "nvmlDeviceGetTotalEnergyConsumption");
    if (!FIND(n->reasons, "nvmlDeviceGetCurrentClocksEventReasons"))
        FIND(n->reasons, "nvmlDeviceGetCurrentClocksThrottleReasons"); /* the name before driver 535 */
}

static int start(nvml *n, const char *bus_id)
{
    call_plain init;
    call_handle handle;
    if (!FIND(init, "nvmlInit_v2") || !FIND(handle, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !FIND(n->shutdown, "nvmlShutdown"))
        return -1;
    int code = init();
    if (code != SUCCESS) return code;
    code = handle(bus_id, &n->device);
    if (code != SUCCESS) (void)n->shutdown();
    return code;
}

nvml *nvml_open(const char *file, const char *bus_id)
{
    nvml *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    n->file = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (n->file && start(n, bus_id) == SUCCESS) {
        find_calls(n);
        return n;
    }
    if (n->file) (void)dlclose(n->file);
    free(n);
    return NULL;
}

void nvml_close(nvml *n)
{
    if (!n) return;
    (void)n->shutdown();
    (void)dlclose(n->file);
    free(n);
}

static double ask(const nvml *n, call_u32 call)
{
    unsigned value = 0;
    return call && call(n->device, &value) == SUCCESS ? (double)value : NAN;
}

static double ask_kind(const nvml *n, call_kind call, int kind)
{
    unsigned value = 0;
    return call && call(n->device, kind, &value) == SUCCESS ? (double)value : NAN;
}

void nvml_read(const nvml *n, nvml_sample *fill)
{
    unsigned long long bits = 0;
    int told = n->reasons && n->reasons(n->device, &bits) == SUCCESS;
    *fill = (nvml_sample){.sm_clock_mhz = ask_kind(n, n->clock, CLOCK_SM),
                          .memory_clock_mhz = ask_kind(n, n->clock, CLOCK_MEMORY),
                          .power_w = ask(n, n->power) * 1e-3,
                          .temperature_c = ask_kind(n, n->temperature, TEMPERATURE_GPU)};
    for (int i = 0; i < NVML_REASONS; i++)
        fill->reasons[i] = told ? (bits & reason_bits[i]) != 0 : NAN;
}

double nvml_utilization(const nvml *n)
{
    rates r = {0};
    return n->utilization && n->utilization(n->device, &r) == SUCCESS ? 1e-2 * r.gpu : NAN;
}

double nvml_energy_j(const nvml *n)
{
    unsigned long long millijoules = 0;
    return n->energy && n->energy(n->device, &millijoules) == SUCCESS ? 1e-3 * (double)millijoules : NAN;
}

double nvml_sm_clock_limit_mhz(const nvml *n)
{
    return ask_kind(n, n->clock_limit, CLOCK_SM);
}

double nvml_power_limit_w(const nvml *n)
{
    return ask(n, n->power_limit) * 1e-3;
}
