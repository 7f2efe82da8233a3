/*
 * later_data.c - nrl_run_set_data: other data instead of data.train, from a step on. The run keeps the first set,
 * because checkpoints are compared with it; the new data is a node of its own in checkpoints. Also moves later
 * checkpoints aside when a run continues from an earlier one.
 */
#include "inference/later_data.h"
#include "inference/measures.h"
#include "inference/stream.h"
#include "base/json.h"
#include "config/rules.h"
#include "run/internal.h"
#include "run/step/ranks.h"
#include <errno.h>
#include <nrl/checkpoint.h>
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static nrl_status set_data(session *se, const nrl_node *train, int64_t begin)
{
    session_data set;
    config_problems problems = {0};
    nrl_node *map = node_new(&se->memory, NRL_NODE_MAP);
    const nrl_node *sources = node_copy(&se->memory, train);
    if (se->reference && se->reference_options.reference == REFERENCE_CACHED)
        return nrl_fail(NRL_ERR_CONFIG, "cannot set the data: algorithm.reference: cached supports only data.train\n"
                                        "hint: algorithm.reference: online supports any file");
    rules_sources(&se->memory, &problems, "data.train", &sources, map);
    NRL_TRY(problems_report(&problems));
    NRL_TRY(open_more_data(se, sources, "train", &set));
    node_append_int(&se->memory, map, "begin", begin);
    node_append_text(&se->memory, map, "hash", dataset_info(set.set)->hash);
    close_data(&se->later);
    se->later = set;
    se->later.begin = begin;
    se->later_node = map;
    return NRL_OK;
}

nrl_status nrl_run_set_data(nrl_run *r, const nrl_node *train)
{
    NRL_TRY(hooks_check_call(&r->hooks, "set the data"));
    run_use(r);
    char *text = json_write(train, 0);
    nrl_status st = ranks_agree(r->session.mesh, &r->session.shards, "set_data", XXH3_64bits(text, strlen(text)));
    free(text);
    if (st == NRL_OK) st = set_data(&r->session, train, r->trainer.progress.step);
    return run_end_call(r, st);
}

/* ---- after a resume ---- */

static nrl_status restore_data(session *se, int64_t step, const nrl_node *map, const char *dir)
{
    const int64_t begin = nrl_node_int(nrl_node_find(map, "begin"), -1);
    if (!map) return NRL_OK;
    if (begin < 0 || begin > step) return nrl_fail(NRL_ERR_CORRUPT, "%s/manifest.json: data.begin is not a step", dir);
    NRL_TRY(set_data(se, nrl_node_find(map, "train"), begin));
    if (!strcmp(nrl_node_string(nrl_node_find(map, "hash"), ""), dataset_info(se->later.set)->hash)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot resume from %s: the data that the run set at step %lld has changed\n"
                    "hint: restore the files, or resume from a checkpoint up to that step",
                    dir, (long long)begin);
}

/* OUT/checkpoints/after-STEP.1, or the next number that is free; NULL: errno. Malloc'd. */
static char *make_aside(const char *out, int64_t step)
{
    for (int k = 1; k < 100000; k++) {
        char *path = mem_printf("%s/checkpoints/after-%08lld.%d", out, (long long)step, k);
        if (!mkdir(path, 0777)) return path;
        free(path);
        if (errno != EEXIST) break;
    }
    return NULL;
}

/* A run that continues from one of its own earlier checkpoints, chosen or because later ones are damaged, must not mix
 * the later ones with those to come: they are moved to where nothing counts or removes them. */
static nrl_status leave_later(run *r)
{
    const char *out = r->session.config.out;
    const int64_t step = r->trainer.progress.step;
    char **dirs, *to = NULL;
    size_t n, n_moved = 0;
    nrl_status st = NRL_OK;
    NRL_TRY(nrl_checkpoint_list(out, &dirs, &n));
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        const char *name = strrchr(dirs[i], '/') + 1;
        if (strtoll(name + strlen("step-"), NULL, 10) <= step) continue;
        if (!to) to = make_aside(out, step);
        char *path = to ? mem_printf("%s/%s", to, name) : NULL;
        if (!path || rename(dirs[i], path))
            st = nrl_fail(NRL_ERR_IO, "cannot move '%s' aside: %s", dirs[i], strerror(errno));
        else
            n_moved++;
        free(path);
    }
    nrl_checkpoint_list_free(dirs, n);
    if (n_moved)
        telemetry_report(&r->telemetry, NRL_EVENT_INFO, NULL, "moved      %zu later checkpoint%s to %s", n_moved,
                         n_moved > 1 ? "s" : "", to);
    free(to);
    return st;
}

nrl_status later_resumed(nrl_run *r, const char *dir)
{
    session *se = &r->session;
    checkpoint *c;
    NRL_TRY(checkpoint_open_signed(dir, se->public_key, &c));
    nrl_status st = stream_resumed(r, checkpoint_node(c, "stream"));
    if (st != NRL_OK) nrl_add_context("cannot resume from %s", dir);
    if (st == NRL_OK) st = restore_data(se, r->trainer.progress.step, checkpoint_node(c, "data"), dir);
    checkpoint_close(c);
    measures_expect(r, r->trainer.progress.step);
    return st == NRL_OK && nrl_mesh_rank(se->mesh) == 0 ? leave_later(r) : st;
}
