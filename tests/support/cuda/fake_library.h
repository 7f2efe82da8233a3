/*
 * fake_library.h - the libraries of the emulated cuda backend: how often the one for matrix products was loaded, and
 * the one for attention, which a test may provide.
 */
#ifndef SUPPORT_CUDA_FAKE_LIBRARY_H
#define SUPPORT_CUDA_FAKE_LIBRARY_H
#include "dnn_library.h"
#include "gemm_library.h"

extern _Atomic int fake_library_loads;

/* Its choices of algorithms are 0, 1, 2, ..., 0 being the first. */
typedef struct {
    int fastest;   /* takes 10 us of fake.seconds, all others 2 ms; -1: none takes any */
    int n_choices; /* 0: as many as are wanted */
    int refused;   /* supports no product; 0: all do */
    size_t version;
    int n_asked, n_plans, last; /* how often it was asked for choices; plans made; choice of the last product */
    int n_questions;            /* n_asked, and plans by its own choice */
    gemm_product asked;         /* about which it was asked for choices last */
} fake_products;
extern fake_products fake_library_products;

extern const dnn_library *fake_dnn_library;

#endif
