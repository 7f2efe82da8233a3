/*
 * peft.c - adapters in the layout of peft: a directory of adapter_config.json and
 * adapter_model.safetensors. The modules and their ranks come from the tensors; features that nrl does
 * not have (biases) are rejected by name. The settings for the adapter lora are {rslora, dora, dropout,
 * modules: [{module, rank, alpha}]}. Modules that were trained whole (modules_to_save, such as a score) are tensors
 * under their names in the model.
 */
#include "peft.h"
#include "base/convert.h"
#include "base/json.h"
#include "safetensors.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

typedef struct {
    arena memory;
    const char *dir;
    const char *config_path;
    const nrl_node *config;
    safetensors file;
    bool rslora, dora;
    double dropout;
    nrl_node *modules; /* list of the settings */
    char *text;        /* the description, see nrl/format.h */
} peft;

/* The name of a module's tensor in peft; which is 'A' or 'B'. */
static const char *tensor_name(arena *a, const char *module, char which)
{
    return arena_printf(a, "base_model.model.%s.lora_%c.weight", module, which);
}

/* ---- adapter_config.json ---- */

/* Keys whose value has no effect here, or follows from the tensors. */
static const char *const harmless[] = {"r",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "use_rslora",
                                       "eva_config", /* how the first values of A were computed */
                                       "use_dora",
                                       "alpha_pattern",
                                       "rank_pattern",
                                       "target_modules",
                                       "exclude_modules",
                                       "layers_to_transform",
                                       "layers_pattern",
                                       "modules_to_save",
                                       "base_model_name_or_path",
                                       "peft_type",
                                       "peft_version",
                                       "task_type",
                                       "revision",
                                       "inference_mode",
                                       "auto_mapping",
                                       "fan_in_fan_out",
                                       "megatron_core",
                                       "qalora_group_size",
                                       "bias",
                                       "init_lora_weights",
                                       "runtime_config",
                                       "ensure_weight_tying"};

static bool is_harmless(const char *key)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (!strcmp(harmless[i], key)) return true;
    return false;
}

/* null, false, {} and []: the feature is off. */
static bool is_off(const nrl_node *v)
{
    nrl_node_type kind = nrl_node_kind(v);
    if (kind == NRL_NODE_MAP || kind == NRL_NODE_LIST) return !nrl_node_size(v);
    return kind <= NRL_NODE_NULL || !nrl_node_bool(v, true);
}

static nrl_status refuse(const nrl_node *v, const char *key, const char *expected)
{
    char *text = json_write(v, 0);
    nrl_status st = nrl_fail(NRL_ERR_CONFIG, "%s: %s is %.200s, which is not supported; expected %s", nrl_node_place(v),
                             key, text, expected);
    free(text);
    return st;
}

/* Initialisations that also change the base model's weights cannot be restored from the adapter alone. */
static nrl_status check_init(const nrl_node *config)
{
    const nrl_node *v = nrl_node_find(config, "init_lora_weights");
    const char *word = nrl_node_string(v, NULL);
    if (!word || !strcmp(word, "gaussian") || !strcmp(word, "eva") || !strcmp(word, "orthogonal")) return NRL_OK;
    return refuse(v, "init_lora_weights", "true, false or gaussian");
}

static nrl_status check_config(const nrl_node *config)
{
    const nrl_node *type = nrl_node_find(config, "peft_type"), *bias = nrl_node_find(config, "bias");
    if (nrl_node_kind(config) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "%s: not a JSON map", nrl_node_place(config));
    if (strcmp(nrl_node_string(type, ""), "LORA")) return refuse(type ? type : config, "peft_type", "LORA");
    if (strcmp(nrl_node_string(bias, "none"), "none")) return refuse(bias, "bias", "none");
    for (size_t i = 0; i < nrl_node_size(config); i++) {
        const char *key = nrl_node_key(config, i);
        if (!is_harmless(key) && !is_off(nrl_node_at(config, i)))
            return refuse(nrl_node_at(config, i), key, "it unset");
    }
    return check_init(config);
}

