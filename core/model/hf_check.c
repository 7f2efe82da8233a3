/*
 * hf_check.c - compares the tensors of the files with the parts of a model; all differences at
 * once.
 */
#include "base/buffer.h"
#include "model/convert.h"
#include "model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 20 };

typedef struct {
    const hf_weights *w;
    const model *m;
    bool *used; /* [w->n] a part is read from it */
    buffer text;
    int64_t n_faults;
} comparison;

static void fault(comparison *c, const char *name, const char *what)
{
    if (c->n_faults++ < MAX_LINES) buffer_print(&c->text, "\n  %.200s: %s", name, what);
}

static void mark_used(comparison *c, const safetensor *t)
{
    int64_t low = 0, high = c->w->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (strcmp(c->w->sorted[middle]->name, t->name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    c->used[low] = true;
}

static void compare_shape(comparison *c, const safetensor *t, const nrl_part *part)
{
    int64_t want[NRL_MAX_DIMS];
    weights_file_dims(part, want);
    if (t->n_dims == part->n_dims && !memcmp(t->dims, want, (size_t)part->n_dims * sizeof *want))
        return;
    char have[200], wanted[200], line[480];
    safetensors_shape_text(t->n_dims, t->dims, have, sizeof have);
    safetensors_shape_text(part->n_dims, want, wanted, sizeof wanted);
    snprintf(line, sizeof line, "has shape %s, config.json says %s", have, wanted);
    fault(c, t->name, line);
}

static void compare_part(comparison *c, const nrl_part *part)
{
    const safetensor *t = weights_part(c->w, c->m, part);
    if (!t) {
        bool head = !strcmp(part->name, "lm_head.weight");
        fault(c, part->name,
              head ? "is missing, and config.json does not tie it to the input embedding"
                   : "is missing");
        return;
    }
    mark_used(c, t);
    if (!convert_known(t->dtype)) {
        char line[100];
        snprintf(line, sizeof line, "is of type %.40s, expected F32, BF16 or F16", t->type);
        fault(c, t->name, line);
    }
    compare_shape(c, t, part);
}

/* Equal as bytes, or as values where the types differ. */
static bool same_values(const safetensor *a, const safetensor *b)
{
    enum { CHUNK = 4096 };
    if (a->numel != b->numel) return false;
    if (a->dtype == b->dtype) return !memcmp(a->data, b->data, a->size_bytes);
    float x[CHUNK], y[CHUNK];
    size_t wide = nrl_dtype_size(a->dtype), narrow = nrl_dtype_size(b->dtype);
    for (int64_t i = 0; i < a->numel; i += CHUNK) {
        int64_t n = a->numel - i < CHUNK ? a->numel - i : CHUNK;
        convert_to_f32(a->dtype, a->data + (size_t)i * wide, n, x);
        convert_to_f32(b->dtype, b->data + (size_t)i * narrow, n, y);
        if (memcmp(x, y, (size_t)n * sizeof *x)) return false;
    }
    return true;
}

/* A tied head may be stored too, if it says the same as the input embedding. */
static void compare_tied(comparison *c)
{
    const safetensor *head = weights_find(c->w, weights_tied_name(c->m));
    const safetensor *embed = weights_part(c->w, c->m, c->m->head.weight->parts);
    if (!head) return;
    mark_used(c, head);
    if (!embed || head == embed) return;
    if (!convert_known(head->dtype) || !convert_known(embed->dtype) || !same_values(embed, head)) {
        char line[300];
        snprintf(line, sizeof line,
                 "differs from %.150s, but config.json ties them (tie_word_embeddings)",
                 embed->name);
        fault(c, head->name, line);
    }
}

static bool is_ignored(const model *m, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < m->n_ignored; i++) {
        size_t k = strlen(m->ignored[i]);
        if (n >= k && !strcmp(name + n - k, m->ignored[i])) return true;
    }
    return false;
}

static void compare_all(comparison *c)
{
    for (int32_t i = 0; i < c->m->n_own; i++)
        for (int k = 0; k < c->m->params[i]->n_parts; k++)
            compare_part(c, &c->m->params[i]->parts[k]);
    compare_tied(c);
    for (int64_t i = 0; i < c->w->n; i++)
        if (!c->used[i] && !is_ignored(c->m, c->w->sorted[i]->name))
            fault(c, c->w->sorted[i]->name, "is no parameter of this model");
}

nrl_status hf_weights_check(const hf_weights *w, const model *m)
{
    comparison c = {.w = w, .m = m, .used = mem_alloc((size_t)w->n)};
    compare_all(&c);
    nrl_status st = NRL_OK;
    if (c.n_faults > MAX_LINES)
        buffer_print(&c.text, "\n  and %lld more", (long long)(c.n_faults - MAX_LINES));
    if (c.n_faults)
        st = nrl_fail(NRL_ERR_DATA,
                      "%s: the weights do not fit config.json (%s), %lld difference%s:%s", w->dir,
                      m->type, (long long)c.n_faults, c.n_faults == 1 ? "" : "s", c.text.text);
    buffer_free(&c.text);
    free(c.used);
    return st;
}
