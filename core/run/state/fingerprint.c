/*
 * fingerprint.c - the comparison of a run with the checkpoint that it goes on from, all differences in one error.
 */
#include "run/state/state.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "base/json.h"
#include "config/compare.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    if (text) node_append_text(a, map, key, text);
}

/* What the rows of each part of data.train are made of, or the plugins that read them; what follows from the rows is
 * said by options, which are compared. */
static nrl_node *data_node(arena *a, const dataset *d, bool plugins)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (int64_t i = 0; i < dataset_n_parts(d); i++) {
        const dataset_part part = dataset_part_at(d, i);
        const char *text = plugins ? part.reader_name : part.hash;
        node_append(a, list, NULL, node_string(a, text, strlen(text)));
    }
    return list;
}

nrl_node *fingerprint_node(arena *a, const session *se)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "data", data_node(a, se->train.set, false));
    node_append(a, map, "data plugins", data_node(a, se->train.set, true));
    put_text(a, map, "template", se->chat ? se->chat->hash : NULL);
    put_text(a, map, "template plugin", se->chat ? se->chat->plugin : NULL);
    put_text(a, map, "reference", se->reference_key);
    put_text(a, map, "tokenizer", se->tokenizer ? se->tokenizer->info.hash : NULL);
    put_text(a, map, "tokenizer plugin", se->tokenizer ? se->tokenizer->plugin : NULL);
    put_text(a, map, "script", se->env.script_hash);
    node_append_int(a, map, "total_steps", se->total_steps);
    if (se->shards.fixed) /* what else the bits depend on */
        put_text(a, map, "reproducible",
                 arena_printf(a, "%d shards, %d threads", se->shards.n * mesh_n_batches(se->mesh),
                              (int)se->device.info.n_threads));
    if (!se->model->adapters) return map;
    put_text(a, map, "base", se->base_key);
    node_append(a, map, se->model->adapters->table->plugin.name,
                node_without(a, se->model->adapters->settings, "adapter"));
    return map;
}

/* ---- plugins: nrl's own have another hash after each build, so only their versions are compared ---- */

static void plugins_add(arena *a, const session *se, nrl_node *map, const nrl_plugin *p)
{
    const char *text, *key = p ? arena_printf(a, "%s/%s", plugin_kind_find(p->kind)->folder, p->name) : NULL;
    if (p && !nrl_node_find(map, key) && plugin_identity(se->host, p->kind, p->name, a, &text) == NRL_OK)
        node_append_text(a, map, key, text);
}

static void plugins_add_readers(arena *a, const session *se, nrl_node *map, const dataset *d)
{
    for (int64_t i = 0; d && i < dataset_n_parts(d); i++)
        plugins_add(a, se, map, dataset_part_at(d, i).reader);
}

nrl_node *plugins_node(arena *a, const session *se)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    if (!se->algorithm_is_script) plugins_add(a, se, map, &se->algorithm->plugin);
    plugins_add(a, se, map, &se->optimizer->plugin);
    plugins_add(a, se, map, &se->schedule->plugin);
    plugins_add(a, se, map, &se->model->table.plugin);
    plugins_add(a, se, map, se->model->adapters ? &se->model->adapters->table->plugin : NULL);
    plugins_add(a, se, map, &se->backend->plugin);
    plugins_add(a, se, map, se->collective ? &se->collective->plugin : NULL);
    for (int32_t i = 0; i < se->strategy_choices.n; i++)
        plugins_add(a, se, map, &se->strategy_choices.of[i].table->plugin);
    plugins_add(a, se, map, se->origin.format ? &se->origin.format->plugin : NULL);
    plugins_add(a, se, map, se->tokenizer ? &se->tokenizer->open.table->plugin : NULL);
    plugins_add(a, se, map, se->chat ? &se->chat->table->plugin : NULL);
    plugins_add_readers(a, se, map, se->train.set);
    for (size_t i = 0; i < se->n_evals; i++)
        plugins_add_readers(a, se, map, se->evals[i].set);
    return map;
}

/* Whether "1.2.3" and "1.4" may stand for each other; texts of another form may. */
static bool plugins_are_compatible(const char *was, const char *is)
{
    int major[2], minor[2];
    if (sscanf(was, "%d.%d", &major[0], &minor[0]) != 2 || sscanf(is, "%d.%d", &major[1], &minor[1]) != 2) return true;
    return major[0] == major[1] && (major[0] > 0 || minor[0] == minor[1]);
}

static bool plugins_is_own(const session *se, const char *key)
{
    const char *slash = strchr(key, '/');
    char folder[64];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - key), key);
    return plugin_is_own(se->host, plugin_kind_by_name(folder)->kind, slash + 1);
}

void plugins_compare(const session *se, const nrl_node *was,
                     void (*tell)(void *user, const char *plugin, const nrl_node *was, const nrl_node *is), void *user)
{
    arena a = {0};
    buffer lines = {0};
    const nrl_node *is = plugins_node(&a, se);
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        const nrl_node *old = nrl_node_find(was, key), *new = nrl_node_at(is, i);
        const char *then = nrl_node_string(old, NULL), *now = nrl_node_string(new, "");
        if (!then || !strcmp(then, now)) continue;
        size_t n = strcspn(now, ",");
        bool same_version = n == strcspn(then, ",") && !strncmp(then, now, n);
        if (!plugins_are_compatible(then, now))
            tell(user, arena_printf(&a, "plugin %s", key), old, new);
        else if (!same_version || !plugins_is_own(se, key))
            buffer_print(&lines, "\n  %s: was %s, is now %s", key, then, now);
    }
    if (lines.size && session_is_rank0(se))
        nrl_warn("the checkpoint was written with other builds of these plugins:%s", lines.text);
    buffer_free(&lines);
    arena_free(&a);
}

