/*
 * machine.h - measured speeds: of operations by shape, and of communication between the ranks of a machine. What is not
 * known is measured on an open device, or estimated from measurements of other shapes. For predict.c and plan.c.
 */
#ifndef PROFILING_MACHINE_H
#define PROFILING_MACHINE_H
#include "base/arena.h"
#include "base/node.h"
#include "profiling/op_work.h"
#include "profiling/traffic.h"
#include <nrl/collective.h>

/* The time of one call: of an operation with these dimensions (op_work.h; attention: queries, columns, keys of a
 * query), or of a call of a collective (`bytes`, and the ranks in dims[0]). */
typedef struct {
    uint64_t what; /* hash of `name` */
    char name[64]; /* operation, dtypes of its operands and flags: "gemm f32 f32 f32 nt" */
    int64_t dims[3];
    double flops, bytes, seconds;
    double host_seconds; /* of `seconds`, those in which a processor of this rank was busy */
    uint32_t warm;       /* bit i: operand i was in the caches */
} machine_sample;

enum { MACHINE_TOUCHED = 32 };

typedef struct {
    arena memory;
    machine_sample *samples;
    size_t n, capacity;
    char device[256];            /* name, instruction set and threads of the device of the operations */
    bool is_file;                /* read from a file: nothing is measured here */
    int32_t threads, processors; /* of a rank; of the machine */
    device *measures;            /* open; NULL: nothing is measured */
    nrl_stream *stream;
    char *scratch; /* of the device */
    size_t scratch_bytes, used;
    /* A ring of the operands that were touched last; `at` is the value of bytes_touched after the operation. */
    struct {
        const void *data;
        double at;
    } touched[MACHINE_TOUCHED];
    int n_touched;
    double bytes_touched;
    double measured_seconds; /* spent here */
    double most_seconds;     /* after which operations are estimated if similar ones were measured; 0 = no limit */
    /* Nodes of a cluster; 0 = all ranks are on this machine. Of the links from a rank to another one of its node, and
     * to one of another node, of which each node has `links`. */
    int32_t ranks_per_node, links;
    link_cost inside, between;
} machine;

/* The ranks of a call: first, first + stride, ...; of a message its two ranks. */
typedef struct {
    call_kind kind;
    int32_t first, stride, ranks;
    double bytes; /* as traffic_rounds wants them */
} machine_call;

/* Reads a file of machine_write. NRL_ERR_CONFIG, NRL_ERR_IO. */
nrl_status machine_read(machine *m, const char *path);
nrl_status machine_write(const machine *m, const char *path);
void machine_close(machine *m);

/* The time of an operation, in seconds; operations come in the order of a step. NRL_ERR_CONFIG: it was never measured,
 * and no device is open. */
nrl_status machine_op(machine *m, backend_op op, const void *args, double flops, double *seconds);
/* The time of a call of a collective: on a cluster from its links; else as measured for that number of ranks, or from
 * the latency and bandwidth that fit the measurements of other numbers. false: there are none. */
bool machine_link(const machine *m, const machine_call *c, double *seconds, double *host_seconds);
bool machine_knows_ranks(const machine *m, int32_t ranks); /* calls of that number were measured */
/* The link whose formula (traffic_rounds) is nearest to what was measured. */
bool machine_fit(const machine *m, call_kind kind, link_cost *link, double *host_share);
void machine_add(machine *m, const machine_sample *s);
double machine_median(double *seconds, int n); /* the lower one of an even n; sorts `seconds` */

#endif
