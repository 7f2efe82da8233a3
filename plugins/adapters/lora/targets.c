/*
 * targets.c - see targets.h. PCRE2 matches patterns, with limits so that none hangs.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "targets.h"
#include "base/arena.h"
#include <pcre2.h>
#include <string.h>

/* State of a choice. */
typedef struct {
    const nrl_adapter_model *model;
    arena *memory;
    lora_targets *out;
} targets_choice;

static const char *targets_module(const nrl_adapter_model *m, int64_t i)
{
    const nrl_adapter_target *t = (const void *)((const char *)m->targets + (size_t)i * m->target_size);
    return t->module;
}

/* Whether `name` is the module itself, or what follows a dot in it. */
static bool targets_ends_in(const char *module, const char *name)
{
    size_t n = strlen(module), k = strlen(name);
    return n >= k && !strcmp(module + n - k, name) && (n == k || module[n - k - 1] == '.');
}

bool targets_has(const lora_targets *t, const char *module)
{
    for (int64_t i = 0; i < t->n; i++)
        if (!strcmp(t->modules[i], module)) return true;
    return false;
}

static void targets_add(targets_choice *c, const char *module)
{
    if (!targets_has(c->out, module)) c->out->modules[c->out->n++] = arena_strdup(c->memory, module);
}

/* "q_proj, k_proj, ...": the last parts of the names of all linear modules, each once. */
static const char *targets_names(arena *a, const nrl_adapter_model *m)
{
    const char *text = "";
    for (int64_t i = 0; i < m->n_targets; i++) {
        const char *module = targets_module(m, i), *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;
        const char *known = arena_printf(a, ", %s,", name), *all = arena_printf(a, ", %s,", text);
        if (!strstr(all, known)) text = *text ? arena_printf(a, "%s, %s", text, name) : name;
    }
    return *text ? text : "none";
}

static nrl_status targets_no_module(const targets_choice *c, const nrl_node *at, const char *word)
{
    const nrl_adapter_model *m = c->model;
    const char *why = "";
    for (int64_t i = 0; i < m->n_others; i++)
        if (targets_ends_in(m->others[i], word))
            why = " (it is an embedding, the head, a router that is not linear in peft, or in modules_to_save: these "
                  "have no adapters)";
    return nrl_fail(NRL_ERR_CONFIG,
                    "%s: %s.targets: no linear module has a name that ends in '%s'%s; those of this model: %s",
                    nrl_node_place(at), m->section, word, why, targets_names(c->memory, m));
}

static nrl_status targets_add_word(targets_choice *c, const nrl_node *at)
{
    const char *word = nrl_node_string(at, "");
    bool all = !strcmp(word, "all-linear"), found = false;
    for (int64_t i = 0; i < c->model->n_targets; i++) {
        const char *module = targets_module(c->model, i);
        if (!all && !targets_ends_in(module, word)) continue;
        targets_add(c, module);
        found = true;
    }
    return found ? NRL_OK : targets_no_module(c, at, word);
}

/* Calls `found` for each of n names that the expression matches. */
static nrl_status targets_each_match(const char *whole, const nrl_adapter_model *model, const lora_targets *chosen,
                                     int64_t count, void (*found)(void *user, int64_t i), void *user)
{
    enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 100000, HEAP_LIMIT_KIB = 64 * 1024 };
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int error, n = 0;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[256];
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)whole, strlen(whole), options, &error, &at, NULL);
    if (!code) {
        pcre2_get_error_message(error, text, sizeof text);
        return nrl_fail(NRL_ERR_CONFIG, "regular expression '%.200s' cannot be used: %s", whole, (char *)text);
    }
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_set_match_limit(limits, MATCH_LIMIT);
    pcre2_set_depth_limit(limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(limits, HEAP_LIMIT_KIB);
    for (int64_t i = 0; i < count && (n >= 0 || n == PCRE2_ERROR_NOMATCH); i++) {
        const char *module = model ? targets_module(model, i) : chosen->modules[i];
        n = pcre2_match(code, (PCRE2_SPTR)module, strlen(module), 0, 0, data, limits);
        if (n >= 0) found(user, i);
    }
    pcre2_code_free(code);
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "a regular expression needs too many steps");
}

static void targets_add_match(void *user, int64_t i)
{
    targets_choice *c = user;
    targets_add(c, targets_module(c->model, i));
}

/* The pattern must match a whole name, as in peft. */
static nrl_status targets_match(targets_choice *c, const char *pattern)
{
    const char *whole = arena_printf(c->memory, "\\A(?:%s)\\z", pattern);
    return targets_each_match(whole, c->model, NULL, c->model->n_targets, targets_add_match, c);
}

static void targets_mark(void *user, int64_t i)
{
    ((bool *)user)[i] = true;
}

nrl_status targets_match_end(const char *pattern, const lora_targets *t, bool **matches)
{
    arena memory = {0};
    *matches = mem_alloc((size_t)t->n + 1);
    nrl_status st = targets_each_match(arena_printf(&memory, "\\A(?:.*\\.)?(?:%s)\\z", pattern), NULL, t, t->n,
                                       targets_mark, *matches);
    arena_free(&memory);
    return st;
}

static nrl_status targets_add_pattern(targets_choice *c, const nrl_node *at)
{
    const nrl_adapter_model *m = c->model;
    const char *pattern = nrl_node_string(at, "");
    nrl_status st = targets_match(c, pattern);
    if (st != NRL_OK)
        nrl_add_context("%s: %s.targets: '%s'", nrl_node_place(at), m->section, pattern);
    else if (!c->out->n)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "%s: %s.targets: '%s' does not match the whole name of a linear module, such as %s; last parts "
                      "of names: %s",
                      nrl_node_place(at), m->section, pattern, m->n_targets ? targets_module(m, 0) : "none",
                      targets_names(c->memory, m));
    return st;
}

nrl_status targets_choose(const nrl_node *targets, const nrl_adapter_model *model, nrl_arena *memory, lora_targets *out)
{
    targets_choice c = {model, memory, out};
    *out = (lora_targets){.modules = nrl_arena_alloc(memory, (size_t)(model->n_targets + 1) * sizeof *out->modules)};
    if (nrl_node_kind(targets) == NRL_NODE_STRING) /* a word without characters of regular expressions is a name */
        return strpbrk(nrl_node_string(targets, ""), "^$*+?()[]{}|\\") ? targets_add_pattern(&c, targets)
                                                                       : targets_add_word(&c, targets);
    for (size_t i = 0; i < nrl_node_size(targets); i++)
        NRL_TRY(targets_add_word(&c, nrl_node_at(targets, i)));
    return NRL_OK;
}
