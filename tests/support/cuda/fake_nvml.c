/*
 * fake_nvml.c - a libnvidia-ml.so.1 that needs no GPU. Its one device, 0000:01:00.0, starts at 100
 * W and uses 100 W more with each query of its power, and 5 J more with each query of its energy.
 * FAKE_NVML lists what it does not support, separated by commas: init handle clock limit
 * temperature power power_limit energy reasons utilization.
 */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_FOUND = 6, NOT_SUPPORTED = 3 };

static int refused(const char *what)
{
    const char *list = getenv("FAKE_NVML");
    size_t n = strlen(what);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && !strncmp(at, what, n)) return NOT_SUPPORTED;
    return SUCCESS;
}

static int answer(const char *what, unsigned *out, unsigned value)
{
    int code = refused(what);
    *out = code ? 0 : value;
    return code;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    return refused("init");
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    static char only;
    *device = &only;
    return strcmp(bus_id, "0000:01:00.0") ? NOT_FOUND : refused("handle");
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz);
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz)
{
    (void)device;
    return answer("clock", mhz, kind == 1 ? 1500 : kind == 2 ? 3200 : 7);
}

int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz)
{
    (void)device;
    return answer("limit", mhz, kind == 1 ? 1980 : 7);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)device;
    return answer("temperature", celsius, sensor == 0 ? 61 : 7);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    static unsigned asked;
    (void)device;
    return answer("power", milliwatts, 100000 * ++asked);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    return answer("power_limit", milliwatts, 700000);
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]);
int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2])
{
    (void)device;
    rates[1] = 7;
    return answer("utilization", rates, 83);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    static unsigned asked;
    (void)device;
    *millijoules = 1000000 + 5000 * ++asked;
    return refused("energy");
}

/* Idle, a power cap and a thermal slowdown by software. Older libraries have this name too. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits)
{
    (void)device;
    *bits = 0x1 | 0x4 | 0x20;
    return refused("reasons");
}
