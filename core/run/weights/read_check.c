/*
 * read_check.c - hashes what ranks read and compares the hashes: each rank sends two numbers, and only if these differ
 * two numbers for each parameter.
 */
#include "run/weights/read_check.h"
#include "base/arena.h"
#include "base/buffer.h"
#include <stdlib.h>
#include <xxhash.h>

enum { SHOWN_RANKS = 4 };

nrl_status read_check_open(read_check *c, const model *m, weights_source source, void *user)
{
    *c = (read_check){.source = source, .user = user, .m = m};
    c->params = mem_try((size_t)m->n_params * sizeof *c->params, "hashes of weights");
    return c->params ? NRL_OK : NRL_ERR_MEMORY;
}

void read_check_close(read_check *c)
{
    free(c->params);
    c->params = NULL;
}

nrl_status read_check_source(void *check, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const read_check *c = check;
    read_hash *h = &c->params[p->index];
    int64_t range[2] = {begin, n};
    NRL_TRY(c->source(c->user, p, begin, n, out));
    h->ranges = XXH3_64bits_withSeed(range, sizeof range, h->ranges);
    h->values = XXH3_64bits_withSeed(out, (size_t)n * sizeof *out, h->values);
    return NRL_OK;
}

static read_hash sum(const read_check *c)
{
    read_hash all = {0};
    for (int32_t i = 0; i < c->m->n_params; i++) {
        all.ranges = XXH3_64bits_withSeed(&c->params[i].ranges, sizeof all.ranges, all.ranges);
        all.values = XXH3_64bits_withSeed(&c->params[i].values, sizeof all.values, all.values);
    }
    return all;
}

/* Returns the first rank that read the same ranges as rank r; r itself if none before it did. */
static int32_t first_like(const read_hash *sums, int32_t r)
{
    int32_t first = 0;
    while (sums[first].ranges != sums[r].ranges)
        first++;
    return first;
}

/* params: [world][n_params] */
static nrl_status difference_error(const read_check *c, const nrl_mesh *mesh, const read_hash *sums,
                                   const read_hash *params, const char *what)
{
    int32_t world = nrl_mesh_world(mesh);
    size_t n = (size_t)c->m->n_params, tensor = n;
    int32_t n_others = 0, n_tensors = 0, like = 0;
    buffer others = {0};
    for (int32_t r = 0; r < world; r++) {
        int32_t first = first_like(sums, r);
        const read_hash *own = &params[(size_t)r * n], *theirs = &params[(size_t)first * n];
        if (sums[r].values == sums[first].values || n_others++ >= SHOWN_RANKS) continue;
        buffer_print(&others, "%s%s", n_others > 1 ? ", " : "", mesh_rank_name(mesh, r));
        for (size_t i = 0; i < n && n_others == 1; i++) {
            if (own[i].values == theirs[i].values) continue;
            if (!n_tensors++) tensor = i;
        }
        if (n_others == 1) like = first;
    }
    NRL_ASSERT(tensor, <, n);
    buffer more = {0};
    if (n_tensors > 1) buffer_print(&more, " and %d more", n_tensors - 1);
    nrl_status st = nrl_fail(NRL_ERR_CONFIG,
                             "cannot start: %s differ between ranks: '%s'%s\n  %s%s read other values "
                             "than %s\nhint: every node must have the same files under the same path",
                             what, c->m->params[tensor]->name, more.size ? more.text : "", others.text,
                             n_others > SHOWN_RANKS ? ", ..." : "", mesh_rank_name(mesh, like));
    buffer_free(&more);
    buffer_free(&others);
    return st;
}

static nrl_status find_difference(const read_check *c, nrl_mesh *mesh, const read_hash *sums, const char *what)
{
    int32_t world = nrl_mesh_world(mesh);
    size_t size = (size_t)c->m->n_params * sizeof *c->params;
    read_hash *all = mem_try((size_t)world * size, "hashes of weights");
    if (!all) return NRL_ERR_MEMORY;
    nrl_status st = mesh_exchange(mesh, what, c->params, size, all);
    if (st == NRL_OK) {
        (void)mesh_barrier(mesh, what); /* no rank leaves before all ranks have what they compare */
        st = difference_error(c, mesh, sums, all, what);
    }
    free(all);
    return st;
}

nrl_status read_check_compare(const read_check *c, nrl_mesh *mesh, const char *what)
{
    int32_t world = mesh ? nrl_mesh_world(mesh) : 1;
    read_hash own = sum(c), *sums;
    bool same = true;
    if (world == 1) return NRL_OK;
    sums = mem_try((size_t)world * sizeof *sums, "hashes of weights");
    if (!sums) return NRL_ERR_MEMORY;
    nrl_status st = mesh_exchange(mesh, what, &own, sizeof own, sums);
    for (int32_t r = 0; r < world && st == NRL_OK; r++)
        same = same && sums[r].values == sums[first_like(sums, r)].values;
    if (st == NRL_OK && !same) st = find_difference(c, mesh, sums, what);
    free(sums);
    return st;
}
