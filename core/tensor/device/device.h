/*
 * device.h - an open backend: its table, its instance, its info.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H
#include <nrl/backend.h>

typedef struct device {
    nrl_backend table; /* members the plugin lacks are NULL */
    nrl_ops ops;       /* likewise */
    void *self;
    nrl_device_info info;
    struct device *delegate; /* computes the operations that ops lacks; NULL = none */
    bool is_shapes;          /* computes nothing, see shape_device.h */
    bool lacked;             /* an operation was called that the device does not have */
} device;

/* Opens an instance and reads its info. `table` is the plugin host's zero-extended copy. */
nrl_status device_open(const nrl_backend *table, const void *options, int32_t index, device *out);
/* Opens the backend to which `d` delegates the operations that it lacks (nrl_backend.delegate). NRL_ERR_PLUGIN if the
 * two do not share memory. */
nrl_status device_open_delegate(device *d, const nrl_backend *table, const void *options);
void device_close(device *d);
/* The table of operations as large as this core knows it. */
nrl_ops device_known_ops(const nrl_backend *table);
/* The bits of nrl_attention_feature that neither backend computes; delegate NULL = none. */
uint32_t device_attention_lacks(const nrl_backend *table, const nrl_backend *delegate);

#endif
