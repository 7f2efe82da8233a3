/*
 * parallel_layout.c - the layouts of a strategy: placements are valid, every element is on some
 * rank, and the shards of two ranks are equal or disjoint.
 */
#include "parallel.h"
#include <string.h>

#define RULE_SOUND "placements lie inside what they cut"
#define RULE_COVER "every element lies on a rank"
#define RULE_SHARE "shards of two ranks are the same or disjoint"

static const char *part_name(const nrl_param *p, int i)
{
    return p->parts[i].name;
}

/* Checks range c of a cut of `extent`, which layout.c does not check. */
static bool check_ranges(toy *t, const nrl_param *p, int i, const nrl_placement *cut, int64_t extent)
{
    bool sound = true;
    for (int32_t c = 0; c < cut->n && sound; c++)
        sound = report_check(t->report, cut->begin[c] >= 0 && cut->begin[c] <= cut->end[c] && cut->end[c] <= extent,
                             RULE_SOUND, "'%s': coordinate %d holds [%lld, %lld) of %lld", part_name(p, i), c,
                             (long long)cut->begin[c], (long long)cut->end[c], (long long)extent);
    return sound;
}

static bool check_cuts(toy *t, const nrl_param *p, int i)
{
    const nrl_part *part = &p->parts[i];
    const nrl_layout *l = &part->layout;
    int64_t numel = 1;
    for (int d = 0; d < part->n_dims; d++)
        numel *= part->dims[d];
    if (!report_check(t->report, l->n_placements >= 0 && l->n_placements <= NRL_MAX_PLACEMENTS, RULE_SOUND,
                      "'%s': %d placements", part->name, l->n_placements))
        return false;
    for (int32_t k = 0; k < l->n_placements; k++) {
        const nrl_placement *cut = &l->placements[k];
        bool flat = cut->dim == NRL_SHARD_FLAT;
        if (!report_check(t->report,
                          cut->axis && cut->begin && cut->end && (flat || (cut->dim >= 0 && cut->dim < part->n_dims)),
                          RULE_SOUND, "'%s': cut %d of dimension %d", part->name, k, cut->dim))
            return false;
        int32_t size = nrl_mesh_size(t->mesh, cut->axis);
        if (!report_check(t->report, cut->n == size, RULE_SOUND, "'%s': %d ranges on axis '%s' of %d ranks", part->name,
                          cut->n, cut->axis, size))
            return false;
        if (!check_ranges(t, p, i, cut, flat ? numel : part->dims[cut->dim])) return false;
    }
    return true;
}

/* Marks the elements of the parameter that rank r holds. */
static void mark(const toy *t, int32_t r, const nrl_param *p, bool *held)
{
    int64_t global[TOY_LARGEST], n = toy_local(t, r, p, global);
    memset(held, 0, TOY_LARGEST * sizeof *held);
    for (int64_t i = 0; i < n; i++)
        held[global[i]] = true;
}

static void check_cover(toy *t, const nrl_param *p)
{
    bool held[PARALLEL_RANKS][TOY_LARGEST];
    for (int32_t r = 0; r < t->world; r++)
        mark(t, r, p, held[r]);
    for (int64_t e = 0; e < p->numel; e++) {
        bool any = false;
        for (int32_t r = 0; r < t->world; r++)
            any = any || held[r][e];
        report_check(t->report, any, RULE_COVER, "element %lld of '%s' is on none of %d ranks", (long long)e, p->name,
                     t->world);
    }
    for (int32_t a = 0; a < t->world; a++)
        for (int32_t b = 0; b < a; b++) {
            bool both = false;
            for (int64_t e = 0; e < p->numel; e++)
                both = both || (held[a][e] && held[b][e]);
            report_check(t->report, !both || !memcmp(held[a], held[b], sizeof held[a]), RULE_SHARE,
                         "'%s': ranks %d and %d share some elements, not all", p->name, b, a);
        }
}

void toy_check_layouts(toy *t)
{
    for (int i = 0; i < TOY_PARAMS; i++) {
        const nrl_param *p = &t->params[i];
        bool sound = true;
        for (int k = 0; k < p->n_parts; k++)
            sound = check_cuts(t, p, k) && sound;
        if (sound) check_cover(t, p);
        t->over = t->over || !sound;
    }
}
