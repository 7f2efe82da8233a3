/*
 * origin.c - the three origins of weights.
 */
#include "run/origin.h"
#include "base/file.h"
#include "checkpoint/format.h"
#include "checkpoint/piece.h"
#include "model/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

nrl_status origin_checkpoint(const char *path, arena *a, const char **dir)
{
    char *found;
    NRL_TRY(checkpoint_locate(path, &found));
    *dir = found ? arena_strdup(a, found) : NULL;
    free(found);
    return NRL_OK;
}

static nrl_status read_node(const char *dir, const char *key, arena *a, nrl_node **out)
{
    checkpoint *c;
    NRL_TRY(checkpoint_open(dir, &c));
    const nrl_node *node = checkpoint_node(c, key);
    *out = node ? node_copy(a, node) : NULL;
    checkpoint_close(c);
    return NRL_OK;
}

nrl_status origin_find(const char *path, const char *hf_home, arena *a, model_origin *out,
                       const nrl_node **config)
{
    nrl_node *node;
    NRL_TRY(origin_checkpoint(path, a, &out->checkpoint));
    if (!out->checkpoint) {
        NRL_TRY(hf_find(path, hf_home, a, &out->hf_dir));
        return hf_config(out->hf_dir, a, config);
    }
    NRL_TRY(read_node(out->checkpoint, "model", a, &node));
    *config = node;
    return node ? NRL_OK : nrl_fail(NRL_ERR_CORRUPT, "%s: no model is described in it", out->checkpoint);
}

nrl_status origin_tokenizer(const model_origin *o, arena *a, const char **folder)
{
    nrl_node *node = NULL;
    *folder = o->hf_dir;
    if (!o->checkpoint) return NRL_OK;
    NRL_TRY(read_node(o->checkpoint, "tokenizer", a, &node));
    *folder = nrl_node_string(node, "");
    if (!**folder) *folder = NULL;
    return NRL_OK;
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

/* Elements [begin, begin + n) of one part as f32. */
static nrl_status read_part(origin_stream *f, const nrl_part *part, int64_t begin, int64_t n, float *out)
{
    layout_piece want = piece_of_whole(part->n_dims, part->dims);
    int64_t i;
    NRL_TRY(find_part(f->c, part, &i));
    const checkpoint_tensor *t = checkpoint_tensor_at(f->c, (size_t)i);
    size_t size = (size_t)n * nrl_dtype_size(t->dtype);
    if (f->room < size) f->raw = mem_realloc(f->raw, f->room = size);
    want.flat_begin = begin;
    want.flat_end = begin + n;
    NRL_TRY(checkpoint_read(f->c, (size_t)i, &want, f->raw));
    convert_to_f32(t->dtype, f->raw, n, out);
    return NRL_OK;
}

/* The parts of a parameter lie one behind the other. */
nrl_status origin_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    int64_t at = 0;
    for (int k = 0; k < p->n_parts; k++) {
        layout_piece whole = piece_of_whole(p->parts[k].n_dims, p->parts[k].dims);
        int64_t end = at + layout_numel(&whole);
        int64_t from = begin > at ? begin : at, to = begin + n < end ? begin + n : end;
        if (from < to) NRL_TRY(read_part(user, &p->parts[k], from - at, to - from, out + (from - begin)));
        at = end;
    }
    return NRL_OK;
}

static nrl_status check_checkpoint(const char *dir, const model *m)
{
    checkpoint *c;
    int64_t at;
    NRL_TRY(checkpoint_open(dir, &c));
    nrl_status st = NRL_OK;
    for (int32_t i = 0; i < m->n_params; i++)
        for (int k = 0; k < m->params[i]->n_parts && st == NRL_OK; k++)
            st = find_part(c, &m->params[i]->parts[k], &at);
    checkpoint_close(c);
    return st;
}

/* ---- any origin ---- */

nrl_status origin_check(const model_origin *o, const model *m)
{
    hf_weights *weights;
    if (o->checkpoint) return check_checkpoint(o->checkpoint, m);
    if (!o->hf_dir) return NRL_OK;
    NRL_TRY(hf_weights_open(o->hf_dir, &weights));
    nrl_status st = hf_weights_check(weights, m);
    hf_weights_close(weights);
    return st;
}

static nrl_status load_checkpoint(const char *dir, nrl_ctx *ctx, model *m, const nrl_mesh *mesh)
{
    origin_stream stream = {0};
    NRL_TRY(checkpoint_open(dir, &stream.c));
    nrl_status st = storage_load(ctx, m, mesh, origin_read, &stream);
    free(stream.raw);
    checkpoint_close(stream.c);
    return st;
}

nrl_status origin_load(const model_origin *o, nrl_ctx *ctx, model *m, const nrl_mesh *mesh)
{
    storage_origin from = {.m = m, .seed = o->seed};
    hf_weights *weights = NULL;
    if (o->checkpoint) return load_checkpoint(o->checkpoint, ctx, m, mesh);
    if (o->hf_dir) NRL_TRY(hf_weights_open(o->hf_dir, &weights));
    nrl_status st = weights ? hf_weights_check(weights, m) : NRL_OK;
    from.weights = weights;
    if (st == NRL_OK) st = storage_load(ctx, m, mesh, storage_read, &from);
    if (weights) hf_weights_close(weights);
    return st;
}

/* A manifest holds the hashes of everything it stands for. */
static nrl_status checkpoint_key(const char *dir, char key[33])
{
    char *path = mem_printf("%s/" FORMAT_MANIFEST, dir), *text;
    size_t size;
    nrl_status st = file_read(path, FORMAT_MAX_MANIFEST, &text, &size);
    free(path);
    NRL_TRY(st);
    XXH128_hash_t h = XXH3_128bits(text, size);
    snprintf(key, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    free(text);
    return NRL_OK;
}

nrl_status origin_key(const model_origin *o, char key[33])
{
    hf_weights *weights;
    if (o->checkpoint) return checkpoint_key(o->checkpoint, key);
    if (!o->hf_dir) {
        snprintf(key, 33, "seed-%llu", (unsigned long long)o->seed);
        return NRL_OK;
    }
    NRL_TRY(hf_weights_open(o->hf_dir, &weights));
    nrl_status st = hf_weights_hash(weights, key);
    hf_weights_close(weights);
    return st;
}
