/*
 * table.c - the operations of one instruction set, and its peak.
 */
#include "isa.h"

extern const nrl_ops ISA(cpu_ops);
double ISA(cpu_fma)(int64_t rounds);

#define ENTRY(name, args) .name = ISA(cpu_##name),
const nrl_ops ISA(cpu_ops) = {.size = sizeof(nrl_ops), NRL_OPS(ENTRY)};

typedef float lanes __attribute__((vector_size(LANES * 4)));
enum { REPEATS = 4, CHAINS = 12 }; /* independent multiply-adds, enough to fill two pipes of latency 4 to 6 */

/* Runs that many rounds of CHAINS fused multiply-adds; returns how many FLOP they were. */
double ISA(cpu_fma)(int64_t rounds)
{
    lanes acc[CHAINS];
    lanes x = (lanes){0} + 0.999f, y = (lanes){0} + 0.001f;
    for (int i = 0; i < CHAINS; i++)
        acc[i] = (lanes){0} + (float)i;
    for (int64_t r = 0; r < rounds; r++) {
#if defined(__x86_64__)
        __asm__ volatile("" : "+x"(x)); /* prevents the compiler from evaluating the loop at compile time */
#endif
        UNROLL
        for (int repeat = 0; repeat < REPEATS; repeat++)
            UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = acc[i] * x + y;
    }
    lanes sum = acc[0];
    for (int i = 1; i < CHAINS; i++)
        sum += acc[i];
    volatile float sink = sum[0];
    (void)sink;
    return 2.0 * LANES * REPEATS * CHAINS * (double)rounds;
}
