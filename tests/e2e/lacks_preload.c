/*
 * lacks_preload.c - a preloaded library with which allocations of NRL_LACKS_FROM to NRL_LACKS_TO
 * bytes of zeroed memory fail, as on a machine with less memory; and so do the aligned allocations of 2 MiB and more
 * with the numbers NRL_LACKS_FIRST to NRL_LACKS_LAST, from 1.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

void *__libc_calloc(size_t n, size_t size);

void *__libc_memalign(size_t align, size_t size);

static size_t from = SIZE_MAX, to;
static unsigned long long first, last;
static atomic_ullong n_aligned;

__attribute__((constructor)) static void arm(void)
{
    const char *least = getenv("NRL_LACKS_FROM"), *most = getenv("NRL_LACKS_TO");
    const char *begin = getenv("NRL_LACKS_FIRST"), *end = getenv("NRL_LACKS_LAST");
    if (begin && end) {
        first = strtoull(begin, NULL, 10);
        last = strtoull(end, NULL, 10);
    }
    if (!least || !most) return;
    to = strtoull(most, NULL, 10);
    from = strtoull(least, NULL, 10);
}

void *calloc(size_t n, size_t size)
{
    size_t bytes = n * size;
    if (bytes < from || bytes > to) return __libc_calloc(n, size);
    errno = ENOMEM;
    return NULL;
}

int posix_memalign(void **memory, size_t align, size_t size)
{
    if (size >= 2 << 20) {
        unsigned long long n = atomic_fetch_add(&n_aligned, 1) + 1;
        if (n >= first && n <= last) return ENOMEM;
    }
    void *block = __libc_memalign(align, size);
    if (!block) return ENOMEM;
    *memory = block;
    return 0;
}
