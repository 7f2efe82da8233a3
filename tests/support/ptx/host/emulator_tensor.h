/*
 * emulator_tensor.h - like tests/support/cuda/emulator_tensor.h, but the executor of the PTX
 * allocates shared memory. See emulator.h in this directory.
 */
#ifndef SUPPORT_PTX_HOST_EMULATOR_TENSOR_H
#define SUPPORT_PTX_HOST_EMULATOR_TENSOR_H
#define allow_shared emulator_allow_shared
#include "../../cuda/emulator_tensor.h"
#undef allow_shared

template <typename K> static int allow_shared(K kernel, int bytes)
{
    if (bytes <= 48 << 10) return 0;
    return ptx_allow_shared(reinterpret_cast<const void *>(kernel), bytes);
}

#endif
