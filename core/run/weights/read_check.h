/*
 * read_check.h - compares the weights that ranks load: a weights_source that passes on the values of another one and
 * keeps a hash for each parameter. Ranks that read the same ranges (replicas, the same shard of two replicas) must have
 * read the same values. Shards that only one rank reads cannot be compared in this way; the samples of weights_identity
 * cover them.
 */
#ifndef RUN_READ_CHECK_H
#define RUN_READ_CHECK_H
#include "mesh/mesh.h"
#include "model/weights.h"

typedef struct {
    uint64_t ranges, values; /* XXH3, chained over the reads */
} read_hash;

typedef struct {
    weights_source source;
    void *user;
    const model *m;
    read_hash *params; /* [m->n_params] */
} read_check;

nrl_status read_check_open(read_check *c, const model *m, weights_source source, void *user);
void read_check_close(read_check *c);
nrl_status read_check_source(void *check, const nrl_param *p, int64_t begin, int64_t n, float *out);
/* After everything was read; all ranks call it. NRL_ERR_CONFIG, the same on every rank, names a tensor and the
 * ranks that read something else; `what` says whose weights they are. [main] */
nrl_status read_check_compare(const read_check *c, nrl_mesh *mesh, const char *what);

#endif