/* The default is the run's own dropout. */
static nrl_status read_dropout(const nrl_node *config, double *out)
{
    const nrl_node *v = nrl_node_find(config, "lora_dropout");
    *out = nrl_node_f64(v, nrl_node_kind(v) <= NRL_NODE_NULL ? 0 : NAN);
    if (*out >= 0 && *out < 1) return NRL_OK;
    char *text = json_write(v, 0);
    nrl_status st = nrl_fail(NRL_ERR_DATA, "%s: lora_dropout is %.200s; expected a number from 0, below 1",
                             nrl_node_place(v), text);
    free(text);
    return st;
}

/* The first pattern that is not a plain name; NULL: none. */
static const char *regular_one(const nrl_node *patterns)
{
    for (size_t i = 0; i < nrl_node_size(patterns); i++)
        if (strpbrk(nrl_node_key(patterns, i), "^$*+?()[]{}|\\")) return nrl_node_key(patterns, i);
    return NULL;
}

/* A module's own alpha or rank: a pattern is its name, or the end of its name after a dot. */
static double value_of(const peft *p, const nrl_node *patterns, const char *common, const char *module)
{
    for (size_t i = 0; i < nrl_node_size(patterns); i++) {
        const char *key = nrl_node_key(patterns, i);
        size_t n = strlen(key), all = strlen(module);
        if (n > all || strcmp(module + all - n, key) || (n < all && module[all - n - 1] != '.')) continue;
        return nrl_node_f64(nrl_node_at(patterns, i), NAN);
    }
    return nrl_node_f64(nrl_node_find(p->config, common), NAN);
}

static nrl_status alpha_of(const peft *p, const char *module, double *out)
{
    const nrl_node *patterns = nrl_node_find(p->config, "alpha_pattern");
    const char *regular = regular_one(patterns);
    if (regular)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: alpha_pattern '%.200s' is a regular expression, which is not supported; "
                        "expected a module's name, or its end",
                        nrl_node_place(patterns), regular);
    *out = value_of(p, patterns, "lora_alpha", module);
    if (isfinite(*out)) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: lora_alpha of '%s' is not a number", nrl_node_place(p->config), module);
}

/* The tensors decide, but a file with another rank also means another scale, so a difference is an error.
 * If a regular expression selects ranks, nothing is compared. */
static nrl_status check_rank(const peft *p, const char *module, int64_t rank)
{
    const nrl_node *patterns = nrl_node_find(p->config, "rank_pattern");
    double said = regular_one(patterns) ? NAN : value_of(p, patterns, "r", module);
    if (!isfinite(said) || said == (double)rank) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: r of '%s' is %g, but its tensors have rank %lld", nrl_node_place(p->config),
                    module, said, (long long)rank);
}

/* ---- adapter_model.safetensors ---- */

static const safetensor *find(const peft *p, const char *name)
{
    for (int64_t i = 0; i < p->file.n; i++)
        if (!strcmp(p->file.tensors[i].name, name)) return &p->file.tensors[i];
    return NULL;
}

static const char magnitudes[] = "lora_magnitude_vector"; /* of DoRA, [outputs] */

/* The module of a tensor named base_model.model.MODULE.which; NULL: another tensor. */
static const char *module_of(arena *a, const char *name, const char *which)
{
    static const char before[] = "base_model.model.";
    const char *end = arena_printf(a, ".%s", which);
    size_t n = strlen(name), m = sizeof before - 1, k = strlen(end);
    if (n <= m + k || strncmp(name, before, m) || strcmp(name + n - k, end)) return NULL;
    return arena_strndup(a, name + m, n - m - k);
}

/* The name in the model of a tensor of a module that was saved whole: base_model.model.MODULE.weight, where
 * modules_to_save lists the end of MODULE, or of a module around it, as in peft. NULL: another tensor. */
static const char *saved_name(const peft *p, const char *name)
{
    static const char before[] = "base_model.model.";
    const nrl_node *saved = nrl_node_find(p->config, "modules_to_save");
    const char *end = strrchr(name, '.');
    if (strncmp(name, before, sizeof before - 1) || !end) return NULL;
    name += sizeof before - 1;
    if (nrl_node_size(saved) && nrl_node_bool(nrl_node_find(p->config, "ensure_weight_tying"), false) &&
        !strcmp(name, "lm_head.weight"))
        return name; /* equal to the embedding, which is in the list */
    for (size_t i = 0; i < nrl_node_size(saved); i++) {
        const char *module = nrl_node_string(nrl_node_at(saved, i), "");
        const size_t n = strlen(module);
        for (const char *dot = strchr(name, '.'); dot && n; dot = strchr(dot + 1, '.'))
            if ((size_t)(dot - name) >= n && !strncmp(dot - n, module, n)) return name;
    }
    return NULL;
}

