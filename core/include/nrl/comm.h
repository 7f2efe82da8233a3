/*
 * comm.h - the mesh of ranks with named axes, and communication of strategies along an axis.
 *
 * A mesh has all ranks of a run; an axis connects ranks that differ in one coordinate. The strategy that serves an axis
 * declares its name (nrl/parallel.h). A strategy may split its own axis into two (hybrid sharding: one inside a node,
 * one across nodes). Calls take contiguous tensors, start at once, and return work; tensors must live until the work is
 * waited for. Every rank makes the same calls on an axis in the same order. On an axis of one rank every call is
 * complete when it returns.
 *
 * Thread: [step] for all functions. Errors: NRL_ERR_PEER names the lost rank, the call, the step and the time waited;
 * after it the mesh cannot be used any more, and every further call fails with the same error.
 */
#ifndef NRL_COMM_H
#define NRL_COMM_H
#include <nrl/collective.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_mesh nrl_mesh;
typedef struct nrl_comm nrl_comm; /* the ranks along one axis; the mesh's */
typedef struct nrl_work nrl_work; /* a pending call */

NRL_API int32_t nrl_mesh_size(const nrl_mesh *mesh, const char *axis);  /* 1 for unknown axes */
NRL_API int32_t nrl_mesh_coord(const nrl_mesh *mesh, const char *axis); /* 0 for unknown axes */
NRL_API int32_t nrl_mesh_rank(const nrl_mesh *mesh);                    /* of all */
NRL_API int32_t nrl_mesh_world(const nrl_mesh *mesh);
NRL_API int32_t nrl_mesh_local_world(const nrl_mesh *mesh); /* ranks on this node */
/* The number of ranks of a group along the axis that are on the same node, from 1 to nrl_mesh_size. Their rank numbers
 * need not be consecutive. It is the same on all ranks: if nodes have different numbers of ranks, the largest number
 * that divides them all is divided among the axes. */
NRL_API int32_t nrl_mesh_local_size(const nrl_mesh *mesh, const char *axis);
/* Divides `axis` into groups of `size` consecutive coordinates. The axis `inner` is the coordinate within a
 * group, `outer` the number of the group. Every rank must call it. NRL_ERR_CONFIG if `size` does not divide
 * the axis. The same split again returns the same axes. [main] */
NRL_API nrl_status nrl_mesh_split(nrl_mesh *mesh, const char *axis, int32_t size, const char *inner, const char *outer);
NRL_API nrl_comm *nrl_mesh_comm(nrl_mesh *mesh, const char *axis); /* never NULL */
/* Bytes of gradients that a call should sum, as the collective prefers (nrl_collective.bucket_bytes); 0: no preference.
 */
NRL_API int64_t nrl_comm_bucket_bytes(const nrl_comm *c);
/* Like nrl_tensor_persistent, in memory that the collective has prepared for calls on the axis, if it has any. All
 * ranks of the axis create the same tensors in the same order. */
NRL_API nrl_status nrl_comm_tensor(nrl_comm *c, nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out);

/* The operands of nrl_comm_args as tensors of one dtype. `what` ("bucket 3") is a label for errors and the
 * flight recorder; it must live as long as the work. */
typedef struct {
    uint32_t size;
    uint32_t reduce; /* nrl_reduce_op */
    int32_t peer;
    int32_t reserved;
    nrl_tensor *send, *receive; /* all_reduce, broadcast: send NULL = in place */
    const int64_t *counts, *offsets;
    uint64_t tag;
    const char *what;
    const int64_t *receive_counts; /* all_to_all of unequal parts: elements received from each rank, [ranks];
                                      `counts` are those sent to each */
} nrl_comm_call;

NRL_API nrl_status nrl_comm_all_reduce(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_all_gather(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_reduce_scatter(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_broadcast(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_all_to_all(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_send(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_recv(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_barrier(nrl_comm *c, const char *what);

/* Makes the results of the work visible to everything that is queued on ctx afterwards (on the CPU: waits),
 * frees the handle and sets it to NULL. A NULL handle is complete. Errors as above, also after
 * launch.timeout_step. */
NRL_API nrl_status nrl_work_wait(nrl_work **work, nrl_ctx *ctx);
NRL_API bool nrl_work_done(nrl_work *work); /* whether a wait would return at once */

#ifdef __cplusplus
}
#endif
#endif
