/*
 * identity.c - the lines that ranks compare. Keys name what a user can look at, values are hashes.
 */
#include "run/open/session.h"
#include "base/buffer.h"
#include "base/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char same_files[] = "every node must have the same files under the same path";

/* ---- code ---- */

/* The plugins that are open at this point. */
static nrl_status add_plugins(session *se, buffer *lines)
{
    const nrl_plugin **list;
    const char *text;
    const size_t n = session_plugins(se, &se->memory, &list);
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(plugin_identity(se->host, list[i]->kind, list[i]->name, &se->memory, &text));
        buffer_print(lines, "plugin %s/%s: %s\n", plugin_kind_find(list[i]->kind)->folder, list[i]->name, text);
    }
    return NRL_OK;
}

static nrl_status add_code(session *se, buffer *lines)
{
    char core[HASH_TEXT];
    NRL_TRY(plugin_core_identity(core));
    if (se->env.frontend) buffer_print(lines, "frontend: %s\n", se->env.frontend);
    buffer_print(lines, "build of nrl %s: %s\n", NRL_VERSION, core);
    if (se->algorithm_is_script)
        buffer_print(lines, "loss %s: %s\n", se->algorithm->plugin.name, se->algorithm->plugin.version);
    return add_plugins(se, lines);
}

nrl_status identity_of_code(session *se, char **lines)
{
    buffer b = {0};
    nrl_status st = add_code(se, &b);
    if (st == NRL_OK) *lines = buffer_take(&b);
    buffer_free(&b);
    return st;
}

/* ---- files ---- */

static nrl_status add_origin(const model_origin *o, const char *whose, buffer *lines)
{
    char *text;
    NRL_TRY(origin_identity(o, whose, &text));
    buffer_puts(lines, text);
    free(text);
    return NRL_OK;
}

static void add_config(const nrl_node *config, const char *what, buffer *lines)
{
    char *text = json_write(config, 0), hash[HASH_TEXT];
    hash_bytes(text, strlen(text), hash);
    buffer_print(lines, "%sconfig.json: %s\n", what, hash);
    free(text);
}

/* "eval", or "eval.NAME" of a set that has a name. */
static const char *eval_role(session *se, size_t i)
{
    const char *name = se->evals[i].name;
    return arena_printf(&se->memory, "eval%s%s", *name ? "." : "", name);
}

static void add_data(const dataset *d, const char *role, buffer *lines)
{
    for (int64_t i = 0; d && i < dataset_info(d)->n_parts; i++) {
        const dataset_part part = dataset_part_at(d, i);
        buffer_print(lines, "data.%s %s: %" PRId64 " bytes, %s\n", role, part.path, part.bytes, part.hash);
    }
}

static void add_tokens(const dataset *d, const char *role, buffer *lines)
{
    for (int64_t i = 0; d && i < dataset_info(d)->n_parts; i++) {
        dataset_part part = dataset_part_at(d, i);
        buffer_print(lines, "tokens of data.%s %s: %" PRId64 " samples, %016" PRIx64 "\n", role, part.path, part.n,
                     part.tokens_hash);
    }
}

/* Identifies the files and models that options of the algorithm name, such as its rewards. */
static nrl_status read_algorithm_files(session *se)
{
    se->algorithm_files = node_new(&se->memory, NRL_NODE_MAP);
    for (uint32_t i = 0; i < se->algorithm->plugin.n_options; i++) {
        const char *path = session_algorithm_path(se, i), *key = NULL;
        model_origin origin = {.formats = &se->formats};
        const nrl_node *config;
        char hash[HASH_TEXT];
        if (!path) continue;
        if (origin_find(path, &se->model_memory, &origin, &config) == NRL_OK)
            NRL_TRY(origin_sampled_key(&origin, &se->memory, &key));
        else if (hash_file(path, hash) == NRL_OK)
            key = hash;
        node_append_text(&se->memory, se->algorithm_files, se->algorithm->plugin.options[i].name, key);
    }
    return NRL_OK;
}

static void add_algorithm_files(const session *se, buffer *lines)
{
    for (uint32_t i = 0; i < se->algorithm->plugin.n_options; i++) {
        const char *name = se->algorithm->plugin.options[i].name;
        const char *key = nrl_node_string(nrl_node_find(se->algorithm_files, name), NULL);
        if (key) buffer_print(lines, "algorithm.%s %s: %s\n", name, session_algorithm_path(se, i), key);
    }
}

static nrl_status add_files(session *se, buffer *lines)
{
    NRL_TRY(add_plugins(se, lines));
    add_algorithm_files(se, lines);
    add_config(se->model->config, "model's ", lines);
    NRL_TRY(add_origin(&se->origin, "model's ", lines));
    const char *path = se->reference_options.reference_model;
    if (reference_is_needed(se->algorithm) && *path) {
        model_origin origin = {.formats = &se->formats, .signer = se->public_key};
        const nrl_node *config;
        NRL_TRY(origin_find(path, &se->model_memory, &origin, &config));
        const char *whose = reference_is_teacher(se->algorithm) ? "teacher's " : "reference's ";
        add_config(config, whose, lines);
        NRL_TRY(add_origin(&origin, whose, lines));
    }
    if (se->tokenizer) buffer_print(lines, "tokenizer: %s\n", se->tokenizer->info.hash);
    if (se->chat) buffer_print(lines, "data.template %s: %s\n", se->chat->label, se->chat->hash);
    add_data(se->train.set, "train", lines);
    for (size_t i = 0; i < se->n_evals; i++)
        add_data(se->evals[i].set, eval_role(se, i), lines);
    return NRL_OK;
}

nrl_status identity_check_files(session *se)
{
    buffer lines = {0};
    NRL_TRY(read_algorithm_files(se));
    if (nrl_mesh_world(se->mesh) == 1 || session_is_planned(se)) return NRL_OK;
    nrl_status st = add_files(se, &lines);
    if (st == NRL_OK) st = mesh_compare(se->mesh, "files", lines.text, same_files);
    buffer_free(&lines);
    NRL_TRY(st);
    /* Equal files give equal tokens, except with templates that render the date. So tokens are compared only after the
     * files are known to be equal; otherwise each file that differs would be reported twice. */
    add_tokens(se->train.set, "train", &lines);
    for (size_t i = 0; i < se->n_evals; i++)
        add_tokens(se->evals[i].set, eval_role(se, i), &lines);
    st = mesh_compare(se->mesh, "tokens", lines.text ? lines.text : "",
                      "the files are equal: a template that writes the time, or a token cache of another build");
    buffer_free(&lines);
    return st;
}
