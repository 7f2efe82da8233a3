/*
 * comm.h - ranks as named axes, and what strategies say over them.
 *
 * A mesh holds all ranks of a run; an axis names the ranks that differ in one coordinate alone. Its name is
 * what the strategy that serves it declares (nrl/parallel.h). A strategy may split its own axis into two
 * (hybrid sharding: one inside a node, one across nodes). Calls take contiguous tensors, start at once, and
 * return work; tensors live until the work is waited for. Every rank makes the same calls on an axis in the
 * same order. On an axis of one rank every call is done when it returns.
 *
 * Thread: [step], all of it. Errors: NRL_ERR_PEER names the rank that was lost, the call, the step
 * and how long it was waited for; after it the mesh is dead and every further call fails alike.
 */
#ifndef NRL_COMM_H
#define NRL_COMM_H
#include <nrl/collective.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_mesh nrl_mesh;
typedef struct nrl_comm nrl_comm; /* the ranks along one axis; the mesh's */
typedef struct nrl_work nrl_work; /* a call on its way */

NRL_API int32_t nrl_mesh_size(const nrl_mesh *mesh, const char *axis);  /* 1 for unknown axes */
NRL_API int32_t nrl_mesh_coord(const nrl_mesh *mesh, const char *axis); /* 0 for unknown axes */
NRL_API int32_t nrl_mesh_rank(const nrl_mesh *mesh);       /* of all */
NRL_API int32_t nrl_mesh_world(const nrl_mesh *mesh);
NRL_API int32_t nrl_mesh_local_world(const nrl_mesh *mesh); /* ranks on this node */
/* Ranks of this rank's group along the axis that are on this node, from 1 to nrl_mesh_size: ranks that differ in
 * inner axes stand between them. */
NRL_API int32_t nrl_mesh_local_size(const nrl_mesh *mesh, const char *axis);
/* Divides `axis` into runs of `size` consecutive coordinates: `inner` names the place in a run,
 * `outer` the run. Collective. NRL_ERR_CONFIG where size does not divide it. The same split asked
 * for again is the same axes. [main] */
NRL_API nrl_status nrl_mesh_split(nrl_mesh *mesh, const char *axis, int32_t size, const char *inner,
                                  const char *outer);
NRL_API nrl_comm *nrl_mesh_comm(nrl_mesh *mesh, const char *axis); /* never NULL */

/* Operands as in nrl_comm_args, as tensors of one dtype; `what` (static or living as long as the
 * work) stands in errors and records: "bucket 3". */
typedef struct {
    uint32_t size;
    uint32_t reduce; /* nrl_sum */
    int32_t peer;
    int32_t reserved;
    nrl_tensor *send, *receive; /* all_reduce, broadcast: send NULL = in place */
    const int64_t *counts, *offsets;
    uint64_t tag;
    const char *what;
} nrl_comm_call;

NRL_API nrl_status nrl_comm_all_reduce(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_all_gather(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_reduce_scatter(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_broadcast(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_all_to_all(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_send(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_recv(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work);
NRL_API nrl_status nrl_comm_barrier(nrl_comm *c, const char *what);

/* Makes the work's results visible to what is queued on ctx from here on (on the CPU: waits), ends the
 * handle and sets it to NULL; NULL is done already. Errors as above, after launch.timeout_step too. */
NRL_API nrl_status nrl_work_wait(nrl_work **work, nrl_ctx *ctx);
NRL_API bool nrl_work_done(nrl_work *work); /* true: a wait would not block */

#ifdef __cplusplus
}
#endif
#endif
