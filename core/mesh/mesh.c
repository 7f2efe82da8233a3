/*
 * mesh.c - one rank; several follow.
 */
#include "mesh/mesh.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>
struct nrl_mesh { mesh_place place; };
nrl_status mesh_open(const mesh_setup *setup, nrl_mesh **out){ *out = mem_alloc(sizeof **out); (*out)->place = setup->place; return NRL_OK; }
void mesh_close(nrl_mesh *m){ free(m); }
void mesh_tell_failure(nrl_mesh *m, nrl_status code, const char *text){ (void)m;(void)code;(void)text; }
nrl_status mesh_exchange(nrl_mesh *m, const char *what, const void *mine, size_t size, void *all){ (void)m;(void)what; memcpy(all,mine,size); return NRL_OK; }
nrl_status mesh_broadcast(nrl_mesh *m, const char *what, int32_t from, void *bytes, size_t size){ (void)m;(void)what;(void)from;(void)bytes;(void)size; return NRL_OK; }
nrl_status mesh_barrier(nrl_mesh *m, const char *what){ (void)m;(void)what; return NRL_OK; }
const mesh_place *mesh_where(const nrl_mesh *m){ return &m->place; }
int32_t mesh_coord_of(const nrl_mesh *m, int32_t rank, const char *axis){ (void)m;(void)axis; return rank; }
void mesh_set_step(nrl_mesh *m, int64_t step){ (void)m;(void)step; }
double mesh_wait_seconds(const nrl_mesh *m){ (void)m; return 0; }
void mesh_traffic(const nrl_mesh *m, int64_t *s, int64_t *r){ (void)m; *s=*r=0; }
const char *mesh_text(const nrl_mesh *m){ (void)m; return "1 rank"; }
int32_t nrl_mesh_size(const nrl_mesh *mesh, const char *axis){ (void)mesh;(void)axis; return 1; }
int32_t nrl_mesh_coord(const nrl_mesh *mesh, const char *axis){ (void)mesh;(void)axis; return 0; }
int32_t nrl_mesh_rank(const nrl_mesh *mesh){ (void)mesh; return 0; }
int32_t nrl_mesh_world(const nrl_mesh *mesh){ (void)mesh; return 1; }
