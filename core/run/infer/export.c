/*
 * export.c - writes the weights of a run as a model on disk, with the files that belong to it. Every rank walks the
 * same tensors; rank 0 writes, and the others send it what they hold, a few MiB at a time.
 */
#include "checkpoint/format.h"
#include "base/paths.h"
#include "config/config.h"
#include "run/infer/export.h"
#include "run/step/ranks.h"
#include "run/weights/origin.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Gathers a whole matrix of an adapter. */
static nrl_status live_matrix(void *user, const char *name, int64_t n, float *out)
{
    session *se = user;
    storage_view view = {.ctx = se->ctx, .mesh = se->mesh};
    const nrl_param *p = model_param(se->model, name);
    NRL_ASSERT(p->whole, ==, n);
    return storage_gather(&view, p, 0, n, out);
}

/* Adds adapters to the weights that they were trained on, which are rounded to the compute dtype. */
static nrl_status save_weights(session *se, const char *dir, const save_options *o)
{
    storage_view view = {.ctx = se->ctx, .mesh = se->mesh, .packed = origin_read};
    merge merged = {
        .base = storage_gather, .base_user = &view, .set = se->model->adapters, .matrix = live_matrix, .user = se};
    if (!se->model->adapters) return model_save(dir, se->model, storage_gather, &view, o);
    origin_reader *base = NULL;
    if (se->origin.quantized) NRL_TRY(origin_open(&se->origin, se->model, &base));
    view.packed_user = base;
    nrl_status st = model_save(dir, se->model, merge_read, &merged, o);
    merge_free(&merged);
    origin_close(base);
    return st;
}

/* ---- from a checkpoint ---- */

typedef struct {
    const session *se;
    origin_stream stream;
    origin_reader *base;
} saved_weights;

static nrl_status saved_matrix(void *user, const char *name, int64_t n, float *out)
{
    saved_weights *s = user;
    return origin_stream_read(&s->stream, model_param(s->se->model, name), 0, n, out);
}

static nrl_status saved_base(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    saved_weights *s = user;
    storage_view view = {.ctx = s->se->ctx, .mesh = s->se->mesh, .packed = origin_read, .packed_user = s->base};
    return p->saved_whole ? origin_stream_read(&s->stream, p, begin, n, out) : storage_gather(&view, p, begin, n, out);
}

/* The base does not change and is shared out among the ranks, which all call this. */
static nrl_status save_saved_adapters(session *se, const char *from, const char *dir, const save_options *o)
{
    saved_weights saved = {.se = se};
    merge merged = {
        .base = saved_base, .base_user = &saved, .set = se->model->adapters, .matrix = saved_matrix, .user = &saved};
    NRL_TRY(checkpoint_open_signed(from, se->public_key, &saved.stream.c));
    nrl_status st = se->origin.quantized ? origin_open(&se->origin, se->model, &saved.base) : NRL_OK;
    if (st == NRL_OK) st = model_save(dir, se->model, merge_read, &merged, o);
    merge_free(&merged);
    origin_close(saved.base);
    free(saved.stream.raw);
    checkpoint_close(saved.stream.c);
    return st;
}

static nrl_status save_saved_weights(session *se, const char *from, const char *dir, const save_options *o)
{
    const model_origin origin = {.checkpoint = from, .formats = &se->formats, .signer = se->public_key};
    origin_reader *reader;
    if (se->model->adapters) return save_saved_adapters(se, from, dir, o);
    if (o->discard) return NRL_OK; /* rank 0 reads alone */
    NRL_TRY(origin_open(&origin, se->model, &reader));
    nrl_status st = model_save(dir, se->model, origin_read, reader, o);
    origin_close(reader);
    return st;
}

static nrl_status save_current_weights(session *se, const char *dir, const save_options *o)
{
    nrl_status st = strategy_begin(&se->strategy, STRATEGY_AVERAGE, se->ctx);
    if (st == NRL_OK) st = save_weights(se, dir, o);
    return strategy_end(&se->strategy, STRATEGY_AVERAGE, se->ctx, st);
}

