/*
 * layers.c - how the attention of layers differs: how many keys a query sees, and which table rotates
 * its positions, if any. `layer_types` decides, or the family's rule if that is absent.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>

/* A list of the right length, or NULL if absent. */
static nrl_status find_list(const nrl_node *j, const char *key, const char *what, const llama_config *c,
                            const nrl_node **out)
{
    *out = nrl_node_find(j, key);
    if (llama_is_absent(*out)) *out = NULL;
    if (*out && (nrl_node_kind(*out) != NRL_NODE_LIST || (int64_t)nrl_node_size(*out) != c->n_layers))
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is not a list of %lld %s", nrl_node_place(j), key,
                        (long long)c->n_layers, what);
    return NRL_OK;
}

/* no_rope_layers has 1 for layers with positions and 0 for layers without; if absent, every n-th layer has none. */
static nrl_status read_no_rope(const nrl_node *j, llama_config *c)
{
    const nrl_node *list;
    int64_t interval;
    NRL_TRY(find_list(j, "no_rope_layers", "numbers", c, &list));
    NRL_TRY(llama_read_int(j, "no_rope_layer_interval", 1, INT32_MAX, 4, &interval));
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t turns = (i + 1) % interval != 0;
        if (list) turns = nrl_node_int(nrl_node_at(list, (size_t)i), -1);
        if (turns != 0 && turns != 1)
            return nrl_fail(NRL_ERR_DATA, "%s: no_rope_layers[%lld] is neither 0 nor 1", nrl_node_place(j),
                            (long long)i);
        if (!turns) c->layers[i].rope = NULL;
    }
    return NRL_OK;
}

typedef struct {
    const nrl_node *types; /* NULL = the family's rule */
    int64_t window;        /* 0 = no layer slides */
    int64_t first, period;
} windows;

static nrl_status read_windows(const nrl_node *j, const llama_family *f, const llama_config *c, windows *w)
{
    /* absent: the family's default; null: no window, for families whose layers are otherwise alike */
    int64_t null = f->window_rule == LLAMA_WINDOW_PATTERN && !f->full_without_positions ? -1 : 0;
    int64_t absent = nrl_node_find(j, "sliding_window") ? null : f->window;
    NRL_TRY(llama_read_int(j, "sliding_window", 1, INT32_MAX, absent, &w->window));
    if (f->window_switch && !nrl_node_bool(nrl_node_find(j, "use_sliding_window"), false)) w->window = 0;
    NRL_TRY(llama_read_int(j, "max_window_layers", 0, INT32_MAX, 28, &w->first));
    if (f->window_rule != LLAMA_WINDOW_ALL) NRL_TRY(find_list(j, "layer_types", "names", c, &w->types));
    if (w->types) return NRL_OK; /* the pattern may then be a text (EXAONE 4) */
    return llama_read_int(j, "sliding_window_pattern", 1, INT32_MAX, f->window_period, &w->period);
}

static bool slides_by_rule(const llama_family *f, const windows *w, const llama_config *c, int64_t i)
{
    switch (f->window_rule) {
    case LLAMA_WINDOW_ALL:
        return true;
    case LLAMA_WINDOW_LATE:
        return i >= w->first;
    case LLAMA_WINDOW_NO_ROPE:
        return !c->layers[i].rope;
    case LLAMA_WINDOW_PATTERN:
        return (i + 1) % w->period != 0;
    default:
        return false;
    }
}

static nrl_status slides(const nrl_node *j, const windows *w, int64_t i, bool *out)
{
    const char *type = nrl_node_string(nrl_node_at(w->types, (size_t)i), "");
    *out = !strcmp(type, "sliding_attention");
    if (!*out && strcmp(type, "full_attention"))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: layer_types[%lld] is '%.60s', expected 'full_attention' or "
                        "'sliding_attention'",
                        nrl_node_place(j), (long long)i, type);
    if (*out && !w->window)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: layer_types[%lld] has a window, but sliding_window is not set or "
                        "use_sliding_window is false",
                        nrl_node_place(j), (long long)i);
    return NRL_OK;
}

nrl_status llama_layers_read(const nrl_node *j, const llama_family *f, llama_config *c)
{
    windows w = {0};
    c->layers = calloc((size_t)c->n_layers, sizeof *c->layers);
    if (!c->layers) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %lld layers", (long long)c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layers[i].rope = &c->rope[0];
    if (f->no_rope) NRL_TRY(read_no_rope(j, c));
    if (f->window_rule == LLAMA_WINDOW_NEVER) return NRL_OK;
    NRL_TRY(read_windows(j, f, c, &w));
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool sliding = w.window && !w.types && slides_by_rule(f, &w, c, i);
        if (w.types) NRL_TRY(slides(j, &w, i, &sliding));
        c->layers[i].window = sliding ? w.window : 0;
        if (sliding && f->local_theta > 0) c->layers[i].rope = &c->rope[1];
        if (!sliding && w.window && f->full_without_positions) c->layers[i].rope = NULL;
    }
    return NRL_OK;
}
