/*
 * peft_config.c - adapter_config.json: the adapters of a model as peft describes them. Modules are told by the
 * last part of their names where that says the same (q_proj), else in full.
 */
#include "base/json.h"
#include "model/peft.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

static bool has_part(const adapter_set *s, const char *part)
{
    for (int32_t i = 0; i < s->n; i++)
        if (!strcmp(last_part(s->entries[i].module), part)) return true;
    return false;
}

/* Every linear module whose name ends like an adapted one is adapted, too. */
static bool parts_say_all(const model *m)
{
    arena a = {0};
    bool all = true;
    for (int32_t i = 0; i < m->n_own && all; i++)
        if (adapter_fits(m, m->params[i]) && !m->params[i]->adapter)
            all = !has_part(m->adapters, last_part(adapter_module(&a, m->params[i])));
    arena_free(&a);
    return all;
}

static void add_word(arena *a, nrl_node *list, const char *word)
{
    for (size_t i = 0; i < nrl_node_size(list); i++)
        if (!strcmp(nrl_node_string(nrl_node_at(list, i), ""), word)) return;
    node_append(a, list, NULL, node_string(a, word, strlen(word)));
}

static nrl_node *targets(arena *a, const model *m)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    bool parts = parts_say_all(m);
    for (int32_t i = 0; i < m->adapters->n; i++) {
        const char *module = m->adapters->entries[i].module;
        add_word(a, list, parts ? last_part(module) : module);
    }
    return list;
}

static nrl_node *number(arena *a, double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? node_int(a, (int64_t)v) : node_f64(a, v);
}

/* The modules whose rank or alpha is not the first one's. */
static void add_patterns(arena *a, nrl_node *map, const adapter_set *s)
{
    nrl_node *ranks = node_new(a, NRL_NODE_MAP), *alphas = node_new(a, NRL_NODE_MAP);
    for (int32_t i = 1; i < s->n; i++) {
        const adapter_entry *e = &s->entries[i], *first = s->entries;
        if (e->rank != first->rank) node_append(a, ranks, e->module, node_int(a, e->rank));
        if (e->alpha != first->alpha) node_append(a, alphas, e->module, number(a, e->alpha));
    }
    node_append(a, map, "rank_pattern", ranks);
    node_append(a, map, "alpha_pattern", alphas);
}

static bool is_turned(const model *m)
{
    for (int32_t i = 0; i < m->n_own; i++)
        if (m->params[i]->adapter && m->params[i]->parts[0].transposed) return true;
    return false;
}

char *peft_config(const model *m, const char *base)
{
    arena a = {0};
    const adapter_set *s = m->adapters;
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
#define TEXT(key, word) node_append(&a, map, key, node_string(&a, word, strlen(word)))
    TEXT("peft_type", "LORA");
    TEXT("task_type", "CAUSAL_LM");
    if (base) TEXT("base_model_name_or_path", base);
    else node_append(&a, map, "base_model_name_or_path", node_new(&a, NRL_NODE_NULL));
    node_append(&a, map, "r", node_int(&a, s->entries[0].rank));
    node_append(&a, map, "lora_alpha", number(&a, s->entries[0].alpha));
    node_append(&a, map, "lora_dropout", node_f64(&a, s->dropout));
    node_append(&a, map, "use_rslora", node_bool(&a, s->rslora));
    node_append(&a, map, "use_dora", node_bool(&a, false));
    TEXT("bias", "none");
    node_append(&a, map, "target_modules", targets(&a, m));
    add_patterns(&a, map, s);
    node_append(&a, map, "fan_in_fan_out", node_bool(&a, is_turned(m)));
    node_append(&a, map, "modules_to_save", node_new(&a, NRL_NODE_NULL));
    node_append(&a, map, "init_lora_weights", node_bool(&a, true));
    node_append(&a, map, "inference_mode", node_bool(&a, true));
#undef TEXT
    char *text = json_write(map, 2);
    arena_free(&a);
    return text;
}