/* ---- any of them ---- */

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
    f->o->replaced[f->n++] = (nrl_format_file){arena_strdup(f->a, name), text ? arena_strdup(f->a, text) : NULL};
    return NRL_OK;
}

nrl_status export_set_template(arena *a, const tokenizer *tok, const char *jinja, save_options *o)
{
    export_files f = {a, o, 0};
    while (o->replaced[f.n].name)
        f.n++;
    if (!tok || !(jinja || tok->has_new_tokens) || !tok->open.table->export_template) return NRL_OK;
    return tok->open.table->export_template(tok->open.self, jinja, export_add_file, &f);
}

nrl_dtype export_dtype(const model *m, nrl_dtype otherwise)
{
    const nrl_node *at = nrl_node_find(m->config, "dtype");
    const char *word = nrl_node_string(at ? at : nrl_node_find(m->config, "torch_dtype"), "");
    if (!strcmp(word, "float32")) return NRL_DTYPE_F32;
    if (!strcmp(word, "bfloat16")) return NRL_DTYPE_BF16;
    return strcmp(word, "float16") ? otherwise : NRL_DTYPE_F16;
}

nrl_status export_check(const claims *c, const char *dir)
{
    static const char *const own[] = {"", "/checkpoints", "/cache"};
    struct stat s;
    char *manifest = mem_printf("%s/" FORMAT_MANIFEST, dir);
    bool refused = !lstat(manifest, &s);
    free(manifest);
    for (size_t i = 0; i < sizeof own / sizeof *own && c->out && !refused; i++) {
        char *path = mem_printf("%s%s", c->out, own[i]);
        refused = claims_are_same(path, dir);
        free(path);
    }
    if (!refused) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot replace '%s' by a model: it is a directory of a run\n"
                    "hint: choose another directory, such as '%s/model'",
                    dir, c->out ? c->out : dir);
}

nrl_status export_to(session *se, const char *from, const char *dir, const char *card)
{
    static const nrl_dtype dtypes[] = {NRL_DTYPE_NONE, NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F16};
    nrl_dtype asked = dtypes[se->config.checkpoint.export_dtype];
    arena a = {0};
    save_options o = {.dtype = asked ? asked : export_dtype(se->model, session_compute(se)),
                      .copy_from = se->tokenizer ? se->tokenizer->info.folder : se->tokenizer_dir,
                      .files = se->tokenizer ? se->tokenizer->info.files : NULL,
                      .discard = !session_is_rank0(se),
                      .overwrite = claims_has_path(&se->claims, dir),
                      .formats = &se->formats,
                      .inputs = &se->claims.inputs};
    format_scope formats = se->formats;
    formats.name = se->config.checkpoint.export_format;
    nrl_status st = format_for_writing(&formats, NRL_HOLDS_MODEL, se->origin.format, &o.format);
    if (st == NRL_OK && card && o.format->travelling) o.replaced[0] = (nrl_format_file){"README.md", card};
    if (st == NRL_OK) st = export_set_template(&a, se->tokenizer, session_template(se, &a), &o);
    if (st == NRL_OK) st = from ? save_saved_weights(se, from, dir, &o) : save_current_weights(se, dir, &o);
    arena_free(&a);
    bool is_new =
        st == NRL_OK && session_is_rank0(se) && !o.overwrite; /* it exists, even if the marker cannot be written */
    if (is_new && claims_add(&se->claims, paths_absolute(&se->memory, dir)) != NRL_OK) nrl_warn("%s", nrl_error_text());
    if (st == NRL_OK) st = mesh_barrier(se->mesh, "export"); /* every rank sees the export at its next call */
    if (st != NRL_OK) nrl_add_context("exporting to '%s'", dir);
    return st;
}