static nrl_status add_entry(peft *p, const safetensor *a, const char *module)
{
    arena *memory = &p->memory;
    const safetensor *b = find(p, tensor_name(memory, module, 'B'));
    double alpha;
    if (!b || a->n_dims != 2 || b->n_dims != 2 || a->dims[0] < 1 || b->dims[1] != a->dims[0])
        return nrl_fail(NRL_ERR_DATA, "%s: lora_A and lora_B of '%s' are not two matrices of one rank", a->path,
                        module);
    if (!convert_known(a->dtype) || !convert_known(b->dtype))
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is of type %.40s; expected F32, BF16 or F16", a->path, a->name,
                        a->type);
    const safetensor *m = find(p, arena_printf(memory, "base_model.model.%s.%s", module, magnitudes));
    if (p->dora && (!m || m->n_dims != 1 || m->dims[0] != b->dims[0] || !convert_known(m->dtype)))
        return nrl_fail(NRL_ERR_DATA, "%s: use_dora is true, but '%s' has no %s of %lld numbers", a->path, module,
                        magnitudes, (long long)b->dims[0]);
    NRL_TRY(check_rank(p, module, a->dims[0]));
    NRL_TRY(alpha_of(p, module, &alpha));
    nrl_node *one = node_new(memory, NRL_NODE_MAP);
    node_append_text(memory, one, "module", module);
    node_append_int(memory, one, "rank", a->dims[0]);
    node_append(memory, one, "alpha", node_f64(memory, alpha));
    node_append(memory, p->modules, NULL, one);
    return NRL_OK;
}

static nrl_status read_entries(peft *p)
{
    const nrl_node *saved = nrl_node_find(p->config, "modules_to_save");
    bool has_saved = is_off(saved);
    p->modules = node_new(&p->memory, NRL_NODE_LIST);
    for (int64_t i = 0; i < p->file.n; i++) {
        const safetensor *t = &p->file.tensors[i];
        const char *a = module_of(&p->memory, t->name, "lora_A.weight");
        const char *b = a ? NULL : module_of(&p->memory, t->name, "lora_B.weight");
        if (p->dora && module_of(&p->memory, t->name, magnitudes)) continue; /* found by add_entry */
        if (!a && !b && saved_name(p, t->name)) {
            has_saved = true;
            continue;
        }
        if (!a && !b)
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: tensor '%.200s' is not lora_A or lora_B of a linear module: that is not "
                            "built",
                            t->path, t->name);
        if (b && !find(p, tensor_name(&p->memory, b, 'A')))
            return nrl_fail(NRL_ERR_DATA, "%s: '%s' has a lora_B but no lora_A", t->path, b);
        if (a) NRL_TRY(add_entry(p, t, a));
    }
    if (!has_saved) return refuse(saved, "modules_to_save", "tensors of one of these modules");
    return nrl_node_size(p->modules) ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: contains no adapter", p->file.path);
}

static char *describe(peft *p)
{
    arena *a = &p->memory;
    const char *base = nrl_node_string(nrl_node_find(p->config, "base_model_name_or_path"), NULL);
    nrl_node *all = node_new(a, NRL_NODE_MAP), *settings = node_new(a, NRL_NODE_MAP);
    node_append_text(a, all, "adapter", "lora");
    node_append(a, all, "base", base ? node_text(a, base) : node_new(a, NRL_NODE_NULL));
    node_append(a, settings, "rslora", node_bool(a, p->rslora));
    if (p->dora) node_append(a, settings, "dora", node_bool(a, true));
    node_append(a, settings, "dropout", node_f64(a, p->dropout));
    node_append(a, settings, "modules", p->modules);
    node_append(a, all, "settings", settings);
    return json_write(all, 0);
}

