/*
 * export.c - a run's weights as a Hugging Face directory, with the files that travel along.
 */
#include "run/internal.h"
#include <string.h>

nrl_status run_export(run *r, const char *dir)
{
    hf_save_options o = {.dtype = r->config.train.precision == CONFIG_BF16 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32,
                         .copy_from = r->tokenizer ? tokenizer_folder(r->tokenizer) : r->model_dir};
    nrl_status st = hf_save(dir, r->model, storage_source, r->ctx, &o);
    if (st != NRL_OK) nrl_note("exporting to '%s'", dir);
    return st;
}
