/*
 * cpu.h - an opened CPU, shared by the files of this backend.
 *
 * Operations (ops/) are compiled once per instruction set and called through `ops`; they contain no
 * OpenMP but pass ranges of work to cpu_split and cpu_tasks. Matrix products go through gemm.c. All
 * work is complete when a call returns; streams are NULL.
 */
#ifndef CPU_H
#define CPU_H
#include <nrl/backend.h>
#include <pthread.h>

typedef enum { CPU_ISA_AUTO = 0, CPU_ISA_BASE, CPU_ISA_AVX2, CPU_ISA_AVX512 } cpu_isa;

typedef enum { CPU_BF16_AUTO = 0, CPU_BF16_NATIVE, CPU_BF16_WIDEN } cpu_bf16;

enum { CPU_MAX_THREADS = 1024 };

typedef struct {
    int64_t threads; /* 0 = cpu_count_threads */
    int64_t isa;     /* cpu_isa */
    int64_t bf16;    /* cpu_bf16 */
    bool independent_rows, bf16_rows;
    const char *memory_limit; /* "" = none */
} cpu_options;

typedef struct {
    void *at;
    size_t bytes;
} cpu_block;

/* Memory of cpu_alloc, of one open device. */
typedef struct {
    size_t limit; /* bytes, 0 = none */
    pthread_mutex_t lock;
    size_t used;      /* bytes of blocks */
    size_t unchecked; /* likewise, since the system had room for the last ones */
    cpu_block *blocks;
    size_t n, room;
} cpu_memory;

typedef struct cpu_gemm_engine cpu_gemm_engine;

typedef struct cpu_offload cpu_offload;

struct cpu;
typedef nrl_status cpu_product(struct cpu *self, const nrl_gemm_args *a);

typedef struct cpu {
    const nrl_ops *ops;      /* of the chosen instruction set */
    cpu_product *gemm_small; /* likewise; see ops/gemm_small.c */
    cpu_isa isa;
    int n_threads;
    bool native_bf16;                 /* bf16 products use bf16 instructions */
    bool independent_rows, bf16_rows; /* see ops/gemm_rows.c */
    cpu_memory *memory;
    cpu_gemm_engine *engine;
    char *scratch; /* n_threads * scratch_each bytes, grown on demand */
    size_t scratch_each;
    cpu_block work, rounded;  /* shared by all threads, grown on demand */
    nrl_host_threads threads; /* for kernels of plugins */
    cpu_offload *offload;     /* NULL until it is asked for */
    struct cpu *workers;      /* [n_threads], see gemm_all.c; NULL until they are needed */
} cpu;

/* ---- machine.c ---- */
cpu_isa cpu_isa_best(void);
bool cpu_isa_has_bf16(void);  /* instructions exist */
bool cpu_isa_fast_bf16(void); /* and they are faster than f32 instructions */
bool cpu_isa_has_tiles(void); /* a unit for products of bf16 (AMX) */
const nrl_ops *cpu_isa_ops(cpu_isa isa);
cpu_product *cpu_isa_gemm_small(cpu_isa isa);
const char *cpu_isa_name(cpu_isa isa);
double cpu_isa_peak(cpu_isa isa);  /* measured f32 FLOP/s of one thread, takes a millisecond */
int cpu_count_threads(void);       /* OpenMP's number: OMP_NUM_THREADS, else processors */
nrl_status cpu_try_threads(int n); /* NRL_ERR_CONFIG: this process cannot start n threads */
void cpu_model_name(char *fill, size_t size);

/* ---- parallel.c ---- */

/* Processes items [begin, end) as thread number `thread` of self->n_threads. */
typedef void (*cpu_body)(void *arg, int64_t begin, int64_t end, int thread);
/* Splits n items into contiguous, nearly equal ranges of at least `grain` (with fewer threads if n is small). */
void cpu_split(const cpu *self, int64_t n, int64_t grain, cpu_body body, void *arg);
/* Gives items one at a time, in ascending order, to idle threads: for items of unequal cost. */
void cpu_tasks(const cpu *self, int64_t n, cpu_body body, void *arg);

/* ---- scratch.c ---- */

/* At least `bytes` for each thread, 64-byte aligned; contents are undefined. */
nrl_status cpu_scratch(cpu *self, size_t bytes);
static inline void *cpu_scratch_at(const cpu *self, int thread)
{
    return self->scratch + (size_t)thread * self->scratch_each;
}
/* Memory for one operation at a time, valid until the next call. */
nrl_status cpu_work(cpu *self, size_t bytes, void **out);
/* The same, for operands of a product, which may call cpu_work itself. */
nrl_status cpu_rounded(cpu *self, size_t bytes, void **out);
/* NRL_ERR_MEMORY: the text names the limit that was hit. */
nrl_status cpu_alloc(cpu_memory *m, size_t bytes, void **out);
void cpu_free(cpu_memory *m, void *memory);
/* The option memory_limit: NRL_ERR_CONFIG if it cannot be read. */
nrl_status cpu_memory_check(const char *text);
cpu_memory *cpu_memory_open(const char *limit); /* with a valid limit; NULL: no memory */
void cpu_memory_close(cpu_memory *m);           /* everything is freed */

/* ---- offload.c ---- */

/* The extension of the device, made on the first call; NULL: no memory. */
const nrl_offload *cpu_offload_open(cpu_offload **at);
void cpu_offload_close(cpu_offload *o); /* frees all that was allocated; NULL is allowed */

/* ---- cpu.c ---- */
/* Copies the arguments of an operation, of `size` bytes, to `fill`, of `known` bytes. A core with a newer struct must
 * not have set members that this plugin does not know (NRL_ERR_PLUGIN); what an older one lacks is zero. */
nrl_status cpu_known_args(const char *op, const void *args, uint32_t size, void *fill, uint32_t known);
void cpu_close_parts(cpu *self); /* the engine and the memory of operations */

/* ---- gemm.c: all products that ops/gemm_rows.c does not compute ---- */
nrl_status cpu_gemm(void *self, nrl_stream *stream, const nrl_gemm_args *a);

/* ---- gemm_all.c ---- */
nrl_status cpu_gemm_all(cpu *self, const nrl_gemm_args *calls, int64_t n);
void cpu_gemm_all_close(cpu *self);

#endif
