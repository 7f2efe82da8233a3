/*
 * export.c - a run's weights as a Hugging Face directory, with the files that travel along. Every rank
 * walks the same tensors; rank 0 writes, the others give it what they hold, a few MiB at a time.
 */
#include "run/merge.h"
#include "run/ranks.h"
#include <string.h>
#include <xxhash.h>

/* A matrix of an adapter, whole. */
static nrl_status live_matrix(void *user, const char *name, int64_t n, float *out)
{
    run *r = user;
    storage_view view = {r->ctx, r->mesh};
    const nrl_param *p = model_param(r->model, name);
    NRL_ASSERT(p->whole, ==, n);
    return storage_gather(&view, p, 0, n, out);
}

/* Adapters are added to the weights, as these are trained on: rounded to the compute dtype. */
static nrl_status save_weights(run *r, const char *dir, const hf_save_options *o)
{
    storage_view view = {r->ctx, r->mesh};
    merge merged = {.base = storage_gather, .base_user = &view, .set = r->model->adapters, .matrix = live_matrix, .user = r};
    if (!r->model->adapters) return hf_save(dir, r->model, storage_gather, &view, o);
    nrl_status st = hf_save(dir, r->model, merge_read, &merged, o);
    merge_free(&merged);
    return st;
}

nrl_status export_to(run *r, const char *dir)
{
    hf_save_options o = {.dtype = run_compute(r),
                         .copy_from = r->tokenizer ? tokenizer_folder(r->tokenizer) : r->tokenizer_dir,
                         .discard = !run_leads(r)};
    nrl_status st = save_weights(r, dir, &o);
    if (st == NRL_OK) st = mesh_barrier(r->mesh, "export"); /* it is there for every rank's next call */
    if (st != NRL_OK) nrl_note("exporting to '%s'", dir);
    return st;
}

nrl_status run_export(run *r, const char *dir)
{
    nrl_status st = ranks_agree(r, "export", XXH3_64bits(dir, strlen(dir)));
    if (st == NRL_OK) st = export_to(r, dir);
    return run_end_call(r, st);
}