/* ---- telling ---- */

typedef struct {
    buffer lines;
    const char *prefix;
} differences;

static bool is_list_of_maps(const nrl_node *n)
{
    return nrl_node_kind(n) == NRL_NODE_LIST && nrl_node_kind(nrl_node_at(n, 0)) == NRL_NODE_MAP;
}

static void tell(void *user, const char *key, const nrl_node *was, const nrl_node *is)
{
    differences *d = user;
    if (is_list_of_maps(was) && is_list_of_maps(is)) {
        /* Two lists of maps: where the first difference is, not all that they hold. */
        size_t m = nrl_node_size(was), n = nrl_node_size(is), differ = 0;
        char *first = NULL;
        for (size_t i = 0; i < n && i < m; i++) {
            char *then = json_write(nrl_node_at(was, i), 0), *now = json_write(nrl_node_at(is, i), 0);
            bool same = !strcmp(now, then);
            if (!same && !first) first = mem_printf("was %s, is now %s", then, now);
            differ += !same;
            free(now);
            free(then);
        }
        if (n != m) buffer_print(&d->lines, "\n  %s%s: had %zu entries, has %zu", d->prefix, key, m, n);
        if (differ)
            buffer_print(&d->lines, "\n  %s%s: %zu of %zu differ, the first %s", d->prefix, key, differ, n < m ? n : m,
                         first);
        free(first);
        return;
    }
    char *then = was ? json_write(was, 0) : mem_strdup("unset"), *now = is ? json_write(is, 0) : mem_strdup("unset");
    buffer_print(&d->lines, "\n  %s%s: was %s, is now %s", d->prefix, key, then, now);
    free(now);
    free(then);
}

/* ---- the parts ---- */

static void tell_of_model(void *user, const char *key, const nrl_node *was, const nrl_node *is)
{
    /* Keys of config.json that say where a file is from, not what the model computes. */
    static const char *const keys[] = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return;
    tell(user, key, was, is);
}

/* A schedule that does not depend on the number of steps, or no longer, lets that change. */
static nrl_status compare_rates(const session *se, const schedule *rates, const checkpoint *c, differences *d)
{
    int64_t done = checkpoint_step(c), is = se->total_steps;
    int64_t was = nrl_node_int(nrl_node_find(checkpoint_node(c, "fingerprints"), "total_steps"), is);
    schedule before = {0};
    if (was == is || was < 1) return NRL_OK;
    nrl_status st = schedule_open(&before, se->schedule, se->schedule_options, se->optimizer_options.lr, was);
    for (int64_t s = done; s < is && st == NRL_OK; s++) {
        double old, new = 0;
        st = schedule_rate(&before, s, &old);
        if (st == NRL_OK) st = schedule_rate(rates, s, &new);
        if (st != NRL_OK || old == new) continue;
        buffer_print(
            &d->lines,
            "\n  %s: was %lld, is now %lld: schedule %s depends on it, and would give step %lld the rate %.3g where "
            "it gave %.3g",
            se->config.train.steps ? "train.steps" : "steps of train.epochs", (long long)was, (long long)is,
            se->config.schedule.name, (long long)s + 1, new, old);
        break;
    }
    schedule_close(&before);
    return st;
}

nrl_status fingerprint_check(const session *se, const schedule *rates, const checkpoint *c)
{
    differences d = {.prefix = ""};
    arena a = {0};
    const char **adapters, *section;
    size_t n = plugin_names(se->host, &a, NRL_KIND_ADAPTER, &adapters);
    const nrl_node *was = config_fold_adapter(&a, NULL, adapters, n, checkpoint_node(c, "config"), &section);
    config_compare(was, node_as_written(&a, se->config.resolved), se->tree, tell, &d);
    arena_free(&a);
    nrl_status st = compare_rates(se, rates, c, &d);
    /* Hashes of what the run has now; a checkpoint may hold more, of an earlier version of nrl. */
    const nrl_node *is = fingerprint_node(&a, se);
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        if (strcmp(key, "total_steps"))
            config_compare_trees(key, nrl_node_find(checkpoint_node(c, "fingerprints"), key), nrl_node_at(is, i), tell,
                                 &d);
    }
    arena_free(&a);
    plugins_compare(se, checkpoint_node(c, "plugins"), tell, &d);
    d.prefix = "config.json: ";
    config_compare_trees("", checkpoint_node(c, "model"), se->model->config, tell_of_model, &d);
    if (st == NRL_OK && d.lines.size && se->config.checkpoint.mismatch == CONFIG_ON_ERROR_STOP)
        st = nrl_fail(
            NRL_ERR_CONFIG,
            "the checkpoint was written by a run with other settings:%s\n"
            "hint: checkpoint.mismatch=warn goes on with those of now, another `out` starts afresh, model.path takes "
            "the weights alone; `nrl describe` names what is compared",
            d.lines.text);
    else if (st == NRL_OK && d.lines.size && session_is_rank0(se))
        nrl_warn("the checkpoint was written by a run with other settings:%s", d.lines.text);
    buffer_free(&d.lines);
    return st;
}
