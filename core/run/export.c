/*
 * export.c - a run's weights as a Hugging Face directory, with the files that travel along. Every rank
 * walks the same tensors; rank 0 writes, the others give it what they hold, a few MiB at a time.
 */
#include "run/ranks.h"
#include <string.h>
#include <xxhash.h>

nrl_status export_to(run *r, const char *dir)
{
    storage_view view = {r->ctx, r->mesh};
    hf_save_options o = {.dtype = run_compute(r),
                         .copy_from = r->tokenizer ? tokenizer_folder(r->tokenizer) : r->tokenizer_dir,
                         .discard = !run_leads(r)};
    nrl_status st = hf_save(dir, r->model, storage_gather, &view, &o);
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
