/*
 * auto.c - see auto.h. Planning is a separate program, so that this process does not load what it measures.
 */
#include "cli/common/auto.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/common/child.h"
#include "cli/common/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The value of a dotted key; NULL = none. */
static const nrl_node *auto_find(arena *a, const nrl_node *root, const char *key)
{
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1)
        root = nrl_node_find(root, arena_strndup(a, key, (size_t)(dot - key)));
    return nrl_node_find(root, key);
}

/* OUT/config.yaml of the run that is resumed, unless it is the config itself; NULL = nothing is resumed. */
static const char *auto_earlier(arena *a, const nrl_node *root, const char *file)
{
    struct stat own, other;
    const char *out = nrl_node_string(nrl_node_find(root, "out"), NULL);
    if (!out || !strcmp(nrl_node_string(nrl_node_find(root, "resume"), "never"), "never")) return NULL;
    const char *path = arena_printf(a, "%s/config.yaml", out);
    if (stat(path, &other) || (!stat(file, &own) && own.st_dev == other.st_dev && own.st_ino == other.st_ino))
        return NULL;
    return path;
}

static nrl_status auto_keep(arena *a, const nrl_config *config, const char *path, bool quiet, const char **words)
{
    const char *key;
    nrl_config *earlier = nrl_config_create(a);
    nrl_status st = nrl_config_read(earlier, path);
    for (size_t i = 0; st == NRL_OK && (key = nrl_config_auto(config, i)); i++) {
        char *value = json_write(auto_find(a, nrl_config_root(earlier), key), 0);
        words[i] = arena_printf(a, "%s=%s", key, value);
        free(value);
        if (!quiet) fprintf(stderr, "auto       %s has the value of %s, which this run continues\n", key, path);
    }
    nrl_config_destroy(earlier);
    return st;
}

static nrl_status auto_plan(arena *a, const auto_request *r, const nrl_node **result)
{
    static const char error[] = "error: ";
    child_end end;
    nrl_node *tree;
    int n = 0;
    const char *bin = cli_exe_dir(a), *machine = cli_getenv("NRL_MACHINE");
    const char **argv = arena_alloc(a, ((size_t)r->n_words + 10) * sizeof *argv);
    argv[n++] = arena_printf(a, "%s/../" NRL_LIBEXEC_SUBDIR "/nrl-plan", bin ? bin : ".");
    argv[n++] = r->file;
    for (int i = 0; i < r->n_words; i++)
        if (*r->words[i] != '-' && strchr(r->words[i], '=')) argv[n++] = r->words[i];
    argv[n++] = "--auto";
    argv[n++] = "--json";
    argv[n++] = "--ranks";
    argv[n++] = arena_printf(a, "%d", (int)r->ranks);
    if (machine) argv[n++] = "--machine";
    if (machine) argv[n++] = machine;
    argv[n] = NULL;
    NRL_TRY(child_run(a, argv, NULL, &end));
    if (end.code) {
        const char *text = strstr(end.err, error); /* after warnings */
        text = text ? text + sizeof error - 1 : *end.err ? end.err : "`nrl plan --auto` failed";
        return nrl_fail(cli_status(end.code), "%.*s", (int)(strlen(text) - (text[strlen(text) - 1] == '\n')), text);
    }
    NRL_TRY(json_parse(a, "nrl plan", arena_strdup(a, end.out), strlen(end.out), &tree));
    *result = tree;
    return NRL_OK;
}

nrl_status auto_choose(arena *a, nrl_config *config, const auto_request *r, const char *const **list)
{
    const char *key, *const *none = arena_alloc(a, sizeof *none);
    size_t n = 0;
    *list = none;
    while (nrl_config_auto(config, n))
        n++;
    if (!n) return NRL_OK;
    const char **words = arena_alloc(a, (n + 1) * sizeof *words);
    *list = words;
    for (size_t i = 0; !r->trains && (key = nrl_config_auto(config, i)); i++) {
        words[i] = arena_printf(a, "%s=null", key);
        if (!r->quiet) fprintf(stderr, "auto       %s has its default, because this command does not train\n", key);
    }
    if (!r->trains) return NRL_OK;
    const char *earlier = auto_earlier(a, nrl_config_root(config), r->file);
    if (earlier) return auto_keep(a, config, earlier, r->quiet, words);
    const nrl_node *plan = NULL;
    NRL_TRY(auto_plan(a, r, &plan));
    const nrl_node *candidates = nrl_node_find(plan, "candidates");
    const nrl_node *best = nrl_node_at(candidates, (size_t)nrl_node_f64(nrl_node_find(plan, "chosen"), 0));
    char need[SIZE_TEXT], limit[SIZE_TEXT];
    size_text(nrl_node_f64(nrl_node_find(best, "total_bytes"), 0), need);
    size_text(nrl_node_f64(nrl_node_find(plan, "memory_bytes"), 0), limit);
    for (size_t i = 0; (key = nrl_config_auto(config, i)); i++) {
        const char *value = nrl_node_string(nrl_node_find(nrl_node_find(best, "keys"), key), "null");
        words[i] = arena_printf(a, "%s=%s", key, value);
        if (r->quiet) continue;
        if (!strcmp(value, "null"))
            fprintf(stderr, "auto       %s: not needed for one rank\n", key);
        else
            fprintf(stderr,
                    "auto       %s: %s of %s, predicted %.3g s per step (settings compared: %zu, in %.1f s); set a "
                    "value to override\n",
                    words[i], need, limit, nrl_node_f64(nrl_node_find(best, "step_seconds"), 0),
                    nrl_node_size(candidates), nrl_node_f64(nrl_node_find(plan, "seconds"), 0));
    }
    return NRL_OK;
}
