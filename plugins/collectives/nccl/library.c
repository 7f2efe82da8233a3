/*
 * library.c - opens libnccl.so.2 and libcuda.so.1 by name. A build needs neither.
 */
#include "group.h"
#include <dlfcn.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
_Static_assert((int)ncclInProgress == NCCL_IN_PROGRESS, "NCCL's codes");
_Static_assert((int)ncclProd == NCCL_PRODUCT && (int)ncclMax == NCCL_MAX && (int)ncclMin == NCCL_MIN &&
                   (int)ncclAvg == NCCL_AVERAGE,
               "NCCL's reductions");
_Static_assert((int)ncclUint8 == NCCL_U8 && (int)ncclInt32 == NCCL_I32 && (int)ncclInt64 == NCCL_I64 &&
                   (int)ncclFloat16 == NCCL_F16 && (int)ncclFloat32 == NCCL_F32 && (int)ncclFloat64 == NCCL_F64 &&
                   (int)ncclBfloat16 == NCCL_BF16,
               "NCCL's types");
_Static_assert(sizeof(ncclUniqueId) == sizeof(nccl_id), "NCCL's id");
_Static_assert(offsetof(ncclConfig_t, blocking) == offsetof(nccl_config, blocking) &&
                   offsetof(ncclConfig_t, netName) == offsetof(nccl_config, net_name) &&
                   offsetof(ncclConfig_t, splitShare) == offsetof(nccl_config, split_share),
               "NCCL's config");
#endif

static nrl_status open_file(const char *name, const char *hint, void **out)
{
    *out = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (*out) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "nccl: cannot open %s: %s\nhint: %s", name, dlerror(), hint);
}

static nrl_status find(void *file, const char *symbol, void *fill)
{
    *(void **)fill = dlsym(file, symbol);
    if (*(void **)fill) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "the library has no %s; expected NCCL 2.18 or later", symbol);
}

#define FIND_NCCL(member, symbol, arguments) NRL_TRY(find(nccl, "nccl" #symbol, &api->member));
#define FIND_BUFFER(member, symbol, arguments) *(void **)&api->member = dlsym(nccl, "nccl" #symbol);
#define FIND_DRIVER(member, symbol, arguments) NRL_TRY(find(cuda, #symbol, &driver->member));

nrl_status nccl_library(nccl_api *api, nccl_driver *driver)
{
    void *nccl, *cuda;
    NRL_TRY(open_file("libcuda.so.1", "the NVIDIA driver installs it; `collective: gloo` works without it", &cuda));
    NRL_TRY(
        open_file("libnccl.so.2", "add its directory to LD_LIBRARY_PATH; `collective: gloo` works without it", &nccl));
    NCCL_CALLS(FIND_NCCL)
    NCCL_BUFFER_CALLS(FIND_BUFFER)
    DRIVER_CALLS(FIND_DRIVER)
    NRL_TRY(find(nccl, "ncclGetErrorString", &api->error_text));
    return find(nccl, "ncclGetLastError", &api->last_error);
}
