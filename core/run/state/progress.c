/*
 * progress.c - the numbers of run_progress, one list for both directions, and the types of a checkpoint's nodes.
 */
#include "base/json.h"
#include "run/state/state.h"
#include <math.h>
#include <string.h>

static const int64_t MAX_TOKENS = (int64_t)1 << 60, MAX_EVALUATIONS = (int64_t)1 << 53;

/* name, the maximum at step `step` */
#define PROGRESS_FIELDS(X)                                                                                             \
    X(step, step)                                                                                                      \
    X(updates, step)                                                                                                   \
    X(tokens, MAX_TOKENS) X(skipped_in_a_row, step) X(evals_without_best, MAX_EVALUATIONS) X(best_step, step)

nrl_node *progress_node(arena *a, const run_progress *p, double lr_override)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
#define PUT(field, most) node_append_int(a, map, #field, p->field);
    PROGRESS_FIELDS(PUT)
#undef PUT
    node_append(a, map, "best", node_f64(a, p->best));
    node_append(a, map, "first_loss", node_f64(a, p->first_loss));
    node_append_int(a, map, "far_steps", p->far_steps);
    node_append(a, map, "lr_override", node_f64(a, lr_override));
    return map;
}

static nrl_status read_count(const nrl_node *map, const char *key, int64_t most, int64_t *out)
{
    const nrl_node *n = nrl_node_find(map, key);
    *out = nrl_node_int(n, -1);
    if (nrl_node_kind(n) == NRL_NODE_INT && *out >= 0 && *out <= most) return NRL_OK;
    if (nrl_node_kind(n) != NRL_NODE_INT) return nrl_fail(NRL_ERR_CORRUPT, "progress.%s is not a whole number", key);
    return nrl_fail(NRL_ERR_CORRUPT, "progress.%s is %lld, expected 0 to %lld", key, (long long)*out, (long long)most);
}

static nrl_status read_fields(const checkpoint *c, run_progress *p, double *lr_override)
{
    const nrl_node *map = checkpoint_node(c, "progress");
    int64_t step = checkpoint_step(c);
    double metric = checkpoint_metric(c);
    if (nrl_node_kind(map) != NRL_NODE_MAP) return nrl_fail(NRL_ERR_CORRUPT, "it has no progress");
#define GET(field, most) NRL_TRY(read_count(map, #field, most, &p->field));
    PROGRESS_FIELDS(GET)
#undef GET
    /* These two are for train.diverge_factor; checkpoints from before it have neither. */
    const nrl_node *first = nrl_node_find(map, "first_loss");
    p->first_loss = NAN;
    p->far_steps = 0;
    if (first && !json_read_f64(first, &p->first_loss))
        return nrl_fail(NRL_ERR_CORRUPT, "progress.first_loss is not a number");
    NRL_TRY(nrl_node_find(map, "far_steps") ? read_count(map, "far_steps", p->step, &p->far_steps) : NRL_OK);
    if (p->step != step)
        return nrl_fail(NRL_ERR_CORRUPT, "progress.step is %lld, the manifest's step %lld", (long long)p->step,
                        (long long)step);
    if (!json_read_f64(nrl_node_find(map, "best"), &p->best))
        return nrl_fail(NRL_ERR_CORRUPT, "progress.best is not a number");
    if (isfinite(metric) && (!p->best_step || (p->best_step == step && fabs(metric) != fabs(p->best))))
        return nrl_fail(NRL_ERR_CORRUPT, "the manifest's metric is %g, progress.best %g at step %lld", metric, p->best,
                        (long long)p->best_step);
    p->judged = isfinite(metric) ? metric : 0;
    p->judged_step = isfinite(metric) ? step : 0;
    if (!json_read_f64(nrl_node_find(map, "lr_override"), lr_override) ||
        !(*lr_override == -1 || (*lr_override >= 0 && isfinite(*lr_override))))
        return nrl_fail(NRL_ERR_CORRUPT, "progress.lr_override is not a learning rate");
    return NRL_OK;
}

nrl_status progress_read(const checkpoint *c, run_progress *p, double *lr_override)
{
    run_progress read = {0};
    double lr = -1;
    nrl_status st = read_fields(c, &read, &lr);
    if (st != NRL_OK) {
        nrl_add_context("%s/manifest.json", checkpoint_dir(c));
        return st;
    }
    *p = read;
    *lr_override = lr;
    return NRL_OK;
}

nrl_status progress_check_nodes(const checkpoint *c)
{
    static const struct {
        const char *key;
        nrl_node_type kind;
    } nodes[] = {{"progress", NRL_NODE_MAP},     {"config", NRL_NODE_MAP},     {"model", NRL_NODE_MAP},
                 {"fingerprints", NRL_NODE_MAP}, {"loss_scale", NRL_NODE_MAP}, {"algorithm", NRL_NODE_MAP},
                 {"adapters", NRL_NODE_MAP},     {"data", NRL_NODE_MAP},       {"base", NRL_NODE_MAP},
                 {"time", NRL_NODE_INT},         {"mesh", NRL_NODE_STRING},    {"tokenizer", NRL_NODE_STRING},
                 {"nrl", NRL_NODE_STRING},       {"script", NRL_NODE_STRING},  {"script_path", NRL_NODE_STRING},
                 {"stream", NRL_NODE_MAP},       {"fp8", NRL_NODE_MAP}};
    run_progress p;
    double lr = -1;
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        const nrl_node *n = checkpoint_node(c, nodes[i].key);
        if (n && nrl_node_kind(n) != nodes[i].kind)
            return nrl_fail(NRL_ERR_CORRUPT, "%s/manifest.json: %s is a %s, expected a %s", checkpoint_dir(c),
                            nodes[i].key, node_kind_name(nrl_node_kind(n)), node_kind_name(nodes[i].kind));
    }
    return checkpoint_node(c, "progress") ? progress_read(c, &p, &lr) : NRL_OK;
}
