/*
 * shape_device.h - a device that computes nothing: addresses are handed out and never touched, operations
 * return at once. Shapes never depend on data, so a step on it takes and gives back the memory that a
 * true one would, however large the model is; the context's stats say how much.
 */
#ifndef TENSOR_SHAPE_DEVICE_H
#define TENSOR_SHAPE_DEVICE_H
#include "tensor/device.h"

/* memory_bytes: of the device that it stands for, 0 = a CPU; sizes that follow from it are the same. What
 * is read from it is zero. */
device shape_device(int64_t memory_bytes);

#endif
