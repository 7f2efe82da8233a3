/*
 * origin.c - the three origins of weights, and adapters on top of any of them.
 */
#include "run/weights/origin.h"
#include "base/buffer.h"
#include "base/convert.h"
#include "checkpoint/format.h"
#include "model/packed.h"
#include "base/piece.h"
#include "run/weights/read_check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 }; /* a manifest may name itself as the base of its adapters */

nrl_status origin_checkpoint(const char *path, arena *a, const char **dir)
{
    char *found;
    NRL_TRY(checkpoint_locate(path, &found));
    *dir = found ? arena_strdup(a, found) : NULL;
    free(found);
    return NRL_OK;
}

static nrl_status read_node(const model_origin *o, const char *key, arena *a, nrl_node **out)
{
    checkpoint *c;
    NRL_TRY(checkpoint_open_signed(o->checkpoint, o->signer, &c));
    const nrl_node *node = checkpoint_node(c, key);
    *out = node ? node_copy(a, node) : NULL;
    checkpoint_close(c);
    return NRL_OK;
}

nrl_status origin_find(const char *path, arena *a, model_origin *out, const nrl_node **config)
{
    nrl_node *node;
    NRL_TRY(origin_checkpoint(path, a, &out->checkpoint));
    if (!out->checkpoint) {
        weight_files *w;
        NRL_TRY(weights_open(out->formats, NRL_HOLDS_MODEL, path, &w));
        out->format = w->format;
        out->dir = arena_strdup(a, w->info.path);
        if (w->info.companions) out->companions = arena_strdup(a, w->info.companions);
        nrl_status st = weights_config(w, a, config);
        weights_close(w);
        return st;
    }
    NRL_TRY(read_node(out, "model", a, &node));
    *config = node;
    return node ? NRL_OK : nrl_fail(NRL_ERR_CORRUPT, "%s: it does not describe a model", out->checkpoint);
}

nrl_status origin_tokenizer(const model_origin *o, arena *a, const char **folder, nrl_node **new_tokens)
{
    nrl_node *node = NULL;
    *folder = o->companions;
    *new_tokens = NULL;
    if (!o->checkpoint) return NRL_OK;
    NRL_TRY(read_node(o, "new_tokens", a, new_tokens));
    NRL_TRY(read_node(o, "tokenizer", a, &node));
    *folder = nrl_node_string(node, "");
    if (!**folder) *folder = NULL;
    return NRL_OK;
}

void origin_add_inputs(const model_origin *o, const char *name, inputs *in)
{
    arena a = {0};
    nrl_node *base = NULL;
    const nrl_node *config;
    model_origin below = {.depth = o->depth + 1, .formats = o->formats};
    if (o->dir) inputs_add(in, name, o->dir);
    if (o->adapter_dir) inputs_add(in, "adapter.use", o->adapter_dir);
    if (o->checkpoint) {
        inputs_add(in, name, o->checkpoint);
        if (read_node(o, "base", &a, &base) != NRL_OK) base = NULL; /* whoever loads it reports that */
    }
    const char *path = nrl_node_string(nrl_node_find(base, "path"), NULL);
    if (path && below.depth <= MAX_DEPTH && origin_find(path, &a, &below, &config) == NRL_OK)
        origin_add_inputs(&below, name, in);
    arena_free(&a);
}

/* ---- weights of a checkpoint ---- */

static nrl_status find_part(const checkpoint *c, const nrl_part *part, int64_t *i)
{
    *i = checkpoint_find_tensor(c, part->name, "weight");
    if (*i < 0) return nrl_fail(NRL_ERR_CORRUPT, "%s: has no weight of '%s'", checkpoint_dir(c), part->name);
    const checkpoint_tensor *t = checkpoint_tensor_at(c, (size_t)*i);
    if (t->n_dims == part->n_dims && !memcmp(t->dims, part->dims, (size_t)t->n_dims * sizeof *t->dims) &&
        convert_known(t->dtype))
        return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: '%s' has another shape or type than its model", checkpoint_dir(c),
                    part->name);
}

/* Elements [begin, begin + n) of tensor i as f32. */
static nrl_status read_tensor(origin_stream *f, int64_t i, int64_t begin, int64_t n, float *out)
{
    const checkpoint_tensor *t = checkpoint_tensor_at(f->c, (size_t)i);
    layout_shard want = piece_of_whole(t->n_dims, t->dims);
    size_t size = (size_t)n * nrl_dtype_size(t->dtype);
    if (f->room < size) {
        void *grown = mem_try_grow(f->raw, size, t->name);
        if (!grown) return NRL_ERR_MEMORY;
        f->raw = grown;
        f->room = size;
    }
    want.flat_begin = begin;
    want.flat_end = begin + n;
    NRL_TRY(checkpoint_read(f->c, (size_t)i, &want, f->raw));
    convert_to_f32(t->dtype, f->raw, n, out);
    return NRL_OK;
}

