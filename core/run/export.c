/*
 * export.c - a run's weights as a model on disk, with the files that travel along. Every rank
 * walks the same tensors; rank 0 writes, the others give it what they hold, a few MiB at a time.
 */
#include "config/config.h"
#include "run/merge.h"
#include "run/weights/origin.h"
#include "run/step/ranks.h"
#include "run/inference_model.h"
#include <stdlib.h>
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
static nrl_status save_weights(run *r, const char *dir, const save_options *o)
{
    storage_view view = {r->ctx, r->mesh};
    merge merged = {
        .base = storage_gather, .base_user = &view, .set = r->model->adapters, .matrix = live_matrix, .user = r};
    if (!r->model->adapters) return model_save(dir, r->model, storage_gather, &view, o);
    nrl_status st = model_save(dir, r->model, merge_read, &merged, o);
    merge_free(&merged);
    return st;
}

/* ---- from a checkpoint ---- */

typedef struct {
    const run *r;
    origin_stream stream;
} saved_weights;

static nrl_status saved_matrix(void *user, const char *name, int64_t n, float *out)
{
    saved_weights *s = user;
    return origin_stream_read(&s->stream, model_param(s->r->model, name), 0, n, out);
}

/* The base does not change and is shared out among the ranks, which all call this. */
static nrl_status save_saved_adapters(run *r, const char *from, const char *dir, const save_options *o)
{
    storage_view view = {r->ctx, r->mesh};
    saved_weights saved = {.r = r};
    merge merged = {
        .base = storage_gather, .base_user = &view, .set = r->model->adapters, .matrix = saved_matrix, .user = &saved};
    NRL_TRY(checkpoint_open_signed(from, r->public_key, &saved.stream.c));
    nrl_status st = model_save(dir, r->model, merge_read, &merged, o);
    merge_free(&merged);
    free(saved.stream.raw);
    checkpoint_close(saved.stream.c);
    return st;
}

static nrl_status save_saved_weights(run *r, const char *from, const char *dir, const save_options *o)
{
    const model_origin origin = {.checkpoint = from, .formats = &r->formats};
    origin_reader *reader;
    if (r->model->adapters) return save_saved_adapters(r, from, dir, o);
    if (o->discard) return NRL_OK; /* rank 0 needs nobody to read */
    NRL_TRY(origin_open(&origin, r->model, &reader));
    nrl_status st = model_save(dir, r->model, origin_read, reader, o);
    origin_close(reader);
    return st;
}

static nrl_status save_current_weights(run *r, const char *dir, const save_options *o)
{
    nrl_status st = strategy_average_begin(&r->strategy, r->ctx);
    if (st == NRL_OK) st = save_weights(r, dir, o);
    return strategy_average_end(&r->strategy, r->ctx, st);
}

/* ---- any of them ---- */

/* The chat template that was trained, in Jinja; NULL where that is the tokenizer's own, or
 * nobody's. */
const char *export_template(const run *r, arena *a)
{
    const char *word = r->config.data.template_from.source;
    if (!r->chat || !r->tokenizer || (word && !strcmp(word, "auto"))) return NULL;
    char *jinja = chat_template_jinja(r->chat);
    const char *kept = jinja ? arena_strdup(a, jinja) : NULL;
    free(jinja);
    return kept;
}

typedef struct {
    arena *a;
    save_options *o;
    size_t n;
} export_files;

static nrl_status export_add_file(void *user, const char *name, const char *text)
{
    export_files *f = user;
    size_t room = sizeof f->o->replaced / sizeof *f->o->replaced;
    if (f->n + 1 == room)
        return nrl_fail(NRL_ERR_PLUGIN, "cannot export the chat template: more than %zu files change", room - 1);
    f->o->replaced[f->n++] = (save_file){arena_strdup(f->a, name), text ? arena_strdup(f->a, text) : NULL};
    return NRL_OK;
}

nrl_status export_set_template(arena *a, const tokenizer *tok, const char *jinja, save_options *o)
{
    export_files f = {a, o, 0};
    if (!jinja || !tok || !tok->open.table->export_template) return NRL_OK;
    return tok->open.table->export_template(tok->open.self, jinja, export_add_file, &f);
}

nrl_status export_to(run *r, const char *from, const char *dir)
{
    arena a = {0};
    save_options o = {.dtype = run_compute(r),
                      .copy_from = r->tokenizer ? r->tokenizer->info.folder : r->tokenizer_dir,
                      .discard = !run_is_rank0(r),
                      .overwrite = claims_has_path(&r->claims, dir),
                      .inputs = &r->claims.inputs};
    format_scope formats = r->formats;
    formats.name = r->config.checkpoint.export_format;
    nrl_status st = format_for_writing(&formats, NRL_HOLDS_MODEL, r->origin.format, &o.format);
    if (st == NRL_OK) st = export_set_template(&a, r->tokenizer, export_template(r, &a), &o);
    if (st == NRL_OK) st = from ? save_saved_weights(r, from, dir, &o) : save_current_weights(r, dir, &o);
    arena_free(&a);
    bool is_new = st == NRL_OK && run_is_rank0(r) && !o.overwrite; /* it is there, whatever becomes of the marker */
    if (is_new && claims_add(&r->claims, config_absolute(&r->memory, dir)) != NRL_OK) nrl_warn("%s", nrl_error_text());
    if (st == NRL_OK) st = mesh_barrier(r->mesh, "export"); /* it is there for every rank's next call */
    if (st != NRL_OK) nrl_add_context("exporting to '%s'", dir);
    return st;
}

nrl_status nrl_run_export(run *r, const char *dir)
{
    NRL_TRY(run_begin_call(r, "export"));
    nrl_status st = ranks_agree(r, "export", XXH3_64bits(dir, strlen(dir)));
    if (st == NRL_OK) st = claims_check_export(&r->claims, dir);
    if (st == NRL_OK) st = export_to(r, NULL, dir);
    return run_end_call(r, st);
}
