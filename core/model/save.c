/*
 * save.c - writes a directory of weights: tensors, part by part, through the format's writer, then accompanying files,
 * then exchanges names (lib/base/output.h).
 * Memory: one chunk of values; a matrix that files store transposed (GPT-2) is in memory as a whole.
 */
#include "model/save.h"
#include "base/buffer.h"
#include "base/json.h"
#include "base/output.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

typedef struct {
    nrl_param *param;
    const nrl_part *part;
    int64_t begin, numel; /* elements of the parameter */
} save_piece;

typedef struct {
    const model *m;
    const save_options *options;
    weights_source source;
    void *user;
    arena memory;
    output out;
    int64_t n_pieces;
    save_piece *pieces;         /* in order of writing */
    nrl_format_tensor *tensors; /* [n_pieces] */
    void *writer;               /* the format's; NULL: values are discarded */
    float *values, *transposed;
    size_t room; /* elements of the two buffers */
} saver;

static bool save_holds_adapters(const saver *s)
{
    return s->options->format->holds == NRL_HOLDS_ADAPTER;
}

/* The name of an output layer that is the embedding, if that is saved with adapters: programs that read them expect
 * both. */
static const char *save_tied_name(const saver *s)
{
    return save_holds_adapters(s) && !s->m->drops_head && s->m->head.weight->saved_whole ? weights_tied_name(s->m) : "";
}

/* ---- what is written ---- */

/* The description of the model's adapters, see nrl/format.h. */
static const nrl_node *save_adapter_config(saver *s)
{
    arena *a = &s->memory;
    bool transposed = false;
    nrl_node *map = node_new(a, NRL_NODE_MAP), *linear = node_new(a, NRL_NODE_LIST);
    const char *base = s->options->adapter_base;
    node_append_text(a, map, "adapter", s->m->adapters->table->plugin.name);
    node_append(a, map, "base", base ? node_text(a, base) : node_new(a, NRL_NODE_NULL));
    node_append(a, map, "settings", node_copy(a, s->m->adapters->settings));
    const nrl_adapter_model scope = adapter_scope(a, s->m, "");
    for (int64_t i = 0; i < scope.n_targets; i++)
        node_append(a, linear, NULL, node_text(a, scope.targets[i].module));
    for (int32_t i = 0; i < s->m->n_own; i++)
        transposed |= s->m->params[i]->adapter && s->m->params[i]->parts[0].transposed;
    node_append(a, map, "linear", linear);
    node_append(a, map, "transposed", node_bool(a, transposed));
    node_append_text(a, map, "tied", save_tied_name(s));
    return map;
}

/* ---- values ---- */

static nrl_status save_make_room(saver *s, int64_t n)
{
    float **buffers[] = {&s->values, &s->transposed};
    for (int i = 0; i < 2; i++) {
        if (*buffers[i] && s->room >= (size_t)n) continue;
        float *grown = mem_try_grow(*buffers[i], (size_t)n * sizeof *grown, "the weights that are saved");
        if (!grown) return NRL_ERR_MEMORY;
        *buffers[i] = grown;
    }
    if (s->room < (size_t)n) s->room = (size_t)n;
    return NRL_OK;
}

static nrl_status save_write(saver *s, int64_t i, const float *values, int64_t n)
{
    return s->writer ? s->options->format->write(s->writer, i, n, values) : NRL_OK;
}

/* Writes a parameter [out, in] as [in, out]. */
static nrl_status save_transposed(saver *s, int64_t at)
{
    const save_piece *p = &s->pieces[at];
    int64_t n_out = p->part->dims[0], n_in = p->part->dims[1];
    NRL_TRY(save_make_room(s, p->numel));
    NRL_TRY(s->source(s->user, p->param, p->begin, p->numel, s->values));
    for (int64_t o = 0; o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++)
            s->transposed[i * n_out + o] = s->values[o * n_in + i];
    return save_write(s, at, s->transposed, p->numel);
}

static nrl_status save_pieces(saver *s)
{
    for (int64_t i = 0; i < s->n_pieces; i++) {
        const save_piece *p = &s->pieces[i];
        if (p->part->transposed) NRL_TRY(save_transposed(s, i));
        for (int64_t done = 0; done < p->numel && !p->part->transposed; done += CHUNK) {
            int64_t n = p->numel - done < CHUNK ? p->numel - done : CHUNK;
            NRL_TRY(save_make_room(s, n));
            NRL_TRY(s->source(s->user, p->param, p->begin + done, n, s->values));
            NRL_TRY(save_write(s, i, s->values, n));
        }
    }
    return NRL_OK;
}

static nrl_status save_weights(saver *s)
{
    const nrl_format *f = s->options->format;
    char *config = json_write(save_holds_adapters(s) ? save_adapter_config(s) : s->m->config, 0);
    nrl_format_write what = {.size = sizeof what,
                             .tensor_size = sizeof *s->tensors,
                             .dir = s->out.temporary,
                             .config = config,
                             .config_size = strlen(config),
                             .dtype = s->options->dtype,
                             .max_file_bytes = s->options->max_shard_bytes,
                             .n_tensors = s->n_pieces,
                             .tensors = s->tensors,
                             .encoding = s->options->encoding,
                             .companions = s->options->copy_from,
                             .files = s->options->replaced};
    while (s->options->replaced[what.n_files].name)
        what.n_files++;
    nrl_status st = f->begin(&what, &s->writer);
    if (st != NRL_OK) s->writer = NULL;
    if (st == NRL_OK) st = save_pieces(s);
    if (s->writer && st == NRL_OK)
        st = f->finish(s->writer);
    else if (s->writer)
        f->abandon(s->writer);
    free(config);
    return st;
}