/* The parts of a parameter follow each other. */
nrl_status origin_stream_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    origin_stream *f = user;
    int64_t at = 0, i;
    for (int k = 0; k < p->n_parts; k++) {
        layout_shard whole = piece_of_whole(p->parts[k].n_dims, p->parts[k].dims);
        int64_t end = at + piece_numel(&whole);
        int64_t from = begin > at ? begin : at, to = begin + n < end ? begin + n : end;
        if (from < to) {
            NRL_TRY(find_part(f->c, &p->parts[k], &i));
            NRL_TRY(read_tensor(f, i, from - at, to - from, out + (from - begin)));
        }
        at = end;
    }
    return NRL_OK;
}

static nrl_status stream_matrix(void *user, const char *name, int64_t n, float *out)
{
    origin_stream *f = user;
    int64_t i = checkpoint_find_tensor(f->c, name, "weight");
    const checkpoint_tensor *t = i < 0 ? NULL : checkpoint_tensor_at(f->c, (size_t)i);
    const layout_shard whole = t ? piece_of_whole(t->n_dims, t->dims) : (layout_shard){0};
    if (!t || !convert_known(t->dtype) || piece_numel(&whole) != n)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: has no matrix '%s' of %lld elements", checkpoint_dir(f->c), name,
                        (long long)n);
    return read_tensor(f, i, 0, n, out);
}

/* ---- any origin ---- */

struct origin_reader {
    const model *m;
    arena memory;
    weight_files *weights; /* or */
    origin_stream stream;  /* or, without both, */
    uint64_t seed;
    /* added to it */
    adapter_set set; /* of a checkpoint of adapters alone; `below` has the weights then */
    origin_reader *below;
    weight_files *start;
    adapter_set start_set;
    merge merge_stream, merge_start;
    quantize_kind quantized;
    quantized_matrix packed; /* of packed_of */
    const nrl_param *packed_of;
};

static bool is_in_files(const weight_files *w, const origin_reader *r, const nrl_param *p)
{
    return w && weights_part(w, r->m, p->parts);
}

static bool is_in_checkpoint(const origin_reader *r, const nrl_param *p)
{
    return r->stream.c && checkpoint_find_tensor(r->stream.c, p->name, "weight") >= 0;
}

bool origin_has(const origin_reader *r, const nrl_param *p)
{
    if (!p->saved_whole || is_in_files(r->start, r, p) || is_in_files(r->weights, r, p) || is_in_checkpoint(r, p))
        return true;
    return r->below ? origin_has(r->below, p) : !r->weights && !r->stream.c && !p->may_be_new;
}

/* A parameter that is saved whole, with the values of the adapters that come with it, or those below. */
static nrl_status read_whole(origin_reader *r, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    if (is_in_files(r->start, r, p)) return weights_read(r->start, r->m, p, begin, n, out);
    if (is_in_files(r->weights, r, p)) return weights_read(r->weights, r->m, p, begin, n, out);
    if (is_in_checkpoint(r, p)) return origin_stream_read(&r->stream, p, begin, n, out);
    if (r->below) return merge_read(&r->merge_stream, p, begin, n, out);
    model_init_values(p, r->seed, begin, n, out);
    return NRL_OK;
}

static nrl_status read_own(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    origin_reader *r = user;
    if (r->weights) return weights_read(r->weights, r->m, p, begin, n, out);
    if (r->below) return merge_read(&r->merge_stream, p, begin, n, out);
    if (r->stream.c) return origin_stream_read(&r->stream, p, begin, n, out);
    model_init_values(p, r->seed, begin, n, out);
    return NRL_OK;
}

/* With the values that training uses: those of quantized weights. */
static nrl_status read_base(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    origin_reader *r = user;
    /* a model without adapters does not know which modules were trained whole beside some */
    if (p->saved_whole || is_in_files(r->start, r, p) || (r->below && is_in_checkpoint(r, p)))
        return read_whole(r, p, begin, n, out);
    if (!r->quantized || !model_quantizes(r->m, p)) return read_own(r, p, begin, n, out);
    if (r->packed_of != p) {
        quantized_free(&r->packed);
        r->packed_of = NULL;
        NRL_TRY(quantized_read(r->quantized, p->whole, p->parts[0].dims[1], read_own, r, p, &r->packed));
        r->packed_of = p;
    }
    quantized_decode(&r->packed, begin, n, out);
    return NRL_OK;
}

