/*
 * bench_copy.c - the time of memcpy to memory that was touched before, with which the snapshot of a
 * save is compared. Arguments: bytes, threads, repeats. Prints one JSON object: seconds of every
 * repeat.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef struct {
    char *to;
    const char *from;
    size_t size;
    pthread_t thread;
} share;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *copy(void *user)
{
    share *s = user;
    memcpy(s->to, s->from, s->size);
    return NULL;
}

static char *touched(size_t size, int value)
{
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    madvise(p, size, MADV_HUGEPAGE);
    memset(p, value, size);
    return p;
}

int main(int argc, char **argv)
{
    enum { MAX_THREADS = 64 };
    static share shares[MAX_THREADS];
    size_t size = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    int threads = argc > 2 ? atoi(argv[2]) : 1, repeats = argc > 3 ? atoi(argv[3]) : 5;
    if (!size || threads < 1 || threads > MAX_THREADS) return 2;
    char *from = touched(size, 1), *to = touched(size, 2);
    printf("{\"copy_s\": [");
    for (int r = 0; r < repeats; r++) {
        double start = seconds();
        for (int i = 0; i < threads; i++) {
            size_t begin = size / (size_t)threads * (size_t)i,
                   end = i + 1 < threads ? begin + size / (size_t)threads : size;
            shares[i].to = to + begin;
            shares[i].from = from + begin;
            shares[i].size = end - begin;
            if (i > 0) pthread_create(&shares[i].thread, NULL, copy, &shares[i]);
        }
        copy(&shares[0]);
        for (int i = 1; i < threads; i++)
            pthread_join(shares[i].thread, NULL);
        printf("%s%.4f", r ? ", " : "", seconds() - start);
    }
    puts("]}");
    return 0;
}
