/*
 * shape_device.h - a device that computes nothing: it returns addresses that are never accessed, and operations return
 * at once. Shapes do not depend on data, so a step allocates and frees the same memory as on a real device, however
 * large the model is. The context's stats give the amount.
 */
#ifndef TENSOR_SHAPE_DEVICE_H
#define TENSOR_SHAPE_DEVICE_H
#include "tensor/device/device.h"

/* Of a GPU: enough for the sizes that follow from it to be those of large ones. */
#define SHAPE_DEVICE_BYTES ((int64_t)128 << 30)

/* memory_bytes: the memory of the device that is simulated, 0 = a CPU; sizes that depend on the memory are the same.
 * It has the operations of the backend `of`, and those of `delegate` (NULL = none). Reads return zeros. */
device shape_device(int64_t memory_bytes, const nrl_backend *of, const nrl_backend *delegate);

#endif