static nrl_status read_row_norms(origin_reader *r, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const int64_t k = p->adapts->parts[0].dims[1];
    float *row = mem_try((size_t)k * sizeof *row, p->name);
    nrl_status st = row ? NRL_OK : NRL_ERR_MEMORY;
    for (int64_t i = 0; i < n && st == NRL_OK; i++) {
        double squares = 0;
        st = read_base(r, p->adapts, (begin + i) * k, k, row);
        for (int64_t c = 0; c < k && st == NRL_OK; c++)
            squares += (double)row[c] * (double)row[c];
        out[i] = (float)sqrt(squares);
    }
    free(row);
    return st;
}

static nrl_status start_matrix(void *user, const char *name, int64_t n, float *out)
{
    return weights_read_tensor(user, name, 0, n, out);
}

nrl_status origin_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    origin_reader *r = user;
    if (p->packs) return read_own(r, p->packs, begin, n, out); /* to be quantized */
    if (p->index < r->m->n_own)
        return r->merge_start.base ? merge_read(&r->merge_start, p, begin, n, out) : read_base(r, p, begin, n, out);
    if (r->start) return weights_read_tensor(r->start, p->name, begin, n, out);
    if (p->init == NRL_INIT_ROW_NORM) return read_row_norms(r, p, begin, n, out);
    model_init_values(p, r->seed, begin, n, out);
    return NRL_OK;
}

static nrl_status open_checkpoint(origin_reader *r, const model_origin *o)
{
    model_origin base;
    NRL_TRY(checkpoint_open_signed(o->checkpoint, o->signer, &r->stream.c));
    NRL_TRY(origin_adapters(r->stream.c, o->formats->host, &r->memory, &r->set));
    if (!r->set.n) {
        int64_t at;
        for (int32_t i = 0; i < r->m->n_own; i++)
            for (int k = 0; k < r->m->params[i]->n_parts && !r->m->params[i]->saved_whole; k++)
                NRL_TRY(find_part(r->stream.c, &r->m->params[i]->parts[k], &at));
        return NRL_OK;
    }
    base.formats = o->formats;
    NRL_TRY(origin_base(r->stream.c, &r->memory, &base));
    base.depth = o->depth + 1;
    if (base.depth > MAX_DEPTH)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: its base model has adapters itself, more than %d levels deep",
                        o->checkpoint, MAX_DEPTH);
    NRL_TRY(origin_open(&base, r->m, &r->below));
    r->merge_stream =
        (merge){.base = read_base, .base_user = r->below, .set = &r->set, .matrix = stream_matrix, .user = &r->stream};
    return NRL_OK;
}

static nrl_status open_start(origin_reader *r, const model_origin *o)
{
    NRL_TRY(weights_open_as(o->adapter_format, o->adapter_dir, &r->start));
    NRL_TRY(weights_load(r->start));
    if (r->m->adapters) return weights_check_adapters(r->start, r->m);
    NRL_TRY(origin_adapter_set(r->start, o->formats->host, &r->memory, &r->start_set));
    r->merge_start =
        (merge){.base = read_base, .base_user = r, .set = &r->start_set, .matrix = start_matrix, .user = r->start};
    return NRL_OK;
}

static nrl_status open_reader(origin_reader *r, const model_origin *o)
{
    if (o->checkpoint)
        NRL_TRY(open_checkpoint(r, o));
    else if (o->dir)
        NRL_TRY(weights_open_as(o->format, o->dir, &r->weights));
    if (r->weights) r->weights->rows = o->rows;
    if (r->weights) NRL_TRY(weights_load(r->weights));
    if (r->weights) NRL_TRY(weights_check(r->weights, r->m));
    return o->adapter_dir ? open_start(r, o) : NRL_OK;
}

nrl_status origin_open(const model_origin *o, const model *m, origin_reader **out)
{
    origin_reader *r = mem_alloc(sizeof *r);
    r->m = m;
    r->seed = o->seed;
    r->quantized = o->quantized;
    nrl_status st = open_reader(r, o);
    bool random = !o->dir && !o->checkpoint;
    for (int32_t i = 0; st == NRL_OK && !o->depth && !random && i < m->n_own; i++)
        if (!m->params[i]->may_be_new && !origin_has(r, m->params[i]))
            st = nrl_fail(NRL_ERR_DATA, "'%s' is missing, but config.json describes it", m->params[i]->name);
    if (st == NRL_OK)
        *out = r;
    else
        origin_close(r);
    return st;
}

