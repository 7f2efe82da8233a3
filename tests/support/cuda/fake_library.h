/*
 * fake_library.h - the attention library of the emulated cuda backend; a test may provide one.
 */
#ifndef SUPPORT_CUDA_FAKE_LIBRARY_H
#define SUPPORT_CUDA_FAKE_LIBRARY_H
#include "dnn_library.h"

extern const dnn_library *fake_dnn_library;

#endif
