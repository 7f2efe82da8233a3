/*
 * pool_table.h - blocks by the address of their memory, which is all that a free call passes.
 */
#ifndef CUDA_POOL_TABLE_H
#define CUDA_POOL_TABLE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct cuda_block cuda_block;
typedef struct {
    cuda_block **slots; /* open addressing */
    size_t n, capacity; /* capacity: a power of two */
} cuda_table;

bool cuda_table_put(cuda_table *t, cuda_block *b);              /* false: out of host memory */
cuda_block *cuda_table_take(cuda_table *t, const void *memory); /* NULL: unknown */
void cuda_table_free(cuda_table *t);

#endif
