/*
 * machine.c - properties of this CPU: instruction sets, threads, name.
 */
#include "cpu.h"
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const nrl_ops cpu_ops_base;
extern double cpu_fma_base(int64_t rounds);
extern nrl_status cpu_gemm_small_base(cpu *self, const nrl_gemm_args *a);
#if defined(__x86_64__)
extern const nrl_ops cpu_ops_avx2, cpu_ops_avx512;
extern double cpu_fma_avx2(int64_t rounds), cpu_fma_avx512(int64_t rounds);
extern nrl_status cpu_gemm_small_avx2(cpu *self, const nrl_gemm_args *a);
extern nrl_status cpu_gemm_small_avx512(cpu *self, const nrl_gemm_args *a);
#include <cpuid.h>

/* Leaf 1, ECX bit 29: conversions of f16. */
static bool has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1) != 0;
}

cpu_isa cpu_isa_best(void)
{
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2") && has_f16c();
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v3 && v4 ? CPU_ISA_AVX512 : v3 ? CPU_ISA_AVX2 : CPU_ISA_BASE;
}

/* Leaf 7, subleaf 1, EAX bit 5: AVX512_BF16. */
bool cpu_isa_has_bf16(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return false;
    return (a >> 5 & 1) != 0;
}

/* Leaf 7, EDX bit 22: AMX-BF16. */
bool cpu_isa_has_tiles(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) != 0;
}

/* AMD's bf16 dot products do twice the work of f32 multiply-adds. Intel's run at half their rate, and only
 * the tile unit is faster. This is a rule instead of a measurement because the choice affects results. */
bool cpu_isa_fast_bf16(void)
{
    return cpu_isa_has_bf16() && (!__builtin_cpu_is("intel") || cpu_isa_has_tiles());
}

const nrl_ops *cpu_isa_ops(cpu_isa isa)
{
    return isa == CPU_ISA_AVX512 ? &cpu_ops_avx512 : isa == CPU_ISA_AVX2 ? &cpu_ops_avx2 : &cpu_ops_base;
}

cpu_product *cpu_isa_gemm_small(cpu_isa isa)
{
    return isa == CPU_ISA_AVX512 ? cpu_gemm_small_avx512
           : isa == CPU_ISA_AVX2 ? cpu_gemm_small_avx2
                                 : cpu_gemm_small_base;
}

static double fma_rounds(cpu_isa isa, int64_t rounds)
{
    return isa == CPU_ISA_AVX512 ? cpu_fma_avx512(rounds)
           : isa == CPU_ISA_AVX2 ? cpu_fma_avx2(rounds)
                                 : cpu_fma_base(rounds);
}
#else
cpu_isa cpu_isa_best(void)
{
    return CPU_ISA_BASE;
}

bool cpu_isa_has_bf16(void)
{
    return false;
}

bool cpu_isa_has_tiles(void)
{
    return false;
}

bool cpu_isa_fast_bf16(void)
{
    return false;
}

const nrl_ops *cpu_isa_ops(cpu_isa isa)
{
    (void)isa;
    return &cpu_ops_base;
}

cpu_product *cpu_isa_gemm_small(cpu_isa isa)
{
    (void)isa;
    return cpu_gemm_small_base;
}

static double fma_rounds(cpu_isa isa, int64_t rounds)
{
    (void)isa;
    return cpu_fma_base(rounds);
}
#endif

const char *cpu_isa_name(cpu_isa isa)
{
    return isa == CPU_ISA_AVX512 ? "avx512" : isa == CPU_ISA_AVX2 ? "avx2" : "base";
}

/* CPU time of this thread, so that other programs do not distort the measurement. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { PEAK_RUNS = 20, PEAK_ROUNDS = 4000 }; /* about a millisecond in total */

/* The best of several short runs, because the clock may have to rise first. */
double cpu_isa_peak(cpu_isa isa)
{
    double best = 0;
    for (int i = 0; i < PEAK_RUNS; i++) {
        double begin = now();
        double flops = fma_rounds(isa, PEAK_ROUNDS);
        double rate = flops / (now() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

int cpu_count_threads(void)
{
    int n = omp_get_max_threads();
    return n < CPU_MAX_THREADS ? n : CPU_MAX_THREADS;
}

static void *thread_waits(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* libgomp ends the process if it cannot start a thread. So this first starts the same number of threads,
 * all alive at the same time, with stacks of the same size. */
nrl_status cpu_try_threads(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *all = calloc((size_t)n, sizeof *all);
    int started = 1, error = 0; /* this thread counts too */
    if (!all) return nrl_fail(NRL_ERR_MEMORY, "no memory for %d threads", n);
    pthread_mutex_lock(&gate);
    while (started < n && !(error = pthread_create(&all[started], NULL, thread_waits, &gate)))
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 1; i < started; i++)
        pthread_join(all[i], NULL);
    free(all);
    if (!error) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "threads: cannot start %d threads: %s; this process can start %d\n"
                    "hint: lower backend.threads, or raise the limits of processes and memory (ulimit -u, ulimit -v)",
                    n, strerror(error), started);
}

/* Reads "key: value" lines of a small /proc file; skips lines without a colon. */
static bool proc_value(const char *path, const char *key, char *fill, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    char line[512];
    bool found = false;
    size_t n = strlen(key);
    while (!found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, n) != 0 || !colon) continue;
        char *text = colon + 1 + strspn(colon + 1, " \t");
        text[strcspn(text, "\n")] = 0;
        snprintf(fill, size, "%s", text);
        found = true;
    }
    fclose(f);
    return found;
}

void cpu_model_name(char *fill, size_t size)
{
    if (!proc_value("/proc/cpuinfo", "model name", fill, size)) snprintf(fill, size, "CPU");
}