/* ---- the other files ---- */

/* The existing names, without those that are replaced or in `copied`. */
static nrl_status save_copies(saver *s, const char *const *names, const char *const *copied)
{
    const char *from = s->options->copy_from;
    for (const char *const *name = names; from && name && *name; name++) {
        bool done = false;
        for (const nrl_format_file *f = s->options->replaced; f->name; f++)
            done |= !strcmp(f->name, *name);
        for (const char *const *other = copied; other && *other; other++)
            done |= !strcmp(*other, *name);
        if (!done) NRL_TRY(output_copy(&s->out, from, *name));
    }
    return NRL_OK;
}

static nrl_status save_travelling(saver *s)
{
    const nrl_format_file *own = s->options->replaced;
    const char *const *travelling = s->options->format->travelling;
    NRL_TRY(save_copies(s, travelling, NULL));
    NRL_TRY(save_copies(s, s->options->files, travelling));
    for (const nrl_format_file *f = own; f->name; f++)
        if (f->text) NRL_TRY(output_text(&s->out, f->name, f->text));
    return NRL_OK;
}

static nrl_status save_all(saver *s, const char *dir)
{
    const nrl_format *f = s->options->format, *former = NULL;
    if (!s->options->formats || format_find(s->options->formats, f->holds, dir, &former) != NRL_OK) former = f;
    NRL_TRY(output_open(dir, s->options->inputs, &s->out));
    output_sweep(&s->out, f->owns, f->travelling);
    if (!s->options->overwrite) NRL_TRY(output_refuse(&s->out, f->owns, former->owns));
    NRL_TRY(save_weights(s));
    NRL_TRY(save_travelling(s));
    return output_publish(&s->out, s->options->overwrite, (output_stale){f->owns, former->owns, f->travelling});
}

/* Refuses an encoding that the format does not have. */
static nrl_status save_check_encoding(const save_options *o)
{
    const nrl_format *f = o->format;
    buffer known = {0};
    if (!o->encoding) return NRL_OK;
    for (const char *const *e = f->encodings; e && *e; e++) {
        if (!strcmp(*e, o->encoding)) return NRL_OK;
        buffer_print(&known, ", %s", *e);
    }
    nrl_status st = nrl_fail(NRL_ERR_CONFIG, "format '%s' cannot write weights as '%s'; expected f32, bf16, f16%s",
                             f->plugin.name, o->encoding, known.text ? known.text : "");
    buffer_free(&known);
    return st;
}

nrl_status model_save(const char *dir, const model *m, weights_source source, void *user, const save_options *options)
{
    nrl_dtype dtype = options->dtype;
    if (dtype != NRL_DTYPE_F32 && dtype != NRL_DTYPE_BF16 && dtype != NRL_DTYPE_F16)
        return nrl_fail(NRL_ERR_CONFIG, "cannot save weights as %s; expected f32, bf16 or f16", nrl_dtype_name(dtype));
    NRL_TRY(save_check_encoding(options));
    saver s = {.m = m, .options = options, .source = source, .user = user};
    bool alone = save_holds_adapters(&s);
    int32_t end = alone ? s.m->n_params : s.m->n_own;
    size_t n = 1;
    for (int32_t i = 0; i < end; i++)
        n += (size_t)s.m->params[i]->n_parts;
    s.pieces = mem_try((n + 1) * sizeof *s.pieces, "the list of tensors");
    s.tensors = mem_try((n + 1) * sizeof *s.tensors, "the list of tensors");
    nrl_status st = s.pieces && s.tensors ? NRL_OK : NRL_ERR_MEMORY;
    for (int32_t i = 0; i < end && st == NRL_OK; i++) {
        nrl_param *p = s.m->params[i];
        if (alone && i < s.m->n_own && !p->saved_whole) continue;
        int64_t begin = 0;
        for (int k = 0; k < p->n_parts; k++) {
            const nrl_part *part = &p->parts[k];
            nrl_format_tensor *t = &s.tensors[s.n_pieces];
            *t = (nrl_format_tensor){.size = sizeof *t,
                                     .dtype = s.options->dtype,
                                     .name = part->name,
                                     .type = nrl_dtype_name(s.options->dtype),
                                     .n_dims = part->n_dims};
            weights_file_dims(part, t->dims);
            s.pieces[s.n_pieces++] = (save_piece){p, part, begin, weights_numel(t)};
            begin += weights_numel(t);
        }
        if (p == s.m->head.weight && *save_tied_name(&s)) {
            s.pieces[s.n_pieces] = s.pieces[s.n_pieces - 1];
            s.tensors[s.n_pieces] = s.tensors[s.n_pieces - 1];
            s.tensors[s.n_pieces++].name = save_tied_name(&s);
        }
    }
    if (st == NRL_OK) st = options->discard ? save_pieces(&s) : save_all(&s, dir);
    output_close(&s.out);
    free(s.pieces);
    free(s.tensors);
    free(s.values);
    free(s.transposed);
    arena_free(&s.memory);
    return st;
}

nrl_status model_remove(const format_scope *scope, const char *dir)
{
    const nrl_format *f;
    NRL_TRY(format_find(scope, NRL_HOLDS_MODEL, dir, &f));
    return output_remove(dir, f->owns, f->travelling);
}
