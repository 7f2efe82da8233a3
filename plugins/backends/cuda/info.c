/*
 * info.c - whether a GPU can be used, and its properties.
 */
#include "cuda_backend.h"
#include <stdio.h>
#include <string.h>

enum {
    OLDEST = 80,     /* sm_80: bf16 products; PTX serves GPUs newer than the build */
    OLDEST_FP8 = 89, /* sm_89: products of fp8 */
    FP8_BLOCKS = 90  /* cuBLASLt multiplies blocks of 128 on sm_90 alone */
};

static int capability(const cuda_properties *p)
{
    return 10 * p->major + p->minor;
}

nrl_status cuda_check_capability(const cuda_properties *p)
{
    if (capability(p) >= OLDEST) return NRL_OK;
    return nrl_fail(NRL_ERR_DEVICE, "%s is sm_%d; expected sm_%d or newer", p->name, capability(p), OLDEST);
}

nrl_status cuda_probe_driver(const cuda_driver *driver)
{
    int version = 0, runtime = 0, n = 0;
    cuda_properties p;
    if (driver->versions(&version, &runtime) != CUDA_DONE || version == 0)
        return nrl_fail(NRL_ERR_DEVICE, "no NVIDIA driver (libcuda.so.1 not found)");
    if (version / 1000 < runtime / 1000)
        return nrl_fail(NRL_ERR_DEVICE,
                        "the NVIDIA driver is for CUDA %d.%d, and nrl was built with CUDA %d.%d\n"
                        "hint: install a newer driver, or build nrl with that CUDA version",
                        version / 1000, version % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    int code = driver->count(&n);
    if (code) return nrl_fail(NRL_ERR_DEVICE, "cannot use a GPU: %s", driver->error_text(code));
    if (n == 0) return nrl_fail(NRL_ERR_DEVICE, "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)");
    NRL_TRY(cuda_check(driver, driver->properties(0, &p), "reading device properties"));
    return cuda_check_capability(&p);
}

/* Dense peaks of one multiprocessor, FLOP/s, from NVIDIA's data sheets: the peak of a board divided by its
 * number of multiprocessors. A100 SXM: 108 (312 T bf16, 19.5 T f32 and f64). H100 and H200 SXM: 132 (989 T
 * bf16, 67 T f32 and f64). B200 of an HGX board: 148 (2,250 T bf16, 75 T f32, 37 T f64). GeForce RTX 5090:
 * 170 (209.5 T bf16 with f32 sums, 104.8 T f32, 1.64 T f64); workstation boards of sm_120 have another
 * rate. f32 is without TF32. A GPU that is not in the table has no known peak, and a run on it reports no
 * MFU. */
typedef struct {
    int major, minor;
    const char *family; /* part of the name of the boards with these peaks; NULL = all boards of that capability */
    double bf16, f32, f64;
} unit_peak;

static const unit_peak unit_peaks[] = {
    {8, 0, NULL, 312e12 / 108, 19.5e12 / 108, 19.5e12 / 108},
    {9, 0, NULL, 989.4e12 / 132, 66.9e12 / 132, 66.9e12 / 132},
    {10, 0, NULL, 2250e12 / 148, 75e12 / 148, 37e12 / 148},
    {12, 0, "GeForce", 209.5e12 / 170, 104.8e12 / 170, 1.64e12 / 170},
};

static void fill_peaks(const cuda_properties *p, nrl_device_info *fill)
{
    for (size_t i = 0; i < sizeof unit_peaks / sizeof *unit_peaks; i++) {
        const unit_peak *u = &unit_peaks[i];
        if (u->major != p->major || u->minor != p->minor) continue;
        if (u->family && !strstr(p->name, u->family)) continue;
        fill->peak_flops[NRL_DTYPE_BF16] = u->bf16 * p->multiprocessors;
        fill->peak_flops[NRL_DTYPE_F16] = u->bf16 * p->multiprocessors;
        fill->peak_flops[NRL_DTYPE_F32] = u->f32 * p->multiprocessors;
        fill->peak_flops[NRL_DTYPE_F64] = u->f64 * p->multiprocessors;
    }
}

nrl_status cuda_info(void *instance, nrl_device_info *fill)
{
    const cuda *self = instance;
    const cuda_properties *p = &self->properties;
    int version = 0, runtime = 0;
    NRL_TRY(cuda_check(self->driver, self->driver->versions(&version, &runtime), "reading versions"));
    memset(fill, 0, sizeof *fill);
    fill->size = sizeof *fill;
    fill->index = (uint32_t)self->device;
    snprintf(fill->name, sizeof fill->name, "%s", p->name);
    snprintf(fill->isa, sizeof fill->isa, "sm_%d", capability(p));
    snprintf(fill->library, sizeof fill->library, "CUDA %d.%d (driver %d.%d)", runtime / 1000, runtime % 1000 / 10,
             version / 1000, version % 1000 / 10);
    fill->memory_bytes = (int64_t)p->memory_bytes;
    fill->n_threads = p->multiprocessors;
    fill_peaks(p, fill);
    fill->native_bf16 = true;
    fill->host_memory = false;
    fill->has_f16 = fill->bf16_logits = true;
    fill->has_fp8 = capability(p) >= OLDEST_FP8;
    fill->has_fp8_blocks = capability(p) == FP8_BLOCKS;
    return NRL_OK;
}
