/*
 * fingerprint.c - compares a run with the checkpoint that it resumes from, and reports all differences in one error.
 */
#include "run/state/state.h"
#include "base/buffer.h"
#include "base/json.h"
#include "config/compare.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- plugins: nrl's own have another hash after each build, so only their versions are compared ---- */

/* Whether "1.2.3" and "1.4" may stand for each other; texts of another form may. */
static bool plugins_are_compatible(const char *was, const char *is)
{
    int major[2], minor[2];
    if (sscanf(was, "%d.%d", &major[0], &minor[0]) != 2 || sscanf(is, "%d.%d", &major[1], &minor[1]) != 2) return true;
    return major[0] == major[1] && (major[0] > 0 || minor[0] == minor[1]);
}

static bool plugins_is_own(plugin_host *host, const char *key)
{
    const char *slash = strchr(key, '/');
    char folder[64];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - key), key);
    return plugin_is_own(host, plugin_kind_by_name(folder)->kind, slash + 1);
}

/* Calls `report` for each plugin whose version is incompatible by semantic versioning (another major version, or below
 * 1.0 another minor version). Other versions, and other files of plugins that are not nrl's own, are one warning.
 * Plugins that only one of the two runs has are not compared. */
static void plugins_compare(const state_parts *s, const nrl_node *was, const nrl_node *is, config_difference report,
                            void *user)
{
    arena a = {0};
    buffer lines = {0};
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        const nrl_node *old = nrl_node_find(was, key), *new = nrl_node_at(is, i);
        const char *then = nrl_node_string(old, NULL), *now = nrl_node_string(new, "");
        if (!then || !strcmp(then, now)) continue;
        size_t n = strcspn(now, ",");
        bool same_version = n == strcspn(then, ",") && !strncmp(then, now, n);
        if (!plugins_are_compatible(then, now))
            report(user, arena_printf(&a, "plugin %s", key), old, new);
        else if (!same_version || !plugins_is_own(s->host, key))
            buffer_print(&lines, "\n  %s: was %s, is now %s", key, then, now);
    }
    if (lines.size && nrl_mesh_rank(s->trainer->parts.mesh) == 0)
        nrl_warn("the checkpoint was written with different builds of these plugins:%s", lines.text);
    buffer_free(&lines);
    arena_free(&a);
}

/* ---- messages ---- */

typedef struct {
    buffer lines;
    const char *prefix;
} differences;

static bool is_list_of_maps(const nrl_node *n)
{
    return nrl_node_kind(n) == NRL_NODE_LIST && nrl_node_kind(nrl_node_at(n, 0)) == NRL_NODE_MAP;
}

static void add_difference(void *user, const char *key, const nrl_node *was, const nrl_node *is)
{
    differences *d = user;
    if (is_list_of_maps(was) && is_list_of_maps(is)) {
        /* For two lists of maps, only says where the first difference is. */
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

static void add_model_difference(void *user, const char *key, const nrl_node *was, const nrl_node *is)
{
    /* Keys of config.json that say where a file is from, not what the model computes. */
    static const char *const keys[] = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return;
    add_difference(user, key, was, is);
}

/* Compares the learning rates that are left. The number of steps may change if the schedule does not depend on it, or
 * no longer does. */
static nrl_status compare_rates(const schedule *rates, const nrl_node *run, const checkpoint *c, differences *d)
{
    int64_t done = checkpoint_step(c), is = rates->steps;
    int64_t was = nrl_node_int(nrl_node_find(checkpoint_node(c, "fingerprints"), "total_steps"), is);
    const nrl_node *train = nrl_node_find(nrl_node_find(run, "config"), "train");
    bool by_steps = nrl_node_int(nrl_node_find(train, "steps"), 0);
    schedule before = {0};
    if (was == is || was < 1) return NRL_OK;
    nrl_status st = schedule_open(&before, rates->table, rates->options, rates->lr, was);
    for (int64_t s = done; s < is && st == NRL_OK; s++) {
        double old, new = 0;
        st = schedule_rate(&before, s, &old);
        if (st == NRL_OK) st = schedule_rate(rates, s, &new);
        if (st != NRL_OK || old == new) continue;
        buffer_print(
            &d->lines,
            "\n  %s: was %lld, is now %lld: with schedule %s, step %lld would have the rate %.3g instead of %.3g",
            by_steps ? "train.steps" : "steps of train.epochs", (long long)was, (long long)is,
            rates->table->plugin.name, (long long)s + 1, new, old);
        break;
    }
    schedule_close(&before);
    return st;
}

nrl_status fingerprint_check(const state_parts *s, const nrl_node *run, const checkpoint *c)
{
    differences d = {.prefix = ""};
    arena a = {0};
    const char **adapters, *section;
    size_t n = plugin_names(s->host, &a, NRL_KIND_ADAPTER, &adapters);
    const nrl_node *was = config_fold_adapter(&a, NULL, adapters, n, checkpoint_node(c, "config"), &section);
    config_compare(was, nrl_node_find(run, "config"), s->given, add_difference, &d);
    arena_free(&a);
    nrl_status st = compare_rates(&s->trainer->schedule, run, c, &d);
    /* Compares the hashes that the run has now; a checkpoint of an earlier version of nrl may hold others. */
    const nrl_node *is = nrl_node_find(run, "fingerprints");
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        if (strcmp(key, "total_steps"))
            config_compare_trees(key, nrl_node_find(checkpoint_node(c, "fingerprints"), key), nrl_node_at(is, i),
                                 add_difference, &d);
    }
    plugins_compare(s, checkpoint_node(c, "plugins"), nrl_node_find(run, "plugins"), add_difference, &d);
    d.prefix = "config.json: ";
    config_compare_trees("", checkpoint_node(c, "model"), nrl_node_find(run, "model"), add_model_difference, &d);
    if (st == NRL_OK && d.lines.size && !s->mismatch_warns)
        st = nrl_fail(
            NRL_ERR_CONFIG,
            "the checkpoint was written by a run with other settings:%s\n"
            "hint: checkpoint.mismatch=warn continues with the current settings, another `out` starts a new run, "
            "model.path uses only the weights; `nrl describe` lists the compared options",
            d.lines.text);
    else if (st == NRL_OK && d.lines.size && nrl_mesh_rank(s->trainer->parts.mesh) == 0)
        nrl_warn("the checkpoint was written by a run with other settings:%s", d.lines.text);
    buffer_free(&d.lines);
    return st;
}
