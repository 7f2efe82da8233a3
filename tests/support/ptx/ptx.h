/*
 * ptx.h - runs kernels as PTX on the CPU, with the checks of compute-sanitizer on a GPU.
 *
 * It reads the text that nvcc generates (-ptx). The blocks of a launch run one after another, the
 * warps of a block in turns from barrier to barrier, the lanes of a warp together while they are at
 * the same instruction. A fault ends the launch and is reported with kernel, line of the PTX, block
 * and thread. Not covered: times, weak memory order between blocks, the code that ptxas generates.
 */
#ifndef SUPPORT_PTX_PTX_H
#define SUPPORT_PTX_PTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    PTX_FINE = 0,
    PTX_SYNTAX,        /* text that the parser does not know, or no such kernel */
    PTX_OPCODE,        /* an instruction that is not modelled */
    PTX_LAUNCH,        /* a launch that a GPU refuses */
    PTX_BOUNDS,        /* an access outside live memory */
    PTX_ALIGNMENT,     /* an address that is not a multiple of the size of the access */
    PTX_RACE,          /* accesses of one byte by two threads of a launch, one of them a write, without a barrier
                        * between them */
    PTX_UNINITIALISED, /* read before anything was written */
    PTX_SYNC,          /* a barrier or warp instruction that some threads never reach */
    PTX_ASYNC,         /* bytes of an asynchronous copy touched before it was waited for */
    PTX_TRAP,          /* trap, or a loop without end */
} ptx_kind;

typedef struct {
    ptx_kind kind;
    char text[800];
} ptx_report;

typedef struct {
    unsigned x, y, z;
} ptx_dims;

typedef struct {
    ptx_dims blocks, threads;
    size_t shared_bytes;   /* dynamic */
    size_t shared_allowed; /* the limit set by cudaFuncSetAttribute; 0 = not set */
    int n_args;
    const void *const *args; /* the parameters of the kernel, in order */
    const size_t *arg_bytes;
    bool backwards; /* last blocks and warps first */
} ptx_launch;

typedef struct ptx_program ptx_program;

/* One kernel of a module and the functions that it calls; NULL with a report. */
ptx_program *ptx_load(const char *text, const char *kernel, ptx_report *report);
void ptx_free(ptx_program *p);
ptx_kind ptx_run(ptx_program *p, const ptx_launch *launch, ptx_report *report);

/* ---- global memory: that of the process; memory that was not added here must not be accessed ---- */
/* undefined: nothing was written yet, and the host must report its writes with ptx_memory_wrote. */
void ptx_memory_add(const void *begin, size_t bytes, bool undefined);
void ptx_memory_remove(const void *begin);
void ptx_memory_wrote(const void *begin, size_t bytes);
void ptx_memory_forget(const void *begin, size_t bytes); /* undefined from now on */
/* Also allows access to the calling thread's stack and the program's own variables, without exact
 * bounds. */
void ptx_memory_allow_program(void);

#ifdef __cplusplus
}
#endif
#endif
