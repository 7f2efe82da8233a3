/*
 * device.h - an open backend: its table, its instance, its info.
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

/* Opens an instance and reads its info. `table` is the plugin host's zero-extended copy. */
nrl_status device_open(const nrl_backend *table, const void *options, int32_t index, device *out);
void device_close(device *d);

#endif
