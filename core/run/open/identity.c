/*
 * identity.c - the lines that ranks compare. Keys name what a user can look at, values are hashes.
 */
#include "run/open/identity.h"
#include "base/buffer.h"
#include "base/json.h"
#include "run/internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char same_files[] = "every node must have the same files under the same path";

/* ---- code ---- */

static nrl_status add_plugin(run *r, const nrl_plugin *p, buffer *lines)
{
    const char *text;
    NRL_TRY(plugin_identity(r->host, p->kind, p->name, &r->memory, &text));
    buffer_print(lines, "plugin %s/%s: %s\n", plugin_kind_find(p->kind)->folder, p->name, text);
    return NRL_OK;
}

static nrl_status add_code(run *r, buffer *lines)
{
    char core[HASH_TEXT];
    NRL_TRY(plugin_core_identity(core));
    if (r->env.frontend) buffer_print(lines, "frontend: %s\n", r->env.frontend);
    buffer_print(lines, "build of nrl %s: %s\n", NRL_VERSION, core);
    if (r->algorithm_is_script)
        buffer_print(lines, "loss %s: %s\n", r->algorithm->plugin.name, r->algorithm->plugin.version);
    else
        NRL_TRY(add_plugin(r, &r->algorithm->plugin, lines));
    NRL_TRY(add_plugin(r, &r->optimizer->plugin, lines));
    NRL_TRY(add_plugin(r, &r->backend->plugin, lines));
    if (r->collective) NRL_TRY(add_plugin(r, &r->collective->plugin, lines));
    for (int32_t i = 0; i < r->strategy_choices.n; i++)
        NRL_TRY(add_plugin(r, &r->strategy_choices.of[i].table->plugin, lines));
    return NRL_OK;
}

nrl_status identity_of_code(run *r, char **lines)
{
    buffer b = {0};
    nrl_status st = add_code(r, &b);
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

static nrl_status add_text(run *r, buffer *lines)
{
    if (r->tokenizer) {
        NRL_TRY(add_plugin(r, &r->tokenizer->open.table->plugin, lines));
        buffer_print(lines, "tokenizer: %s\n", r->tokenizer->info.hash);
    }
    if (!r->chat) return NRL_OK;
    NRL_TRY(add_plugin(r, &r->chat->table->plugin, lines));
    buffer_print(lines, "data.template %s: %s\n", r->chat->label, r->chat->hash);
    return NRL_OK;
}

static nrl_status add_data(run *r, const dataset *d, const char *role, buffer *lines)
{
    for (int64_t i = 0; d && i < dataset_n_parts(d); i++) {
        dataset_part part = dataset_part_at(d, i);
        NRL_TRY(add_plugin(r, part.reader, lines));
        buffer_print(lines, "data.%s %s: %" PRId64 " bytes, %s\n", role, part.path, part.bytes, part.hash);
    }
    return NRL_OK;
}

static void add_tokens(const dataset *d, const char *role, buffer *lines)
{
    for (int64_t i = 0; d && i < dataset_n_parts(d); i++) {
        dataset_part part = dataset_part_at(d, i);
        buffer_print(lines, "tokens of data.%s %s: %" PRId64 " samples, %016" PRIx64 "\n", role, part.path, part.n,
                     part.tokens_hash);
    }
}

static nrl_status add_reference(run *r, buffer *lines)
{
    model_origin origin = {.formats = &r->formats, .signer = r->public_key};
    const nrl_node *config;
    const char *path = r->reference_options.reference_model;
    if (!work_needs(r->algorithm, "ref_logps") || !*path) return NRL_OK;
    NRL_TRY(origin_find(path, &r->model_memory, &origin, &config));
    add_config(config, "reference's ", lines);
    return add_origin(&origin, "reference's ", lines);
}

static nrl_status add_files(run *r, buffer *lines)
{
    NRL_TRY(add_plugin(r, &r->model->table.plugin, lines));
    if (r->model->adapters) NRL_TRY(add_plugin(r, &r->model->adapters->table->plugin, lines));
    if (r->origin.format) NRL_TRY(add_plugin(r, &r->origin.format->plugin, lines));
    if (r->origin.adapter_format) NRL_TRY(add_plugin(r, &r->origin.adapter_format->plugin, lines));
    add_config(r->model->config, "model's ", lines);
    NRL_TRY(add_origin(&r->origin, "model's ", lines));
    NRL_TRY(add_reference(r, lines));
    NRL_TRY(add_text(r, lines));
    NRL_TRY(add_data(r, r->train_data, "train", lines));
    return add_data(r, r->eval_data, "eval", lines);
}

/* Equal files give equal tokens, but for templates that write the date: these are compared when the files
 * are known to be equal, or every other file would be told twice. */
static nrl_status check_tokens(run *r)
{
    buffer lines = {0};
    add_tokens(r->train_data, "train", &lines);
    add_tokens(r->eval_data, "eval", &lines);
    nrl_status st =
        mesh_compare(r->mesh, "tokens", lines.text ? lines.text : "",
                     "the files are equal: a template that writes the time, or a token cache of another build");
    buffer_free(&lines);
    return st;
}

nrl_status identity_check_files(run *r)
{
    buffer lines = {0};
    if (nrl_mesh_world(r->mesh) == 1 || r->env.check_only) return NRL_OK;
    nrl_status st = add_files(r, &lines);
    if (st == NRL_OK) st = mesh_compare(r->mesh, "files", lines.text, same_files);
    buffer_free(&lines);
    return st == NRL_OK ? check_tokens(r) : st;
}
