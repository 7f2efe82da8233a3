/*
 * local_ranks.h - a mesh of several ranks in one test: threads over the local collective.
 *
 *     static nrl_status body(nrl_mesh *mesh, int32_t rank, void *user) { ... nrl_comm_*(...) ... }
 *     assert_int_equal(local_ranks_run(4, body, &results), NRL_OK);
 *
 * The body runs once in each thread. It returns a status, because a cmocka assertion would end the
 * wrong thread. Each rank creates its own contexts (nrl_ctx), tapes and plugin instances.
 */
#ifndef SUPPORT_LOCAL_RANKS_H
#define SUPPORT_LOCAL_RANKS_H
#include "mesh/mesh.h"

enum { LOCAL_RANKS_MAX = 16 };

/* The status of the first failing rank, with its error text and number; NRL_OK if all ranks
 * returned NRL_OK. */
nrl_status local_ranks_run(int32_t world, nrl_status (*body)(nrl_mesh *mesh, int32_t rank, void *user), void *user);
/* The same on the axes given, outermost first. */
nrl_status local_ranks_run_axes(const mesh_axis *axes, int32_t n_axes,
                                nrl_status (*body)(nrl_mesh *mesh, int32_t rank, void *user), void *user);

#endif
