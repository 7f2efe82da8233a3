/*
 * describe.c - writes a peft directory: the tensors, and adapter_config.json with peft's description
 * of the adapters. A module is named by the last part of its name (q_proj) if that selects the same
 * modules, else in full.
 */
#include "base/json.h"
#include "peft.h"
#include "safetensors_write.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool peft_owns(const char *name)
{
    return !strncmp(name, "adapter_", 8);
}

/* ---- adapter_config.json ---- */

static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

static const char *module_at(const nrl_node *modules, size_t i)
{
    return nrl_node_string(nrl_node_find(nrl_node_at(modules, i), "module"), "");
}

/* Whether every linear module whose name has the same last part is adapted, too. */
static bool parts_say_all(const nrl_node *modules, const nrl_node *linear)
{
    for (size_t i = 0; i < nrl_node_size(linear); i++) {
        const char *name = nrl_node_string(nrl_node_at(linear, i), "");
        bool adapted = false, meant = false;
        for (size_t k = 0; k < nrl_node_size(modules) && !adapted; k++) {
            adapted = !strcmp(module_at(modules, k), name);
            meant |= !strcmp(last_part(module_at(modules, k)), last_part(name));
        }
        if (meant && !adapted) return false;
    }
    return true;
}

static void add_word(arena *a, nrl_node *list, const char *word)
{
    for (size_t i = 0; i < nrl_node_size(list); i++)
        if (!strcmp(nrl_node_string(nrl_node_at(list, i), ""), word)) return;
    node_append(a, list, NULL, node_text(a, word));
}

static nrl_node *targets(arena *a, const nrl_node *modules, const nrl_node *linear)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    bool parts = parts_say_all(modules, linear);
    for (size_t i = 0; i < nrl_node_size(modules); i++) {
        const char *module = module_at(modules, i);
        add_word(a, list, parts ? last_part(module) : module);
    }
    return list;
}

static nrl_node *number(arena *a, double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? node_int(a, (int64_t)v) : node_f64(a, v);
}

static int64_t rank_at(const nrl_node *modules, size_t i)
{
    return nrl_node_int(nrl_node_find(nrl_node_at(modules, i), "rank"), 0);
}

static double alpha_at(const nrl_node *modules, size_t i)
{
    return nrl_node_f64(nrl_node_find(nrl_node_at(modules, i), "alpha"), 0);
}

/* The modules whose rank or alpha differs from the first one's. */
static void add_patterns(arena *a, nrl_node *map, const nrl_node *modules)
{
    nrl_node *ranks = node_new(a, NRL_NODE_MAP), *alphas = node_new(a, NRL_NODE_MAP);
    for (size_t i = 1; i < nrl_node_size(modules); i++) {
        const char *module = module_at(modules, i);
        if (rank_at(modules, i) != rank_at(modules, 0)) node_append(a, ranks, module, node_int(a, rank_at(modules, i)));
        if (alpha_at(modules, i) != alpha_at(modules, 0))
            node_append(a, alphas, module, number(a, alpha_at(modules, i)));
    }
    node_append(a, map, "rank_pattern", ranks);
    node_append(a, map, "alpha_pattern", alphas);
}

static const char before[] = "base_model.model.";

static bool is_of_adapter(const char *name)
{
    return !strncmp(name, before, sizeof before - 1);
}

/* Modules that are trained whole, beside the adapters. */
static nrl_node *saved_modules(arena *a, const nrl_format_write *what)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (int64_t i = 0; i < what->n_tensors; i++) {
        const char *at = (const char *)what->tensors + (size_t)i * what->tensor_size;
        const char *name = ((const nrl_format_tensor *)(const void *)at)->name, *end = strrchr(name, '.');
        if (!is_of_adapter(name) && end) add_word(a, list, arena_strndup(a, name, (size_t)(end - name)));
    }
    return list;
}

/* A score in the place of the head, by the names that peft saves without being told. */
static bool has_score(const nrl_node *saved)
{
    for (size_t i = 0; i < nrl_node_size(saved); i++) {
        const char *name = last_part(nrl_node_string(nrl_node_at(saved, i), ""));
        if (!strcmp(name, "score") || !strcmp(name, "classifier")) return true;
    }
    return false;
}

