/*
 * lacks_preload.c - a preloaded library with which allocations of NRL_LACKS_FROM to NRL_LACKS_TO
 * bytes of zeroed memory fail, as on a machine with less memory.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

void *__libc_calloc(size_t n, size_t size);

static size_t from = SIZE_MAX, to;

__attribute__((constructor)) static void arm(void)
{
    const char *least = getenv("NRL_LACKS_FROM"), *most = getenv("NRL_LACKS_TO");
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
