/*
 * machine.c - selects the compiled set of combine.c that this machine can run.
 */
#include "combine.h"
#include <stdbool.h>

extern const combine_table combine_table_base;
#if defined(__x86_64__)
extern const combine_table combine_table_avx2, combine_table_avx512;
#endif

const combine_table *combine_for_machine(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
        return &combine_table_avx512;
    if (wide) return &combine_table_avx2;
#endif
    return &combine_table_base;
}
