/*
 * spool.c - see spool.h.
 */
#include "cli/common/spool.h"
#include "base/disk.h"
#include "base/hash.h"
#include "base/node.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *spool_folder(arena *a, const nrl_node *root)
{
    const nrl_node *given = nrl_node_find(nrl_node_find(root, "data"), "cache");
    const char *cache = nrl_node_string(given, NULL);
    const char *user = cli_getenv("XDG_CACHE_HOME"), *home = cli_getenv("HOME");
    if (cache && *cache) return node_path(a, given, cache);
    if (user && *user == '/') return arena_printf(a, "%s/nrl", user);
    return home && *home == '/' ? arena_printf(a, "%s/.cache/nrl", home) : NULL;
}

/* Copies the standard input to its end; *bytes is its size. */
static nrl_status copy_input(const char *path, int64_t *bytes)
{
    static char block[1 << 16];
    FILE *out = fopen(path, "wxe");
    bool good = out;
    *bytes = 0;
    for (size_t n; good && (n = fread(block, 1, sizeof block, stdin)) > 0; *bytes += (int64_t)n)
        good = fwrite(block, 1, n, out) == n;
    good &= out && !fflush(out) && !fsync(fileno(out));
    const int why = errno;
    if (out && fclose(out)) good = false;
    if (!good) return nrl_fail(NRL_ERR_IO, "cannot write '%s': %s", path, strerror(why));
    return ferror(stdin) ? nrl_fail(NRL_ERR_IO, "cannot read standard input to its end") : NRL_OK;
}

static nrl_status spool_input(arena *a, const char *folder, const char **path)
{
    char hash[HASH_TEXT];
    int64_t bytes;
    errno = disk_make_path(folder);
    if (errno) return nrl_fail(NRL_ERR_IO, "cannot create the directory '%s': %s", folder, strerror(errno));
    const char *part = arena_printf(a, "%s/stdin-%ld.part", folder, (long)getpid());
    nrl_status st = copy_input(part, &bytes);
    if (st == NRL_OK && !bytes) st = nrl_fail(NRL_ERR_DATA, "data.train: standard input is empty");
    if (st == NRL_OK) st = hash_file(part, hash);
    if (st == NRL_OK) {
        *path = arena_printf(a, "%s/stdin-%s.jsonl", folder, hash);
        if (rename(part, *path)) st = nrl_fail(NRL_ERR_IO, "cannot write '%s': %s", *path, strerror(errno));
    }
    if (st != NRL_OK)
        unlink(part);
    else
        fprintf(stderr, "data.train: saved %lld bytes of standard input as %s\n", (long long)bytes, *path);
    return st;
}

nrl_status spool_train(arena *a, nrl_config *config, const nrl_environment *env, const char **word)
{
    *word = NULL;
    const nrl_node *root = nrl_config_root(config), *train = nrl_node_find(nrl_node_find(root, "data"), "train");
    const bool is_map = nrl_node_kind(train) == NRL_NODE_MAP;
    const char *given = nrl_node_string(is_map ? nrl_node_find(train, "path") : train, ""), *path;
    if (strcmp(given, "-")) return NRL_OK;
    if (env->ranks && env->ranks->world > 1)
        return nrl_fail(NRL_ERR_CONFIG, "data.train: several ranks cannot share standard input\n"
                                        "hint: COMMAND >rows.jsonl, and data.train: rows.jsonl");
    if (nrl_node_bool(nrl_node_find(nrl_node_find(root, "data"), "streaming"), false)) {
        *word = is_map ? "data.train.path=/dev/stdin" : "data.train=/dev/stdin";
        nrl_config_override(config, *word);
        return NRL_OK;
    }
    if (strcmp(nrl_node_string(nrl_node_find(root, "resume"), "never"), "never"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.train: a resumed run does not read standard input, because it needs its original "
                        "rows\n"
                        "hint: omit data.train: the config of the run contains the file with these rows");
    const char *folder = spool_folder(a, root);
    if (!folder)
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.train: no directory for the rows of standard input; expected data.cache, or HOME or "
                        "XDG_CACHE_HOME in the environment");
    NRL_TRY(spool_input(a, folder, &path));
    *word = arena_printf(a, is_map ? "data.train.path=%s" : "data.train=%s", path);
    nrl_config_override(config, *word);
    return NRL_OK;
}
