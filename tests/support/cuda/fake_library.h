/*
 * fake_library.h - the library of attention that the emulated cuda backend finds: a test may give one.
 */
#ifndef SUPPORT_CUDA_FAKE_LIBRARY_H
#define SUPPORT_CUDA_FAKE_LIBRARY_H
#include "dnn_library.h"

extern const dnn_library *fake_dnn_library;

#endif
