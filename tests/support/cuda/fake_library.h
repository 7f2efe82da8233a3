/*
 * fake_library.h - the libraries of the emulated cuda backend: how often the one for matrix products was loaded, and
 * the one for attention, which a test may provide.
 */
#ifndef SUPPORT_CUDA_FAKE_LIBRARY_H
#define SUPPORT_CUDA_FAKE_LIBRARY_H
#include "dnn_library.h"

extern _Atomic int fake_library_loads;
extern const dnn_library *fake_dnn_library;

#endif
