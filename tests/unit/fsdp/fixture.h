/*
 * fixture.h - the fsdp plugin with options from YAML text, filled as in a run.
 */
#ifndef FSDP_FIXTURE_H
#define FSDP_FIXTURE_H
#include "fsdp/toy.h"
#include "support/options.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct {
    arena memory;
    plugin_host *host;
} fixture;

static inline int set_up(void **state)
{
    fixture *f = *state = calloc(1, sizeof *f);
    f->host = test_host();
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

static inline nrl_status fsdp_options_of(fixture *f, const char *yaml, const nrl_parallel **table, const void **options)
{
    const void *found;
    void *filled;
    NRL_TRY(test_options(f->host, &f->memory, NRL_KIND_PARALLEL, "parallel", "fsdp", yaml, &found, &filled));
    *table = found;
    *options = filled;
    return NRL_OK;
}

/* Cases that share a mesh: joining takes longer than a case. */
enum { MAX_CASES = 64 };
typedef struct {
    void **state;
    int n;
    toy_case cases[MAX_CASES];
    const char *yaml[MAX_CASES];
} case_list;

static inline void add(case_list *l, const char *yaml, toy_case c)
{
    assert_true(l->n < MAX_CASES);
    if (!c.compute) c.compute = NRL_DTYPE_F32;
    if (!c.n_micro_batches) c.n_micro_batches = 1;
    assert_int_equal(fsdp_options_of(*l->state, yaml, &c.table, &c.options), NRL_OK);
    l->yaml[l->n] = yaml;
    l->cases[l->n++] = c;
}

static inline nrl_status run_cases(nrl_mesh *mesh, int32_t rank, void *user)
{
    case_list *l = user;
    for (int i = 0; i < l->n; i++) {
        nrl_status st = toy_rank(mesh, rank, &l->cases[i]);
        if (st == NRL_OK) continue;
        nrl_add_context("case %d, %s", i, l->yaml[i]);
        return st;
    }
    return NRL_OK;
}

/* All cases of the list, each on `least` to `most` ranks; an error is printed. */
static inline void run_on(case_list *l, int32_t least, int32_t most)
{
    for (int32_t world = least; world <= most; world++) {
        for (int i = 0; i < l->n; i++)
            l->cases[i].world = world;
        if (local_ranks_run(world, run_cases, l) != NRL_OK) fail_msg("%d ranks: %s", world, nrl_error_text());
    }
}

#endif
