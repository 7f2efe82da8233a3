/*
 * checkpoint.c - `nrl checkpoint inspect|verify|diff|prune|keygen`: prints the contents of a
 * checkpoint, checks whether it is intact and who signed it, compares two checkpoints, removes old
 * checkpoints of a run, and creates keys for signing.
 */
#include "checkpoint_verb.h"
#include "base/json.h"
#include "base/suggest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool holds(const char *path, const char *name)
{
    char *file = mem_printf("%s/%s", path, name);
    struct stat s;
    bool is = stat(file, &s) == 0;
    free(file);
    return is;
}

nrl_checkpoint_info checkpoint_verb_info(const nrl_checkpoint *c)
{
    nrl_checkpoint_info info = {.size = sizeof info};
    nrl_checkpoint_info_fill(c, &info);
    return info;
}

nrl_checkpoint_tensor checkpoint_verb_tensor(const nrl_checkpoint *c, int64_t i)
{
    nrl_checkpoint_tensor t = {.size = sizeof t};
    nrl_checkpoint_tensor_fill(c, i, &t);
    return t;
}

const char *checkpoint_verb_shape(arena *a, const nrl_checkpoint_tensor *t)
{
    const char *text = "[";
    for (int i = 0; i < t->n_dims; i++)
        text = arena_printf(a, "%s%s%lld", text, i ? "," : "", (long long)t->dims[i]);
    return arena_printf(a, "%s]", text);
}

