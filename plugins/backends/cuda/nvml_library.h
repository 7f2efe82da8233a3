/*
 * nvml_library.h - the queries that nrl makes to NVIDIA's management library, which the driver
 * installs and which is opened by its file name. Each query may fail on its own: virtual GPUs hide
 * power, older GPUs energy. [any]
 */
#ifndef CUDA_NVML_LIBRARY_H
#define CUDA_NVML_LIBRARY_H
#ifdef __cplusplus
extern "C" {
#endif

#define NVML_FILE "libnvidia-ml.so.1"

/* Reasons for lowered clocks. */
enum {
    NVML_POWER_CAP = 0,
    NVML_HARDWARE_SLOWDOWN,
    NVML_SOFTWARE_THERMAL,
    NVML_HARDWARE_THERMAL,
    NVML_POWER_BRAKE,
    NVML_REASONS
};

/* NAN: not available. */
typedef struct {
    double sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
    double reasons[NVML_REASONS]; /* 1 or 0 */
} nvml_sample;

typedef struct nvml nvml;
nvml *nvml_open(const char *file, const char *bus_id); /* NULL: no such library, or it does not know the device */
void nvml_close(nvml *n);                              /* NULL is allowed */
void nvml_read(const nvml *n, nvml_sample *fill);
double nvml_utilization(const nvml *n); /* 0 to 1, of the last sampling period; NAN */
double nvml_energy_j(const nvml *n);    /* since the driver was loaded; NAN */
double nvml_sm_clock_limit_mhz(const nvml *n);
double nvml_power_limit_w(const nvml *n);

#ifdef __cplusplus
}
#endif
#endif
