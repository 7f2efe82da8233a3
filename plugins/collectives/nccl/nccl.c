/*
 * nccl.c - the plugin's table: exchanges between NVIDIA GPUs through NCCL, which is opened by name.
 * The README in this folder lists what was tested.
 */
#include "group.h"
#include <nrl/nrl.h>

/* Rings over NVLink and InfiniBand approach their bandwidth from about 100 MiB on. Megatron-LM sums 40 million
 * gradients (153 MiB) in a call. */
enum { BUCKET_BYTES = 128 << 20 };

static const nrl_option nccl_rows[] = {
    NRL_OPT_F64(nccl_options, timeout, "120", 1, 1e6, "seconds that NCCL may take to start a call or to form a group"),
    NRL_OPT_INT(nccl_options, device, "-1", -1, 1023, "device number, as for the backend; -1: the local rank"),
    NRL_OPT_INT(nccl_options, max_ctas, "0", 0, 64,
                "maximum number of blocks of a call, each of which occupies a multiprocessor; 0: NCCL chooses"),
    NRL_OPT_INT(nccl_options, message_ctas, "4", 0, 64,
                "the same for messages between pipeline stages, which wait for the other stage while kernels run"),
    NRL_OPT_BOOL(nccl_options, register_buffers, "true",
                 "allocate the tensors that strategies exchange with NCCL and register them, so that calls copy less "
                 "and use fewer multiprocessors if the hardware supports it; requires NCCL 2.19"),
};

static nrl_status nccl_probe(void)
{
    nccl_api api;
    nccl_driver driver;
    return nccl_library(&api, &driver);
}

static nrl_status nccl_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                            void **self)
{
    nccl_api api;
    nccl_driver driver;
    *self = NULL;
    NRL_TRY(nccl_library(&api, &driver));
    return nccl_open_with(&api, &driver, options, store, rank, world, timeout_s, self);
}

#define NCCL_ENTRY(name) .name = nccl_##name,
static const nrl_collective nccl = {
    NRL_PLUGIN(NRL_KIND_COLLECTIVE, nrl_collective, nccl_options, nccl_rows, "nccl", "0.1",
               "NVIDIA GPUs, through NCCL"),
    .by_order = true,
    .host_only = false,
    .probe = nccl_probe,
    .open = nccl_open,
    .split = nccl_split,
    .close = nccl_close,
    .abort = nccl_abort,
    NCCL_OPERATIONS(NCCL_ENTRY).wait = nccl_wait,
    .fence = nccl_fence,
    .release = nccl_release,
    .failed_peer = nccl_failed_peer,
    .info = nccl_info,
    .connect = nccl_connect,
    .bucket_bytes = BUCKET_BYTES,
    .alloc = nccl_alloc,
};
NRL_EXPORT(nccl)
