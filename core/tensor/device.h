/*
 * device.h - one opened backend: its table, its instance, its info.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H
#include <nrl/backend.h>

typedef struct {
    nrl_backend table; /* members the plugin lacks are NULL */
    nrl_ops ops;       /* likewise */
    void *self;
    nrl_device_info info;
} device;

/* `table` is the host's zero-extended copy. Opens the instance and reads its info. */
nrl_status device_open(const nrl_backend *table, const void *options, int32_t index, device *out);
void device_close(device *d);

/* NRL_ERR_PLUGIN listing every op of the NULL-ended list that the backend lacks ("backend 'NAME' has
 * no op 'rope'"); names are members of nrl_ops. Asked when a run is opened. */
nrl_status device_check_ops(const device *d, const char *const *names);

#endif