const char *checkpoint_verb_bytes(arena *a, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    return arena_printf(a, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void checkpoint_verb_print(const nrl_node *node)
{
    char *text = json_write(node, 0);
    puts(text);
    free(text);
}

void checkpoint_verb_set(arena *a, nrl_node *map, const char *key, const char *text)
{
    node_set(a, map, key, node_text(a, text));
}

/* ---- verify ---- */

typedef struct {
    arena a;
    nrl_node *damages;      /* a list */
    const char *public_key; /* a file; NULL = any signature or none */
    bool json;
} verifying;

static void hear_damage(void *user, const char *text)
{
    verifying *v = user;
    node_append(&v->a, v->damages, NULL, node_text(&v->a, text));
    if (!v->json) cli_page("damaged: %s\n", text);
}

/* More threads do not help once the disk is not the bottleneck. */
static int n_threads(void)
{
    enum { MOST = 16 };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > MOST ? MOST : (int)cores;
}

static nrl_status verify_one(verifying *v, const char *path)
{
    nrl_checkpoint *c = NULL;
    nrl_status st = nrl_checkpoint_open(path, v->public_key, &c);
    if (st == NRL_ERR_CORRUPT) hear_damage(v, nrl_error_text());
    if (st == NRL_OK) st = nrl_checkpoint_verify(c, n_threads(), hear_damage, v);
    if (st == NRL_OK && !v->json) {
        arena a = {0};
        nrl_checkpoint_info info = checkpoint_verb_info(c);
        const char *signed_by = v->public_key    ? ", signed by this key"
                                : info.is_signed ? ", signed (not checked without --public-key)"
                                                 : "";
        cli_page("%s: whole, %s%s\n", path, checkpoint_verb_bytes(&a, info.bytes), signed_by);
        arena_free(&a);
    }
    nrl_checkpoint_close(c);
    return st == NRL_ERR_CORRUPT ? NRL_OK : st;
}

/* All checkpoints of a run. */
static nrl_status verify_run(verifying *v, const char *out)
{
    char **dirs;
    size_t n;
    NRL_TRY(nrl_checkpoint_list(out, &dirs, &n));
    nrl_status st = n ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "'%s' contains no checkpoint", out);
    for (size_t i = 0; i < n && st == NRL_OK; i++)
        st = verify_one(v, dirs[i]);
    nrl_checkpoint_list_free(dirs, n);
    return st;
}

static nrl_status verify(int argc, char **argv, bool json)
{
    verifying v = {.json = json};
    NRL_TRY(cli_take_value(&argc, argv, "--public-key", &v.public_key));
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    v.damages = node_new(&v.a, NRL_NODE_LIST);
    bool is_run = !holds(argv[1], "manifest.json") && holds(argv[1], "checkpoints");
    nrl_status st = is_run ? verify_run(&v, argv[1]) : verify_one(&v, argv[1]);
    size_t n = nrl_node_size(v.damages);
    if (st == NRL_OK && json) {
        nrl_node *map = node_new(&v.a, NRL_NODE_MAP);
        node_append(&v.a, map, "whole", node_bool(&v.a, n == 0));
        node_append(&v.a, map, "damages", v.damages);
        checkpoint_verb_print(map);
    }
    if (st == NRL_OK && n)
        st = nrl_fail(NRL_ERR_CORRUPT, "%s: %zu damage%s found; the first: %s", argv[1], n, n > 1 ? "s" : "",
                      nrl_node_string(nrl_node_at(v.damages, 0), ""));
    arena_free(&v.a);
    return st;
}

/* ---- prune ---- */

static nrl_status read_count(const char *flag, const char *text, int64_t *out)
{
    char *rest;
    if (!text) return NRL_OK;
    *out = strtoll(text, &rest, 10);
    if (*text && !*rest && *out >= 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from 0", flag, text);
}

static void print_removed(char **before, size_t n, bool json)
{
    arena a = {0};
    nrl_node *map = node_new(&a, NRL_NODE_MAP), *removed = node_new(&a, NRL_NODE_LIST);
    for (size_t i = 0; i < n; i++) {
        if (access(before[i], F_OK) == 0) continue;
        node_append(&a, removed, NULL, node_text(&a, before[i]));
        if (!json) cli_page("removed %s\n", before[i]);
    }
    node_append(&a, map, "removed", removed);
    if (json)
        checkpoint_verb_print(map);
    else if (!nrl_node_size(removed))
        puts("nothing to remove");
    arena_free(&a);
}

static nrl_status prune_run(const char *out, int64_t keep, int64_t keep_best, bool json)
{
    char **before;
    size_t n;
    NRL_TRY(nrl_checkpoint_list(out, &before, &n));
    nrl_status st = nrl_checkpoint_prune(out, keep, keep_best);
    if (st == NRL_OK) print_removed(before, n, json);
    nrl_checkpoint_list_free(before, n);
    return st;
}

static nrl_status prune(int argc, char **argv, bool json)
{
    const char *keep_text, *best_text;
    int64_t keep = 0, keep_best = 0;
    NRL_TRY(cli_take_value(&argc, argv, "--keep", &keep_text));
    NRL_TRY(cli_take_value(&argc, argv, "--keep-best", &best_text));
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    NRL_TRY(read_count("--keep", keep_text, &keep));
    NRL_TRY(read_count("--keep-best", best_text, &keep_best));
    if (!keep) return nrl_fail(NRL_ERR_CONFIG, "--keep: expected the number of newest checkpoints to keep, at least 1");
    if (!holds(argv[1], "checkpoints"))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is not the directory of a run: it has no checkpoints", argv[1]);
    return prune_run(argv[1], keep, keep_best, json);
}

/* ---- keygen ---- */

static nrl_status keygen(int argc, char **argv, bool json)
{
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    NRL_TRY(nrl_checkpoint_make_keys(argv[1]));
    arena a = {0};
    const char *public_path = arena_printf(&a, "%s.pub", argv[1]);
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    node_append_text(&a, map, "secret_key", argv[1]);
    node_append_text(&a, map, "public_key", public_path);
    if (json)
        checkpoint_verb_print(map);
    else
        cli_page("wrote %s (secret: for checkpoint.sign) and %s (public: for checkpoint.public_key and --public-key)\n",
                 argv[1], public_path);
    arena_free(&a);
    return NRL_OK;
}

/* ---- the verb ---- */

static const struct {
    const char *name;
    nrl_status (*run)(int argc, char **argv, bool json);
} parts[] = {{"inspect", checkpoint_inspect},
             {"verify", verify},
             {"diff", checkpoint_diff},
             {"prune", prune},
             {"keygen", keygen}};

static nrl_status checkpoint_verb(int argc, char **argv)
{
    bool json = cli_take_flag(&argc, argv, "--json");
    suggestion near = {.word = argc > 1 ? argv[1] : ""};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!strcmp(near.word, parts[i].name)) {
            argv[1] = argv[0]; /* so that an error refers to the --help of the verb */
            return parts[i].run(argc - 1, argv + 1, json);
        }
        suggest_offer(&near, parts[i].name);
    }
    if (near.best)
        return nrl_fail(NRL_ERR_CONFIG, "checkpoint: unknown '%s'; did you mean '%s'?", near.word, near.best);
    return nrl_fail(NRL_ERR_CONFIG, "checkpoint: expected inspect, verify, diff, prune or keygen");
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "checkpoint", checkpoint_verb);
}
