/*
 * compare.c - the table of options that a resume compares, and the walk over two trees.
 */
#include "config/compare.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

/* The longest key that equals the option or a section around it decides. */
static const struct {
    const char *key;
    config_key_class class;
} rules[] = {
    {"model", CONFIG_KEY_FREE}, /* config.json, the tokenizer and the base weights of adapters are compared */
    {"model.add_tokens", CONFIG_KEY_COMPARED},
    {"adapter", CONFIG_KEY_COMPARED},
    {"adapter.use", CONFIG_KEY_FREE}, /* the checkpoint holds the adapters */
    {"data", CONFIG_KEY_COMPARED},
    {"data.train.path", CONFIG_KEY_FREE}, /* the content is compared */
    {"data.train.template", CONFIG_KEY_BY_CONTENT},
    {"data.eval", CONFIG_KEY_FREE},
    {"data.template", CONFIG_KEY_BY_CONTENT},
    {"data.packing", CONFIG_KEY_FREE},
    {"data.prefix_sharing", CONFIG_KEY_FREE},
    {"data.workers", CONFIG_KEY_FREE},
    {"data.prefetch", CONFIG_KEY_FREE},
    {"data.cache", CONFIG_KEY_FREE},
    {"algorithm", CONFIG_KEY_COMPARED},
    {"algorithm.check_initial_loss", CONFIG_KEY_FREE},
    {"algorithm.reference_model", CONFIG_KEY_BY_CONTENT},
    {"algorithm.teacher_model", CONFIG_KEY_BY_CONTENT},
    {"train", CONFIG_KEY_COMPARED},
    {"train.steps", CONFIG_KEY_FREE}, /* the rates that follow from them are compared */
    {"train.epochs", CONFIG_KEY_FREE},
    {"train.micro_batch_tokens", CONFIG_KEY_FREE},
    {"train.micro_batch", CONFIG_KEY_FREE},
    {"train.master", CONFIG_KEY_FREE}, /* the same numbers in another encoding */
    {"train.recompute_cheap", CONFIG_KEY_FREE},
    {"train.logits_mb", CONFIG_KEY_FREE},
    {"train.deterministic", CONFIG_KEY_FREE},
    {"train.nan", CONFIG_KEY_FREE},
    {"train.offload", CONFIG_KEY_FREE},
    {"train.on_oom", CONFIG_KEY_FREE},
    {"train.leak_check", CONFIG_KEY_FREE},
    {"train.nan_limit", CONFIG_KEY_FREE},
    {"train.diverge_factor", CONFIG_KEY_FREE},
    {"train.check_gradient", CONFIG_KEY_FREE},
    {"train.activation_checkpointing", CONFIG_KEY_FREE},
    {"optimizer", CONFIG_KEY_COMPARED},
    {"schedule", CONFIG_KEY_COMPARED},
    {"parallel", CONFIG_KEY_FREE},
    {"collective", CONFIG_KEY_FREE},
    {"store", CONFIG_KEY_FREE},
    {"launch", CONFIG_KEY_FREE},
    {"backend", CONFIG_KEY_FREE},
    {"checkpoint", CONFIG_KEY_FREE},
    {"checkpoint.metric", CONFIG_KEY_COMPARED}, /* the best value so far is a value of this metric */
    {"checkpoint.metric_mode", CONFIG_KEY_COMPARED},
    {"eval", CONFIG_KEY_FREE},
    {"script", CONFIG_KEY_FREE}, /* limits; the script itself is compared */
    {"loggers", CONFIG_KEY_FREE},
    {"plugins", CONFIG_KEY_FREE},
    {"resume", CONFIG_KEY_FREE},
    {"out", CONFIG_KEY_FREE},
    {"overwrite", CONFIG_KEY_FREE},
    {"debug", CONFIG_KEY_FREE},
    {"name", CONFIG_KEY_FREE},
};

static bool lies_in(const char *key, const char *section)
{
    size_t n = strlen(section);
    return !strncmp(key, section, n) && (!key[n] || key[n] == '.');
}

config_key_class config_key_classify(const char *key)
{
    config_key_class found = CONFIG_KEY_COMPARED;
    size_t longest = 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (lies_in(key, rules[i].key) && strlen(rules[i].key) > longest) {
            longest = strlen(rules[i].key);
            found = rules[i].class;
        }
    return found;
}

/* ---- the walk ---- */

typedef struct {
    bool is_config; /* use the table above; else compare every key */
    config_difference report;
    void *user;
} comparing;

static bool is_number(const nrl_node *n)
{
    return nrl_node_kind(n) == NRL_NODE_INT || nrl_node_kind(n) == NRL_NODE_FLOAT;
}