static nrl_status open_files(peft *p)
{
    nrl_node *config;
    p->config_path = arena_printf(&p->memory, "%s/adapter_config.json", p->dir);
    if (json_read_file(&p->memory, p->config_path, MAX_CONFIG_BYTES, &config) != NRL_OK) {
        nrl_add_context("a peft adapter is a directory of adapter_config.json and adapter_model.safetensors");
        return NRL_ERR_CONFIG;
    }
    NRL_TRY(check_config(config));
    p->config = config;
    p->rslora = nrl_node_bool(nrl_node_find(config, "use_rslora"), false);
    p->dora = nrl_node_bool(nrl_node_find(config, "use_dora"), false);
    NRL_TRY(read_dropout(config, &p->dropout));
    NRL_TRY(safetensors_open(&p->memory, arena_printf(&p->memory, "%s/adapter_model.safetensors", p->dir), &p->file));
    NRL_TRY(read_entries(p));
    p->text = describe(p);
    return NRL_OK;
}

/* ---- the table ---- */

static int32_t peft_probe(const char *path, const nrl_format_host *host)
{
    (void)host;
    char file[4096];
    int n = snprintf(file, sizeof file, "%s/adapter_config.json", path);
    return n > 0 && (size_t)n < sizeof file && !access(file, F_OK) ? NRL_PROBE_YES : NRL_PROBE_EXPLAINS;
}

static void peft_close(void *reader)
{
    peft *p = reader;
    safetensors_close(&p->file);
    free(p->text);
    arena_free(&p->memory);
    free(p);
}

static nrl_status peft_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    (void)flags;
    (void)host;
    peft *p = mem_alloc(sizeof *p);
    p->dir = arena_strdup(&p->memory, path);
    nrl_status st = open_files(p);
    if (st == NRL_OK)
        *reader = p;
    else
        peft_close(p);
    return st;
}

static void peft_info(const void *reader, nrl_format_info *info)
{
    const peft *p = reader;
    info->path = p->dir;
    info->config = p->text;
    info->config_size = strlen(p->text);
    info->config_path = p->config_path;
}

/* open has read the list of tensors, which determines the modules. */
static nrl_status peft_load(void *reader)
{
    (void)reader;
    return NRL_OK;
}

static int64_t peft_n_tensors(const void *reader)
{
    return ((const peft *)reader)->file.n;
}

static void peft_tensor(const void *reader, int64_t i, nrl_format_tensor *tensor)
{
    const peft *p = reader;
    const char *saved = saved_name(p, p->file.tensors[i].name);
    safetensor_describe(&p->file.tensors[i], tensor);
    if (saved) tensor->name = saved;
}

static nrl_status peft_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out)
{
    const safetensor *t = &((const peft *)reader)->file.tensors[i];
    convert_to_f32(t->dtype, t->data + (size_t)begin * nrl_dtype_size(t->dtype), n, out);
    return NRL_OK;
}

static const void *peft_bytes(const void *reader, int64_t i, size_t *size)
{
    const safetensor *t = &((const peft *)reader)->file.tensors[i];
    *size = t->size_bytes;
    return t->data;
}

/* The tokenizer and the chat template that the adapters were trained with: programs read them beside the adapters. */
static const char *const peft_travelling[] = {"tokenizer.json",
                                              "tokenizer_config.json",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "tokenizer.model",
                                              "vocab.json",
                                              "merges.txt",
                                              "chat_template.jinja",
                                              "chat_template.json",
                                              NULL};

static const nrl_format table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FORMAT, nrl_format, "peft", "0.1", "adapters in the directory layout of peft"),
    .holds = NRL_HOLDS_ADAPTER,
    .probe = peft_probe,
    .open = peft_open,
    .close = peft_close,
    .info = peft_info,
    .load = peft_load,
    .n_tensors = peft_n_tensors,
    .tensor = peft_tensor,
    .read = peft_read,
    .bytes = peft_bytes,
    .begin = peft_begin,
    .write = peft_write,
    .finish = peft_finish,
    .abandon = peft_abandon,
    .owns = peft_owns,
    .travelling = peft_travelling,
};
NRL_EXPORT(table)