static char *peft_config(const nrl_node *all, const nrl_format_write *what)
{
    arena a = {0};
    nrl_node *saved = saved_modules(&a, what);
    const nrl_node *settings = nrl_node_find(all, "settings"), *modules = nrl_node_find(settings, "modules");
    const char *base = nrl_node_string(nrl_node_find(all, "base"), NULL);
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    node_append_text(&a, map, "peft_type", "LORA");
    node_append_text(&a, map, "task_type", has_score(saved) ? "SEQ_CLS" : "CAUSAL_LM");
    if (base)
        node_append_text(&a, map, "base_model_name_or_path", base);
    else
        node_append(&a, map, "base_model_name_or_path", node_new(&a, NRL_NODE_NULL));
    node_append(&a, map, "r", node_int(&a, rank_at(modules, 0)));
    node_append(&a, map, "lora_alpha", number(&a, alpha_at(modules, 0)));
    node_append(&a, map, "lora_dropout", node_f64(&a, nrl_node_f64(nrl_node_find(settings, "dropout"), 0)));
    node_append(&a, map, "use_rslora", node_bool(&a, nrl_node_bool(nrl_node_find(settings, "rslora"), false)));
    node_append(&a, map, "use_dora", node_bool(&a, nrl_node_bool(nrl_node_find(settings, "dora"), false)));
    node_append_text(&a, map, "bias", "none");
    node_append(&a, map, "target_modules", targets(&a, modules, nrl_node_find(all, "linear")));
    add_patterns(&a, map, modules);
    node_append(&a, map, "fan_in_fan_out", node_bool(&a, nrl_node_bool(nrl_node_find(all, "transposed"), false)));
    node_append(&a, map, "modules_to_save", nrl_node_size(saved) ? saved : node_new(&a, NRL_NODE_NULL));
    node_append(&a, map, "ensure_weight_tying", node_bool(&a, *nrl_node_string(nrl_node_find(all, "tied"), "")));
    node_append(&a, map, "init_lora_weights", node_bool(&a, true));
    node_append(&a, map, "inference_mode", node_bool(&a, true));
    char *text = json_write(map, 2);
    arena_free(&a);
    return text;
}

static nrl_status describe(const nrl_format_write *what, char **text)
{
    arena a = {0};
    nrl_node *all;
    nrl_status st = json_parse(&a, "adapter", what->config, what->config_size, &all);
    const char *name = st == NRL_OK ? nrl_node_string(nrl_node_find(all, "adapter"), "") : "";
    if (st == NRL_OK && strcmp(name, "lora"))
        st = nrl_fail(NRL_ERR_CONFIG,
                      "cannot write adapters of '%s' for peft; expected adapters of lora\n"
                      "hint: export the model with its adapters merged",
                      name);
    if (st == NRL_OK) *text = peft_config(all, what);
    arena_free(&a);
    return st;
}

/* ---- writing ---- */

typedef struct {
    safetensors_writer file;
    char *config;
    arena memory;
} peft_writer;

/* The tensors with the names that peft gives them: parameters of an algorithm come with their own names. */
static nrl_format_write with_names(arena *a, const nrl_format_write *what)
{
    nrl_format_write own = *what;
    size_t bytes = (size_t)what->n_tensors * what->tensor_size;
    char *tensors = arena_alloc(a, bytes + 1);
    memcpy(tensors, what->tensors, bytes);
    for (int64_t i = 0; i < what->n_tensors; i++) {
        nrl_format_tensor *t = (nrl_format_tensor *)(void *)(tensors + (size_t)i * what->tensor_size);
        if (!is_of_adapter(t->name)) t->name = arena_printf(a, "%s%s", before, t->name);
    }
    own.tensors = (const nrl_format_tensor *)(const void *)tensors;
    return own;
}

nrl_status peft_begin(const nrl_format_write *what, void **writer)
{
    char *config;
    NRL_TRY(describe(what, &config));
    peft_writer *w = mem_alloc(sizeof *w);
    w->config = config;
    *writer = w;
    const nrl_format_write own = with_names(&w->memory, what);
    nrl_status st = safetensors_begin(&w->file, &own, "adapter_model.safetensors", false);
    if (st != NRL_OK) peft_abandon(w);
    return st;
}

nrl_status peft_write(void *writer, int64_t i, int64_t n, const float *values)
{
    peft_writer *w = writer;
    return safetensors_write(&w->file, i, n, values);
}

static nrl_status peft_end(peft_writer *w, nrl_status st)
{
    st = safetensors_end(&w->file, st);
    arena_free(&w->memory);
    free(w->config);
    free(w);
    return st;
}

nrl_status peft_finish(void *writer)
{
    peft_writer *w = writer;
    return peft_end(w, output_text(&w->file.out, "adapter_config.json", w->config));
}

void peft_abandon(void *writer)
{
    peft_end(writer, NRL_ERR_STOPPED);
}
