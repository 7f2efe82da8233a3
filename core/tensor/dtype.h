/*
 * dtype.h - what the core itself does with single elements on the host.
 */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H
#include <nrl/tensor.h>

double dtype_to_double(nrl_dtype dtype, const void *element);

#endif
