/*
 * weights_check.c - compares the tensors of the files with the parts of a model and reports all differences at once.
 */
#include "base/buffer.h"
#include "model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 20, SHAPES_TEXT = 430 };

typedef struct {
    const weight_files *w;
    const model *m;
    bool *used; /* [w->n] whether a part is read from the tensor */
    buffer text;
    int64_t n_faults;
} comparison;

static void comparison_add(comparison *c, const char *name, const char *what)
{
    if (c->n_faults++ < MAX_LINES) buffer_print(&c->text, "\n  %.200s: %s", name, what);
}

static void mark_used(comparison *c, const nrl_format_tensor *t)
{
    c->used[t - c->w->tensors] = true;
}

/* Else writes "has shape [2], expected [3]" to text. */
static bool has_shape(const nrl_format_tensor *t, const nrl_part *part, char text[SHAPES_TEXT])
{
    char have[200], wanted[200];
    int64_t dims[NRL_MAX_DIMS];
    weights_file_dims(part, dims);
    if (t->n_dims == part->n_dims && !memcmp(t->dims, dims, (size_t)part->n_dims * sizeof *dims)) return true;
    weights_shape_text(t->n_dims, t->dims, have, sizeof have);
    weights_shape_text(part->n_dims, dims, wanted, sizeof wanted);
    snprintf(text, SHAPES_TEXT, "has shape %s, expected %s", have, wanted);
    return false;
}

static void compare_part(comparison *c, const nrl_part *part, bool may_be_missing)
{
    const nrl_format_tensor *t = weights_part(c->w, c->m, part);
    if (!t && may_be_missing) return;
    if (!t) {
        bool head = !strcmp(part->name, "lm_head.weight");
        comparison_add(c, part->name,
                       head ? "is missing, and config.json does not tie it to the input embedding" : "is missing");
        return;
    }
    mark_used(c, t);
    if (t->dtype == NRL_DTYPE_NONE) {
        char line[100];
        snprintf(line, sizeof line, "has type %.40s, expected F32, BF16 or F16", t->type);
        comparison_add(c, t->name, line);
    }
    char line[SHAPES_TEXT + 30];
    if (has_shape(t, part, line) || weights_has_first_rows(c->w, part, t)) return;
    strcat(line, " as in config.json");
    comparison_add(c, t->name, line);
}

static nrl_status same_values(const weight_files *w, const nrl_format_tensor *a, const nrl_format_tensor *b, bool *same)
{
    enum { CHUNK = 4096 };
    float x[CHUNK], y[CHUNK];
    int64_t numel = weights_numel(a);
    *same = numel == weights_numel(b);
    for (int64_t i = 0; i < numel && *same; i += CHUNK) {
        int64_t n = numel - i < CHUNK ? numel - i : CHUNK;
        NRL_TRY(weights_values(w, a, i, n, x));
        NRL_TRY(weights_values(w, b, i, n, y));
        *same = !memcmp(x, y, (size_t)n * sizeof *x);
    }
    return NRL_OK;
}

/* Files may store a tied head if its values equal the input embedding. */
static nrl_status compare_tied(comparison *c)
{
    bool same = false;
    const nrl_format_tensor *head = weights_find(c->w, weights_tied_name(c->m));
    const nrl_format_tensor *embed = weights_part(c->w, c->m, c->m->head.weight->parts);
    if (!head) return NRL_OK;
    mark_used(c, head);
    if (!embed || head == embed) return NRL_OK;
    if (head->dtype && embed->dtype) NRL_TRY(same_values(c->w, embed, head, &same));
    if (!same) {
        char line[300];
        snprintf(line, sizeof line, "differs from %.150s, but config.json ties them (tie_word_embeddings)",
                 embed->name);
        comparison_add(c, head->name, line);
    }
    return NRL_OK;
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

static nrl_status compare_all(comparison *c)
{
    for (int32_t i = 0; i < c->m->n_own; i++)
        for (int k = 0; k < c->m->params[i]->n_parts; k++)
            compare_part(c, &c->m->params[i]->parts[k], c->m->params[i]->saved_whole); /* origin.c looks elsewhere */
    NRL_TRY(compare_tied(c));
    for (int64_t i = 0; i < c->w->n; i++)
        if (!c->used[i] && !is_ignored(c->m, c->w->tensors[i].name))
            comparison_add(c, c->w->tensors[i].name, "is not a parameter of this model");
    return NRL_OK;
}

nrl_status weights_check(const weight_files *w, const model *m)
{
    comparison c = {.w = w, .m = m, .used = mem_try((size_t)w->n + 1, "the list of tensors")};
    if (!c.used) return NRL_ERR_MEMORY;
    nrl_status st = compare_all(&c);
    if (c.n_faults > MAX_LINES) buffer_print(&c.text, "\n  and %lld more", (long long)(c.n_faults - MAX_LINES));
    if (st == NRL_OK && c.n_faults)
        st = nrl_fail(NRL_ERR_DATA, "%s: the weights do not fit config.json (%s), %lld difference%s:%s", w->info.path,
                      m->type, (long long)c.n_faults, c.n_faults == 1 ? "" : "s", c.text.text);
    buffer_free(&c.text);
    free(c.used);
    return st;
}

nrl_status weights_check_adapters(const weight_files *w, const model *m)
{
    const nrl_format_tensor *head = weights_find(w, weights_tied_name(m)),
                            *embed = weights_find(w, m->head.weight->name);
    bool same = m->drops_head || !*weights_tied_name(m) || (!head && !embed);
    if (!same && head && embed && head->dtype && embed->dtype) NRL_TRY(same_values(w, embed, head, &same));
    if (!same)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: the embedding and the head were trained separately, but config.json ties them\n"
                        "hint: train the adapter with ensure_weight_tying, which keeps them equal",
                        w->info.path);
    for (int64_t i = 0; i < w->n; i++) {
        const nrl_param *p = model_param(m, w->tensors[i].name);
        if (!p && !strcmp(w->tensors[i].name, weights_tied_name(m))) p = m->head.weight;
        if (!p || (p->index < m->n_own && !p->saved_whole))
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: tensor '%s' belongs to a module that was trained in full, but this run does not "
                            "train it",
                            w->tensors[i].file, w->tensors[i].name);
    }
    for (int32_t i = 0; i < m->n_params; i++) {
        const nrl_param *p = m->params[i];
        const nrl_format_tensor *t = weights_find(w, p->name);
        if (p->packs || (i < m->n_own && !t)) continue; /* a store; not trained whole */
        if (!t) return nrl_fail(NRL_ERR_CONFIG, "%s: tensor '%s' is missing", w->info.path, p->name);
        if (t->dtype == NRL_DTYPE_NONE)
            return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' has type %.40s, expected F32, BF16 or F16", t->file, t->name,
                            t->type);
        char line[SHAPES_TEXT];
        if (!has_shape(t, p->parts, line))
            return nrl_fail(NRL_ERR_CONFIG, "%s: tensor '%s' %s", t->file, t->name, line);
    }
    return NRL_OK;
}
