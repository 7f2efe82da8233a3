/*
 * combine.h - arithmetic on received data: out = local (op) received, element by element, and the
 * division of an average. Compiled once per instruction set (see CMakeLists.txt); all sets give the
 * same bits. pair_read.c calls it on a window that is still in cache.
 */
#ifndef GLOO_COMBINE_H
#define GLOO_COMBINE_H
#include <stddef.h>
#include <stdint.h>

/* out may equal local; received is apart. n elements; nothing needs to be aligned but to its type.
 */
typedef void gloo_combine(void *out, const void *local, const void *received, size_t n);
typedef void gloo_divide(void *data, size_t n, double by);

enum { COMBINE_DTYPES = 8, COMBINE_OPS = 6 }; /* indexed by nrl_dtype and nrl_reduce_op */

typedef struct {
    gloo_combine *combine[COMBINE_DTYPES][COMBINE_OPS]; /* AVERAGE: same as SUM, floating types only */
    gloo_divide *divide[COMBINE_DTYPES];                /* floating types */
} combine_table;

const combine_table *combine_for_machine(void);

#endif
