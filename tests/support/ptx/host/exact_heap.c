/*
 * exact_heap.c - reports the allocations of the test program to the executor, because unit tests
 * pass operands from malloc to kernels. Uses the linker's --wrap.
 */
#include "ptx.h"
#include <stdlib.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);

static void *known(void *memory, size_t bytes)
{
    if (memory && bytes) ptx_memory_add(memory, bytes, false);
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return known(__real_malloc(bytes), bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return known(__real_calloc(n, bytes), n * bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return known(__real_aligned_alloc(alignment, bytes), bytes);
}

void __wrap_free(void *memory)
{
    ptx_memory_remove(memory);
    __real_free(memory);
}

/* Variables of tests may be operands too. */
__attribute__((constructor)) static void allow(void)
{
    ptx_memory_allow_program();
}