void origin_close(origin_reader *r)
{
    if (!r) return;
    merge_free(&r->merge_stream);
    merge_free(&r->merge_start);
    quantized_free(&r->packed);
    adapter_set_close(&r->set);
    adapter_set_close(&r->start_set);
    origin_close(r->below);
    weights_close(r->start);
    if (r->stream.c) checkpoint_close(r->stream.c);
    weights_close(r->weights);
    free(r->stream.raw);
    arena_free(&r->memory);
    free(r);
}

nrl_status origin_check(const model_origin *o, const model *m)
{
    origin_reader *r;
    NRL_TRY(origin_open(o, m, &r));
    origin_close(r);
    return NRL_OK;
}

nrl_status origin_load(const model_origin *o, nrl_ctx *ctx, model *m, nrl_mesh *mesh)
{
    origin_reader *r;
    read_check check;
    if (!ctx_computes(ctx)) return NRL_OK;
    NRL_TRY(origin_open(o, m, &r));
    nrl_status st = read_check_open(&check, m, origin_read, r);
    if (st == NRL_OK) st = storage_load(ctx, m, mesh, read_check_source, &check);
    if (st == NRL_OK) st = read_check_compare(&check, mesh, "weights");
    read_check_close(&check);
    origin_close(r);
    return st;
}

nrl_status origin_checkpoint_key(const char *dir, char key[HASH_TEXT])
{
    char *path = mem_printf("%s/" FORMAT_MANIFEST, dir);
    nrl_status st = hash_file(path, key);
    free(path);
    return st;
}

/* Hashes everything that belongs to the weights of a path. */
static nrl_status path_key(const nrl_format *format, const char *path, char key[HASH_TEXT])
{
    weight_files *w;
    NRL_TRY(weights_open_as(format, path, &w));
    nrl_status st = weights_load(w);
    if (st == NRL_OK) st = weights_hash(w, key);
    weights_close(w);
    return st;
}

nrl_status origin_adapter_key(const model_origin *o, char key[HASH_TEXT])
{
    return path_key(o->adapter_format, o->adapter_dir, key);
}

static nrl_status own_key(const model_origin *o, char key[33])
{
    if (o->checkpoint) return origin_checkpoint_key(o->checkpoint, key);
    if (!o->dir) {
        snprintf(key, 33, "seed-%llu", (unsigned long long)o->seed);
        return NRL_OK;
    }
    return path_key(o->format, o->dir, key);
}

nrl_status origin_key(const model_origin *o, char key[33])
{
    char both[2 * 33];
    memset(key, 0, 33);
    NRL_TRY(own_key(o, key));
    if (o->quantized) {
        char *text = mem_printf("%s %s", key, quantize_name(o->quantized));
        hash_bytes(text, strlen(text), key);
        free(text);
    }
    if (!o->adapter_dir) return NRL_OK;
    memcpy(both, key, 33);
    NRL_TRY(origin_adapter_key(o, both + 33));
    hash_bytes(both, sizeof both, key);
    return NRL_OK;
}

static nrl_status add_identity(const model_origin *o, const char *whose, buffer *lines)
{
    char key[33];
    if (o->checkpoint) {
        NRL_TRY(origin_checkpoint_key(o->checkpoint, key));
        buffer_print(lines, "%scheckpoint %s: %s\n", whose, o->checkpoint, key);
    } else if (o->dir) {
        weight_files *w;
        char *tensors = NULL;
        NRL_TRY(weights_open_as(o->format, o->dir, &w));
        nrl_status st = weights_load(w);
        if (st == NRL_OK) st = weights_identity(w, whose, &tensors);
        if (st == NRL_OK) buffer_puts(lines, tensors);
        free(tensors);
        weights_close(w);
        NRL_TRY(st);
    }
    if (!o->adapter_dir) return NRL_OK;
    NRL_TRY(origin_adapter_key(o, key));
    buffer_print(lines, "%sadapters %s: %s\n", whose, o->adapter_dir, key);
    return NRL_OK;
}

nrl_status origin_identity(const model_origin *o, const char *whose, char **lines)
{
    buffer b = {0};
    nrl_status st = add_identity(o, whose, &b);
    if (st == NRL_OK) *lines = buffer_take(&b);
    buffer_free(&b);
    return st;
}

nrl_status origin_sampled_key(const model_origin *o, arena *a, const char **key)
{
    model_origin base = *o;
    char *lines, text[2 * HASH_TEXT] = "";
    base.adapter_dir = NULL;
    if (o->checkpoint) {
        NRL_TRY(origin_checkpoint_key(o->checkpoint, text));
    } else {
        NRL_TRY(origin_identity(&base, "", &lines));
        hash_bytes(lines, strlen(lines), text);
        free(lines);
    }
    if (o->adapter_dir) NRL_TRY(origin_adapter_key(o, text + strlen(text)));
    *key = arena_strdup(a, text);
    return NRL_OK;
}