/* Whether two values are equal; 1 and 1.0 are the same number. */
static bool is_same_value(const nrl_node *a, const nrl_node *b)
{
    if (nrl_node_kind(a) <= NRL_NODE_NULL || nrl_node_kind(b) <= NRL_NODE_NULL)
        return nrl_node_kind(a) <= NRL_NODE_NULL && nrl_node_kind(b) <= NRL_NODE_NULL;
    if (is_number(a) && is_number(b) && nrl_node_kind(a) != nrl_node_kind(b))
        return nrl_node_f64(a, 0) == nrl_node_f64(b, 0);
    char *left = json_write(a, 0), *right = json_write(b, 0);
    bool same = !strcmp(left, right);
    free(left);
    free(right);
    return same;
}

static bool is_path(const nrl_node *n)
{
    return strchr(nrl_node_string(n, ""), '/') != NULL;
}

static bool is_free(const comparing *c, const char *path, const nrl_node *was, const nrl_node *is)
{
    if (!c->is_config) return false;
    config_key_class class = config_key_classify(path);
    return class == CONFIG_KEY_FREE || (class == CONFIG_KEY_BY_CONTENT && is_path(was) && is_path(is));
}

/* Returns "name" if the two components differ: then only their names are compared, not their options. */
static const char *other_component(const nrl_node *was, const nrl_node *is)
{
    const char *before = nrl_node_string(nrl_node_find(was, "name"), NULL);
    const char *now = nrl_node_string(nrl_node_find(is, "name"), NULL);
    return before && now && strcmp(before, now) ? "name" : NULL;
}

static const char *key_path(arena *a, const char *path, const char *key)
{
    return arena_printf(a, "%s%s%s", path, *path ? "." : "", key);
}

static void walk(const comparing *c, arena *a, const char *path, const nrl_node *was, const nrl_node *is,
                 const nrl_node *given);

static void walk_maps(const comparing *c, arena *a, const char *path, const nrl_node *was, const nrl_node *is,
                      const nrl_node *given)
{
    const char *only = c->is_config && *path ? other_component(was, is) : NULL; /* at the top, `name` is the run's */
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        if (only && strcmp(key, only)) continue;
        const nrl_node *before = nrl_node_find(was, key), *typed = nrl_node_find(given, key);
        if (before || !c->is_config || typed) walk(c, a, key_path(a, path, key), before, nrl_node_at(is, i), typed);
    }
    for (size_t i = 0; i < nrl_node_size(was) && !only; i++) {
        const char *key = nrl_node_key(was, i);
        if (!nrl_node_find(is, key)) walk(c, a, key_path(a, path, key), nrl_node_at(was, i), NULL, NULL);
    }
}

/* Whether both are lists of maps of equal length, which are compared element by element; other lists are one value. */
static bool are_lists_of_maps(const nrl_node *a, const nrl_node *b)
{
    size_t n = nrl_node_size(a);
    if (nrl_node_kind(a) != NRL_NODE_LIST || nrl_node_kind(b) != NRL_NODE_LIST || n != nrl_node_size(b)) return false;
    for (size_t i = 0; i < n; i++)
        if (nrl_node_kind(nrl_node_at(a, i)) != NRL_NODE_MAP || nrl_node_kind(nrl_node_at(b, i)) != NRL_NODE_MAP)
            return false;
    return true;
}

/* Walks maps even if the section is free, because it may have keys that are compared. */
static void walk(const comparing *c, arena *a, const char *path, const nrl_node *was, const nrl_node *is,
                 const nrl_node *given)
{
    if (nrl_node_kind(was) == NRL_NODE_MAP && nrl_node_kind(is) == NRL_NODE_MAP) {
        walk_maps(c, a, path, was, is, given);
    } else if (c->is_config && are_lists_of_maps(was, is)) {
        const bool is_list = nrl_node_kind(given) == NRL_NODE_LIST; /* a list of one entry may be given as the entry */
        for (size_t i = 0; i < nrl_node_size(is); i++)
            walk(c, a, path, nrl_node_at(was, i), nrl_node_at(is, i), is_list ? nrl_node_at(given, i) : given);
    } else if (!is_free(c, path, was, is) && !is_same_value(was, is)) {
        c->report(c->user, path, was, is);
    }
}

void config_compare(const nrl_node *was, const nrl_node *is, const nrl_node *given, config_difference report,
                    void *user)
{
    const comparing c = {true, report, user};
    arena a = {0};
    walk(&c, &a, "", was, is, given);
    arena_free(&a);
}

void config_compare_trees(const char *path, const nrl_node *was, const nrl_node *is, config_difference report,
                          void *user)
{
    const comparing c = {false, report, user};
    arena a = {0};
    walk(&c, &a, path, was, is, is);
    arena_free(&a);
}
